#pragma once
// Keys that get in each other's way: those of one group have the same partition, home bucket and fingerprint in every
// cluster of up to four partitions with the smallest tables; fillers share partition and bucket alone.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skua::sim {

inline constexpr size_t kGroups = 4;
inline constexpr size_t kGroupKeys = 5;
inline constexpr size_t kFillers = 28;

// Found once a process, in about a tenth of a second. Threads: any.
const std::string& colliding_key(size_t group, size_t index);
const std::string& filler_key(size_t group, size_t index);

// A value that says what it should be: key and number decide every byte. `bytes` is raised to the least that can.
std::string make_value(std::string_view key, uint64_t number, size_t bytes);
// The number, or nothing when it is not a value that make_value made for this key.
std::optional<uint64_t> read_value(std::string_view key, std::string_view value);

}  // namespace skua::sim
