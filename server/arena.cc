#include "server/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/base/check.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace skua {
namespace {

#if defined(__SANITIZE_THREAD__)
#define SKUA_SMALL_ADDRESS_SPACE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SKUA_SMALL_ADDRESS_SPACE 1
#endif
#endif

#ifdef SKUA_SMALL_ADDRESS_SPACE  // the sanitizer's shadow leaves little of the address space
constexpr uint64_t kMaxReserve = uint64_t{256} << 30;
#else
constexpr uint64_t kMaxReserve = uint64_t{16} << 40;
#endif
constexpr uint64_t kReserveShares = 4096;  // partitions that may each have twice the limit of address range
constexpr uint64_t kMinStrideShares = 4;   // a partition's range is at least so many fair shares
constexpr uint64_t kExtentsPerShare = 16;
constexpr uint64_t kCollapseTries = 8;     // failures without a success after which 2 MiB pages are given up

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::string in_mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

struct MemoryLimit {
  uint64_t bytes;
  std::string what;
};

void lower_to_file(const std::string& path, MemoryLimit& limit) {
  std::ifstream file(path);
  uint64_t bytes = 0;
  if (file >> bytes && bytes < limit.bytes) limit = {bytes, "the control group (" + path + ") allows"};
}

// The machine's memory, or less where a control group says so.
MemoryLimit memory_limit() {
  const auto pages = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  MemoryLimit limit{pages * page, "this machine has"};
  lower_to_file("/sys/fs/cgroup/memory.max", limit);
  lower_to_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", limit);
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::/", 0) == 0 && line.size() > 4) {
      lower_to_file("/sys/fs/cgroup" + line.substr(3) + "/memory.max", limit);
    }
  }
  return limit;
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::create(uint64_t memory_bytes, PagePolicy pages) {
  if (memory_bytes < kMinMemoryBytes || memory_bytes > kMaxReserve / 8) {
    return fail(StatusCode::kConfiguration, "memory of " + std::to_string(memory_bytes) + " bytes is outside " +
                                                in_mib(kMinMemoryBytes) + " to " + in_mib(kMaxReserve / 8) +
                                                ": change --memory");
  }
  const MemoryLimit available = memory_limit();
  if (memory_bytes > available.bytes) {
    return fail(StatusCode::kResourceExhausted, "wanted " + in_mib(memory_bytes) + " of memory, but " +
                                                    available.what + " " + in_mib(available.bytes) +
                                                    ": lower --memory");
  }
  std::unique_ptr<Arena> arena(new Arena());
  arena->limit_ = memory_bytes;
  arena->policy_ = pages;
  const uint64_t one = round_up(2 * memory_bytes, kHugePageBytes);
  SKUA_RETURN_IF_ERROR(arena->reserve(one > kMaxReserve / kReserveShares ? kMaxReserve : one * kReserveShares));
  if (pages == PagePolicy::kHugeRequired) SKUA_RETURN_IF_ERROR(arena->probe_huge_page());
  return arena;
}

