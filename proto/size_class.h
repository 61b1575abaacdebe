#pragma once
// Size classes: the block sizes that a heap hands out, three a doubling, in units of 64 bytes.
//
// Class c has kSizeClassUnits[c] units: 1, 2, 3, 4, then for each doubling from 4 units 5/4, 6/4 (rounded) and 8/4 of
// it: 64, 128, 192, 256, 320, 384, 512, 640, 768, 1024, ... The last class holds a 64 MiB value with the longest key.
// A slot word has 6 bits for the class.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace skua::proto {

inline constexpr size_t kBlockUnit = 64;
inline constexpr int kSizeClasses = 59;

namespace internal {
constexpr std::array<uint32_t, kSizeClasses> make_size_classes() {
  std::array<uint32_t, kSizeClasses> units{};
  size_t n = 0;
  for (uint32_t u = 1; u <= 4; ++u) units[n++] = u;
  for (uint32_t base = 4; base < (1U << 20); base *= 2) {
    units[n++] = base + base / 4;
    units[n++] = base + base / 2;
    units[n++] = base * 2;
  }
  units[n] = (1U << 20) + 66;  // 64 MiB of value, and its header and longest key
  return units;
}
}  // namespace internal

inline constexpr std::array<uint32_t, kSizeClasses> kSizeClassUnits = internal::make_size_classes();
inline constexpr size_t kMaxBlockBytes = size_t{kSizeClassUnits[kSizeClasses - 1]} * kBlockUnit;

// Bytes of a block of `size_class`. Requires: 0 <= size_class < kSizeClasses.
constexpr size_t size_class_bytes(int size_class) {
  return size_t{kSizeClassUnits[static_cast<size_t>(size_class)]} * kBlockUnit;
}

// The smallest class that holds `bytes`, or -1 when none does.
constexpr int size_class_for(size_t bytes) {
  if (bytes > kMaxBlockBytes) return -1;
  const uint64_t units = (bytes + kBlockUnit - 1) / kBlockUnit;
  int low = 0;
  int high = kSizeClasses - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (kSizeClassUnits[static_cast<size_t>(middle)] >= units) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace skua::proto
