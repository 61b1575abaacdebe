#include "client/cli/escape.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace skua::cli {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

unsigned byte_at(std::string_view text, size_t index) { return static_cast<unsigned char>(text[index]); }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Error malformed(size_t offset, std::string_view what) {
  return fail(StatusCode::kInvalidArgument, "at byte " + std::to_string(offset) + ": " + std::string(what));
}

constexpr std::array<int8_t, 256> make_base64_values() {
  std::array<int8_t, 256> values{};
  for (int8_t& value : values) value = -1;
  for (size_t i = 0; i < kBase64Digits.size(); ++i) {
    values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<int8_t>(i);
  }
  return values;
}
constexpr std::array<int8_t, 256> kBase64Values = make_base64_values();

}  // namespace

size_t utf8_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  size_t length = 0;
  uint32_t code = 0;
  uint32_t smallest = 0;
  if ((first & 0xe0) == 0xc0) {
    length = 2, code = first & 0x1f, smallest = 0x80;
  } else if ((first & 0xf0) == 0xe0) {
    length = 3, code = first & 0x0f, smallest = 0x800;
  } else if ((first & 0xf8) == 0xf0) {
    length = 4, code = first & 0x07, smallest = 0x10000;
  }
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    const unsigned next = byte_at(text, i);
    if ((next & 0xc0) != 0x80) return 0;
    code = (code << 6) | (next & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < smallest || code > 0x10ffff || surrogate ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_character_bytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

namespace {

std::string escape_except(std::string_view kept, std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 8);
  size_t plain = 0;  // start of what goes out as it is
  for (size_t at = 0; at < bytes.size();) {
    const unsigned c = byte_at(bytes, at);
    const bool ascii = c >= 0x20 && c < 0x7f && c != '\\';
    const size_t length = ascii || c < 0x80 ? 1 : utf8_character_bytes(bytes.substr(at, 4));
    if (ascii || length > 1 || kept.find(bytes[at]) != std::string_view::npos) {
      at += length;
      continue;
    }
    out.append(bytes, plain, at - plain);
    const char named = c == '\t' ? 't' : c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\\' ? '\\' : 'x';
    const char text[4] = {'\\', named, kHexDigits[c >> 4], kHexDigits[c & 15]};
    out.append(text, named == 'x' ? 4 : 2);
    plain = ++at;
  }
  return out.append(bytes, plain);
}

}  // namespace

std::string escape(std::string_view bytes) { return escape_except("", bytes); }

std::string printable(std::string_view bytes) { return escape_except("\n\\", bytes); }

Result<std::string> unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      const size_t end = std::min(text.find('\\', i), text.size());
      out.append(text, i, end - i);
      i = end - 1;
      continue;
    }
    const char kind = i + 1 < text.size() ? text[i + 1] : '\0';
    if (kind == 't' || kind == 'n' || kind == 'r' || kind == '\\') {
      out += kind == 't' ? '\t' : kind == 'n' ? '\n' : kind == 'r' ? '\r' : '\\';
      i += 1;
      continue;
    }
    const int high = kind == 'x' && i + 3 < text.size() ? hex_value(text[i + 2]) : -1;
    const int low = high >= 0 ? hex_value(text[i + 3]) : -1;
    if (low < 0) return malformed(i, "an escape is one of \\t \\n \\r \\\\ \\xHH");
    out += static_cast<char>(high * 16 + low);
    i += 3;
  }
  return out;
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    const unsigned group = (byte_at(bytes, i) << 16) | (left > 1 ? byte_at(bytes, i + 1) << 8 : 0) |
                           (left > 2 ? byte_at(bytes, i + 2) : 0);
    out += kBase64Digits[(group >> 18) & 63];
    out += kBase64Digits[(group >> 12) & 63];
    out += left > 1 ? kBase64Digits[(group >> 6) & 63] : '=';
    out += left > 2 ? kBase64Digits[group & 63] : '=';
  }
  return out;
}

Result<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return malformed(text.size(), "base64 comes in groups of four characters");
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    size_t padding = 0;
    if (i + 4 == text.size()) padding = text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    unsigned group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int value = k < 4 - padding ? kBase64Values[static_cast<unsigned char>(text[i + k])] : 0;
      if (value < 0) return malformed(i + k, "not a base64 character");
      group = (group << 6) | static_cast<unsigned>(value);
    }
    const unsigned unused = padding == 0 ? 0 : padding == 1 ? group & 0xff : group & 0xffff;
    if (unused != 0) return malformed(i, "base64 with bits behind its end");
    out += static_cast<char>(group >> 16);
    if (padding < 2) out += static_cast<char>((group >> 8) & 0xff);
    if (padding < 1) out += static_cast<char>(group & 0xff);
  }
  return out;
}

Result<std::string> hex_decode(std::string_view text) {
  if (text.size() % 2 != 0) return malformed(text.size(), "hexadecimal comes in pairs of digits");
  std::string out;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0) return malformed(i, "not a hexadecimal digit");
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const unsigned byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace skua::cli
