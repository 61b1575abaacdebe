#include "common/transport/verbs/ibv_queries.h"

#include <infiniband/verbs.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>

#include "common/transport/verbs/explain.h"
#include "common/transport/verbs/iwarp_addresses.h"
#include "common/transport/verbs/verbs_handles.h"

namespace skua {
namespace {

constexpr size_t kMaxGids = 1024;  // of a device; beyond it nothing is looked at

struct ListDeleter {
  void operator()(ibv_device** list) const { ::ibv_free_device_list(list); }
};
struct ContextDeleter {
  void operator()(ibv_context* context) const { ::ibv_close_device(context); }
};

GidKind kind_of(uint32_t type) {
  if (type == IBV_GID_TYPE_ROCE_V1) return GidKind::kRoceV1;
  if (type == IBV_GID_TYPE_ROCE_V2) return GidKind::kRoceV2;
  return GidKind::kInfiniBand;
}

void add_gids(ibv_context* context, DeviceFacts& device) {
  std::vector<ibv_gid_entry> entries(kMaxGids);
  const ssize_t count = ::ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    GidEntry gid;
    gid.index = entry.gid_index;
    std::memcpy(gid.gid.data(), entry.gid.raw, gid.gid.size());
    gid.kind = kind_of(entry.gid_type);
    char name[IF_NAMESIZE] = {};
    if (entry.ndev_ifindex != 0 && ::if_indextoname(entry.ndev_ifindex, name) != nullptr) gid.network_device = name;
    for (PortFacts& port : device.ports) {
      if (port.number == entry.port_num) port.gids.push_back(gid);
    }
  }
}

PortFacts port_facts(const ibv_context* context, const ibv_port_attr& attributes, uint32_t number) {
  PortFacts port;
  port.number = number;
  port.link = VerbsLink::kInfiniBand;
  if (context->device->transport_type == IBV_TRANSPORT_IWARP) {
    port.link = VerbsLink::kIwarp;
  } else if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET) {
    port.link = VerbsLink::kRoce;
  }
  port.active = attributes.state == IBV_PORT_ACTIVE;
  port.state = ::ibv_port_state_str(attributes.state);
  if (port.state.rfind("PORT_", 0) == 0) port.state.erase(0, 5);
  port.mtu = mtu_bytes(attributes.active_mtu);
  port.max_mtu = mtu_bytes(attributes.max_mtu);
  port.gid_count = static_cast<uint32_t>(attributes.gid_tbl_len);
  return port;
}

DeviceFacts device_facts(ibv_context* context) {
  DeviceFacts facts;
  facts.name = ::ibv_get_device_name(context->device);
  ibv_device_attr_ex extended{};
  if (::ibv_query_device_ex(context, nullptr, &extended) != 0) return facts;
  const ibv_device_attr& attributes = extended.orig_attr;
  facts.remote_atomics = attributes.atomic_cap != IBV_ATOMIC_NONE;
  facts.max_send_requests = static_cast<uint32_t>(attributes.max_qp_wr);
  facts.max_segments = static_cast<uint32_t>(attributes.max_sge);
  facts.max_read_segments = static_cast<uint32_t>(attributes.max_sge_rd);
  facts.max_read_depth = static_cast<uint32_t>(attributes.max_qp_rd_atom);
  facts.max_region_bytes = attributes.max_mr_size;
  facts.max_regions = static_cast<uint64_t>(attributes.max_mr);
  facts.memory_windows_2b = (attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  facts.on_demand_paging = (extended.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  for (uint32_t number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    if (ibv_query_port(context, static_cast<uint8_t>(number), &port) != 0) continue;
    facts.ports.push_back(port_facts(context, port, number));
  }
  add_gids(context, facts);
  for (PortFacts& port : facts.ports) {
    if (port.link != VerbsLink::kIwarp) continue;
    port.gids = iwarp_addresses(facts.name);
    port.gid_count = static_cast<uint32_t>(port.gids.size());
  }
  return facts;
}

class IbvQueries final : public DeviceQueries {
 public:
  Result<std::vector<DeviceFacts>> devices() override {
    int count = 0;
    errno = 0;
    const std::unique_ptr<ibv_device*[], ListDeleter> list(::ibv_get_device_list(&count));
    if (list == nullptr || count == 0) return Error(explain_no_device(list == nullptr ? errno : 0));
    std::vector<DeviceFacts> all;
    Status last(StatusCode::kConfiguration, "");
    for (int i = 0; i < count; ++i) {
      errno = 0;
      const std::unique_ptr<ibv_context, ContextDeleter> context(::ibv_open_device(list[static_cast<size_t>(i)]));
      if (context == nullptr) {
        last = explain_open(::ibv_get_device_name(list[static_cast<size_t>(i)]), errno);
        continue;
      }
      all.push_back(device_facts(context.get()));
    }
    if (all.empty()) return Error(last);
    return all;
  }
};

}  // namespace

std::unique_ptr<DeviceQueries> make_ibv_queries() { return std::make_unique<IbvQueries>(); }

}  // namespace skua
