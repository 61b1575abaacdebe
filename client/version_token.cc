#include <charconv>

#include "client/client.h"

namespace skua {

std::string VersionToken::to_string() const {
  char text[20];
  return {text, std::to_chars(text, text + sizeof text, write_id, 16).ptr};
}

std::optional<VersionToken> VersionToken::parse(std::string_view text) {
  VersionToken token;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, token.write_id, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return token;
}

}  // namespace skua
