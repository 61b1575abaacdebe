#pragma once
// Chooses device, port and GID. The queries are an interface, so that tables no test machine has can be tested.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace skua {

using Gid = std::array<uint8_t, 16>;

enum class VerbsLink : uint8_t { kInfiniBand, kRoce, kIwarp };
enum class GidKind : uint8_t { kInfiniBand, kRoceV1, kRoceV2, kIwarp };

struct GidEntry {
  uint32_t index = 0;
  Gid gid{};
  GidKind kind = GidKind::kRoceV2;
  std::string network_device;  // "eth0"; empty where there is none
};
struct PortFacts {
  uint32_t number = 1;
  VerbsLink link = VerbsLink::kRoce;
  std::string state;          // "ACTIVE", "DOWN", ...
  bool active = false;
  uint32_t mtu = 0;           // active, bytes
  uint32_t max_mtu = 0;
  uint32_t gid_count = 0;     // length of the table
  std::vector<GidEntry> gids;  // entries that are set; of iWARP the IP addresses of its network interface
};
struct DeviceFacts {
  std::string name;
  bool remote_atomics = false;
  uint32_t max_inline = 0;    // 0: not known before a queue pair is made
  uint32_t max_send_requests = 0;
  uint32_t max_segments = 0;
  uint32_t max_read_segments = 0;
  uint32_t max_read_depth = 0;
  uint64_t max_region_bytes = 0;
  uint64_t max_regions = 0;
  bool memory_windows_2b = false;
  bool on_demand_paging = false;
  std::vector<PortFacts> ports;
};

// What the system says of its RDMA devices. Error: kConfiguration (no devices, with why), kPermissionDenied.
class DeviceQueries {
 public:
  virtual ~DeviceQueries() = default;
  virtual Result<std::vector<DeviceFacts>> devices() = 0;
};

struct DeviceWish {
  std::string device;                  // empty: any
  uint32_t port = 0;                   // 0: any
  std::optional<uint32_t> gid_index;
  std::string address;                 // IP address that is bound; empty: any
};
struct DeviceChoice {
  std::string device;
  uint32_t port = 1;
  VerbsLink link = VerbsLink::kRoce;
  uint32_t gid_index = 0;
  Gid gid{};
  GidKind kind = GidKind::kRoceV2;
  std::string address;                 // IP address of the GID; empty on InfiniBand, where it is the bound one
  uint32_t mtu = 0;
  bool remote_atomics = false;
  std::string reason;                  // why this one, for one log line
};

// Best first: a GID of the bound address, routable before link-local, RoCE v2 before v1, IPv4 before IPv6, then the
// order of the tables. Error: kConfiguration, naming what was asked for, what there is, and what to change.
Result<DeviceChoice> choose_device(DeviceQueries& queries, const DeviceWish& wish);

bool gid_is_zero(const Gid& gid);
bool gid_is_link_local(const Gid& gid);
// "10.0.0.1", "fd00::1".
std::string address_of(const Gid& gid);
std::string_view to_string(VerbsLink link);
std::string_view to_string(GidKind kind);
// One line a device, for messages: "rxe0 port 1 ACTIVE (GIDs 0 fe80::1 RoCE v2, 1 10.0.0.1 RoCE v2)".
std::string describe(const std::vector<DeviceFacts>& devices);

}  // namespace skua
