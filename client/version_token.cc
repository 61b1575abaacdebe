#include <charconv>

#include "client/client.h"

namespace skua {

std::string VersionToken::to_string() const {
  char text[40];
  char* end = std::to_chars(text, text + 20, block_units, 16).ptr;
  *end++ = '.';
  end = std::to_chars(end, text + sizeof text, generation, 16).ptr;
  return {text, end};
}

std::optional<VersionToken> VersionToken::parse(std::string_view text) {
  VersionToken token;
  const char* const end = text.data() + text.size();
  const auto block = std::from_chars(text.data(), end, token.block_units, 16);
  if (block.ec != std::errc() || block.ptr == end || *block.ptr != '.') return std::nullopt;
  const auto generation = std::from_chars(block.ptr + 1, end, token.generation, 16);
  if (generation.ec != std::errc() || generation.ptr != end) return std::nullopt;
  return token;
}

}  // namespace skua