Result<void> Arena::reserve(uint64_t wanted) {
  descriptor_ = memfd_create("skua-arena", MFD_CLOEXEC);
  if (descriptor_ < 0) {
    return fail(StatusCode::kResourceExhausted, std::string("memfd_create: ") + std::strerror(errno));
  }
  const uint64_t least = round_up(8 * limit_, kHugePageBytes);
  void* address = MAP_FAILED;
  uint64_t bytes = wanted;
  for (; address == MAP_FAILED && bytes >= least; bytes = round_up(bytes / 2, kHugePageBytes)) {
    bytes_ = bytes;
    reserved_bytes_ = bytes + kHugePageBytes;
    address = mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (address == MAP_FAILED) {
    return fail(StatusCode::kResourceExhausted, "no address range of " + in_mib(least) + " (8 times --memory): " +
                                                    std::strerror(errno) + "; raise `ulimit -v` or lower --memory");
  }
  reserved_ = address;
  if (ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0) {
    return fail(StatusCode::kResourceExhausted, "memfd of " + in_mib(bytes_) + ": " + std::strerror(errno) +
                                                    "; raise `ulimit -f`");
  }
  const uint64_t start = round_up(reinterpret_cast<uint64_t>(reserved_), kHugePageBytes);
  address = mmap(reinterpret_cast<void*>(start), bytes_, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_NORESERVE | MAP_FIXED, descriptor_, 0);
  if (address == MAP_FAILED) {
    return fail(StatusCode::kResourceExhausted, "mapping " + in_mib(bytes_) + " of memory: " + std::strerror(errno) +
                                                    "; lower --memory");
  }
  data_ = static_cast<std::byte*>(address);
  madvise(data_, bytes_, MADV_DONTDUMP);
  if (policy_ != PagePolicy::kSmall) madvise(data_, bytes_, MADV_HUGEPAGE);
  return {};
}

Arena::~Arena() {
  if (reserved_ != nullptr) munmap(reserved_, reserved_bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

Result<void> Arena::probe_huge_page() {
  const int result = madvise(data_, kHugePageBytes, MADV_COLLAPSE);
  const int error = errno;
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kHugePageBytes));
  if (result == 0) return {};
  return fail(StatusCode::kResourceExhausted,
              "2 MiB pages were required for " + in_mib(limit_) + ", but the first could not be had: MADV_COLLAPSE: " +
                  std::strerror(error) + "; needs Linux 6.1 with transparent huge pages, or choose --pages auto");
}

Result<void> Arena::divide(size_t partitions) {
  SKUA_CHECK(partitions > 0 && stride_ == 0, "divided once");
  const uint64_t share = limit_ / partitions;
  const uint64_t by_range = bytes_ / partitions / kHugePageBytes * kHugePageBytes;
  stride_ = std::min({round_up(2 * limit_, kHugePageBytes), by_range, kMaxPartitionBytes});
  extent_bytes_ = std::clamp(std::bit_floor(std::max<uint64_t>(1, share / kExtentsPerShare)), kChunkBytes,
                             kHugePageBytes);
  if (policy_ == PagePolicy::kHugeRequired) extent_bytes_ = kHugePageBytes;
  if (stride_ < std::min(kMinStrideShares * share, 2 * limit_) || stride_ < kHugePageBytes) {
    return fail(StatusCode::kConfiguration, "an address range of " + in_mib(bytes_) + " is too small for " +
                                                std::to_string(partitions) + " partitions and " + in_mib(limit_) +
                                                ": use fewer partitions or more servers");
  }
  if (policy_ == PagePolicy::kHugeRequired && share < 2 * kHugePageBytes) {
    return fail(StatusCode::kConfiguration, "2 MiB pages were required, but " + in_mib(limit_) + " for " +
                                                std::to_string(partitions) + " partitions is under 4 MiB each: raise " +
                                                "--memory to " + in_mib(2 * kHugePageBytes * partitions) +
                                                " or choose --pages auto");
  }
  return {};
}

std::string Arena::pages() const {
  if (policy_ == PagePolicy::kSmall) return "4 KiB: asked for";
  if (stride_ == 0) return "of a size that the number of partitions will decide";
  if (extent_bytes_ < kHugePageBytes) {
    return "4 KiB: memory is handed to partitions in pieces of " + std::to_string(extent_bytes_ >> 10) +
           " KiB, too small for 2 MiB pages; fewer partitions or more --memory make them larger";
  }
  if (huge_extents_ == 0 && small_extents_ > 0) {
    return std::string("4 KiB: MADV_COLLAPSE: ") + std::strerror(huge_errno_);
  }
  std::string text = "2 MiB (MADV_COLLAPSE)";
  if (small_extents_ > 0) {
    text += "; 4 KiB in " + std::to_string(small_extents_) + " of " + std::to_string(huge_extents_ + small_extents_) +
            " extents: " + std::strerror(huge_errno_);
  }
  return text;
}

bool Arena::commit(uint64_t offset) {
  if (!has_room(1)) return false;
  committed_ += extent_bytes_;
  if (extent_bytes_ == kHugePageBytes && policy_ != PagePolicy::kSmall) collapse(offset);
  return true;
}

void Arena::collapse(uint64_t offset) {
  if (huge_extents_ == 0 && small_extents_ >= kCollapseTries) {
    ++small_extents_;
    return;
  }
  if (madvise(data_ + offset, kHugePageBytes, MADV_COLLAPSE) == 0) {
    ++huge_extents_;
  } else {
    huge_errno_ = errno;
    ++small_extents_;
  }
}

void Arena::release(uint64_t offset) {
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(extent_bytes_));
  committed_ -= extent_bytes_;
}

ExtentMap::ExtentMap(Arena& arena, uint64_t arena_offset)
    : arena_(arena),
      arena_offset_(arena_offset),
      chunks_per_extent_(static_cast<uint32_t>(arena.extent_bytes() / kChunkBytes)),
      chunk_limit_(arena.stride() / kChunkBytes) {}

std::optional<uint32_t> ExtentMap::allocate(uint32_t chunks, bool may_commit) {
  const auto first = chunks == 1 ? find_single(may_commit) : find_run(chunks, may_commit);
  if (first) take(*first, chunks);
  return first;
}

std::optional<uint32_t> ExtentMap::allocate_extent(bool may_commit) {
  std::optional<uint32_t> extent;
  if (!idle_.empty()) {
    extent = *idle_.begin();
  } else if (may_commit && arena_.has_room(1)) {
    extent = holes_.empty() ? static_cast<uint32_t>(extents_.size()) : *holes_.begin();
  }
  if (!extent || (uint64_t{*extent} + 1) * chunks_per_extent_ > chunk_limit_) return std::nullopt;
  const uint32_t first = *extent * chunks_per_extent_;
  take(first, chunks_per_extent_);
  return first;
}

