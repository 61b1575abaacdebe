#include "common/base/net_address.h"

#include <charconv>

namespace skua {
namespace {

Error refuse(std::string_view text, std::string_view why) {
  return fail(StatusCode::kConfiguration, "address '" + std::string(text) + "': " + std::string(why));
}

}  // namespace

std::string NetAddress::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool NetAddress::is_wildcard() const { return host == "0.0.0.0" || host == "::"; }

bool NetAddress::is_loopback() const {
  return host.rfind("127.", 0) == 0 || host == "::1" || host == "localhost";
}

Result<NetAddress> parse_net_address(std::string_view text) {
  std::string_view host;
  std::string_view port;
  if (text.find("://") != std::string_view::npos) {
    return refuse(text, "write host:port, without a scheme, as in 127.0.0.1:7400");
  }
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return refuse(text, "'[' without ']'; write [::1]:7400");
    host = text.substr(1, close - 1);
    if (close + 1 >= text.size() || text[close + 1] != ':') return refuse(text, "no port; write [::1]:7400");
    port = text.substr(close + 2);
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return refuse(text, "no port; write host:7400");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    const size_t first = host.find(':');
    const bool dotted = first != std::string_view::npos && host.substr(0, first).find('.') != std::string_view::npos;
    if (dotted && host.find(':', first + 1) == std::string_view::npos) {
      return refuse(text, "more than one port; write host:port, as in 127.0.0.1:7400");
    }
    if (first != std::string_view::npos) {
      return refuse(text, "an IPv6 address needs brackets; write [::1]:7400");
    }
  }
  if (host.find_first_of("[]") != std::string_view::npos) {
    return refuse(text, "a bracket within the host; write [::1]:7400");
  }
  if (host.empty()) return refuse(text, "no host; write 127.0.0.1:7400, or 0.0.0.0:7400 to listen everywhere");
  unsigned value = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (port.empty() || error != std::errc() || end != port.data() + port.size() || value > 65535) {
    return refuse(text, "port '" + std::string(port) + "' is not a number from 0 to 65535");
  }
  return NetAddress{std::string(host), static_cast<uint16_t>(value)};
}

}  // namespace skua
