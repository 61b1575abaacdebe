#pragma once
// IndexPages is the memory of one partition's directory and tables: runs of 4 KiB pages, cut out of runs of chunks that
// come from the partition's extents as they are needed and go back when nothing is left in them.
//
// Cost:    allocate: first fit over the pages held, one bit each; free: the run's pages.
// Threads: the executor's.
#include <cstdint>
#include <optional>
#include <vector>

#include "server/arena.h"

namespace skua {

inline constexpr uint64_t kIndexPageBytes = 4096;

class IndexPages {
 public:
  explicit IndexPages(ExtentMap& extents) : extents_(extents) {}

  // So many pages in a row; their offset in the partition, in bytes. Nothing: no memory. The pages hold what they held
  // before. `may_commit` as ExtentMap::allocate has it.
  std::optional<uint64_t> allocate(uint64_t pages, bool may_commit = true);
  // Requires: a run as allocated, or a part of one.
  void free(uint64_t offset, uint64_t pages);
  // Bytes of the chunks that are held.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Run {
    uint32_t first_chunk = 0;
    uint32_t chunks = 0;
    uint64_t free = 0;        // pages
    std::vector<bool> used;   // a page each
  };
  // 16 tables of 1 Ki buckets, of 17 pages each, fit in as many chunks without a page left over.
  static constexpr uint32_t kRunChunks = 17;
  static constexpr uint32_t kLeastExtent = 8;  // chunks; smaller extents are not worth to be kept apart
  static constexpr uint64_t kPagesPerChunk = kChunkBytes / kIndexPageBytes;

  static std::optional<uint64_t> take(Run& run, uint64_t pages);
  Run& add_run(uint32_t first_chunk, uint32_t chunks);

  ExtentMap& extents_;
  std::vector<Run> runs_;
  uint64_t bytes_ = 0;
};

}  // namespace skua
