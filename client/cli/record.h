#pragma once
// One key with its value as a line of a dump: TSV or JSON lines. What format writes, parse reads back unchanged.
//
//   TSV        key TAB value [TAB ttl_ms], escaped as in escape.h
//   JSON lines {"key":"...","value":"...","ttl_ms":5000}; bytes that are not UTF-8 come as "key_base64", "value_base64"
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace skua::cli {

enum class RecordFormat : uint8_t { kTsv, kJsonLines };

std::optional<RecordFormat> parse_record_format(std::string_view name);  // "tsv", "jsonl"

struct Record {
  std::string key;
  std::string value;
  uint64_t ttl_ms = 0;  // 0: does not expire
  friend bool operator==(const Record&, const Record&) = default;
};

// No line is longer: the largest value with its longest key, at six characters a byte.
inline constexpr size_t kMaxLineBytes = size_t{6} * ((size_t{64} << 20) + 4096) + 256;

// Appends the line, newline included.
void append_record(std::string& out, RecordFormat format, std::string_view key, std::string_view value,
                   uint64_t ttl_ms);
// `line` without its newline. Error: kInvalidArgument, with the reason.
Result<Record> parse_record(RecordFormat format, std::string_view line);

// Appends `"name":"text"`, or `"name_base64":"..."` when the bytes are not UTF-8.
void append_json_member(std::string& out, std::string_view name, std::string_view bytes);

}  // namespace skua::cli
