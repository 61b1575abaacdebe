#pragma once
// NetAddress is a host and a port; the one parser of addresses in flags, files and messages.
//
// Accepted: "host:port", "1.2.3.4:port", "[::1]:port", "[fe80::1%eth0]:port". Refused with a message that names the
// text and the remedy: no port, IPv6 without brackets, a port outside 0-65535, an empty host.
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace skua {

struct NetAddress {
  std::string host;  // without brackets
  uint16_t port = 0;

  std::string to_string() const;  // brackets where needed
  bool is_wildcard() const;       // 0.0.0.0 or ::
  bool is_loopback() const;       // 127.0.0.0/8, ::1, localhost
  friend bool operator==(const NetAddress&, const NetAddress&) = default;
};

// Error: kConfiguration.
Result<NetAddress> parse_net_address(std::string_view text);

}  // namespace skua
