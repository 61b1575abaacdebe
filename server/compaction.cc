// Compaction: live blocks leave extents that are nearly empty, so that these can be given back or cut anew.
//
// The sweep moves them as it meets their words: it copies the block, CASes the slot from the old word to the copy's,
// and leaves the old block to the end of the same sweep, where it retires like any value that was replaced (I19). A
// copy is a write of the same value: it keeps the write's id, so that version tokens stand; it names the word that it
// replaced, so that a writer in doubt finds its own word behind it; and it is marked as conditional, so that no PUT
// takes it for another's and counts itself as overwritten.
#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "common/base/check.h"
#include "common/base/hooks.h"
#include "common/base/remote_memory.h"
#include "proto/block.h"
#include "server/partition.h"

namespace skua {

using proto::BlockHeader;
using proto::SlotState;
using proto::SlotWord;

namespace {

constexpr uint64_t kMovedAtOnce = uint64_t{128} << 20;   // bytes in one sweep, to give memory back
constexpr uint64_t kLeastMoved = uint64_t{64} << 20;     // and at least so many, or a quarter, when memory is short
constexpr uint64_t kIdleFraction = 4;                    // of the heap is free: worth a look
constexpr size_t kMoveStep = size_t{64} << 10;           // bytes that are copied and hashed while they are in a cache

}  // namespace

// --- What is emptied

// Of each extent what the heap has in it (all of them, by number), and of each segment the extents that it lies in.
void Heap::survey(std::vector<Filling>& fillings, std::vector<Resident>& residents) const {
  const uint32_t per_extent = extents_.chunks_per_extent();
  for (uint32_t id = 0; id < segments_.size(); ++id) {
    const Segment& segment = segments_[id];
    if (!segment.meta) continue;
    const uint32_t chunks = segment_shape(static_cast<int>(segment.size_class)).chunks;
    const uint64_t taken = uint64_t{segment.blocks - segment.free} * segment.block_units * proto::kBlockUnit;
    for (uint32_t c = segment.first_chunk; c < segment.first_chunk + chunks;) {
      const uint32_t extent = c / per_extent;
      const uint32_t end = std::min(segment.first_chunk + chunks, (extent + 1) * per_extent);
      if (extent >= fillings.size()) fillings.resize(extent + 1);
      fillings[extent].extent = extent;
      fillings[extent].chunks += end - c;
      fillings[extent].taken += taken * (end - c) / chunks;
      residents.emplace_back(extent, id);
      c = end;
    }
  }
  std::sort(residents.begin(), residents.end());
}

Heap::Evacuation Heap::plan_evacuation(Pressure pressure) const {
  std::vector<Filling> fillings;
  std::vector<Resident> residents;
  survey(fillings, residents);
  Evacuation plan;
  if (pressure == Pressure::kForced) {
    for (const Resident& resident : residents) plan.segments.push_back(resident.second);
    return plan;
  }
  plan.extents = sparse_extents(pressure, fillings, residents);
  if (plan.extents.empty() && pressure == Pressure::kShort) plan.segments = spare_segments(fillings, residents);
  return plan;
}

// The emptiest ones, as long as what they hold finds room in others and at least one more is idle afterwards.
std::vector<uint32_t> Heap::sparse_extents(Pressure pressure, std::vector<Filling> fillings,
                                           std::span<const Resident> residents) const {
  const uint32_t per_extent = extents_.chunks_per_extent();
  const uint64_t extent_bytes = per_extent * kChunkBytes;
  uint64_t gaps = 0;  // free chunks of extents that are in use
  for (const Filling& f : fillings) {
    if (f.chunks > 0) gaps += per_extent - extents_.used_chunks(f.extent);
  }
  // What holds index pages as well cannot be emptied.
  std::erase_if(fillings, [&](const Filling& f) {
    return f.chunks == 0 || f.chunks != extents_.used_chunks(f.extent);
  });
  std::sort(fillings.begin(), fillings.end(), [](const Filling& a, const Filling& b) {
    return std::pair(a.taken, a.extent) < std::pair(b.taken, b.extent);
  });
  struct Account {
    std::array<int64_t, proto::kSizeClasses> room{};  // free blocks outside of what was chosen
    int64_t spare = 0;                                // free chunks likewise
    uint64_t fresh = 0;                               // chunks that copies need
  } account;
  for (size_t c = 0; c < account.room.size(); ++c) account.room[c] = counts_[c].free;
  account.spare = static_cast<int64_t>(extents_.free_chunks());
  const bool idle_only = pressure == Pressure::kNone;
  const uint64_t most = idle_only ? kMovedAtOnce : std::max(kLeastMoved, heap_bytes_ / 4);
  const uint64_t too_full = idle_only ? extent_bytes / 2 : extent_bytes / 16 * 15;
  uint64_t moved = 0;
  std::vector<bool> gone(segments_.size());
  std::vector<uint32_t> chosen;
  for (const Filling& f : fillings) {
    if (f.taken > too_full || (moved > 0 && moved + f.taken > most)) break;
    Account trial = account;
    trial.spare -= per_extent - f.chunks;
    std::vector<uint32_t> leaving;
    for (auto r = std::lower_bound(residents.begin(), residents.end(), Resident{f.extent, 0});
         r != residents.end() && r->first == f.extent; ++r) {
      if (gone[r->second]) continue;
      leaving.push_back(r->second);
      const Segment& segment = segments_[r->second];
      const SegmentShape shape = segment_shape(static_cast<int>(segment.size_class));
      int64_t& room = trial.room[segment.size_class];
      for (room -= segment.blocks; room < 0; room += shape.blocks) {
        trial.spare -= shape.chunks;
        trial.fresh += shape.chunks;
      }
    }
    if (trial.spare < 0) continue;
    account = trial;
    moved += f.taken;
    gaps -= std::min<uint64_t>(gaps, per_extent - f.chunks);
    for (const uint32_t id : leaving) gone[id] = true;
    chosen.push_back(f.extent);
  }
  // What copies need beyond the gaps that there are comes out of whole extents.
  const uint64_t broken = account.fresh - std::min(account.fresh, gaps);
  if (chosen.size() * per_extent < broken + per_extent) chosen.clear();
  return chosen;
}

// Of each class as many segments as its free blocks fill, from the emptiest extents.
std::vector<uint32_t> Heap::spare_segments(std::span<const Filling> fillings,
                                           std::span<const Resident> residents) const {
  std::vector<std::pair<uint64_t, uint32_t>> order;  // by what lies around it
  for (const auto& [extent, id] : residents) {
    const uint64_t own = segments_[id].blocks - segments_[id].free;
    order.emplace_back(fillings[extent].taken * 1024 + own * 1023 / segments_[id].blocks, id);
  }
  std::sort(order.begin(), order.end());
  std::array<uint64_t, proto::kSizeClasses> room{};
  for (size_t c = 0; c < room.size(); ++c) room[c] = counts_[c].free;
  std::vector<uint32_t> chosen;
  std::vector<bool> seen(segments_.size());
  for (const auto& [around, id] : order) {
    const Segment& segment = segments_[id];
    if (seen[id] || room[segment.size_class] < segment.blocks) continue;
    seen[id] = true;
    room[segment.size_class] -= segment.blocks;
    chosen.push_back(id);
  }
  return chosen;
}

void Heap::leave(uint32_t id) {
  Segment& segment = segments_[id];
  if (segment.leaving) return;
  if (segment.free > 0) unlink(id);
  segment.leaving = true;
  leaving_.push_back(id);
}

void Heap::begin_evacuation(const Evacuation& plan) {
  SKUA_CHECK(leaving_.empty(), "one evacuation at a time");
  const uint32_t per_extent = extents_.chunks_per_extent();
  for (const uint32_t extent : plan.extents) {
    extents_.close(extent);
    const uint32_t end = std::min<uint32_t>((extent + 1) * per_extent, static_cast<uint32_t>(segment_of_chunk_.size()));
    for (uint32_t chunk = extent * per_extent; chunk < end; ++chunk) {
      if (segment_of_chunk_[chunk] != kNoSegment) leave(segment_of_chunk_[chunk]);
    }
  }
  for (const uint32_t id : plan.segments) leave(id);
}

void Heap::end_evacuation() {
  for (const uint32_t id : leaving_) {
    Segment& segment = segments_[id];
    if (!segment.leaving) continue;  // closed since, or another one by now
    segment.leaving = false;
    if (segment.free > 0) link(id);
  }
  leaving_.clear();
  extents_.open_all();
}

std::optional<TakenBlock> Heap::take_for_move(int size_class, uint64_t reclaim_epoch, bool may_commit) {
  auto taken = take(size_class, reclaim_epoch, may_commit);
  if (!taken) return std::nullopt;
  use(taken->ref);
  meta(taken->ref).set_mark(sweep_);
  return taken;
}

bool Partition::may_be_sparse() const {
  const uint64_t idle = heap_.heap_bytes() - std::min(heap_.heap_bytes(), heap_.used_bytes());
  return !arena_.keeps_memory() && idle >= heap_.heap_bytes() / kIdleFraction && idle >= 2 * arena_.extent_bytes();
}

bool Partition::sparse() {
  const uint64_t taken = heap_.taken_bytes() - std::exchange(taken_then_, heap_.taken_bytes());
  const uint64_t idle = heap_.heap_bytes() - std::min(heap_.heap_bytes(), heap_.used_bytes());
  return may_be_sparse() && idle > 2 * taken && !heap_.plan_evacuation(Heap::Pressure::kNone).empty();
}

// --- Moving

// Copies the block that `word` names to `to`, as a write of the same value. False: it is not whole.
bool Partition::copy_block(SlotWord word, const TakenBlock& to) {
  const std::byte* const from = data_ + word.block_offset();
  std::byte* const copy = data_ + to.block_units * proto::kBlockUnit;
  BlockHeader header;
  copy_from_remote(&header, from, sizeof header);
  const size_t content = size_t{header.key_bytes} + header.value_bytes;
  if (sizeof header + content > proto::size_class_bytes(static_cast<int>(word.size_class()))) return false;
  if ((header.generation & (proto::kVersionModulus - 1)) != word.version()) return false;
  BlockHeader moved = header;
  const bool new_token = SKUA_PLANTED_BUG("moved-value-has-another-token");
  const uint64_t generation = new_token ? proto::make_generation(to.block_units, to.generation) : header.generation;
  moved.generation = proto::moved_generation(generation, to.generation);
  moved.prev = SKUA_PLANTED_BUG("moved-word-hides-what-it-replaced") ? SlotWord().bits() : word.bits();
  if (!SKUA_PLANTED_BUG("moved-word-absorbs")) moved.flags |= proto::kBlockConditional;
  bounce_.resize(kMoveStep);
  proto::BlockChecksum before(header);
  proto::BlockChecksum after(moved);
  for (size_t at = 0; at < content; at += kMoveStep) {
    const size_t bytes = std::min(kMoveStep, content - at);
    copy_from_remote(bounce_.data(), from + sizeof header + at, bytes);
    before.update({bounce_.data(), bytes});
    after.update({bounce_.data(), bytes});
    copy_to_remote(copy + sizeof header + at, bounce_.data(), bytes);
  }
  if (before.digest() != header.checksum) return false;
  moved.checksum = after.digest();
  copy_to_remote(copy, &moved, sizeof moved);
  return true;
}

// True: a copy is made, which the slot will name from the next slice of the scan on, unless it changes before.
bool Partition::relocate(ScanContext& context, const Candidate& candidate) {
  const SlotWord word = candidate.word;
  if (!heap_.evacuating() || !heap_.leaves(word)) return false;
  if (word.dirty() || (word.frozen() && !SKUA_PLANTED_BUG("frozen-is-moved"))) return false;
  if (moved_in_slice_ >= kMovedPerSlice) return false;
  const auto size_class = static_cast<int>(word.size_class());
  const auto taken = heap_.take_for_move(size_class, context.reclaim_epoch, moves_may_commit_);
  if (!taken) {
    SKUA_PROBE("move.no-room");
    return false;
  }
  // Whatever becomes of the copy, its block stays for this sweep; the next one finds it referenced or not.
  if (!copy_block(word, *taken)) return false;
  moved_in_slice_ += proto::size_class_bytes(size_class);
  heap_.meta(taken->ref).set_hint(candidate.meta->hint());
  const SlotWord moved = SlotWord::of(
      SlotState::kLive, {taken->block_units, taken->generation, word.size_class(), word.fingerprint()});
  moves_.push_back({candidate.slot, word, moved, candidate.meta});
  return true;
}

// The old block is needed no more where the slot still held its word. Where it does not, whoever changed it may yet be
// in doubt about that, or a FREED word names the block: it stays for this sweep.
void Partition::finish_moves(ScanContext& context) {
  for (const Move& move : moves_) {
    if (SKUA_PLANTED_BUG("moved-without-cas")) {
      std::atomic_ref<uint64_t>(*move.slot).store(move.moved.bits(), std::memory_order_release);
    } else if (!exchange(move.slot, move.word, move.moved)) {
      SKUA_PROBE("move.overtaken");
      if (!SKUA_PLANTED_BUG("overtaken-move-frees")) heap_.mark(*move.meta);
      continue;
    }
    SKUA_PROBE("move.done");
    ++context.moved;
    context.moved_bytes += proto::size_class_bytes(static_cast<int>(move.word.size_class()));
  }
  moves_.clear();
}

}  // namespace skua
