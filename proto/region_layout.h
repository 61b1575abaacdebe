#pragma once
// The bytes of one partition, the same on every replica: an offset means the same everywhere.
//
//   0       4 KiB                                                                      region_bytes
//   +--------+-----------+---------+---------+------------+------------+---- ... ----+
//   | header | directory | table 0 | table 1 |  segment   |  segment   |             |
//   +--------+-----------+---------+---------+------------+------------+---- ... ----+
//   RegionHeader  u64 x 2^depth   buckets     blocks of one size class
//
// Directory, tables and segments may lie anywhere: only the header's place is fixed, and everything else is found
// from its directory root. All integers are little-endian; what is reserved is written as zero.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/size_class.h"
#include "proto/slot_word.h"
#include "proto/version.h"

namespace skua::proto {

static_assert(std::endian::native == std::endian::little, "the layout is little-endian");

// --- Directory --------------------------------------------------------------------------------------------------
//
// DirectoryRoot: one word in the region header; whoever finds it unchanged knows that no table was replaced.
//   63                 38 37    32 31                                0
//  +---------------------+--------+----------------------------------+
//  | version          26 | depth 6| directory address, units of 4 KiB|
//  +---------------------+--------+----------------------------------+
class DirectoryRoot {
 public:
  constexpr DirectoryRoot() = default;
  constexpr explicit DirectoryRoot(uint64_t bits) : bits_(bits) {}
  static constexpr DirectoryRoot of(uint64_t offset, uint32_t depth, uint64_t version) {
    return DirectoryRoot((offset >> 12) | (uint64_t{depth} << 32) | (version << 38));
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr uint64_t offset() const { return (bits_ & 0xffffffffULL) << 12; }
  constexpr uint32_t depth() const { return static_cast<uint32_t>(bits_ >> 32) & 63; }
  constexpr uint64_t version() const { return bits_ >> 38; }
  constexpr uint64_t entries() const { return uint64_t{1} << depth(); }
  friend constexpr bool operator==(DirectoryRoot, DirectoryRoot) = default;

 private:
  uint64_t bits_ = 0;
};
inline constexpr uint32_t kMaxDirectoryDepth = 24;

// TableRef: one directory entry.
//   63                 38 37   33 32   28 27                         0
//  +---------------------+-------+-------+----------------------------+
//  | table version    26 |depth 5|log2(b)| table address, units of 4 KiB|
//  +---------------------+-------+-------+----------------------------+
// depth = the directory bits that all keys of this table share; b = home buckets of the table.
class TableRef {
 public:
  constexpr TableRef() = default;
  constexpr explicit TableRef(uint64_t bits) : bits_(bits) {}
  struct Fields {
    uint64_t offset;
    uint32_t log2_buckets;
    uint32_t local_depth;
    uint64_t version;
  };
  static constexpr TableRef of(const Fields& f) {
    return TableRef((f.offset >> 12) | (uint64_t{f.log2_buckets} << 28) | (uint64_t{f.local_depth} << 33) |
                    (f.version << 38));
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr uint64_t offset() const { return (bits_ & ((1ULL << 28) - 1)) << 12; }
  constexpr uint32_t log2_buckets() const { return static_cast<uint32_t>(bits_ >> 28) & 31; }
  constexpr uint32_t local_depth() const { return static_cast<uint32_t>(bits_ >> 33) & 31; }
  constexpr uint64_t version() const { return bits_ >> 38; }
  friend constexpr bool operator==(TableRef, TableRef) = default;

 private:
  uint64_t bits_ = 0;
};

// --- Buckets ------------------------------------------------------------------------------------------------------
//
// BucketHeader: changed by CAS alone.
//   63                 38 37                   7 6      2  1  0
//  +---------------------+----------------------+--------+--+--+
//  | table version    26 | reserved, zero       | depth 5|- |O |
//  +---------------------+----------------------+--------+--+--+
// O: keys whose home is this bucket may lie in the second half of its window. Set before the first such slot is taken
// and never cleared in a table's life, so that a reader who finds it clear need not look there.
class BucketHeader {
 public:
  constexpr BucketHeader() = default;
  constexpr explicit BucketHeader(uint64_t bits) : bits_(bits) {}
  static constexpr BucketHeader of(uint32_t local_depth, uint64_t table_version) {
    return BucketHeader((uint64_t{local_depth} << 2) | (table_version << 38));
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr bool overflow() const { return (bits_ & 1) != 0; }
  constexpr BucketHeader with_overflow() const { return BucketHeader(bits_ | 1); }
  constexpr uint32_t local_depth() const { return static_cast<uint32_t>(bits_ >> 2) & 31; }
  constexpr uint64_t table_version() const { return bits_ >> 38; }
  friend constexpr bool operator==(BucketHeader, BucketHeader) = default;

 private:
  uint64_t bits_ = 0;
};

inline constexpr size_t kSlotsPerBucket = 7;
inline constexpr size_t kBucketBytes = 64;
inline constexpr size_t kWindowBuckets = 4;       // a key's window: its home bucket and the next three
inline constexpr size_t kHalfWindowBuckets = 2;   // what the first READ fetches
inline constexpr size_t kWindowSlots = kWindowBuckets * kSlotsPerBucket;
inline constexpr size_t kWindowBytes = kWindowBuckets * kBucketBytes;
inline constexpr size_t kHalfWindowBytes = kHalfWindowBuckets * kBucketBytes;
inline constexpr uint32_t kMaxLog2Buckets = 13;   // 8 Ki home buckets a table

struct alignas(64) Bucket {
  uint64_t header;                  // BucketHeader
  uint64_t slots[kSlotsPerBucket];  // SlotWord
};
static_assert(sizeof(Bucket) == kBucketBytes && alignof(Bucket) == 64);
static_assert(offsetof(Bucket, header) == 0 && offsetof(Bucket, slots) == 8);
static_assert(std::is_standard_layout_v<Bucket> && std::is_trivially_copyable_v<Bucket>);
static_assert(std::has_unique_object_representations_v<Bucket>);

// A table of 2^log2 home buckets has kWindowBuckets - 1 more behind them, so that no window wraps.
constexpr uint64_t table_buckets(uint32_t log2_buckets) { return (uint64_t{1} << log2_buckets) + kWindowBuckets - 1; }
constexpr uint64_t table_bytes(uint32_t log2_buckets) { return table_buckets(log2_buckets) * kBucketBytes; }
// Offset of a window's slot (0 .. 27) from the window's first byte.
constexpr uint64_t window_slot_offset(size_t slot) {
  return (slot / kSlotsPerBucket) * kBucketBytes + 8 + (slot % kSlotsPerBucket) * 8;
}

// --- Blocks -------------------------------------------------------------------------------------------------------

enum BlockFlags : uint8_t {
  kBlockConditional = 1,  // written by compare_and_swap, put_if_absent or increment (rule 5)
};

// BlockHeader, key bytes, value bytes; the rest of the block is not looked at. Immutable once its slot word is LIVE.
//   0         8        16          24        28       30        32          36       38     39       40
//   +---------+--------+-----------+---------+--------+---------+-----------+--------+------+--------+-----+-------+
//   | checksum| prev   | generation| expiry_lo|expiry_hi|namespace| value_bytes|key_bytes|flags|reserved| key | value |
//   +---------+--------+-----------+---------+--------+---------+-----------+--------+------+--------+-----+-------+
// checksum: XXH3-64 of bytes [16, 40 + key_bytes + value_bytes), so everything but itself and prev.
// prev: the slot word that this block's word replaced. expiry: 48 bits of cluster time in ms, 0 = never.
struct BlockHeader {
  uint64_t checksum;
  uint64_t prev;
  uint64_t generation;
  uint32_t expiry_lo;
  uint16_t expiry_hi;
  uint16_t namespace_id;
  uint32_t value_bytes;
  uint16_t key_bytes;
  uint8_t flags;
  uint8_t reserved;

