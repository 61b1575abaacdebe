#include "common/transport/shm/shm_pages.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace skua {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

// Address range for `bytes` at a multiple of kLargePage, or MAP_FAILED.
void* reserve_aligned(size_t bytes) {
  void* range = ::mmap(nullptr, bytes + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return MAP_FAILED;
  const auto start = reinterpret_cast<uintptr_t>(range);
  const uintptr_t aligned = (start + kLargePage - 1) & ~(kLargePage - 1);
  const uintptr_t end = aligned + ((bytes + 4095) & ~size_t{4095});
  if (aligned != start) ::munmap(range, aligned - start);
  if (end < start + bytes + kLargePage) {
    ::munmap(reinterpret_cast<void*>(end), start + bytes + kLargePage - end);
  }
  return reinterpret_cast<void*>(aligned);
}

Error no_memory(const char* what, size_t bytes) {
  return fail(StatusCode::kResourceExhausted, std::string(what) + " of " + std::to_string(bytes) + " bytes: " +
                                                  errno_text(errno) + "; see ulimit -v and vm.max_map_count");
}

}  // namespace

Result<MappedFile> MappedFile::map(int descriptor, size_t bytes, Access access) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return no_memory("fstat of a shared mapping", bytes);
  if (info.st_size < 0 || static_cast<uint64_t>(info.st_size) < bytes || bytes == 0) {
    return fail(StatusCode::kCorruption, "shared memory of " + std::to_string(info.st_size) + " bytes was passed as " +
                                             std::to_string(bytes));
  }
  void* where = nullptr;
  if (bytes >= kLargePage) {
    where = reserve_aligned(bytes);
    if (where == MAP_FAILED) return no_memory("address range for a shared mapping", bytes);
  }
  const int rights = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  const int flags = MAP_SHARED | MAP_NORESERVE | (where != nullptr ? MAP_FIXED : 0);
  MappedFile file;
  file.data_ = ::mmap(where, bytes, rights, flags, descriptor, 0);
  if (file.data_ == MAP_FAILED) {
    file.data_ = nullptr;
    const int error = errno;
    if (where != nullptr) ::munmap(where, bytes);
    errno = error;
    return no_memory("shared mapping", bytes);
  }
  file.bytes_ = bytes;
  ::madvise(file.data_, bytes, MADV_DONTFORK);
  return file;
}

Result<Descriptor> make_sealed_memory(const char* name, size_t bytes) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return no_memory("memfd", bytes);
  }
  return memory;
}

Result<Descriptor> reopen_read_only(int descriptor) {
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  Descriptor reopened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reopened) {
    return fail(StatusCode::kResourceExhausted, "open of " + path + " for a read-only session: " + errno_text(errno) +
                                                    "; /proc must be mounted");
  }
  return reopened;
}

Result<UnixAddress> parse_unix_address(const std::string& text) {
  UnixAddress address{};
  auto* name = new (address.bytes) sockaddr_un{};
  static_assert(sizeof(sockaddr_un) <= sizeof(address.bytes));
  const bool abstract = !text.empty() && text.front() == '@';
  if (text.size() < 2 || text.size() >= sizeof(name->sun_path)) {
    return fail(StatusCode::kConfiguration, "shm address '" + text + "' is no '@name' and no path of 2 to 107 bytes");
  }
  name->sun_family = AF_UNIX;
  std::memcpy(name->sun_path, text.data(), text.size());
  if (abstract) name->sun_path[0] = '\0';
  address.size = static_cast<uint32_t>(offsetof(sockaddr_un, sun_path) + text.size() + (abstract ? 0 : 1));
  return address;
}

}  // namespace skua
