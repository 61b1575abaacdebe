#pragma once
// Heap is the blocks of one partition: segments of one size class each, and the state of every block in them.
//
//   free -> granted -> used -> retired -> free, generation + 1
//
// Only the sweep takes a block from `used` to `retired`: whatever it did not find referenced (I11). A segment whose
// blocks are all free goes back to the partition's chunks and may come again as another class.
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/size_class.h"
#include "proto/slot_word.h"
#include "server/arena.h"

namespace skua {

enum class BlockState : uint8_t { kFree = 0, kGranted = 1, kUsed = 2, kRetired = 3 };

// What the server keeps of a block, in 8 bytes: the scan's random access is to these.
//   63                        24 23            8 7      2 1   0
//  +----------------------------+---------------+--------+-----+
//  | generation - segment's base| hint        16| mark 6 |state|
//  +----------------------------+---------------+--------+-----+
// hint: of a free block the next free one of its segment; else when it may expire (kUnseen, kNever, or a time).
// mark: number of the sweep that found it referenced.
class BlockMeta {
 public:
  static constexpr uint32_t kUnseen = 0;
  static constexpr uint32_t kNever = 0xffff;
  static constexpr uint32_t kEndOfList = 0xffff;

  BlockState state() const { return static_cast<BlockState>(bits_ & 3); }
  uint32_t mark() const { return static_cast<uint32_t>(bits_ >> 2) & 63; }
  uint32_t hint() const { return static_cast<uint32_t>(bits_ >> 8) & 0xffff; }
  uint64_t generation() const { return bits_ >> 24; }
  void set_state(BlockState state) { bits_ = (bits_ & ~uint64_t{3}) | static_cast<uint64_t>(state); }
  void set_mark(uint32_t mark) { bits_ = (bits_ & ~(uint64_t{63} << 2)) | (uint64_t{mark & 63} << 2); }
  void set_hint(uint32_t hint) { bits_ = (bits_ & ~(uint64_t{0xffff} << 8)) | (uint64_t{hint & 0xffff} << 8); }
  void set_generation(uint64_t relative) { bits_ = (bits_ & 0xffffff) | (relative << 24); }

 private:
  uint64_t bits_ = 0;
};
static_assert(sizeof(BlockMeta) == 8);

struct BlockRef {
  uint32_t segment = 0;
  uint32_t index = 0;
};

struct TakenBlock {
  BlockRef ref;
  uint64_t block_units = 0;
  uint64_t generation = 0;
};

// How a class is cut out of chunks.
struct SegmentShape {
  uint32_t chunks = 1;
  uint32_t blocks = 0;
};
constexpr SegmentShape segment_shape(int size_class) {
  const uint64_t block = proto::size_class_bytes(size_class);
  for (uint32_t chunks = 1;; ++chunks) {
    const uint64_t bytes = chunks * kChunkBytes;
    if (bytes < block) continue;
    if ((bytes % block) * 8 <= bytes) return {chunks, static_cast<uint32_t>(bytes / block)};  // at most 1/8 unused
  }
}

struct ClassCounts {
  uint32_t segments = 0;
  uint32_t free = 0;
  uint32_t granted = 0;
  uint32_t used = 0;
  uint32_t retired = 0;
};

// Generations. A block address never sees a generation twice, not even in another life of the server (they begin with
// the membership epoch). The version in a slot word (generation modulo 2^8) moves by one each time that a block of this
// class at this address is granted, whatever was there in between; each such step takes a reclaim epoch, so that a
// version returns after 256 of them (I13). For that a closed segment's versions are remembered until 256 epochs have
// passed, when any version may be taken.
//
// Cost:    take, use: O(1) a block. finish_sweep: one pass over all metadata, 8 bytes a block.
// Threads: the executor's.
class Heap {
 public:
  explicit Heap(ExtentMap& extents);

  // Generations begin above this one. Requires: nothing was taken yet.
  void begin_above(uint64_t generation) { origin_ = generation; }

  // Grants a block. Nothing: none is free and no segment can be had.
  std::optional<TakenBlock> take(int size_class, uint64_t reclaim_epoch, bool may_commit);
  // A granted block belongs to a finished operation. Not a candidate of a sweep that has begun.
  void use(BlockRef ref);

  // The block that a word names, if it is one that was granted: nullptr for what no correct peer could have written.
  BlockMeta* find(proto::SlotWord word) {
    const uint64_t units = word.block_units();
    const uint64_t chunk = units / kChunkUnits;
    if (chunk >= segment_of_chunk_.size()) return nullptr;
    const uint32_t id = segment_of_chunk_[chunk];
    if (id == kNoSegment) return nullptr;
    const Segment& segment = segments_[id];
    const uint64_t delta = units - segment.first_units;
    const uint64_t index = (delta * segment.reciprocal) >> 32;
    if (index >= segment.blocks || index * segment.block_units != delta) return nullptr;
    if (segment.size_class != word.size_class()) return nullptr;
    return &segment.meta[index];
  }
  // Is `meta`, as found by the word, of the life that the word names?
  bool current(const BlockMeta& meta, proto::SlotWord word) const {
    const Segment& segment = segments_[segment_of_chunk_[word.block_units() / kChunkUnits]];
    const BlockState state = meta.state();
    return (state == BlockState::kUsed || state == BlockState::kGranted) &&
           ((segment.base + meta.generation()) & (proto::kVersionModulus - 1)) == word.version();
  }