std::optional<uint32_t> ExtentMap::find_single(bool may_commit) {
  std::optional<uint32_t> extent;
  if (!partial_.empty()) {
    extent = *partial_.begin();
  } else if (!idle_.empty()) {
    extent = *idle_.begin();
  } else if (may_commit && arena_.has_room(1)) {
    extent = holes_.empty() ? static_cast<uint32_t>(extents_.size()) : *holes_.begin();
  }
  if (!extent) return std::nullopt;
  const uint32_t first = *extent * chunks_per_extent_;
  for (uint32_t i = first; i < first + chunks_per_extent_; ++i) {
    if (i >= used_.size()) return i < chunk_limit_ ? std::optional(i) : std::nullopt;
    if (used_[i] == 0) return i;
  }
  return std::nullopt;
}

std::optional<uint32_t> ExtentMap::find_run(uint32_t chunks, bool may_commit) {
  const uint64_t room = may_commit ? (arena_.limit() - arena_.committed()) / kChunkBytes : 0;
  if (free_chunks_ + room < chunks) return std::nullopt;
  uint32_t start = 0;  // of the gap under way
  for (uint32_t i = 0; i < used_.size(); ++i) {
    if (used_[i] != 0 || extents_[extent_of(i)].closed) {
      start = i + 1;
    } else if (i + 1 - start >= chunks && run_fits(i + 1 - chunks, chunks, may_commit)) {
      return i + 1 - chunks;
    }
  }
  if (start + uint64_t{chunks} <= chunk_limit_ && run_fits(start, chunks, may_commit)) return start;
  return std::nullopt;
}

bool ExtentMap::run_fits(uint32_t first, uint32_t chunks, bool may_commit) const {
  uint64_t missing = 0;
  for (uint32_t e = extent_of(first); e <= extent_of(first + chunks - 1); ++e) {
    if (e >= extents_.size() || !extents_[e].committed) ++missing;
  }
  return missing == 0 || (may_commit && arena_.has_room(missing));
}

void ExtentMap::cover(uint32_t chunks) {
  if (chunks <= used_.size()) return;
  const uint32_t extents = extent_of(chunks - 1) + 1;
  for (auto e = static_cast<uint32_t>(extents_.size()); e < extents; ++e) holes_.insert(e);
  extents_.resize(extents);
  used_.resize(size_t{extents} * chunks_per_extent_);
}

void ExtentMap::commit(uint32_t extent) {
  const bool had_room = arena_.commit(arena_offset_ + uint64_t{extent} * arena_.extent_bytes());
  SKUA_CHECK(had_room, "room was looked for");
  extents_[extent].committed = true;
  holes_.erase(extent);
  idle_.insert(extent);
  arena_.idle_ += arena_.extent_bytes();
  free_chunks_ += chunks_per_extent_;
}

void ExtentMap::take(uint32_t first, uint32_t chunks) {
  cover(first + chunks);
  for (uint32_t i = first; i < first + chunks; ++i) {
    const uint32_t e = extent_of(i);
    Extent& extent = extents_[e];
    if (!extent.committed) commit(e);
    SKUA_CHECK(used_[i] == 0, "a chunk is handed out once");
    used_[i] = 1;
    if (extent.used++ == 0) {
      idle_.erase(e);
      arena_.idle_ -= arena_.extent_bytes();
      partial_.insert(e);
    }
    if (extent.used == chunks_per_extent_) partial_.erase(e);
  }
  free_chunks_ -= chunks;
}

void ExtentMap::free(uint32_t first, uint32_t chunks) {
  for (uint32_t i = first; i < first + chunks; ++i) {
    const uint32_t e = extent_of(i);
    Extent& extent = extents_[e];
    SKUA_CHECK(used_[i] == 1, "a chunk is given back once");
    used_[i] = 0;
    --extent.used;
    if (extent.used == 0) {
      partial_.erase(e);
      idle_.insert(e);
      extent.closed = false;
      extent.idle_since = trims_;
      arena_.idle_ += arena_.extent_bytes();
    } else if (!extent.closed) {
      partial_.insert(e);
    }
  }
  free_chunks_ += chunks;
}

void ExtentMap::close(uint32_t extent) {
  if (extents_[extent].used == 0) return;
  extents_[extent].closed = true;
  partial_.erase(extent);
  closed_.push_back(extent);
}

void ExtentMap::open_all() {
  for (const uint32_t e : closed_) {
    Extent& extent = extents_[e];
    if (!extent.closed) continue;
    extent.closed = false;
    if (extent.used < chunks_per_extent_) partial_.insert(e);
  }
  closed_.clear();
}

uint64_t ExtentMap::trim(uint32_t age) {
  if (arena_.keeps_memory_) return 0;
  ++trims_;
  uint64_t bytes = 0;
  for (auto it = idle_.begin(); it != idle_.end();) {
    const uint32_t e = *it;
    if (trims_ - extents_[e].idle_since < age) {
      ++it;
      continue;
    }
    arena_.release(arena_offset_ + uint64_t{e} * arena_.extent_bytes());
    arena_.idle_ -= arena_.extent_bytes();
    free_chunks_ -= chunks_per_extent_;
    extents_[e].committed = false;
    holes_.insert(e);
    it = idle_.erase(it);
    bytes += arena_.extent_bytes();
  }
  return bytes;
}

}  // namespace skua
