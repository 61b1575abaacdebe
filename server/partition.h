#pragma once
// Partition is one partition's memory as its primary keeps it: header, directory and tables in the layout of
// proto/region_layout.h, its heap, the scan that finds what is referenced, and the splits by which its tables grow.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/key_hash.h"
#include "proto/region_layout.h"
#include "server/heap.h"
#include "server/index_pages.h"

namespace skua {

// Size of a partition's tables.
struct TableShape {
  uint32_t directory_depth = 0;
  uint32_t log2_buckets = 0;

  // For so many keys, so that the fullest windows do not overflow: at most 0.45 of the slots are taken. Tables have
  // 2^log2_buckets home buckets each, and there are as many as that takes.
  static TableShape for_keys(uint64_t keys, uint32_t log2_buckets);
  uint64_t directory_bytes() const;
  uint64_t tables() const { return uint64_t{1} << directory_depth; }
  uint64_t table_stride() const;   // bytes of a table, whole pages
  uint64_t index_bytes() const;    // header page, directory and tables
};

// What a scan goes by, and what it found.
struct ScanContext {
  uint64_t reclaim_epoch = 0;
  uint64_t oldest_epoch = 0;       // the least that a session has reported; all of them have passed what is below
  uint64_t cluster_time_ms = 0;
  uint64_t live_keys = 0;          // out, in this scan so far
  uint64_t expired = 0;            // out: LIVE words turned into FREED
  uint64_t tentative_killed = 0;   // out
  uint64_t moved = 0;              // out: blocks that left an extent
  uint64_t moved_bytes = 0;        // out
};

// Cost:    scan: one pass over the slots, one access to the metadata of each block that a slot names, and one to the
//          header of a block seen for the first time. 24 bytes for each FREED slot.
// Threads: the executor's; slots and blocks change under it. Slot words are changed by CAS alone.
class Partition {
 public:
  Partition(Arena& arena, uint32_t id, uint64_t arena_offset);

  // Error: kOutOfMemory when the tables do not fit.
  struct Format {
    uint64_t cluster_id = 0;
    uint64_t instance = 0;
    uint64_t membership_epoch = 0;
    TableShape shape;
  };
  Result<void> format(const Format& format);

  uint32_t id() const { return id_; }
  std::byte* data() const { return data_; }
  uint64_t arena_offset() const { return arena_offset_; }
  uint64_t region_bytes() const { return region_bytes_; }
  uint64_t index_bytes() const { return pages_.bytes(); }
  Heap& heap() { return heap_; }
  const Heap& heap() const { return heap_; }
  ExtentMap& extents() { return extents_; }

  void publish_epoch(uint64_t reclaim_epoch);

  // begin_scan, then scan until it returns true: the heap's marks are then complete. A call looks at about `slots`
  // slots, and takes what it looked at from that.
  //
  // `pressure`: blocks leave sparse extents as the scan meets them, until end_moves (compaction.cc).
  void begin_scan(std::optional<Heap::Pressure> pressure = std::nullopt);
  void end_moves() { heap_.end_evacuation(); }
  bool scan(ScanContext& context, uint64_t& slots);
  // Is there a TENTATIVE or FREED word, which a read-only load would not leave behind? Sequential reads only.
  bool has_transient_words() const;

  uint64_t slots() const;
  uint64_t live_keys() const { return live_keys_; }              // at the last complete scan
  uint64_t freed_words() const { return freed_.size(); }         // FREED words in their grace, as of the last scan
  // Cluster time from which on a LIVE word of the last scan may be expired; nothing: none ever expires.
  std::optional<uint64_t> next_expiry_ms() const;

  // A good part of the heap is free, in extents that hold something.
  bool may_be_sparse() const;
  // It was not taken from since the last look for long enough that moving what is left would give memory back.
  bool sparse();

  // The sweep has something to look for here; kept by the reclaimer.
  bool dirty = false;
  std::optional<Heap::Pressure> compaction;  // asked for in the next scan

  // --- Splits (table_split.cc; docs/protocol.md)
  //
  // begin_split, then split until it returns true. Until then readers use the old table, and writers wait once they
  // meet FROZEN in it. The old table's pages are free when every session has reported a later epoch.

  // So many blocks have been handed out that a table may have grown full: overloaded_tables looks.
  bool may_be_overloaded() const { return heap_.blocks_taken() >= next_look_; }
  // Tables with more than their share of slots taken, granted blocks that are still to be used included.
  std::vector<size_t> overloaded_tables();
  // Of the directory entry that `hash` leads to.
  size_t table_of(proto::KeyHash hash) const { return directory_[hash.directory_index(depth_)]; }
  proto::TableRef table_ref(proto::KeyHash hash) const { return tables_[table_of(hash)].ref; }
  // No slot of the key's window can be taken.
  bool window_is_full(proto::KeyHash hash) const;
  // False: a split is under way, no memory for the new tables, or the directory cannot grow further.
  bool begin_split(size_t table);
  // Goes on for about `slots` slots, and takes what it looked at from that. True: the new tables are published.
  bool split(uint64_t& slots, uint64_t reclaim_epoch);
  bool splitting() const { return split_.has_value(); }
  bool retired_index() const { return !retired_pages_.empty(); }
  // Frees what was retired before `oldest_epoch`, which every session has reported.
  void release_index(uint64_t oldest_epoch);
  size_t tables() const { return tables_.size(); }
  uint64_t splits() const { return splits_; }

