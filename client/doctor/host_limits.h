#pragma once
// What this host allows a process that registers memory: lock limit and huge pages.
#include <cstdint>
#include <optional>
#include <string>

namespace skua::doctor {

struct HugePageFacts {
  std::optional<uint64_t> reserved;  // 2 MiB pages of vm.nr_hugepages; nothing: the kernel has none of this size
  uint64_t free = 0;                 // of those
  std::string transparent;           // "always", "madvise", "never"; empty: not known
  std::string shared;                // of shared memory: "never", "advise", "always", ...
  std::optional<int> collapse_error;  // of making a page of a memfd huge, as a server does; nothing: it works
};
struct HostLimits {
  uint64_t memlock_bytes = 0;        // UINT64_MAX: unlimited
  uint64_t pinned_bytes = 0;         // by this process
  bool may_exceed_memlock = false;   // CAP_IPC_LOCK
  HugePageFacts huge_pages;
};

// Of this process, now. Cost: reads a few files, and makes and drops one huge page.
HostLimits read_host_limits();

// Of the files below `system_folder` (/sys/kernel/mm); collapse_error is not looked at.
HugePageFacts read_huge_pages(const std::string& system_folder);

}  // namespace skua::doctor
