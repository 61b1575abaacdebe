#pragma once
// Arena is the server's memory: one sparse memfd, mapped once, of which partitions take extents against one limit.
// ExtentMap is one partition's share of it: an address range, handed out in chunks of 64 KiB.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/store.h"

namespace skua {

inline constexpr uint64_t kChunkBytes = uint64_t{64} << 10;
inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
inline constexpr uint64_t kMinMemoryBytes = uint64_t{1} << 20;
inline constexpr uint64_t kMaxPartitionBytes = uint64_t{1} << 40;  // what a slot word can address

// Address range is reserved for far more than the limit, so that one partition may take all memory and a large block
// finds a gap; memory is taken an extent at a time.
// Cost:    commit: one system call for a 2 MiB extent, none for smaller ones; release: one.
// Owns:    descriptor and mapping.
// Threads: the executor's.
class Arena {
 public:
  // Error: kConfiguration (a limit out of range), kResourceExhausted (memory, address range or 2 MiB pages that cannot
  // be had).
  static Result<std::unique_ptr<Arena>> create(uint64_t memory_bytes, PagePolicy pages);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Divides the range. Once, before the first commit. Error: kConfiguration.
  Result<void> divide(size_t partitions);

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }
  uint64_t stride() const { return stride_; }              // address range of a partition
  uint64_t extent_bytes() const { return extent_bytes_; }
  uint64_t limit() const { return limit_; }
  uint64_t committed() const { return committed_; }
  // Committed extents that hold nothing, of all partitions; ExtentMap::trim gives them back.
  uint64_t idle() const { return idle_; }
  // Bytes of all partitions' blocks that are not free.
  uint64_t block_bytes() const { return block_bytes_; }
  std::string pages() const;

  // From now on nothing goes back to the system, nor from one partition to another.
  void keep_memory() { keeps_memory_ = true; }
  bool keeps_memory() const { return keeps_memory_; }
  // Who executes the server's CAS on slot words; null: the CPU.
  void set_atomics(AtomicsExecutor* atomics) { atomics_ = atomics; }
  AtomicsExecutor* atomics() const { return atomics_; }

  bool has_room(uint64_t extents) const { return committed_ + extents * extent_bytes_ <= limit_; }

 private:
  friend class ExtentMap;
  Arena() = default;
  Result<void> reserve(uint64_t wanted);
  Result<void> probe_huge_page();
  bool commit(uint64_t offset);   // one extent; false: the limit is reached
  void release(uint64_t offset);  // gives the extent's memory back to the system
  void collapse(uint64_t offset);

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
  void* reserved_ = nullptr;
  uint64_t reserved_bytes_ = 0;
  uint64_t limit_ = 0;
  uint64_t committed_ = 0;
  uint64_t idle_ = 0;
  uint64_t block_bytes_ = 0;
  uint64_t stride_ = 0;
  uint64_t extent_bytes_ = kChunkBytes;
  PagePolicy policy_ = PagePolicy::kAuto;
  uint64_t huge_extents_ = 0;
  uint64_t small_extents_ = 0;
  bool keeps_memory_ = false;
  AtomicsExecutor* atomics_ = nullptr;
  int huge_errno_ = 0;  // of the last MADV_COLLAPSE that failed
};

// Cost:    a single chunk: O(log extents). A run: first fit over the chunks below the highest ever used.
// Threads: the executor's.
class ExtentMap {
 public:
  ExtentMap(Arena& arena, uint64_t arena_offset);

  // First of `chunks` chunks in a row. Nothing: no memory (trim elsewhere may help), or no gap so large.
  // `may_commit` false: only from extents that this partition holds already.
  std::optional<uint32_t> allocate(uint32_t chunks, bool may_commit = true);
  // A whole extent, likewise.
  std::optional<uint32_t> allocate_extent(bool may_commit = true);
  // Requires: a run as allocated.
  void free(uint32_t first, uint32_t chunks);

  void add_block_bytes(uint64_t bytes) { arena_.block_bytes_ += bytes; }
  void remove_block_bytes(uint64_t bytes) { arena_.block_bytes_ -= bytes; }

  // Gives back extents that have held nothing for `age` calls of trim; 0: all of them. Returns bytes.
  uint64_t trim(uint32_t age);

  uint64_t idle_extents() const { return idle_.size(); }
  // Extents that are to be emptied: nothing is allocated in them. They open again when they are empty, or all at once.
  void close(uint32_t extent);
  void open_all();
  uint32_t chunks_per_extent() const { return chunks_per_extent_; }
  uint32_t used_chunks(uint32_t extent) const { return extents_[extent].used; }
  // Chunks to be had without committing more.
  uint64_t free_chunks() const { return free_chunks_; }
  uint64_t chunk_limit() const { return chunk_limit_; }

 private:
  struct Extent {
    uint16_t used = 0;  // chunks
    bool committed = false;
    bool closed = false;
    uint32_t idle_since = 0;
  };
  uint32_t extent_of(uint32_t chunk) const { return chunk / chunks_per_extent_; }
  std::optional<uint32_t> find_single(bool may_commit);
  std::optional<uint32_t> find_run(uint32_t chunks, bool may_commit);
  bool run_fits(uint32_t first, uint32_t chunks, bool may_commit) const;
  void take(uint32_t first, uint32_t chunks);
  void cover(uint32_t chunks);
  void commit(uint32_t extent);

  Arena& arena_;
  uint64_t arena_offset_;
  uint32_t chunks_per_extent_;
  uint64_t chunk_limit_;
  uint64_t free_chunks_ = 0;
  uint32_t trims_ = 0;
  std::vector<uint8_t> used_;      // a chunk each, up to the highest extent ever committed
  std::vector<Extent> extents_;
  std::set<uint32_t> partial_;     // committed, with used and with free chunks
  std::set<uint32_t> idle_;        // committed, nothing used
  std::set<uint32_t> holes_;       // given back
  std::vector<uint32_t> closed_;
};

}  // namespace skua