 private:
  struct FreedSlot {
    uint64_t word;
    uint64_t first_epoch;  // in which a scan first saw it
    uint64_t ordinal;      // of the slot in the order of the scan
  };
  struct Table {
    proto::Bucket* buckets;
    uint64_t count;         // of buckets
    proto::TableRef ref;
    uint64_t prefix;        // the directory bits that its keys share
  };
  struct Split {
    size_t table = 0;
    uint64_t next_slot = 0;            // to be frozen
    std::array<uint64_t, 2> tables{};  // offsets of the new ones
    uint64_t directory = 0;            // and of the directory that names them
    uint32_t depth = 0;
  };
  struct RetiredPages {
    uint64_t offset = 0;
    uint64_t pages = 0;
    uint64_t epoch = 0;
  };
  // A LIVE word of the table that is split, and where it goes.
  struct Moved {
    proto::SlotWord word;
    uint64_t bucket = 0;
    uint64_t home = 0;
    uint32_t slot = 0;
    uint32_t child = 0;
  };
  // A slot that is to name a copy.
  struct Move {
    uint64_t* slot;
    proto::SlotWord word;
    proto::SlotWord moved;
    BlockMeta* meta;  // of the word's block
  };
  static constexpr uint64_t kMovedPerSlice = uint64_t{4} << 20;  // bytes, between two other things of the executor's
  static constexpr size_t kGroupBuckets = 8;
  static constexpr size_t kGroupSlots = kGroupBuckets * proto::kSlotsPerBucket;
  // A slot that names a block: gathered first, so that the accesses to metadata and headers overlap.
  struct Candidate {
    uint64_t* slot;
    uint64_t ordinal;
    proto::SlotWord word;
    BlockMeta* meta;
  };

  void format_tables(const TableShape& shape);
  proto::Bucket* buckets_at(uint64_t offset) const { return reinterpret_cast<proto::Bucket*>(data_ + offset); }
  static void format_table(proto::Bucket* buckets, const proto::TableRef& ref);
  uint64_t table_pages() const;
  uint64_t directory_pages(uint32_t depth) const;
  bool freeze(uint64_t* slot);
  std::vector<Moved> moving(const Table& table, uint32_t local_depth);
  static void place(proto::Bucket* buckets, std::span<const Moved> moved, uint32_t child);
  void publish_split(uint64_t reclaim_epoch);
  void retire_pages(uint64_t offset, uint64_t pages, uint64_t reclaim_epoch);
  void scan_group(ScanContext& context, proto::Bucket* buckets, size_t count, uint64_t first_ordinal);
  void visit(ScanContext& context, const Candidate& candidate);
  void visit_live(ScanContext& context, const Candidate& candidate);
  void visit_tentative(ScanContext& context, const Candidate& candidate);
  void visit_freed(ScanContext& context, const Candidate& candidate);
  void track_freed(ScanContext& context, const Candidate& candidate);
  void revisit(ScanContext& context, const Candidate& candidate, proto::SlotWord word);
  void mark(proto::SlotWord word);
  bool copy_block(proto::SlotWord word, const TakenBlock& to);
  bool relocate(ScanContext& context, const Candidate& candidate);
  void finish_moves(ScanContext& context);
  bool expired(const ScanContext& context, proto::SlotWord word, BlockMeta& meta);
  uint32_t expiry_hint(uint64_t expiry_ms) const;
  uint64_t header_word(proto::SlotWord word, size_t offset) const;
  proto::SlotWord next_empty();
  // False: another word was there, or it is not known whether this one is now.
  bool exchange(uint64_t* slot, proto::SlotWord from, proto::SlotWord to) const;

  const Arena& arena_;
  uint32_t id_;
  std::byte* data_;
  uint64_t arena_offset_;
  uint64_t region_bytes_;
  uint64_t membership_epoch_ = 0;
  uint64_t renamed_ = 0;
  ExtentMap extents_;
  Heap heap_;
  IndexPages pages_{extents_};
  std::vector<Table> tables_;         // a split keeps the first new one in its place, and appends the second
  std::vector<uint32_t> directory_;   // table of each entry
  uint32_t depth_ = 0;
  uint64_t directory_offset_ = 0;
  uint64_t root_version_ = 0;
  uint64_t table_version_ = 0;        // the highest given
  std::optional<Split> split_;
  std::vector<RetiredPages> retired_pages_;
  uint64_t next_look_ = 0;            // in blocks taken
  uint64_t splits_ = 0;

  // Of the scan under way.
  size_t table_ = 0;
  uint64_t bucket_ = 0;
  uint64_t ordinal_ = 0;
  uint64_t live_seen_ = 0;
  uint64_t live_before_table_ = 0;         // in the tables before table_
  uint32_t least_hint_ = BlockMeta::kNever;
  std::vector<FreedSlot> freed_;           // in the order of ordinals
  std::vector<FreedSlot> freed_before_;    // by the scan before
  size_t freed_cursor_ = 0;
  bool moves_may_commit_ = false;
  uint64_t moved_in_slice_ = 0;            // bytes
  std::vector<Move> moves_;                // of the last slice
  uint64_t taken_then_ = 0;                // from the heap, at the last look for sparse extents
  std::vector<std::byte> bounce_;

  uint64_t live_keys_ = 0;
  uint64_t hint_origin_ms_ = 0;
  uint32_t next_expiry_hint_ = BlockMeta::kNever;
};

}  // namespace skua
