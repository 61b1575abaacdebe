#pragma once
// Partition is one partition's memory as its primary keeps it: header, directory and tables in the layout of
// proto/region_layout.h, its heap, and the scan that finds what is referenced.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/region_layout.h"
#include "server/heap.h"

namespace skua {

// Size of a partition's tables.
struct TableShape {
  uint32_t directory_depth = 0;
  uint32_t log2_buckets = 0;

  // For so many keys, so that the fullest windows do not overflow: at most 0.45 of the slots are taken.
  static TableShape for_keys(uint64_t keys);
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
  uint64_t index_bytes() const { return index_bytes_; }
  Heap& heap() { return heap_; }
  const Heap& heap() const { return heap_; }
  ExtentMap& extents() { return extents_; }

  void publish_epoch(uint64_t reclaim_epoch);

  // begin_scan, then scan until it returns true: the heap's marks are then complete. A call looks at about `slots`
  // slots, and takes what it looked at from that.
  void begin_scan();
  bool scan(ScanContext& context, uint64_t& slots);
  // Is there a TENTATIVE or FREED word, which a read-only load would not leave behind? Sequential reads only.
  bool has_transient_words() const;

  uint64_t slots() const;
  uint64_t live_keys() const { return live_keys_; }              // at the last complete scan
  uint64_t freed_words() const { return freed_.size(); }         // FREED words in their grace, as of the last scan
  // Cluster time from which on a LIVE word of the last scan may be expired; nothing: none ever expires.
  std::optional<uint64_t> next_expiry_ms() const;

  // The sweep has something to look for here; kept by the reclaimer.
  bool dirty = false;

 private:
  struct FreedSlot {
    uint64_t word;
    uint64_t first_epoch;  // in which a scan first saw it
    uint64_t ordinal;      // of the slot in the order of the scan
  };
  struct Table {
    proto::Bucket* buckets;
    uint64_t count;
  };
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
  void scan_group(ScanContext& context, proto::Bucket* buckets, size_t count, uint64_t first_ordinal);
  void visit(ScanContext& context, const Candidate& candidate);
  void visit_live(ScanContext& context, const Candidate& candidate);
  void visit_tentative(ScanContext& context, const Candidate& candidate);
  void visit_freed(ScanContext& context, const Candidate& candidate);
  void track_freed(ScanContext& context, const Candidate& candidate);
  void revisit(ScanContext& context, const Candidate& candidate, proto::SlotWord word);
  void mark(proto::SlotWord word);
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
  uint64_t index_bytes_ = 0;
  uint64_t membership_epoch_ = 0;
  uint64_t renamed_ = 0;
  ExtentMap extents_;
  Heap heap_;
  std::vector<Table> tables_;

  // Of the scan under way.
  size_t table_ = 0;
  uint64_t bucket_ = 0;
  uint64_t ordinal_ = 0;
  uint64_t live_seen_ = 0;
  uint32_t least_hint_ = BlockMeta::kNever;
  std::vector<FreedSlot> freed_;           // in the order of ordinals
  std::vector<FreedSlot> freed_before_;    // by the scan before
  size_t freed_cursor_ = 0;

  uint64_t live_keys_ = 0;
  uint64_t hint_origin_ms_ = 0;
  uint32_t next_expiry_hint_ = BlockMeta::kNever;
};

}  // namespace skua