  // A sweep marks what it finds between begin and finish.
  void begin_sweep() { sweep_ = (sweep_ + 1) & 63; }
  void mark(BlockMeta& meta) { meta.set_mark(sweep_); }
  struct SweepResult {
    uint64_t retired = 0;        // blocks
    uint64_t retired_bytes = 0;
    uint64_t live_bytes = 0;
  };
  // Retires what was used before begin_sweep and was not marked.
  SweepResult finish_sweep();
  // Frees all that is retired. Requires: every session has reported an epoch past that of finish_sweep. Returns blocks.
  uint64_t release_retired(uint64_t reclaim_epoch);

  // --- Compaction
  //
  // Blocks leave extents that are worth to be emptied: from begin_evacuation to end_evacuation nothing is taken from
  // their segments, and the scan in between moves what is live there (Partition::relocate).
  enum class Pressure : uint8_t {
    kNone,    // memory is given back when a good part of the heap lies idle in half-empty extents
    kShort,   // somebody waits for memory
    kForced,  // everything moves
  };
  struct Evacuation {
    std::vector<uint32_t> extents;
    std::vector<uint32_t> segments;  // in extents that hold something else, too
    bool empty() const { return extents.empty() && segments.empty(); }
  };
  // What can be emptied into what is free elsewhere in committed memory. Nothing: that would make neither an extent
  // nor, when memory is short, a segment free. Cost: one pass over the segments.
  Evacuation plan_evacuation(Pressure pressure) const;
  void begin_evacuation(const Evacuation& plan);
  void end_evacuation();
  bool evacuating() const { return !leaving_.empty(); }
  // Does the block that the word names lie in one of them? Requires: find(word) found it.
  bool leaves(proto::SlotWord word) const {
    return segments_[segment_of_chunk_[word.block_units() / kChunkUnits]].leaving;
  }
  // A block for a copy; it is used from the start, and marked in the sweep under way.
  std::optional<TakenBlock> take_for_move(int size_class, uint64_t reclaim_epoch, bool may_commit);
  BlockMeta& meta(BlockRef ref) { return segments_[ref.segment].meta[ref.index]; }

  const ClassCounts& counts(int size_class) const { return counts_[static_cast<size_t>(size_class)]; }
  uint64_t heap_bytes() const { return heap_bytes_; }    // of segments
  uint64_t taken_bytes() const { return taken_bytes_; }  // ever
  uint64_t used_bytes() const { return used_bytes_; }    // of blocks that are not free
  uint64_t live_bytes() const { return live_bytes_; }    // at the last sweep
  uint64_t retired_blocks() const { return retired_.size(); }
  uint64_t blocks_taken() const { return blocks_taken_; }      // that are not free
  uint64_t blocks_granted() const { return blocks_granted_; }  // of them, in the hands of sessions

 private:
  static constexpr uint32_t kNoSegment = 0xffffffff;
  static constexpr uint64_t kChunkUnits = kChunkBytes / proto::kBlockUnit;

  struct Segment {
    uint64_t first_units = 0;
    uint64_t reciprocal = 0;  // 2^32 / block_units, rounded up
    uint32_t block_units = 0;
    uint32_t blocks = 0;
    uint32_t size_class = 0;
    uint32_t free = 0;
    uint64_t base = 0;        // generation of a block = base + its meta's
    std::unique_ptr<BlockMeta[]> meta;
    bool leaving = false;     // its extents are being emptied
    uint32_t free_head = 0;
    uint32_t first_chunk = 0;
    uint32_t previous = kNoSegment;  // among the segments of its class that have free blocks
    uint32_t next = kNoSegment;
  };
  struct Filling {
    uint32_t extent = 0;
    uint32_t chunks = 0;  // of the heap
    uint64_t taken = 0;   // bytes of blocks that are not free
  };
  using Resident = std::pair<uint32_t, uint32_t>;  // extent, segment
  void survey(std::vector<Filling>& fillings, std::vector<Resident>& residents) const;
  std::vector<uint32_t> sparse_extents(Pressure pressure, std::vector<Filling> fillings,
                                       std::span<const Resident> residents) const;
  std::vector<uint32_t> spare_segments(std::span<const Filling> fillings, std::span<const Resident> residents) const;
  void leave(uint32_t id);
  struct History {
    uint64_t closed_epoch = 0;
    std::vector<uint8_t> versions;  // that come next
  };
  struct Closing {
    uint64_t key = 0;
    uint64_t closed_epoch = 0;
  };
  static uint64_t history_key(uint32_t first_chunk, uint32_t size_class) {
    return (uint64_t{first_chunk} << 6) | size_class;
  }

  bool open_segment(int size_class, uint64_t reclaim_epoch, bool may_commit);
  void close_segment(uint32_t id, uint64_t reclaim_epoch);
  void forget_history(uint64_t reclaim_epoch);
  void free_block(BlockRef ref, uint64_t reclaim_epoch);
  void link(uint32_t id);
  void unlink(uint32_t id);

  ExtentMap& extents_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> free_ids_;
  std::vector<uint32_t> segment_of_chunk_;
  std::vector<uint64_t> generation_floor_;  // of a chunk: the highest generation that a block in it ever had
  std::unordered_map<uint64_t, History> history_;
  std::deque<Closing> history_order_;       // oldest first
  std::array<uint32_t, proto::kSizeClasses> partial_;  // heads
  std::array<ClassCounts, proto::kSizeClasses> counts_{};
  std::vector<BlockRef> retired_;
  std::vector<uint32_t> leaving_;           // segments
  uint32_t sweep_ = 0;
  uint64_t origin_ = 0;
  uint64_t blocks_taken_ = 0;
  uint64_t blocks_granted_ = 0;
  uint64_t heap_bytes_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t taken_bytes_ = 0;
  uint64_t live_bytes_ = 0;
};

}  // namespace skua
