// Splits of Partition's tables: freeze, build, publish (docs/protocol.md, I7).
//
// The executor does all of it, a slice at a time. Only the freeze changes what others see: CAS by CAS it stops writers,
// slot by slot. The images are built from the frozen table in memory that nobody knows of yet, and one CAS on the
// directory root shows them.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "common/base/hooks.h"
#include "common/base/remote_memory.h"
#include "proto/limits.h"
#include "server/partition.h"

namespace skua {

using proto::BucketHeader;
using proto::SlotState;
using proto::SlotWord;
using proto::TableRef;

namespace {

// A table is split when it is so full, in eighths: windows of 28 overflow from 0.56 on.
constexpr uint64_t kFullEighths = 4;
constexpr uint64_t kLooks = 32;  // while the slots that there are fill up
constexpr uint32_t kUnevenDepth = 4;
constexpr uint64_t kMaxVersion = (uint64_t{1} << 26) - 1;

std::atomic_ref<uint64_t> shared(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

}  // namespace

uint64_t Partition::table_pages() const {
  const uint64_t bytes = tables_[0].count * sizeof(proto::Bucket);
  return (bytes + kIndexPageBytes - 1) / kIndexPageBytes;
}

uint64_t Partition::directory_pages(uint32_t depth) const {
  return ((uint64_t{8} << depth) + kIndexPageBytes - 1) / kIndexPageBytes;
}

std::vector<size_t> Partition::overloaded_tables() {
  const uint64_t table_slots = tables_[0].count * proto::kSlotsPerBucket;
  const uint64_t to_come = heap_.blocks_granted() / tables_.size();
  std::vector<size_t> found;
  for (size_t t = 0; t < tables_.size(); ++t) {
    uint64_t taken = to_come;
    for (uint64_t b = 0; b < tables_[t].count; ++b) {
      for (uint64_t& word : tables_[t].buckets[b].slots) {
        taken += SlotWord(shared(word).load(std::memory_order_relaxed)).state() != SlotState::kEmpty ? 1 : 0;
      }
    }
    if (taken * 8 >= table_slots * kFullEighths) found.push_back(t);
  }
  next_look_ = heap_.blocks_taken() + std::max<uint64_t>(1, table_slots * tables_.size() / kLooks);
  return found;
}

bool Partition::window_is_full(proto::KeyHash hash) const {
  const Table& table = tables_[table_of(hash)];
  proto::Bucket* const window = table.buckets + hash.home_bucket(table.ref.log2_buckets());
  for (uint64_t b = 0; b < proto::kWindowBuckets; ++b) {
    for (uint64_t& word : window[b].slots) {
      if (SlotWord(shared(word).load(std::memory_order_relaxed)).is_free()) return false;
    }
  }
  return true;
}

bool Partition::begin_split(size_t table) {
  const uint32_t local_depth = tables_[table].ref.local_depth() + 1;
  const uint32_t depth = std::max(depth_, local_depth);
  // Keys that were chosen to share their directory bits do not make the directory larger than the tables.
  const auto usual_depth = static_cast<uint32_t>(std::bit_width(tables_.size()));
  if (split_ || depth > std::min(proto::kMaxDirectoryDepth, usual_depth + kUnevenDepth)) return false;
  if (table_version_ + 2 > kMaxVersion || root_version_ + 1 > kMaxVersion) return false;
  Split split;
  split.table = table;
  split.depth = depth;
  const auto directory = pages_.allocate(directory_pages(depth));
  const auto first = directory ? pages_.allocate(table_pages()) : std::nullopt;
  const auto second = first ? pages_.allocate(table_pages()) : std::nullopt;
  if (!second) {
    if (first) pages_.free(*first, table_pages());
    if (directory) pages_.free(*directory, directory_pages(depth));
    return false;
  }
  split.directory = *directory;
  split.tables = {*first, *second};
  split_ = split;
  return true;
}

bool Partition::split(uint64_t& slots, uint64_t reclaim_epoch) {
  const Table& table = tables_[split_->table];
  const uint64_t count = table.count * proto::kSlotsPerBucket;
  while (split_->next_slot < count) {
    if (slots == 0) return false;
    --slots;
    uint64_t& slot = table.buckets[split_->next_slot / proto::kSlotsPerBucket]
                         .slots[split_->next_slot % proto::kSlotsPerBucket];
    if (!SKUA_PLANTED_BUG("split-without-freeze") && !freeze(&slot)) return false;
    ++split_->next_slot;
  }
  slots -= std::min(slots, count);
  publish_split(reclaim_epoch);
  return true;
}

// False: it is not known what the slot holds; to be tried again.
bool Partition::freeze(uint64_t* slot) {
  for (;;) {
    const SlotWord word(shared(*slot).load(std::memory_order_acquire));
    if (word.frozen()) return true;
    SKUA_CHECK(!word.dirty(), "DIRTY words are helped before they are frozen");
    if (word.state() == SlotState::kTentative) {
      if (SKUA_PLANTED_BUG("freeze-skips-tentative")) return true;
      SlotWord prev(header_word(word, offsetof(proto::BlockHeader, prev)));
      if (!prev.is_free()) prev = next_empty();
      if (exchange(slot, word, prev)) SKUA_PROBE("split.kills-tentative");
    } else if (exchange(slot, word, word.with_frozen())) {
      return true;
    } else if (arena_.atomics() != nullptr) {
      return SlotWord(shared(*slot).load(std::memory_order_acquire)).frozen();
    }
  }
}

// What the frozen table holds, by slot. A word that no reader could find, since its block is not what it names or its
// key does not belong here, goes no further: only a peer that breaks the protocol leaves such.
std::vector<Partition::Moved> Partition::moving(const Table& table, uint32_t local_depth) {
  std::vector<Moved> moved;
  std::array<char, proto::kMaxKeyBytes> key;
  for (uint64_t b = 0; b < table.count; ++b) {
    for (uint32_t s = 0; s < proto::kSlotsPerBucket; ++s) {
      const uint64_t frozen = shared(table.buckets[b].slots[s]).load(std::memory_order_acquire);
      const SlotWord word = SlotWord(frozen).without_frozen();
      if (!word.is_live()) continue;
      BlockMeta* meta = heap_.find(word);
      if (meta == nullptr || !heap_.current(*meta, word)) continue;
      proto::BlockHeader header;
      copy_from_remote(&header, data_ + word.block_offset(), sizeof header);
      const size_t room = proto::size_class_bytes(static_cast<int>(word.size_class())) - sizeof header;
      if (header.key_bytes == 0 || header.key_bytes > std::min(key.size(), room)) continue;
      copy_from_remote(key.data(), data_ + word.block_offset() + sizeof header, header.key_bytes);
      const auto hash = proto::KeyHash::of({key.data(), header.key_bytes}, header.namespace_id);
      const uint64_t home = hash.home_bucket(table.ref.log2_buckets());
      const bool belongs = hash.fingerprint() == word.fingerprint() && b - home < proto::kWindowBuckets &&
                           hash.directory_index(local_depth - 1) == table.prefix;
      if (!belongs) continue;
      heap_.mark(*meta);  // a scan under way may have passed where it goes
      const auto child = static_cast<uint32_t>(hash.directory_index(local_depth) >> (local_depth - 1));
      moved.push_back({word, b, home, s, child});
    }
  }
  return moved;
}

// Every word keeps its place in the table, which is free in the image as it was taken in the original; who lay in the
// second half of a window comes into the first where there is room now. So a key always fits, and the image depends on
// nothing but the frozen table.
void Partition::place(proto::Bucket* buckets, std::span<const Moved> moved, uint32_t child) {
  for (const Moved& m : moved) {
    if (m.child == child) buckets[m.bucket].slots[m.slot] = m.word.bits();
  }
  for (const Moved& m : moved) {
    if (m.child != child || m.bucket - m.home < proto::kHalfWindowBuckets) continue;
    uint64_t* better = nullptr;
    for (uint64_t b = m.home; b < m.home + proto::kHalfWindowBuckets && better == nullptr; ++b) {
      for (uint64_t& slot : buckets[b].slots) {
        if (SlotWord(slot).state() == SlotState::kEmpty) {
          better = &slot;
          break;
        }
      }
    }
    if (better == nullptr) {
      buckets[m.home].header = BucketHeader(buckets[m.home].header).with_overflow().bits();
    } else {
      std::swap(*better, buckets[m.bucket].slots[m.slot]);  // EMPTY words stay apart, too
    }
  }
}

void Partition::publish_split(uint64_t reclaim_epoch) {
  const Split split = *split_;
  const Table old = tables_[split.table];
  const uint32_t local_depth = old.ref.local_depth() + 1;
  const std::vector<Moved> moved = moving(old, local_depth);
  std::array<Table, 2> children{};
  for (uint32_t child = 0; child < 2; ++child) {
    const auto ref =
        TableRef::of({split.tables[child], old.ref.log2_buckets(), local_depth, ++table_version_});
    children[child] = {buckets_at(split.tables[child]), old.count, ref,
                       old.prefix | (uint64_t{child} << (local_depth - 1))};
    format_table(children[child].buckets, ref);
    place(children[child].buckets, moved, child);
  }

  const auto second = static_cast<uint32_t>(tables_.size());
  std::vector<uint32_t> directory(size_t{1} << split.depth);
  auto* entries = reinterpret_cast<uint64_t*>(data_ + split.directory);
  for (size_t i = 0; i < directory.size(); ++i) {
    directory[i] = directory_[i & (directory_.size() - 1)];
    if (directory[i] == split.table && ((i >> (local_depth - 1)) & 1) == 1) directory[i] = second;
    const TableRef ref = directory[i] == second        ? children[1].ref
                         : directory[i] == split.table ? children[0].ref
                                                       : tables_[directory[i]].ref;
    entries[i] = ref.bits();
  }
  // Nobody else changes the root; whoever sees the new one sees all that it leads to.
  auto& root = *reinterpret_cast<uint64_t*>(data_ + proto::kDirectoryRootOffset);
  uint64_t before = proto::DirectoryRoot::of(directory_offset_, depth_, root_version_).bits();
  const auto after = proto::DirectoryRoot::of(split.directory, split.depth, ++root_version_);
  const bool shown = shared(root).compare_exchange_strong(before, after.bits(), std::memory_order_acq_rel);
  SKUA_CHECK(shown, "only the server changes a directory root");

  // The scan under way, if there is one, has seen the old table, sees its successors, or both; nothing less.
  const auto second_live = static_cast<uint64_t>(
      std::count_if(moved.begin(), moved.end(), [](const Moved& m) { return m.child == 1; }));
  if (split.table == table_) {
    live_seen_ = live_before_table_ + moved.size() - second_live;
    ordinal_ += (old.count - bucket_) * proto::kSlotsPerBucket;
    bucket_ = old.count;
  } else if (split.table < table_) {
    live_seen_ -= std::min(live_seen_, second_live);
    live_before_table_ -= std::min(live_before_table_, second_live);
  }

  retire_pages(old.ref.offset(), table_pages(), reclaim_epoch);
  retire_pages(directory_offset_, directory_pages(depth_), reclaim_epoch);
  tables_[split.table] = children[0];
  tables_.push_back(children[1]);
  directory_ = std::move(directory);
  depth_ = split.depth;
  directory_offset_ = split.directory;
  split_.reset();
  ++splits_;
  SKUA_PROBE("split.published");
}

void Partition::retire_pages(uint64_t offset, uint64_t pages, uint64_t reclaim_epoch) {
  if (SKUA_PLANTED_BUG("table-freed-at-once")) return pages_.free(offset, pages);
  retired_pages_.push_back({offset, pages, reclaim_epoch});
}

void Partition::release_index(uint64_t oldest_epoch) {
  const auto first = std::partition(retired_pages_.begin(), retired_pages_.end(),
                                    [&](const RetiredPages& pages) { return pages.epoch >= oldest_epoch; });
  for (auto it = first; it != retired_pages_.end(); ++it) pages_.free(it->offset, it->pages);
  retired_pages_.erase(first, retired_pages_.end());
}

}  // namespace skua
