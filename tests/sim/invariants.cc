#include "tests/sim/invariants.h"

#include <cstring>
#include <span>

#include "proto/block.h"
#include "proto/region_layout.h"
#include "proto/size_class.h"

namespace skua::sim {

using proto::SlotState;
using proto::SlotWord;

namespace {

uint64_t load(const std::byte* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Calls visit(slot, word) for every slot of the partition's tables.
template <class Visit>
void for_slots(std::byte* region, Visit visit) {
  const proto::DirectoryRoot root(load(region + proto::kDirectoryRootOffset));
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < root.entries(); ++i) {
    const proto::TableRef table(load(region + root.offset() + 8 * i));
    if (!seen.insert(table.offset()).second) continue;
    for (uint64_t b = 0; b < proto::table_buckets(table.log2_buckets()); ++b) {
      std::byte* bucket = region + table.offset() + b * proto::kBucketBytes;
      for (size_t s = 1; s <= proto::kSlotsPerBucket; ++s) visit(bucket + 8 * s, SlotWord(load(bucket + 8 * s)));
    }
  }
}

bool is_slot(std::byte* region, const std::byte* address) {
  const proto::DirectoryRoot root(load(region + proto::kDirectoryRootOffset));
  const auto offset = static_cast<uint64_t>(address - region);
  for (uint64_t i = 0; i < root.entries(); ++i) {
    const proto::TableRef table(load(region + root.offset() + 8 * i));
    const uint64_t end = table.offset() + proto::table_buckets(table.log2_buckets()) * proto::kBucketBytes;
    if (offset >= table.offset() && offset < end) return offset % proto::kBucketBytes != 0;
  }
  return false;
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

void Invariants::effect(const VerbEffect& effect) {
  if (regions_[effect.region] != load(effect.region + proto::kDirectoryRootOffset)) follow(effect.region);
  if (effect.verb == Verb::kWrite && ordered_writes_) written(effect);
  if (effect.verb == Verb::kCompareAndSwap && is_slot(effect.region, effect.address)) slot_changed(effect);
}

void Invariants::follow(std::byte* region) {
  uint64_t& root = regions_[region];
  const bool first = root == 0;
  root = load(region + proto::kDirectoryRootOffset);
  if (first) return;
  const auto* const end = region + reinterpret_cast<const proto::RegionHeader*>(region)->region_bytes;
  const auto lies_here = [&](const std::byte* address) { return address >= region && address < end; };
  std::erase_if(live_, [&](const auto& entry) { return lies_here(entry.second.slot); });
  std::erase_if(named_, [&](const auto& entry) { return lies_here(entry.second); });
  std::erase_if(replaces_, [&](const auto& entry) { return lies_here(entry.first) && !is_slot(region, entry.first); });
  std::erase_if(left_, [&](const auto& entry) { return lies_here(entry.first) && !is_slot(region, entry.first); });
  for_slots(region, [&](std::byte* slot, SlotWord word) {
    if (!word.names_block()) return;
    named_[region + word.block_offset()] = slot;
    const uint64_t bytes = proto::size_class_bytes(static_cast<int>(word.size_class()));
    if (word.is_live()) live_[region + word.block_offset()] = {bytes, slot, word.bits()};
  });
}

void Invariants::written(const VerbEffect& effect) {
  auto next = live_.upper_bound(effect.address + effect.bytes - 1);
  if (next == live_.begin()) return;
  const auto& [begin, block] = *--next;
  if (effect.address >= begin + block.bytes) return;
  // The server may have taken the word away since.
  if (load(block.slot) != block.word) return;
  record_.violation("a WRITE of " + effect.client->name() + " reached the block of the live word " + hex(block.word));
}

void Invariants::slot_changed(const VerbEffect& effect) {
  const SlotWord before(effect.before);
  const SlotWord after(effect.after);
  auto& left = left_[effect.address];
  const uint64_t epoch = load(effect.region + offsetof(proto::RegionHeader, reclaim_epoch));
  left[before.bits()] = epoch;
  if (before.is_live()) {
    const auto old = live_.find(effect.region + before.block_offset());
    if (old != live_.end() && old->second.slot == effect.address) live_.erase(old);
  }
  const bool unique = after.is_live() || after.state() == SlotState::kTentative;
  if (unique) {
    const auto seen = left.find(after.bits());
    if (seen != left.end() && epoch + 1 < seen->second + proto::kVersionModulus) {
      record_.violation("the word " + hex(after.bits()) + " came back in its slot by " + effect.client->name() + ", " +
                        std::to_string(epoch - seen->second) + " reclaim epochs after it left");
    }
  }
  const bool fresh = unique && (!before.names_block() || before.block_units() != after.block_units() ||
                                before.version() != after.version());
  if (fresh) taken_into_use(effect);
  if (after.is_live()) {
    const uint64_t bytes = proto::size_class_bytes(static_cast<int>(after.size_class()));
    live_[effect.region + after.block_offset()] = {bytes, effect.address, after.bits()};
  }
}

// A fresh block appears in a slot.
void Invariants::taken_into_use(const VerbEffect& effect) {
  const SlotWord word(effect.after);
  const std::byte* block = effect.region + word.block_offset();
  const auto known = named_.find(block);
  if (known != named_.end()) {
    // What the slot holds now: the server may have renamed it. In this slot: what was there before.
    const SlotWord other(known->second == effect.address ? effect.before : load(known->second));
    const bool names_it = other.names_block() && effect.region + other.block_offset() == block;
    if (names_it) {
      record_.violation("the block of the word " + hex(word.bits()) + " by " + effect.client->name() +
                        " is also named by the word " + hex(other.bits()));
    }
  }
  named_[block] = effect.address;
  for (auto place = replaces_.begin(); place != replaces_.end();) {
    const auto& [slot, replaced] = *place;
    if (load(slot) != replaced.first) {
      place = replaces_.erase(place);
      continue;
    }
    if (replaced.second == block && slot != effect.address) {
      record_.violation("the block of the word " + hex(word.bits()) + " by " + effect.client->name() +
                        " belongs to what the word " + hex(replaced.first) + " replaces");
    }
    ++place;
  }
  if (word.state() != SlotState::kTentative || !ordered_writes_) return;
  const SlotWord prev(load(block + offsetof(proto::BlockHeader, prev)));
  if (prev.names_block()) replaces_[effect.address] = {word.bits(), effect.region + prev.block_offset()};
}

std::string Invariants::judge_quiet(Store& store) const {
  control::ServerStats stats;
  store.statistics(stats);
  if (stats.sessions() != 0) return std::to_string(stats.sessions()) + " sessions are left";
  std::string fault;
  std::map<uint32_t, uint64_t> live;
  std::set<const std::byte*> blocks;
  const ArenaInfo arena = store.arena();
  for (const auto& [region, root] : regions_) {
    if (region < arena.data || region >= arena.data + arena.bytes) continue;
    for_slots(region, [&](const std::byte*, SlotWord word) {
      if (word.state() == SlotState::kEmpty) return;
      if (!word.is_live()) {
        fault = "the word " + hex(word.bits()) + " (TENTATIVE or FREED) is left";
        return;
      }
      ++live[word.size_class()];
      const std::byte* block = region + word.block_offset();
      if (!blocks.insert(block).second) fault = "two words name the block of " + hex(word.bits());
      proto::BlockView view;
      const size_t bytes = proto::size_class_bytes(static_cast<int>(word.size_class()));
      const auto found = proto::BlockView::parse({block, bytes}, word, view);
      if (found != proto::BlockFault::kNone) {
        fault = "the block of the live word " + hex(word.bits()) + " is not whole: fault " +
                std::to_string(static_cast<int>(found));
      }
    });
  }
  for (const control::ClassStats& c : stats.classes()) {
    if (c.granted() != 0 || c.retired() != 0 || c.used() != live[c.size_class()]) {
      fault = "blocks of " + std::to_string(c.block_bytes()) + " bytes: " + std::to_string(c.granted()) + " granted, " +
              std::to_string(c.retired()) + " retired, " + std::to_string(c.used()) + " used for " +
              std::to_string(live[c.size_class()]) + " live words";
    }
    live.erase(c.size_class());
  }
  for (const auto& [size_class, count] : live) {
    if (count != 0) fault = std::to_string(count) + " live words name blocks of a class without segments";
  }
  return fault;
}

}  // namespace skua::sim
