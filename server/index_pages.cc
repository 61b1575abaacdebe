#include "server/index_pages.h"

#include <algorithm>

#include "common/base/check.h"

namespace skua {

std::optional<uint64_t> IndexPages::take(Run& run, uint64_t pages) {
  if (run.free < pages) return std::nullopt;
  uint64_t start = 0;
  for (uint64_t i = 0; i < run.used.size(); ++i) {
    if (run.used[i]) {
      start = i + 1;
    } else if (i + 1 - start == pages) {
      std::fill_n(run.used.begin() + static_cast<std::ptrdiff_t>(start), pages, true);
      run.free -= pages;
      return run.first_chunk * kChunkBytes + start * kIndexPageBytes;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> IndexPages::allocate(uint64_t pages, bool may_commit) {
  for (Run& run : runs_) {
    if (const auto offset = take(run, pages)) return offset;
  }
  // Small partitions stay small: what is held at most doubles, as long as it is less than a usual run.
  const auto needed = static_cast<uint32_t>((pages + kPagesPerChunk - 1) / kPagesPerChunk);
  const auto held = static_cast<uint32_t>(std::min<uint64_t>(bytes_ / kChunkBytes, kRunChunks));
  // From then on in whole extents: those that hold blocks can be emptied, since blocks move and pages do not.
  const uint32_t extent = extents_.chunks_per_extent();
  if (extent >= std::max(needed, kLeastExtent) && held >= std::min(extent, kRunChunks)) {
    if (const auto first = extents_.allocate_extent(may_commit)) return take(add_run(*first, extent), pages);
  }
  for (const uint32_t chunks : {std::max(needed, held), needed}) {
    if (const auto first = extents_.allocate(chunks, may_commit)) return take(add_run(*first, chunks), pages);
  }
  return std::nullopt;
}

IndexPages::Run& IndexPages::add_run(uint32_t first_chunk, uint32_t chunks) {
  Run run;
  run.first_chunk = first_chunk;
  run.chunks = chunks;
  run.free = chunks * kPagesPerChunk;
  run.used.assign(run.free, false);
  bytes_ += chunks * kChunkBytes;
  return runs_.emplace_back(std::move(run));
}

void IndexPages::free(uint64_t offset, uint64_t pages) {
  const auto chunk = static_cast<uint32_t>(offset / kChunkBytes);
  for (auto run = runs_.begin(); run != runs_.end(); ++run) {
    if (chunk < run->first_chunk || chunk >= run->first_chunk + run->chunks) continue;
    const uint64_t first = (offset - run->first_chunk * kChunkBytes) / kIndexPageBytes;
    for (uint64_t i = first; i < first + pages; ++i) {
      SKUA_CHECK(run->used[i], "an index page is given back once");
      run->used[i] = false;
    }
    run->free += pages;
    if (run->free == run->used.size()) {
      extents_.free(run->first_chunk, run->chunks);
      bytes_ -= run->chunks * kChunkBytes;
      runs_.erase(run);
    }
    return;
  }
  SKUA_CHECK(false, "an index page that is given back is held");
}

}  // namespace skua
