#pragma once
// Says why a call of the verbs library failed, and what to change. The facts are passed in, so that each cause can be
// tested; only a limit that really is too small is blamed.
#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace skua {

struct RegistrationFacts {
  int error = 0;                  // errno of the call
  std::string device;
  uint64_t bytes = 0;             // that were to be registered
  uint64_t memlock_bytes = 0;     // RLIMIT_MEMLOCK; UINT64_MAX: unlimited
  uint64_t pinned_bytes = 0;      // by this process already
  bool may_exceed_memlock = false;  // CAP_IPC_LOCK
  uint64_t max_region_bytes = 0;  // of the device; 0: not known
};
Status explain_registration(const RegistrationFacts& facts);

// Of this process, now.
RegistrationFacts registration_facts(int error, const std::string& device, uint64_t bytes);

// ibv_get_device_list or rdma_create_event_channel failed, or the list is empty (error 0).
Status explain_no_device(int error);
// A device's file could not be opened.
Status explain_open(const std::string& device, int error);

}  // namespace skua
