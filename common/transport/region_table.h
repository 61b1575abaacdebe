#pragma once
// RegionTable answers whether a verb may touch a range of a region, and where that range lies in this process.
//
// Shape:   open addressing by the key's low bits (keys are random), at most half full.
// Cost:    resolve: one probe as a rule; no allocation, no system call.
// Threads: one owner thread after assign.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/transport/transport.h"

namespace skua {

// What one READ or WRITE may carry on the transports that a CPU executes: the largest block and a little.
inline constexpr uint64_t kMaxMessageBytes = (uint64_t{64} << 20) + (uint64_t{64} << 10);
// Requests that may be outstanding on their queue pairs; a power of two.
inline constexpr uint32_t kQueueDepth = 256;

struct MappedRegion {
  RegionKey key{};
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

class RegionTable {
 public:
  struct Range {
    Verb verb;
    RegionKey key;
    uint64_t offset;
    uint64_t bytes;  // atomics: 8
  };
  struct Access {
    std::byte* address = nullptr;
    CompletionStatus status = CompletionStatus::kRemoteAccessError;
  };

  void assign(std::span<const MappedRegion> regions, bool read_only) {
    read_only_ = read_only;
    slots_.assign(std::bit_ceil(regions.size() * 2 + 2), MappedRegion{});
    for (const MappedRegion& region : regions) {
      size_t at = home(region.key);
      while (slots_[at].data != nullptr && slots_[at].key != region.key) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = region;
    }
  }

  Access resolve(const Range& range) const {
    const MappedRegion* region = find(range.key);
    if (region == nullptr) return {};
    const bool atomic = range.verb == Verb::kCompareAndSwap || range.verb == Verb::kFetchAndAdd;
    if (read_only_ && range.verb != Verb::kRead) return {};
    if (range.bytes > kMaxMessageBytes || (atomic && (range.bytes != 8 || range.offset % 8 != 0))) {
      return {nullptr, CompletionStatus::kBadRequest};
    }
    if (range.bytes > region->bytes || range.offset > region->bytes - range.bytes) return {};
    return {region->data + range.offset, CompletionStatus::kSuccess};
  }

 private:
  size_t home(RegionKey key) const { return static_cast<size_t>(key) & (slots_.size() - 1); }
  const MappedRegion* find(RegionKey key) const {
    if (slots_.empty()) return nullptr;
    for (size_t at = home(key); slots_[at].data != nullptr; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return &slots_[at];
    }
    return nullptr;
  }

  std::vector<MappedRegion> slots_;  // a slot without data is empty
  bool read_only_ = false;
};

}  // namespace skua
