#include "client/doctor/host_limits.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <fstream>

#include "common/transport/descriptor.h"
#include "common/transport/verbs/explain.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace skua::doctor {
namespace {

constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;

std::optional<uint64_t> number_of(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The word in brackets: "always [madvise] never".
std::string chosen_word(const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return "";
}

std::optional<int> try_collapse() {
  constexpr size_t kBytes = 2 * kHugePageBytes;  // one aligned page lies in it
  const Descriptor memory(::memfd_create("skua-doctor", MFD_CLOEXEC));
  if (!memory || ::ftruncate(memory.get(), kBytes) != 0) return errno;
  void* const range = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (range == MAP_FAILED) return errno;
  auto* const bytes = static_cast<std::byte*>(range);
  // A file's huge page is aligned in the file as well as in memory: map the file's start at such an address.
  const size_t skip = (kHugePageBytes - reinterpret_cast<uintptr_t>(bytes) % kHugePageBytes) % kHugePageBytes;
  void* const aligned = ::mmap(bytes + skip, kHugePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                               memory.get(), 0);
  std::optional<int> error;
  if (aligned == MAP_FAILED) {
    error = errno;
  } else {
    *static_cast<std::byte*>(aligned) = std::byte{1};
    if (::madvise(aligned, kHugePageBytes, MADV_COLLAPSE) != 0) error = errno;
  }
  ::munmap(range, kBytes);
  return error;
}

}  // namespace

HugePageFacts read_huge_pages(const std::string& system_folder) {
  HugePageFacts facts;
  facts.reserved = number_of(system_folder + "/hugepages/hugepages-2048kB/nr_hugepages");
  facts.free = number_of(system_folder + "/hugepages/hugepages-2048kB/free_hugepages").value_or(0);
  facts.transparent = chosen_word(system_folder + "/transparent_hugepage/enabled");
  facts.shared = chosen_word(system_folder + "/transparent_hugepage/shmem_enabled");
  return facts;
}

HostLimits read_host_limits() {
  const RegistrationFacts now = registration_facts(0, "", 0);
  HostLimits limits{now.memlock_bytes, now.pinned_bytes, now.may_exceed_memlock, read_huge_pages("/sys/kernel/mm")};
  limits.huge_pages.collapse_error = try_collapse();
  return limits;
}

}  // namespace skua::doctor
