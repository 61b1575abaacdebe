#include "common/transport/verbs/explain.h"

#include <sys/resource.h>

#include <cerrno>
#include <fstream>

#include "common/transport/descriptor.h"

namespace skua {
namespace {

constexpr unsigned kCapIpcLock = 14;

std::string in_kib(uint64_t bytes) { return std::to_string(bytes >> 10) + " KiB"; }

}  // namespace

Status explain_registration(const RegistrationFacts& facts) {
  const std::string what = facts.device + ": " + in_kib(facts.bytes) + " of memory could not be registered: " +
                           errno_text(facts.error);
  const bool limited = facts.memlock_bytes != UINT64_MAX && !facts.may_exceed_memlock;
  const bool over_limit = limited && (facts.bytes > facts.memlock_bytes ||
                                      facts.pinned_bytes > facts.memlock_bytes - facts.bytes);
  if (facts.error == ENOMEM && over_limit) {
    return Status(StatusCode::kResourceExhausted,
                  what + "; RLIMIT_MEMLOCK is " + in_kib(facts.memlock_bytes) + ", " + in_kib(facts.pinned_bytes) +
                      " of it in use: raise it (`ulimit -l unlimited`, memlock in limits.conf, LimitMEMLOCK=infinity "
                      "in a systemd unit, --ulimit memlock=-1 for a container)");
  }
  if (facts.max_region_bytes != 0 && facts.bytes > facts.max_region_bytes) {
    return Status(StatusCode::kResourceExhausted, what + "; the device registers at most " +
                                                      in_kib(facts.max_region_bytes) + " at once");
  }
  if (facts.error == ENOMEM) {
    return Status(StatusCode::kResourceExhausted,
                  what + "; the memory lock limit is not the cause: the device is out of registrations, or the system "
                         "of memory or mappings (vm.max_map_count)");
  }
  if (facts.error == EPERM || facts.error == EACCES) {
    return Status(StatusCode::kPermissionDenied, what + "; the device's file or the memory's protection forbids it");
  }
  return Status(StatusCode::kResourceExhausted, what);
}

RegistrationFacts registration_facts(int error, const std::string& device, uint64_t bytes) {
  RegistrationFacts facts;
  facts.error = error;
  facts.device = device;
  facts.bytes = bytes;
  rlimit limit{};
  facts.memlock_bytes = UINT64_MAX;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.memlock_bytes = limit.rlim_cur;
  }
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmPin:") {
      uint64_t kib = 0;
      status >> kib;
      facts.pinned_bytes = kib << 10;
    } else if (word == "CapEff:") {
      std::string hex;
      status >> hex;
      facts.may_exceed_memlock = (std::stoull(hex, nullptr, 16) >> kCapIpcLock & 1) != 0;
    }
  }
  return facts;
}

Status explain_no_device(int error) {
  std::string cause = "this host has none";
  if (error == ENOSYS || error == ENODEV || error == ENOENT) {
    cause = errno_text(error) + ": the kernel's RDMA modules are not loaded (`modprobe ib_uverbs rdma_ucm`, and the "
                                "device's driver)";
  } else if (error == EPERM || error == EACCES) {
    return Status(StatusCode::kPermissionDenied,
                  "no RDMA device can be used: " + errno_text(error) +
                      ": give this user access to /dev/infiniband (group rdma; --device=/dev/infiniband for a "
                      "container)");
  } else if (error != 0) {
    cause = errno_text(error);
  }
  return Status(StatusCode::kConfiguration,
                "no RDMA device: " + cause + "; install an adapter and its driver, or use another transport");
}

Status explain_open(const std::string& device, int error) {
  const bool forbidden = error == EPERM || error == EACCES;
  return Status(forbidden ? StatusCode::kPermissionDenied : StatusCode::kConfiguration,
                device + " cannot be opened: " + errno_text(error) +
                    (forbidden ? "; give this user access to /dev/infiniband/uverbs* (group rdma; "
                                 "--device=/dev/infiniband for a container)"
                               : "; see `ibv_devinfo`"));
}

}  // namespace skua
