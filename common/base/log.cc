#include "common/base/log.h"

#include <array>
#include <atomic>
#include <cstdio>

namespace skua {
namespace {

constexpr std::array<std::string_view, 5> kNames{"debug", "info", "warning", "error", "off"};

void write_to_standard_error(LogLevel level, std::string_view text) {
  const std::string_view name = to_string(level);
  std::fprintf(stderr, "skua: %.*s: %.*s\n", static_cast<int>(name.size()), name.data(),
               static_cast<int>(text.size()), text.data());
}

// Both are independent settings: relaxed.
std::atomic<LogLevel> level_now{LogLevel::kWarning};
std::atomic<LogSink> sink_now{&write_to_standard_error};

}  // namespace

std::string_view to_string(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

void set_log_level(LogLevel level) { level_now.store(level, std::memory_order_relaxed); }

void set_log_sink(LogSink sink) {
  sink_now.store(sink != nullptr ? sink : &write_to_standard_error, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return level != LogLevel::kOff && level >= level_now.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view text) {
  if (log_enabled(level)) sink_now.load(std::memory_order_relaxed)(level, text);
}

}  // namespace skua
