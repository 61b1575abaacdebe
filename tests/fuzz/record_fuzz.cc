// Promises of dump lines and text forms of bytes (client/cli/record.h, escape.h), for any bytes:
//   a line that is read has a legal key, and printed in either format it is one line that reads back equal;
//   any key and value print to a line that reads back equal;
//   base64 and escapes read back what they wrote, and base64 reads nothing that it would not write.
#include <string>

#include "client/cli/escape.h"
#include "client/cli/record.h"
#include "common/base/check.h"
#include "proto/limits.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

using cli::Record;
using cli::RecordFormat;

constexpr RecordFormat kFormats[] = {RecordFormat::kTsv, RecordFormat::kJsonLines};

void check_printed(const Record& record) {
  for (const RecordFormat format : kFormats) {
    std::string line;
    cli::append_record(line, format, record.key, record.value, record.ttl_ms);
    SKUA_CHECK(line.find('\n') == line.size() - 1 && cli::is_utf8(line), "one line of text");
    line.pop_back();
    const auto again = cli::parse_record(format, line);
    SKUA_CHECK(again && *again == record, "reads back equal");
  }
}

void check_text_forms(std::string_view bytes) {
  const std::string escaped = cli::escape(bytes);
  SKUA_CHECK(cli::is_utf8(escaped) && cli::unescape(escaped).value() == bytes, "escapes");
  SKUA_CHECK(cli::base64_decode(cli::base64_encode(bytes)).value() == bytes, "base64");
  if (const auto decoded = cli::base64_decode(bytes)) {
    SKUA_CHECK(cli::base64_encode(*decoded) == bytes, "base64 is read as it would be written");
  }
  if (const auto plain = cli::unescape(bytes)) {
    SKUA_CHECK(plain->size() <= bytes.size() && cli::unescape(cli::escape(*plain)).value() == *plain, "unescaped");
  }
  if (const auto hex = cli::hex_decode(bytes)) SKUA_CHECK(hex->size() * 2 == bytes.size(), "hexadecimal");
  SKUA_CHECK(cli::utf8_character_bytes(bytes) <= std::min<size_t>(bytes.size(), 4), "one character");
}

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  fuzz::Input input(data, size);
  const uint8_t mode = input.byte();
  if (mode % 4 < 2) {
    const auto record = cli::parse_record(fuzz::kFormats[mode % 4], input.rest());
    if (!record) {
      SKUA_CHECK(record.error().code() == StatusCode::kInvalidArgument, "kind of refusal");
      return 0;
    }
    SKUA_CHECK(!record->key.empty() && record->key.size() <= proto::kMaxKeyBytes, "key");
    fuzz::check_printed(*record);
  } else {
    cli::Record record;
    record.ttl_ms = mode % 4 == 2 ? 0 : input.number();
    record.key = input.bytes(size_t{1} + input.byte());
    record.value = input.rest();
    fuzz::check_text_forms(record.value);
    if (!record.key.empty()) fuzz::check_printed(record);
  }
  return 0;
}
