#pragma once
// What shm client and server share in memory and on the handshake's socket, byte for byte.
#include <linux/futex.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "common/base/status.h"
#include "common/transport/descriptor.h"

namespace skua {

// After a DataWelcome with status 0: `regions` of these. The welcome's first byte carries the three descriptors.
struct ShmRegion {
  uint64_t key;
  uint64_t arena_offset;
  uint64_t bytes;
};
static_assert(sizeof(ShmRegion) == 24 && std::has_unique_object_representations_v<ShmRegion>);
enum ShmDescriptor : size_t { kArenaDescriptor = 0, kSessionDescriptor = 1, kLifeDescriptor = 2, kShmDescriptors = 3 };

// One a connection. `armed` is written by the client alone, `fenced` by the server alone; both sequentially consistent
// (Dekker): either the client sees `fenced` before it stores, or the server sees `armed`.
//   0       8            64       72
//   +-------+------------+--------+------------+
//   | armed | zero       | fenced | zero       |
//   +-------+------------+--------+------------+
struct ShmSessionPage {
  uint64_t armed;
  uint8_t reserved_1[56];
  uint64_t fenced;
  uint8_t reserved_2[56];
};
static_assert(sizeof(ShmSessionPage) == 128 && offsetof(ShmSessionPage, fenced) == 64);
static_assert(std::has_unique_object_representations_v<ShmSessionPage>);

// One a server. `owner` is a robust futex word: the serving thread's id, or FUTEX_OWNER_DIED set by the kernel.
struct ShmLifePage {
  uint32_t owner;
  uint8_t reserved[60];
};
static_assert(sizeof(ShmLifePage) == 64 && std::has_unique_object_representations_v<ShmLifePage>);

// MappedFile is a shared mapping of the first bytes of a descriptor.
class MappedFile {
 public:
  enum class Access { kRead, kReadWrite };
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  // Aligned to 2 MiB where it is that large, so that the arena's large pages are large pages here as well. Not
  // inherited by a forked child. Error: kResourceExhausted; kCorruption when the file is shorter than `bytes`.
  static Result<MappedFile> map(int descriptor, size_t bytes, Access access);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <class Page>
  Page* as() const { return static_cast<Page*>(data_); }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A new memfd of `bytes` zeros that nobody can shrink under its users.
Result<Descriptor> make_sealed_memory(const char* name, size_t bytes);
// The same file, opened so that it cannot be mapped writable.
Result<Descriptor> reopen_read_only(int descriptor);

// A Unix socket's address from "@name" or a path. Error: kConfiguration.
struct UnixAddress {
  alignas(8) char bytes[112];  // a sockaddr_un
  uint32_t size = 0;
};
Result<UnixAddress> parse_unix_address(const std::string& text);

}  // namespace skua
