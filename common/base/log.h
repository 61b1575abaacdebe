#pragma once
// Log lines of library and programs. A program chooses where they go; a library that nobody asked stays silent below a
// warning. Never called on the data path.
#include <cstdint>
#include <optional>
#include <string_view>

namespace skua {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

std::string_view to_string(LogLevel level);
std::optional<LogLevel> parse_log_level(std::string_view text);  // debug, info, warning, error, off

using LogSink = void (*)(LogLevel level, std::string_view text);

// Lines below `level` are dropped. At first: warnings and errors go to standard error. Threads: any.
void set_log_level(LogLevel level);
void set_log_sink(LogSink sink);  // null: back to standard error
bool log_enabled(LogLevel level);

void log_line(LogLevel level, std::string_view text);
inline void log_debug(std::string_view text) { log_line(LogLevel::kDebug, text); }
inline void log_info(std::string_view text) { log_line(LogLevel::kInfo, text); }
inline void log_warning(std::string_view text) { log_line(LogLevel::kWarning, text); }
inline void log_error(std::string_view text) { log_line(LogLevel::kError, text); }

}  // namespace skua
