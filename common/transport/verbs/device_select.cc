#include "common/transport/verbs/device_select.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace skua {
namespace {

constexpr size_t kShownGids = 8;  // of a port, in a message

bool is_mapped_v4(const Gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.data(), kPrefix, sizeof(kPrefix)) == 0;
}

std::optional<Gid> gid_of(const std::string& address) {
  Gid gid{};
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + 12, &v4, 4);
    return gid;
  }
  const std::string plain = address.substr(0, address.find('%'));
  if (::inet_pton(AF_INET6, plain.c_str(), gid.data()) == 1) return gid;
  return std::nullopt;
}

// Lower is better.
std::tuple<int, int, int> rank(const GidEntry& entry) {
  return {gid_is_link_local(entry.gid) ? 1 : 0, entry.kind == GidKind::kRoceV1 ? 1 : 0,
          is_mapped_v4(entry.gid) ? 0 : 1};
}

struct Candidate {
  const DeviceFacts* device;
  const PortFacts* port;
  const GidEntry* gid;
};

DeviceChoice make_choice(const Candidate& taken, const std::string& why) {
  DeviceChoice choice;
  choice.device = taken.device->name;
  choice.port = taken.port->number;
  choice.link = taken.port->link;
  choice.gid_index = taken.gid->index;
  choice.gid = taken.gid->gid;
  choice.kind = taken.gid->kind;
  if (taken.port->link != VerbsLink::kInfiniBand) {
    choice.address = address_of(taken.gid->gid);
    if (gid_is_link_local(taken.gid->gid)) choice.address += "%" + taken.gid->network_device;
  }
  choice.mtu = taken.port->mtu;
  choice.remote_atomics = taken.device->remote_atomics;
  choice.reason = choice.device + " port " + std::to_string(choice.port) + ", GID " +
                  std::to_string(choice.gid_index) + " " + address_of(choice.gid) + " (" +
                  std::string(to_string(choice.kind)) + "): " + why;
  return choice;
}

Error refuse(std::string why, const std::vector<DeviceFacts>& devices) {
  return fail(StatusCode::kConfiguration, std::move(why) + "; there is: " + describe(devices));
}

// The ports that the wish allows. Error: there is none, and why.
Result<std::vector<Candidate>> find_ports(const std::vector<DeviceFacts>& devices, const DeviceWish& wish) {
  std::vector<Candidate> ports;
  std::vector<Candidate> down;
  bool device_seen = false;
  for (const DeviceFacts& device : devices) {
    if (!wish.device.empty() && device.name != wish.device) continue;
    device_seen = true;
    for (const PortFacts& port : device.ports) {
      if (wish.port != 0 && port.number != wish.port) continue;
      (port.active ? ports : down).push_back({&device, &port, nullptr});
    }
  }
  if (!ports.empty()) return ports;
  if (!device_seen) return refuse("--rdma-device " + wish.device + ": no such RDMA device", devices);
  if (!down.empty()) {
    const Candidate& one = down.front();
    return refuse("port " + std::to_string(one.port->number) + " of " + one.device->name + " is " + one.port->state +
                      ", not ACTIVE: check cable, switch and `ip link`, or choose another with --rdma-device and "
                      "--rdma-port",
                  devices);
  }
  return refuse("--rdma-port " + std::to_string(wish.port) + ": no such port" +
                    (wish.device.empty() ? std::string() : " on " + wish.device),
                devices);
}

