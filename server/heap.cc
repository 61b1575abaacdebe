#include "server/heap.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/hooks.h"

namespace skua {
namespace {

constexpr uint64_t kHistoryEpochs = proto::kVersionModulus;

}  // namespace

Heap::Heap(ExtentMap& extents) : extents_(extents) { partial_.fill(kNoSegment); }

std::optional<TakenBlock> Heap::take(int size_class, uint64_t reclaim_epoch, bool may_commit) {
  const auto c = static_cast<size_t>(size_class);
  if (partial_[c] == kNoSegment && !open_segment(size_class, reclaim_epoch, may_commit)) return std::nullopt;
  const uint32_t id = partial_[c];
  Segment& segment = segments_[id];
  const uint32_t index = segment.free_head;
  BlockMeta& meta = segment.meta[index];
  SKUA_CHECK(index < segment.blocks && meta.state() == BlockState::kFree, "the free list holds free blocks");
  segment.free_head = meta.hint();
  meta.set_state(BlockState::kGranted);
  meta.set_hint(BlockMeta::kUnseen);
  --counts_[c].free;
  ++counts_[c].granted;
  ++blocks_taken_;
  ++blocks_granted_;
  const uint64_t bytes = uint64_t{segment.block_units} * proto::kBlockUnit;
  used_bytes_ += bytes;
  taken_bytes_ += bytes;
  extents_.add_block_bytes(bytes);
  if (--segment.free == 0) unlink(id);
  return TakenBlock{{id, index}, segment.first_units + uint64_t{index} * segment.block_units,
                    segment.base + meta.generation()};
}

void Heap::use(BlockRef ref) {
  Segment& segment = segments_[ref.segment];
  BlockMeta& meta = segment.meta[ref.index];
  SKUA_CHECK(meta.state() == BlockState::kGranted, "a grant's blocks are granted until they are used");
  meta.set_state(BlockState::kUsed);
  if (!SKUA_PLANTED_BUG("candidates-during-scan")) meta.set_mark(sweep_);
  --counts_[segment.size_class].granted;
  --blocks_granted_;
  ++counts_[segment.size_class].used;
}

Heap::SweepResult Heap::finish_sweep() {
  SweepResult result;
  for (uint32_t id = 0; id < segments_.size(); ++id) {
    Segment& segment = segments_[id];
    if (!segment.meta || segment.free == segment.blocks) continue;
    uint32_t live = 0;
    uint32_t retired = 0;
    for (uint32_t i = 0; i < segment.blocks; ++i) {
      BlockMeta& meta = segment.meta[i];
      const bool granted = meta.state() == BlockState::kGranted && SKUA_PLANTED_BUG("granted-are-candidates");
      if (meta.state() != BlockState::kUsed && !granted) continue;
      if (meta.mark() == sweep_) {
        ++live;
        continue;
      }
      meta.set_state(BlockState::kRetired);
      retired_.push_back({id, i});
      ++retired;
    }
    counts_[segment.size_class].used -= retired;
    counts_[segment.size_class].retired += retired;
    const uint64_t bytes = uint64_t{segment.block_units} * proto::kBlockUnit;
    result.retired += retired;
    result.retired_bytes += retired * bytes;
    result.live_bytes += live * bytes;
  }
  live_bytes_ = result.live_bytes;
  return result;
}

uint64_t Heap::release_retired(uint64_t reclaim_epoch) {
  for (const BlockRef& ref : retired_) free_block(ref, reclaim_epoch);
  const uint64_t blocks = retired_.size();
  retired_.clear();
  return blocks;
}

void Heap::free_block(BlockRef ref, uint64_t reclaim_epoch) {
  Segment& segment = segments_[ref.segment];
  BlockMeta& meta = segment.meta[ref.index];
  SKUA_CHECK(meta.state() == BlockState::kRetired, "only what is retired becomes free");
  meta.set_state(BlockState::kFree);
  if (!SKUA_PLANTED_BUG("generation-stays")) meta.set_generation(meta.generation() + 1);
  meta.set_hint(segment.free_head);
  segment.free_head = ref.index;
  --counts_[segment.size_class].retired;
  ++counts_[segment.size_class].free;
  --blocks_taken_;
  const uint64_t bytes = uint64_t{segment.block_units} * proto::kBlockUnit;
  used_bytes_ -= bytes;
  extents_.remove_block_bytes(bytes);
  if (segment.free++ == 0 && !segment.leaving) link(ref.segment);
  if (segment.free == segment.blocks) close_segment(ref.segment, reclaim_epoch);
}

bool Heap::open_segment(int size_class, uint64_t reclaim_epoch, bool may_commit) {
  const SegmentShape shape = segment_shape(size_class);
  const auto first = extents_.allocate(shape.chunks, may_commit);
  if (!first) return false;
  const uint32_t end = *first + shape.chunks;
  if (end > segment_of_chunk_.size()) {
    segment_of_chunk_.resize(end, kNoSegment);
    generation_floor_.resize(end);
  }
  uint32_t id = static_cast<uint32_t>(segments_.size());
  if (free_ids_.empty()) {
    segments_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  Segment& segment = segments_[id];
  segment.first_chunk = *first;
  segment.first_units = uint64_t{*first} * kChunkUnits;
  segment.size_class = static_cast<uint32_t>(size_class);
  segment.block_units = proto::kSizeClassUnits[static_cast<size_t>(size_class)];
  segment.reciprocal = ((uint64_t{1} << 32) + segment.block_units - 1) / segment.block_units;
  segment.blocks = shape.blocks;
  segment.free = shape.blocks;
  segment.free_head = 0;
  segment.meta = std::make_unique<BlockMeta[]>(shape.blocks);
  uint64_t floor = origin_;
  for (uint32_t chunk = *first; chunk < end; ++chunk) {
    segment_of_chunk_[chunk] = id;
    floor = std::max(floor, generation_floor_[chunk]);
  }
  segment.base = floor + 1;
  forget_history(reclaim_epoch);
  const auto history = history_.find(history_key(*first, segment.size_class));
  for (uint32_t i = 0; i < shape.blocks; ++i) {
    segment.meta[i].set_hint(i + 1 < shape.blocks ? i + 1 : BlockMeta::kEndOfList);
    if (history == history_.end()) continue;
    segment.meta[i].set_generation((history->second.versions[i] - segment.base) & (proto::kVersionModulus - 1));
  }
  ++counts_[segment.size_class].segments;
  counts_[segment.size_class].free += shape.blocks;
  heap_bytes_ += shape.chunks * kChunkBytes;
  link(id);
  return true;
}

void Heap::close_segment(uint32_t id, uint64_t reclaim_epoch) {
  Segment& segment = segments_[id];
  if (!segment.leaving) unlink(id);
  segment.leaving = false;
  const SegmentShape shape = segment_shape(static_cast<int>(segment.size_class));
  History history;
  history.closed_epoch = reclaim_epoch;
  history.versions.resize(segment.blocks);
  uint64_t highest = 0;
  for (uint32_t i = 0; i < segment.blocks; ++i) {
    const uint64_t next = segment.base + segment.meta[i].generation();
    history.versions[i] = static_cast<uint8_t>(next & (proto::kVersionModulus - 1));
    highest = std::max(highest, next - 1);
  }
  const uint64_t key = history_key(segment.first_chunk, segment.size_class);
  history_[key] = std::move(history);
  history_order_.push_back({key, reclaim_epoch});
  for (uint32_t chunk = segment.first_chunk; chunk < segment.first_chunk + shape.chunks; ++chunk) {
    segment_of_chunk_[chunk] = kNoSegment;
    generation_floor_[chunk] = highest;
  }
  extents_.free(segment.first_chunk, shape.chunks);
  --counts_[segment.size_class].segments;
  counts_[segment.size_class].free -= segment.blocks;
  heap_bytes_ -= shape.chunks * kChunkBytes;
  segment.meta.reset();
  free_ids_.push_back(id);
}

void Heap::forget_history(uint64_t reclaim_epoch) {
  while (!history_order_.empty() && history_order_.front().closed_epoch + kHistoryEpochs <= reclaim_epoch) {
    const auto [key, closed_epoch] = history_order_.front();
    history_order_.pop_front();
    const auto history = history_.find(key);  // of a later closing when the segment came and went again
    if (history != history_.end() && history->second.closed_epoch == closed_epoch) history_.erase(history);
  }
}

void Heap::link(uint32_t id) {
  Segment& segment = segments_[id];
  uint32_t& head = partial_[segment.size_class];
  segment.previous = kNoSegment;
  segment.next = head;
  if (head != kNoSegment) segments_[head].previous = id;
  head = id;
}

void Heap::unlink(uint32_t id) {
  Segment& segment = segments_[id];
  if (segment.previous != kNoSegment) {
    segments_[segment.previous].next = segment.next;
  } else {
    partial_[segment.size_class] = segment.next;
  }
  if (segment.next != kNoSegment) segments_[segment.next].previous = segment.previous;
  segment.previous = segment.next = kNoSegment;
}

}  // namespace skua
