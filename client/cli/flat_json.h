#pragma once
// Reads one JSON object whose members are strings and whole numbers: a line of a dump.
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace skua::cli {

struct JsonMember {
  std::string name;
  std::string text;        // the string's bytes, or the number's digits
  bool is_number = false;
};

// Error: kInvalidArgument, with the byte where reading stopped.
Result<std::vector<JsonMember>> parse_flat_json(std::string_view line);

}  // namespace skua::cli
