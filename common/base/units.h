#pragma once
// Sizes and durations as people write them in flags and files.
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace skua {

// "4096", "64k", "256MiB", "1.5g": powers of 1024 whichever way the unit is spelled (k, KB, KiB); case is ignored.
// Error: kConfiguration, with the text and what would be accepted.
Result<uint64_t> parse_size(std::string_view text);

// "250us", "500ms", "2s", "1.5m", "1h"; "0" needs no unit, everything else does. Error: kConfiguration.
Result<Nanoseconds> parse_duration(std::string_view text);

std::string format_size(uint64_t bytes);             // "1 GiB", "1.5 MiB", "17 B"
std::string format_duration(Nanoseconds duration);   // "2 s", "1.5 ms"

std::string hex_text(uint64_t number);  // "0x2a"

}  // namespace skua