  constexpr uint64_t expiry_ms() const { return expiry_lo | (uint64_t{expiry_hi} << 32); }
  constexpr void set_expiry_ms(uint64_t ms) {
    expiry_lo = static_cast<uint32_t>(ms);
    expiry_hi = static_cast<uint16_t>(ms >> 32);
  }
};
inline constexpr size_t kBlockHeaderBytes = sizeof(BlockHeader);
inline constexpr uint64_t kMaxExpiryMs = (uint64_t{1} << 48) - 1;
static_assert(sizeof(BlockHeader) == 40 && alignof(BlockHeader) == 8);
static_assert(offsetof(BlockHeader, checksum) == 0 && offsetof(BlockHeader, prev) == 8);
static_assert(offsetof(BlockHeader, generation) == 16 && offsetof(BlockHeader, expiry_lo) == 24);
static_assert(offsetof(BlockHeader, expiry_hi) == 28 && offsetof(BlockHeader, namespace_id) == 30);
static_assert(offsetof(BlockHeader, value_bytes) == 32 && offsetof(BlockHeader, key_bytes) == 36);
static_assert(offsetof(BlockHeader, flags) == 38 && offsetof(BlockHeader, reserved) == 39);
static_assert(std::is_standard_layout_v<BlockHeader> && std::is_trivially_copyable_v<BlockHeader>);
static_assert(std::has_unique_object_representations_v<BlockHeader>);

inline constexpr size_t kChecksumStart = 16;  // first byte that the checksum covers

// --- Region header ------------------------------------------------------------------------------------------------

struct RegionHeader {
  uint64_t magic;             // kRegionMagic
  uint32_t layout_version;    // kLayoutVersion
  uint32_t partition;         // index in the cluster map
  uint64_t cluster_id;        // refuses a client of another cluster
  uint64_t instance;          // of the server process; a restart has another
  uint64_t membership_epoch;  // of the map under which this copy became primary
  uint64_t region_bytes;      // address range of the partition
  uint64_t directory_root;    // DirectoryRoot; changed by CAS alone
  uint64_t reclaim_epoch;     // G, as last advanced; sessions learn it over the control plane as well
  uint8_t reserved[4032];     // zero
};
inline constexpr uint64_t kDirectoryRootOffset = 48;
static_assert(sizeof(RegionHeader) == 4096);
static_assert(offsetof(RegionHeader, magic) == 0 && offsetof(RegionHeader, layout_version) == 8);
static_assert(offsetof(RegionHeader, partition) == 12 && offsetof(RegionHeader, cluster_id) == 16);
static_assert(offsetof(RegionHeader, instance) == 24 && offsetof(RegionHeader, membership_epoch) == 32);
static_assert(offsetof(RegionHeader, region_bytes) == 40);
static_assert(offsetof(RegionHeader, directory_root) == kDirectoryRootOffset);
static_assert(offsetof(RegionHeader, reclaim_epoch) == 56 && offsetof(RegionHeader, reserved) == 64);
static_assert(std::is_standard_layout_v<RegionHeader> && std::is_trivially_copyable_v<RegionHeader>);
static_assert(std::has_unique_object_representations_v<RegionHeader>);

}  // namespace skua::proto
