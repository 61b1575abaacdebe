// Promises of addresses, sizes and durations (common/base/net_address.h, units.h), for any text:
//   an address that is taken has a host, and its printed form is taken as the same address;
//   a size or a duration that is taken is below 2^63, and in digits alone it is the same one;
//   a refusal is one of the configuration and shows the text.
#include <string>

#include "common/base/check.h"
#include "common/base/net_address.h"
#include "common/base/units.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto check_refusal = [&text](const Status& status) {
    SKUA_CHECK(status.code() == StatusCode::kConfiguration, "kind of refusal");
    SKUA_CHECK(status.message().find(text) != std::string::npos, "a refusal shows the text");
  };

  if (const auto address = parse_net_address(text); address) {
    SKUA_CHECK(!address->host.empty(), "host");
    const auto again = parse_net_address(address->to_string());
    SKUA_CHECK(again && *again == *address, "an address reads back as it was printed");
    SKUA_CHECK(!address->is_wildcard() || !address->is_loopback(), "everywhere or here");
  } else {
    check_refusal(address.error());
  }
  // Beyond 2^53 a double does not hold every number.
  if (const auto bytes = parse_size(text); bytes) {
    SKUA_CHECK(*bytes < uint64_t{1} << 63 && !format_size(*bytes).empty(), "size");
    SKUA_CHECK(*bytes > uint64_t{1} << 53 || parse_size(std::to_string(*bytes)).value() == *bytes, "digits alone");
  } else {
    check_refusal(bytes.error());
  }
  if (const auto duration = parse_duration(text); duration) {
    SKUA_CHECK(*duration >= 0 && !format_duration(*duration).empty(), "duration");
    SKUA_CHECK(*duration > int64_t{1} << 53 || parse_duration(std::to_string(*duration) + "ns").value() == *duration,
               "nanoseconds");
  } else {
    check_refusal(duration.error());
  }
  return 0;
}
