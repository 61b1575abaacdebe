#pragma once
// SlotCache remembers where keys were last seen: slot, word and block, so that a GET or UPDATE needs one round trip.
//
// Shape:      4-way sets of 48-byte entries in one array; bounded, the least recently placed of a set gives way.
// Cost:       lookup and remember touch one set; no allocation after construction.
// Threads:    one owner thread.
// Invariants: I13: whoever uses an entry checks its age in reclaim epochs (younger_than) first.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/slot_word.h"

namespace skua {

struct SlotCacheEntry {
  uint64_t hash = 0;
  proto::SlotWord word;             // EMPTY: no entry
  uint64_t generation = 0;          // of the block, in full (I6)
  uint64_t slot_offset = 0;         // in the partition
  uint32_t block_bytes = 0;         // header, key and value
  uint32_t epoch = 0;               // low half of the reclaim epoch in which the word was last seen valid
  uint32_t table_version = 0;       // of the table that the slot lies in
  uint32_t tag_and_expiry = 0;      // 31 bits of a second hash of the key; lowest bit: the block has an expiry

  bool has_expiry() const { return (tag_and_expiry & 1) != 0; }
  bool younger_than(uint64_t epochs, uint64_t now) const { return static_cast<uint32_t>(now) - epoch < epochs; }
};
static_assert(sizeof(SlotCacheEntry) == 48);

class SlotCache {
 public:
  // Room for `entries`, rounded up to a power of two; 0: remembers nothing.
  explicit SlotCache(size_t entries) {
    if (entries == 0) return;
    const size_t sets = std::bit_ceil((entries + kWays - 1) / kWays);
    entries_.resize(sets * kWays);
    next_way_.resize(sets);
    set_mask_ = sets - 1;
  }

  // `tag`: a second hash, keyed by a secret of the session. Two keys with one hash would otherwise share an entry, and
  // an UPDATE from the cache does not look at the key; nobody can choose keys that agree in both.
  SlotCacheEntry* find(uint64_t hash, uint32_t tag) {
    if (entries_.empty()) return nullptr;
    SlotCacheEntry* set = &entries_[set_of(hash) * kWays];
    for (size_t way = 0; way < kWays; ++way) {
      if (set[way].hash == hash && (set[way].tag_and_expiry | 1) == (tag | 1) && set[way].word.is_live()) {
        return &set[way];
      }
    }
    return nullptr;
  }

  void remember(const SlotCacheEntry& entry) {
    if (entries_.empty()) return;
    if (SlotCacheEntry* known = find(entry.hash, entry.tag_and_expiry)) {
      *known = entry;
      return;
    }
    const size_t set = set_of(entry.hash);
    SlotCacheEntry* ways = &entries_[set * kWays];
    for (size_t way = 0; way < kWays; ++way) {
      if (!ways[way].word.is_live()) {
        ways[way] = entry;
        return;
      }
    }
    ways[next_way_[set]++ % kWays] = entry;
  }

  void forget(uint64_t hash, uint32_t tag) {
    if (SlotCacheEntry* known = find(hash, tag)) *known = SlotCacheEntry{};
  }

  template <class Predicate>
  void forget_if(Predicate predicate) {
    for (SlotCacheEntry& entry : entries_) {
      if (entry.word.is_live() && predicate(entry)) entry = SlotCacheEntry{};
    }
  }

 private:
  static constexpr size_t kWays = 4;
  // The low bits choose partition and table, so they are mixed before they choose a set.
  size_t set_of(uint64_t hash) const { return ((hash * 0x9e3779b97f4a7c15ULL) >> 32) & set_mask_; }

  std::vector<SlotCacheEntry> entries_;
  std::vector<uint8_t> next_way_;
  size_t set_mask_ = 0;
};

}  // namespace skua
