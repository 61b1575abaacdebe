#include "common/transport/verbs/path_mtu.h"

#include <algorithm>
#include <bit>

#include "common/transport/verbs/verbs.h"
#include "common/transport/verbs/verbs_wire.h"

namespace skua {

bool is_path_mtu(uint32_t bytes) { return std::has_single_bit(bytes) && bytes >= 256 && bytes <= 4096; }

Result<uint32_t> offered_mtu(const PortMtu& port, uint32_t wanted) {
  if (wanted == 0) return port.active;
  if (wanted <= port.active) return wanted;
  const std::string flag = "--rdma-mtu " + std::to_string(wanted);
  const std::string where = port.device + " port " + std::to_string(port.port);
  if (wanted > port.largest) {
    return fail(StatusCode::kConfiguration, flag + ": the largest MTU of " + where + " is " +
                                                std::to_string(port.largest) + "; use that or less, or `auto`");
  }
  return fail(StatusCode::kConfiguration,
              flag + ": the active MTU of " + where + " is " + std::to_string(port.active) +
                  "; raise the MTU of its network interface (4200 bytes carry 4096) or of its InfiniBand partition, "
                  "or use --rdma-mtu auto");
}

Result<uint32_t> agreed_mtu(const MtuOffers& offers) {
  if (offers.peer == 0) {
    if (offers.path <= offers.own) return offers.path;
    return fail(StatusCode::kIncompatible, "path MTU: client " + std::to_string(offers.path) + ", server " +
                                               std::to_string(offers.own) +
                                               ", and this old client takes no other: give both the same MTU");
  }
  if (!is_path_mtu(offers.peer)) {
    return fail(StatusCode::kIncompatible, "path MTU: " + std::to_string(offers.peer) +
                                               " is none of 256, 512, 1024, 2048 and 4096");
  }
  return std::min(offers.own, offers.peer);
}

Result<void> check_verbs_settings(const VerbsSettings& settings) {
  if (settings.path_mtu != 0 && !is_path_mtu(settings.path_mtu)) {
    return fail(StatusCode::kConfiguration, "RDMA path MTU " + std::to_string(settings.path_mtu) +
                                                ": must be 256, 512, 1024, 2048 or 4096, or 0 for what both can");
  }
  if (settings.ack_timeout < 1 || settings.ack_timeout > 31) {
    return fail(StatusCode::kConfiguration, "RDMA ACK time-out " + std::to_string(settings.ack_timeout) +
                                                ": must be from 1 to 31 (4.096 us * 2^N); 0 would be for ever");
  }
  if (settings.retry_count > 6) {
    return fail(StatusCode::kConfiguration, "RDMA retry count " + std::to_string(settings.retry_count) +
                                                ": must be from 0 to 6; some devices take 7 as for ever");
  }
  if (settings.message_window < 1 || settings.message_window > kCallWindow) {
    return fail(StatusCode::kConfiguration, "RDMA message window " + std::to_string(settings.message_window) +
                                                ": must be from 1 to " + std::to_string(kCallWindow));
  }
  if (settings.traffic_class && *settings.traffic_class > 255) {
    return fail(StatusCode::kConfiguration, "RDMA traffic class " + std::to_string(*settings.traffic_class) +
                                                ": must be from 0 to 255");
  }
  return {};
}

}  // namespace skua
