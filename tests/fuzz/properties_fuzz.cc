// Promises of workload files (bench/ycsb/properties.h), for any text:
//   a refusal is one of the configuration, names the source, and leaves what was there before;
//   what was read comes back when it is written escaped and read again;
//   every value is either taken as a number, a truth value or a workload's setting within its range, or refused.
#include <string>

#include "bench/ycsb/properties.h"
#include "bench/ycsb/workload.h"
#include "common/base/check.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

using ycsb::Properties;

std::string escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == ' ' || c == '=' || c == ':' || c == '#' || c == '!' || c == '\\') {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

void check_written_again(const Properties& properties) {
  std::string text;
  for (const auto& [name, entry] : properties.entries()) text += escaped(name) + "=" + escaped(entry.value) + "\n";
  Properties again;
  SKUA_CHECK(again.load_text(text, "again").has_value(), "what was written is read");
  SKUA_CHECK(again.entries().size() == properties.entries().size(), "all of it");
  for (const auto& [name, entry] : properties.entries()) {
    SKUA_CHECK(again.has(name) && again.entries().at(name).value == entry.value, "unchanged");
    SKUA_CHECK(entry.source.starts_with("fuzz:"), "source");
  }
}

void check_values(const Properties& properties) {
  for (const auto& [name, entry] : properties.entries()) {
    const auto whole = properties.integer(name, 1, 5);
    SKUA_CHECK(!whole || (*whole >= 5 && *whole <= uint64_t{INT64_MAX}), "a whole number in its range");
    const auto real = properties.real(name, 0.5, {0, 1});
    SKUA_CHECK(!real || (*real >= 0 && *real <= 1), "a number in its range");
    const auto truth = properties.boolean(name, false);
    SKUA_CHECK(!truth || !real, "no number is a truth value");
    SKUA_CHECK(whole || whole.error().message().find("(fuzz:") != std::string::npos, "a refusal names the place");
  }
  const auto config = ycsb::WorkloadConfig::parse(properties, {true, true});
  SKUA_CHECK(config || config.error().code() == StatusCode::kConfiguration, "kind of refusal");
  SKUA_CHECK(!config || config->field_count >= 1, "settings");
}

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ycsb::Properties properties;
  if (const auto loaded = properties.load_text(text, "fuzz"); loaded) {
    fuzz::check_written_again(properties);
    fuzz::check_values(properties);
  } else {
    SKUA_CHECK(loaded.error().code() == StatusCode::kConfiguration, "kind of refusal");
    SKUA_CHECK(loaded.error().message().starts_with("fuzz:"), "a refusal names the source");
    SKUA_CHECK(properties.entries().empty(), "unchanged on failure");
  }
  return 0;
}
