#pragma once
// Limits that every client and server of a layout version shares.
#include <cstddef>
#include <cstdint>

namespace skua::proto {

inline constexpr size_t kMaxKeyBytes = 4096;                 // a key has 1 to 4096 bytes, any values
inline constexpr size_t kMaxValueBytes = size_t{64} << 20;   // a value has 0 bytes to 64 MiB
inline constexpr uint32_t kMaxPartitions = 65536;            // a power of two
inline constexpr uint32_t kDefaultPartitions = 64;
inline constexpr uint32_t kMaxServerId = 65535;              // from 1 on; clients index by it

}  // namespace skua::proto
