#include "tests/sim/keys.h"

#include <array>
#include <cstring>
#include <unordered_map>

#include "common/transport/sim/trace.h"
#include "proto/key_hash.h"

namespace skua::sim {
namespace {

constexpr uint32_t kPartitions = 4;
constexpr uint32_t kLog2Buckets = 6;
constexpr size_t kNumberBytes = 16;  // number, and a hash of key and number

uint64_t bucket_of(proto::KeyHash hash) {
  return (uint64_t{hash.partition(kPartitions)} << 32) | hash.home_bucket(kLog2Buckets);
}

struct Keys {
  std::array<std::array<std::string, kGroupKeys>, kGroups> colliding;
  std::array<std::array<std::string, kFillers>, kGroups> fillers;

  Keys() {
    std::unordered_map<uint64_t, std::vector<uint32_t>> by_place;
    size_t full = 0;
    for (uint32_t i = 0; full < kGroups; ++i) {
      const proto::KeyHash hash = proto::KeyHash::of("k" + std::to_string(i));
      auto& same = by_place[(bucket_of(hash) << 11) ^ hash.fingerprint()];
      same.push_back(i);
      if (same.size() != kGroupKeys) continue;
      for (size_t k = 0; k < kGroupKeys; ++k) colliding[full][k] = "k" + std::to_string(same[k]);
      ++full;
    }
    for (size_t group = 0; group < kGroups; ++group) {
      const uint64_t wanted = bucket_of(proto::KeyHash::of(colliding[group][0]));
      size_t found = 0;
      for (uint32_t i = 0; found < kFillers; ++i) {
        std::string name = "f" + std::to_string(i);
        if (bucket_of(proto::KeyHash::of(name)) == wanted) fillers[group][found++] = std::move(name);
      }
    }
  }
};

const Keys& keys() {
  static const Keys all;
  return all;
}

uint64_t seal(std::string_view key, uint64_t number) {
  return hash_bytes(key.data(), key.size()) * 0x9e3779b97f4a7c15ULL ^ (number * 0xbf58476d1ce4e5b9ULL);
}

}  // namespace

const std::string& colliding_key(size_t group, size_t index) { return keys().colliding[group][index]; }
const std::string& filler_key(size_t group, size_t index) { return keys().fillers[group][index]; }

std::string make_value(std::string_view key, uint64_t number, size_t bytes) {
  std::string value(std::max(bytes, kNumberBytes), '\0');
  const uint64_t head[2] = {number, seal(key, number) ^ value.size()};
  std::memcpy(value.data(), head, sizeof head);
  for (size_t i = kNumberBytes; i < value.size(); ++i) value[i] = static_cast<char>(number * 131 + i * 7 + (i >> 8));
  return value;
}

std::optional<uint64_t> read_value(std::string_view key, std::string_view value) {
  if (value.size() < kNumberBytes) return std::nullopt;
  uint64_t number = 0;
  std::memcpy(&number, value.data(), sizeof number);
  if (make_value(key, number, value.size()) != value) return std::nullopt;
  return number;
}

}  // namespace skua::sim