Result<DeviceChoice> choose_index(const std::vector<DeviceFacts>& devices, const std::vector<Candidate>& ports,
                                  const DeviceWish& wish) {
  const uint32_t index = *wish.gid_index;
  const std::string flag = "--rdma-gid-index " + std::to_string(index);
  for (const Candidate& at : ports) {
    for (const GidEntry& entry : at.port->gids) {
      if (entry.index != index || gid_is_zero(entry.gid)) continue;
      if (!wish.address.empty() && at.port->link != VerbsLink::kInfiniBand && gid_of(wish.address) != entry.gid) {
        return refuse(flag + " is " + address_of(entry.gid) + ", but " + wish.address + " is to be bound: leave one of "
                             "the two out",
                      devices);
      }
      return make_choice({at.device, at.port, &entry}, "as asked for");
    }
  }
  const Candidate& first = ports.front();
  const std::string where = first.device->name + " port " + std::to_string(first.port->number);
  if (index >= first.port->gid_count) {
    return refuse(flag + ": the table of " + where + " has " + std::to_string(first.port->gid_count) + " entries",
                  devices);
  }
  return refuse(flag + ": that entry of " + where + " is empty", devices);
}

}  // namespace

Result<DeviceChoice> choose_device(DeviceQueries& queries, const DeviceWish& wish) {
  const auto devices = queries.devices();
  if (!devices) return Error(devices.error());
  const auto ports = find_ports(*devices, wish);
  if (!ports) return Error(ports.error());
  if (wish.gid_index) return choose_index(*devices, *ports, wish);

  const std::optional<Gid> bound = gid_of(wish.address);
  std::optional<Candidate> best;
  for (const Candidate& at : *ports) {
    for (const GidEntry& entry : at.port->gids) {
      if (gid_is_zero(entry.gid)) continue;
      const bool by_address = bound && at.port->link != VerbsLink::kInfiniBand;
      if (by_address && entry.gid != *bound) continue;
      if (!best || rank(entry) < rank(*best->gid)) best = Candidate{at.device, at.port, &entry};
    }
  }
  if (best) {
    return make_choice(*best, bound ? "has the bound address " + wish.address
                                    : std::string(gid_is_link_local(best->gid->gid) ? "link-local, none is routable"
                                                                                    : "the first that is routable"));
  }
  if (bound) {
    return refuse("no GID of an active port is " + wish.address +
                      ": bind an address of the RDMA device's network interface (`rdma link` names it)",
                  *devices);
  }
  return refuse("no active port has a GID: give the RDMA device's network interface an IP address", *devices);
}

bool gid_is_zero(const Gid& gid) {
  return std::all_of(gid.begin(), gid.end(), [](uint8_t byte) { return byte == 0; });
}

bool gid_is_link_local(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

std::string address_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_mapped_v4(gid)) {
    ::inet_ntop(AF_INET, gid.data() + 12, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  }
  return text;
}

std::string_view to_string(VerbsLink link) {
  switch (link) {
    case VerbsLink::kInfiniBand: return "InfiniBand";
    case VerbsLink::kRoce: return "RoCE";
    case VerbsLink::kIwarp: return "iWARP";
  }
  return "unknown link";
}

std::string_view to_string(GidKind kind) {
  switch (kind) {
    case GidKind::kInfiniBand: return "InfiniBand";
    case GidKind::kRoceV1: return "RoCE v1";
    case GidKind::kRoceV2: return "RoCE v2";
    case GidKind::kIwarp: return "iWARP";
  }
  return "unknown kind";
}

std::string describe(const std::vector<DeviceFacts>& devices) {
  std::string text;
  for (const DeviceFacts& device : devices) {
    for (const PortFacts& port : device.ports) {
      if (!text.empty()) text += "; ";
      text += device.name + " port " + std::to_string(port.number) + " " + port.state;
      const size_t shown = std::min(port.gids.size(), kShownGids);
      if (shown != 0) text += " (GIDs ";
      for (size_t i = 0; i < shown; ++i) {
        const GidEntry& entry = port.gids[i];
        text += (i == 0 ? "" : ", ") + std::to_string(entry.index) + " " + address_of(entry.gid) + " " +
                std::string(to_string(entry.kind));
      }
      if (shown < port.gids.size()) text += ", and " + std::to_string(port.gids.size() - shown) + " more";
      if (shown != 0) text += ")";
    }
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace skua
