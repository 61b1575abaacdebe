#include "common/transport/verbs/iwarp_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstring>
#include <memory>

#include "common/transport/verbs/verbs_handles.h"

namespace skua {
namespace {

struct AddressesDeleter {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

// Only the connection manager knows which interface a device belongs to: it is asked to bind the address.
bool leads_to(const std::string& device, sockaddr* address, rdma_event_channel* channel) {
  rdma_cm_id* raw = nullptr;
  if (::rdma_create_id(channel, &raw, nullptr, RDMA_PS_TCP) != 0) return false;
  const VerbsHandle<rdma_cm_id> id(raw);
  if (::rdma_bind_addr(raw, address) != 0 || raw->verbs == nullptr) return false;
  return device == ::ibv_get_device_name(raw->verbs->device);
}

Gid gid_of(const sockaddr& address) {
  Gid gid{};
  if (address.sa_family == AF_INET) {
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  } else {
    std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, gid.size());
  }
  return gid;
}

void set_port_0(sockaddr& address) {
  if (address.sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
  }
}

}  // namespace

std::vector<GidEntry> iwarp_addresses(const std::string& device) {
  std::vector<GidEntry> found;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return found;
  const std::unique_ptr<ifaddrs, AddressesDeleter> list(raw);
  const auto channel = make_event_channel();
  if (!channel) return found;
  for (const ifaddrs* at = raw; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_LOOPBACK) != 0 || (at->ifa_flags & IFF_UP) == 0) continue;
    if (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6) continue;
    set_port_0(*at->ifa_addr);
    if (!leads_to(device, at->ifa_addr, channel->get())) continue;
    found.push_back({static_cast<uint32_t>(found.size()), gid_of(*at->ifa_addr), GidKind::kIwarp, at->ifa_name});
  }
  return found;
}

}  // namespace skua
