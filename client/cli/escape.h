#pragma once
// Text forms of arbitrary bytes: escapes for TSV and arguments, base64 and string literals for JSON, hexadecimal.
// Each decoder accepts exactly what its encoder writes, and says at which byte it stopped otherwise.
#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace skua::cli {

// Bytes of the well-formed UTF-8 character that `text` starts with; 0 when it starts with none.
size_t utf8_character_bytes(std::string_view text);
bool is_utf8(std::string_view text);

// Tab, newline, carriage return and backslash become \t \n \r \\; other control characters and bytes that are not
// UTF-8 become \xHH. Everything else stays readable.
std::string escape(std::string_view bytes);
// For messages: newlines and backslashes stay as well.
std::string printable(std::string_view bytes);
Result<std::string> unescape(std::string_view text);

std::string base64_encode(std::string_view bytes);
Result<std::string> base64_decode(std::string_view text);

Result<std::string> hex_decode(std::string_view text);  // "00ff", either case

// Appends `text` as a JSON string. Requires: is_utf8(text).
void append_json_string(std::string& out, std::string_view text);

}  // namespace skua::cli
