#pragma once
// The numbers that two processes compare before they believe each other's bytes.
#include <cstdint>

namespace skua::proto {

inline constexpr uint32_t kLayoutVersion = 1;   // region, bucket, block and slot word
inline constexpr uint32_t kControlVersion = 1;  // control.proto and its framing
inline constexpr uint32_t kDataVersion = 1;     // handshake and frames of the tcp and shm data planes

inline constexpr uint64_t kRegionMagic = 0x314e4f4947524b53ULL;   // "SKRGION1" in memory order
inline constexpr uint32_t kControlMagic = 0x314c544b;             // "KTL1"
inline constexpr uint32_t kDataMagic = 0x31544453;                // "SDT1"

}  // namespace skua::proto
