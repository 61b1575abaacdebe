#pragma once
// KeyHash splits the 64-bit XXH3 hash of a key into what places it.
//
//   63         53 52          40 39                         16 15              0
//  +-------------+--------------+-----------------------------+-----------------+
//  | fingerprint | home bucket  | directory index             | partition       |
//  | 11          | 13           | 24                          | 16              |
//  +-------------+--------------+-----------------------------+-----------------+
// Each field takes its low bits: partition = bits modulo P, and so on; P and the tables are powers of two.
// The namespace seeds the hash, and stands in the block beside the key.
#include <cstdint>
#include <string_view>

#include "proto/region_layout.h"

namespace skua::proto {

class KeyHash {
 public:
  constexpr explicit KeyHash(uint64_t bits) : bits_(bits) {}
  static KeyHash of(std::string_view key, uint16_t namespace_id = 0);

  constexpr uint64_t bits() const { return bits_; }
  constexpr uint32_t partition(uint32_t partitions) const {
    return static_cast<uint32_t>(bits_) & (partitions - 1) & 0xffff;
  }
  constexpr uint64_t directory_index(uint32_t depth) const { return (bits_ >> 16) & ((uint64_t{1} << depth) - 1); }
  constexpr uint64_t home_bucket(uint32_t log2_buckets) const {
    return (bits_ >> 40) & ((uint64_t{1} << log2_buckets) - 1);
  }
  constexpr uint32_t fingerprint() const { return static_cast<uint32_t>(bits_ >> 53); }

 private:
  uint64_t bits_;
};

// A hash that places nothing: another for each secret.
uint64_t keyed_hash(std::string_view key, uint64_t secret);

}  // namespace skua::proto
