#include "server/partition.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <new>

#include "common/base/check.h"
#include "common/base/hooks.h"

namespace skua {

using proto::SlotState;
using proto::SlotWord;

namespace {

constexpr uint64_t kPage = kIndexPageBytes;
constexpr double kKeySlack = 1.3;     // partitions are not filled evenly
constexpr double kTargetLoad = 0.45;  // of slots; windows of 28 overflow from 0.64 on
constexpr uint64_t kFirstVersion = 1;  // of directory and tables
constexpr int kEpochShift = 40;         // generations: membership epoch above, a count below
constexpr uint64_t kHintUnitMs = 4096;  // resolution at which metadata remembers when a block may expire

uint64_t round_to_page(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::atomic_ref<uint64_t> shared(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

}  // namespace

TableShape TableShape::for_keys(uint64_t keys, uint32_t log2_buckets) {
  const double slots = static_cast<double>(keys) * kKeySlack / kTargetLoad;
  const auto buckets = static_cast<uint64_t>(slots / static_cast<double>(proto::kSlotsPerBucket)) + 1;
  const auto log2 = static_cast<uint32_t>(std::bit_width(buckets - 1));  // rounded up
  TableShape shape;
  shape.log2_buckets = log2_buckets;
  shape.directory_depth = log2 > log2_buckets ? log2 - log2_buckets : 0;
  shape.directory_depth = std::min(shape.directory_depth, proto::kMaxDirectoryDepth);
  return shape;
}

uint64_t TableShape::directory_bytes() const { return round_to_page(tables() * sizeof(uint64_t)); }
uint64_t TableShape::table_stride() const { return round_to_page(proto::table_bytes(log2_buckets)); }
uint64_t TableShape::index_bytes() const { return kPage + directory_bytes() + tables() * table_stride(); }

Partition::Partition(Arena& arena, uint32_t id, uint64_t arena_offset)
    : arena_(arena),
      id_(id),
      data_(arena.data() + arena_offset),
      arena_offset_(arena_offset),
      region_bytes_(arena.stride()),
      extents_(arena, arena_offset),
      heap_(extents_) {}

Result<void> Partition::format(const Format& format) {
  const uint64_t bytes = format.shape.index_bytes();
  const uint64_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const auto first = chunks <= extents_.chunk_limit() ? pages_.allocate(bytes / kPage) : std::nullopt;
  if (!first) {
    return fail(StatusCode::kOutOfMemory, "tables of partition " + std::to_string(id_) + " need " +
                                              std::to_string(bytes) + " bytes");
  }
  SKUA_CHECK(*first == 0, "the header lies at the partition's start");
  membership_epoch_ = format.membership_epoch;
  // A version token of an earlier life must not fit what another key or value has now.
  if (!SKUA_PLANTED_BUG("generations-start-over")) heap_.begin_above(format.membership_epoch << kEpochShift);
  auto* header = new (data_) proto::RegionHeader{};
  header->magic = proto::kRegionMagic;
  header->layout_version = proto::kLayoutVersion;
  header->partition = id_;
  header->cluster_id = format.cluster_id;
  header->instance = format.instance;
  header->membership_epoch = format.membership_epoch;
  header->region_bytes = region_bytes_;
  format_tables(format.shape);
  const auto root = proto::DirectoryRoot::of(kPage, format.shape.directory_depth, kFirstVersion);
  shared(header->directory_root).store(root.bits(), std::memory_order_release);
  return {};
}

void Partition::format_tables(const TableShape& shape) {
  depth_ = shape.directory_depth;
  directory_offset_ = kPage;
  root_version_ = table_version_ = kFirstVersion;
  auto* directory = reinterpret_cast<uint64_t*>(data_ + directory_offset_);
  uint64_t offset = kPage + shape.directory_bytes();
  for (uint64_t t = 0; t < shape.tables(); ++t, offset += shape.table_stride()) {
    const auto ref = proto::TableRef::of({offset, shape.log2_buckets, shape.directory_depth, kFirstVersion});
    format_table(buckets_at(offset), ref);
    directory[t] = ref.bits();
    directory_.push_back(static_cast<uint32_t>(tables_.size()));
    tables_.push_back({buckets_at(offset), proto::table_buckets(shape.log2_buckets), ref, t});
  }
}

// Headers and EMPTY words; nobody sees it yet.
void Partition::format_table(proto::Bucket* buckets, const proto::TableRef& ref) {
  uint64_t slot = 0;
  for (uint64_t b = 0; b < proto::table_buckets(ref.log2_buckets()); ++b) {
    buckets[b].header = proto::BucketHeader::of(ref.local_depth(), ref.version()).bits();
    for (uint64_t& word : buckets[b].slots) word = SlotWord::empty(proto::built_identity(ref.version(), slot++)).bits();
  }
}

void Partition::publish_epoch(uint64_t reclaim_epoch) {
  auto* header = reinterpret_cast<proto::RegionHeader*>(data_);
  shared(header->reclaim_epoch).store(reclaim_epoch, std::memory_order_release);
}

void Partition::begin_scan(std::optional<Heap::Pressure> pressure) {
  if (pressure) heap_.begin_evacuation(heap_.plan_evacuation(*pressure));
  moves_may_commit_ = pressure == Heap::Pressure::kForced;
  heap_.begin_sweep();
  table_ = 0;
  bucket_ = 0;
  ordinal_ = 0;
  live_seen_ = 0;
  live_before_table_ = 0;
  least_hint_ = BlockMeta::kNever;
  freed_before_ = std::move(freed_);
  freed_.clear();
  freed_cursor_ = 0;
}

uint64_t Partition::slots() const {
  return tables_.empty() ? 0 : tables_.size() * tables_[0].count * proto::kSlotsPerBucket;
}

bool Partition::scan(ScanContext& context, uint64_t& slots) {
  finish_moves(context);
  moved_in_slice_ = 0;
  while (table_ < tables_.size()) {
    const Table& table = tables_[table_];
    while (bucket_ < table.count) {
      if (slots == 0) return false;
      const size_t count = std::min<uint64_t>(kGroupBuckets, table.count - bucket_);
      scan_group(context, table.buckets + bucket_, count, ordinal_);
      bucket_ += count;
      ordinal_ += count * proto::kSlotsPerBucket;
      slots -= std::min(slots, count * proto::kSlotsPerBucket);
      if (moved_in_slice_ >= kMovedPerSlice) slots = 0;
    }
    ++table_;
    bucket_ = 0;
    live_before_table_ = live_seen_;
  }
  if (!moves_.empty()) return false;
  freed_before_ = {};
  live_keys_ = live_seen_;
  context.live_keys += live_seen_;
  next_expiry_hint_ = least_hint_;
  return true;
}

void Partition::scan_group(ScanContext& context, proto::Bucket* buckets, size_t count, uint64_t first_ordinal) {
  Candidate candidates[kGroupSlots];
  size_t n = 0;
  for (size_t b = 0; b < count; ++b) {
    for (size_t s = 0; s < proto::kSlotsPerBucket; ++s) {
      uint64_t* slot = &buckets[b].slots[s];
      const SlotWord word(shared(*slot).load(std::memory_order_acquire));
      if (!word.names_block()) continue;
      BlockMeta* meta = heap_.find(word);
      if (meta != nullptr) __builtin_prefetch(meta, 1);
      candidates[n++] = {slot, first_ordinal + b * proto::kSlotsPerBucket + s, word, meta};
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const Candidate& c = candidates[i];
    if (c.meta == nullptr || (c.word.is_live() && c.meta->hint() != BlockMeta::kUnseen)) continue;
    if (c.word.state() != SlotState::kFreed) __builtin_prefetch(data_ + c.word.block_offset());
  }
  for (size_t i = 0; i < n; ++i) visit(context, candidates[i]);
}

void Partition::visit(ScanContext& context, const Candidate& candidate) {
  switch (candidate.word.state()) {
    case SlotState::kEmpty:
      return;
    case SlotState::kLive:
      return visit_live(context, candidate);
    case SlotState::kTentative:
      return visit_tentative(context, candidate);
    case SlotState::kFreed:
      return visit_freed(context, candidate);
  }
}

// The slot has changed since it was read: what it holds now is looked at instead.
void Partition::revisit(ScanContext& context, const Candidate& candidate, SlotWord word) {
  Candidate again = candidate;
  again.word = word;
  again.meta = word.names_block() ? heap_.find(word) : nullptr;
  visit(context, again);
}

void Partition::visit_live(ScanContext& context, const Candidate& candidate) {
  const SlotWord word = candidate.word;
  BlockMeta* meta = candidate.meta;
  if (meta == nullptr || !heap_.current(*meta, word)) return;  // no correct peer wrote it
  ++live_seen_;
  if (word.dirty()) mark(SlotWord(header_word(word, offsetof(proto::BlockHeader, prev))));
  if (meta->hint() == BlockMeta::kNever || !expired(context, word, *meta)) {
    if (!relocate(context, candidate)) heap_.mark(*meta);
    return;
  }
  heap_.mark(*meta);
  if (word.dirty() || word.frozen()) return;
  const SlotWord freed = word.with_state(SlotState::kFreed);
  if (!exchange(candidate.slot, word, freed)) return;  // replaced: the block stays marked until the next sweep
  SKUA_PROBE("sweep.expired");
  --live_seen_;
  ++context.expired;
  Candidate removed = candidate;
  removed.word = freed;
  track_freed(context, removed);
}

bool Partition::expired(const ScanContext& context, SlotWord word, BlockMeta& meta) {
  if (hint_origin_ms_ == 0) hint_origin_ms_ = context.cluster_time_ms;
  if (meta.hint() != BlockMeta::kUnseen && meta.hint() > expiry_hint(context.cluster_time_ms)) {
    least_hint_ = std::min(least_hint_, meta.hint());
    return false;
  }
  const uint64_t expiry_ms = header_word(word, offsetof(proto::BlockHeader, expiry_lo)) & proto::kMaxExpiryMs;
  meta.set_hint(expiry_ms == 0 ? BlockMeta::kNever : expiry_hint(expiry_ms));
  if (expiry_ms == 0) return false;
  if (expiry_ms <= context.cluster_time_ms) return true;
  least_hint_ = std::min(least_hint_, meta.hint());
  return false;
}

// Rounded down, and at the far end all the same: a hint never lies behind the expiry that it stands for.
uint32_t Partition::expiry_hint(uint64_t expiry_ms) const {
  if (expiry_ms <= hint_origin_ms_) return BlockMeta::kUnseen + 1;
  const uint64_t units = (expiry_ms - hint_origin_ms_) / kHintUnitMs + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(units, BlockMeta::kNever - 1));
}

std::optional<uint64_t> Partition::next_expiry_ms() const {
  if (next_expiry_hint_ == BlockMeta::kNever) return std::nullopt;
  return hint_origin_ms_ + (next_expiry_hint_ - 1) * kHintUnitMs;
}

void Partition::visit_tentative(ScanContext& context, const Candidate& candidate) {
  const SlotWord word = candidate.word;
  BlockMeta* meta = candidate.meta;
  if (meta == nullptr || !heap_.current(*meta, word)) return;
  SlotWord prev(header_word(word, offsetof(proto::BlockHeader, prev)));
  if (meta->state() != BlockState::kUsed || word.frozen()) {
    SKUA_PROBE("sweep.insert-under-way");
    heap_.mark(*meta);
    if (prev.names_block() && !SKUA_PLANTED_BUG("replaced-word-not-counted")) mark(prev);
    return;
  }
  // Its owner is done, and did not commit it.
  if (!prev.is_free()) prev = next_empty();
  if (exchange(candidate.slot, word, prev)) {
    SKUA_PROBE("sweep.kills-abandoned-insert");
    ++context.tentative_killed;
    revisit(context, candidate, prev);
    return;
  }
  // Committed or killed meanwhile; whichever it was, both blocks stay for this sweep.
  heap_.mark(*meta);
  if (prev.names_block()) mark(prev);
}

void Partition::visit_freed(ScanContext& context, const Candidate& candidate) {
  const SlotWord word = candidate.word;
  BlockMeta* meta = candidate.meta;
  if (word.dirty() || word.frozen()) {
    if (meta != nullptr && heap_.current(*meta, word)) heap_.mark(*meta);
    return;
  }
  while (freed_cursor_ < freed_before_.size() && freed_before_[freed_cursor_].ordinal < candidate.ordinal) {
    ++freed_cursor_;
  }
  if (freed_cursor_ < freed_before_.size()) {
    const FreedSlot& before = freed_before_[freed_cursor_];
    if (before.ordinal == candidate.ordinal && before.word == word.bits()) {
      if (before.first_epoch < context.oldest_epoch || SKUA_PLANTED_BUG("rename-without-grace")) {
        SKUA_PROBE("sweep.renames-freed");
        if (exchange(candidate.slot, word, next_empty())) return;  // the block is not marked: it retires
      } else {
        if (meta != nullptr && heap_.current(*meta, word)) heap_.mark(*meta);
        freed_.push_back(before);
        return;
      }
    }
  }
  track_freed(context, candidate);
}

// The slot holds a FREED word that no scan saw before, or held it until a moment ago.
void Partition::track_freed(ScanContext& context, const Candidate& candidate) {
  if (SKUA_PLANTED_BUG("rename-without-grace") && exchange(candidate.slot, candidate.word, next_empty())) return;
  const bool counts = candidate.meta != nullptr && !SKUA_PLANTED_BUG("freed-not-counted");
  if (counts && heap_.current(*candidate.meta, candidate.word)) heap_.mark(*candidate.meta);
  freed_.push_back({candidate.word.bits(), context.reclaim_epoch, candidate.ordinal});
}

void Partition::mark(SlotWord word) {
  BlockMeta* meta = heap_.find(word);
  if (meta != nullptr && heap_.current(*meta, word)) heap_.mark(*meta);
}

uint64_t Partition::header_word(SlotWord word, size_t offset) const {
  auto* address = reinterpret_cast<uint64_t*>(data_ + word.block_offset() + (offset & ~size_t{7}));
  return shared(*address).load(std::memory_order_relaxed);
}

bool Partition::exchange(uint64_t* slot, SlotWord from, SlotWord to) const {
  if (AtomicsExecutor* const device = arena_.atomics()) {
    return device->compare_and_swap(reinterpret_cast<std::byte*>(slot), from.bits(), to.bits()) == from.bits();
  }
  uint64_t expected = from.bits();
  return shared(*slot).compare_exchange_strong(expected, to.bits(), std::memory_order_acq_rel,
                                               std::memory_order_acquire);
}

SlotWord Partition::next_empty() { return SlotWord::empty(proto::renamed_identity(membership_epoch_, renamed_++)); }

bool Partition::has_transient_words() const {
  uint64_t seen = 0;
  for (const Table& table : tables_) {
    for (uint64_t b = 0; b < table.count; ++b) {
      for (uint64_t& word : table.buckets[b].slots) seen |= shared(word).load(std::memory_order_relaxed);
    }
  }
  // TENTATIVE and FREED, and no other state, have bit 0.
  static_assert((static_cast<int>(SlotState::kTentative) & 1) == 1 && (static_cast<int>(SlotState::kFreed) & 1) == 1);
  static_assert((static_cast<int>(SlotState::kEmpty) & 1) == 0 && (static_cast<int>(SlotState::kLive) & 1) == 0);
  return (seen & 1) != 0;
}

}  // namespace skua
