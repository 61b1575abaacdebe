#include "common/base/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

namespace skua {
namespace {

constexpr std::string_view kSizeRemedy =
    "write a number and B, KiB, MiB, GiB or TiB, such as 4096, 64KiB, 256MiB or 1GiB";
constexpr std::string_view kDurationRemedy = "write a number and a unit, such as 250us, 500ms, 2s or 1m";

Error refuse(std::string_view what, std::string_view text, std::string_view remedy) {
  return fail(StatusCode::kConfiguration,
              std::string(what) + " '" + std::string(text) + "': " + std::string(remedy));
}

struct NumberAndUnit {
  double number = 0;
  std::string unit;  // lower case, without spaces
};

std::optional<NumberAndUnit> split_number(std::string_view text) {
  NumberAndUnit result;
  const char* const end = text.data() + text.size();
  if (text.empty() || (std::isdigit(static_cast<unsigned char>(text.front())) == 0)) return std::nullopt;
  const auto [rest, error] = std::from_chars(text.data(), end, result.number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  for (const char* p = rest; p != end; ++p) {
    if (*p != ' ') result.unit.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(*p))));
  }
  return result;
}

std::string shortest(double value, std::string_view unit) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), value == std::floor(value) ? "%.0f" : "%.1f", value);
  return std::string(text.data()) + " " + std::string(unit);
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  const auto parts = split_number(text);
  if (!parts) return refuse("size", text, kSizeRemedy);
  std::string unit = parts->unit;
  if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'i') unit.pop_back();
  constexpr std::string_view kUnits = "kmgt";
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t index = kUnits.find(unit);
    if (unit.size() != 1 || index == std::string_view::npos) return refuse("size", text, kSizeRemedy);
    factor = std::ldexp(1.0, static_cast<int>(10 * (index + 1)));
  }
  const double bytes = parts->number * factor;
  if (bytes != std::floor(bytes)) return refuse("size", text, "it is no whole number of bytes");
  if (bytes >= 0x1p63) return refuse("size", text, "it is beyond 2^63 bytes");
  return static_cast<uint64_t>(bytes);
}

Result<Nanoseconds> parse_duration(std::string_view text) {
  const auto parts = split_number(text);
  if (!parts) return refuse("duration", text, kDurationRemedy);
  double factor = 0;
  if (parts->unit == "ns" || (parts->unit.empty() && parts->number == 0)) factor = 1;
  if (parts->unit == "us") factor = static_cast<double>(kMicrosecond);
  if (parts->unit == "ms") factor = static_cast<double>(kMillisecond);
  if (parts->unit == "s") factor = static_cast<double>(kSecond);
  if (parts->unit == "m" || parts->unit == "min") factor = 60.0 * static_cast<double>(kSecond);
  if (parts->unit == "h") factor = 3600.0 * static_cast<double>(kSecond);
  if (factor == 0) return refuse("duration", text, kDurationRemedy);
  const double value = std::round(parts->number * factor);
  if (value >= 0x1p63) return refuse("duration", text, "it is beyond 292 years");
  return static_cast<Nanoseconds>(value);
}

std::string format_size(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t index = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && index + 1 < kUnits.size()) {
    value /= 1024;
    ++index;
  }
  return shortest(value, kUnits[index]);
}

std::string format_duration(Nanoseconds duration) {
  const double value = static_cast<double>(duration);
  if (std::abs(value) >= static_cast<double>(kSecond)) return shortest(value / static_cast<double>(kSecond), "s");
  if (std::abs(value) >= static_cast<double>(kMillisecond)) {
    return shortest(value / static_cast<double>(kMillisecond), "ms");
  }
  if (std::abs(value) >= static_cast<double>(kMicrosecond)) {
    return shortest(value / static_cast<double>(kMicrosecond), "us");
  }
  return shortest(value, "ns");
}

std::string hex_text(uint64_t number) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(number));
  return text.data();
}

}  // namespace skua
