#pragma once
// Private to transport/verbs: which path MTU two ends use. Each says what its port can, and the smaller one is taken.
//
// The connection manager alone would take the connecting side's, whatever the other side's port can carry.
#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace skua {

// 256, 512, 1024, 2048 or 4096.
bool is_path_mtu(uint32_t bytes);

struct PortMtu {
  std::string device;
  uint32_t port = 1;
  uint32_t active = 0;   // bytes
  uint32_t largest = 0;  // that the port could do
};
// What a side says. `wanted`: --rdma-mtu, 0 for auto. Error: kConfiguration, the port does not carry that much now.
Result<uint32_t> offered_mtu(const PortMtu& port, uint32_t wanted);

struct MtuOffers {
  uint32_t own = 0;
  uint32_t peer = 0;  // 0: an older release, which says nothing and takes `path`
  uint32_t path = 0;  // of the connection request
};
// At the server. Error: kIncompatible, no MTU works for both.
Result<uint32_t> agreed_mtu(const MtuOffers& offers);

}  // namespace skua
