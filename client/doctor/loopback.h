#pragma once
// A connection of this process to itself: whether a transport's data path works, and how long each verb takes.
#include <cstdint>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/transport/target.h"
#include "common/transport/transport.h"
#include "common/transport/verbs/device_select.h"
#include "common/transport/verbs/verbs.h"

namespace skua::doctor {

inline constexpr uint32_t kLoopbackRounds = 33;
inline constexpr uint32_t kLoopbackBytes = 64;  // of a WRITE and of a READ

struct LoopbackTimes {
  Nanoseconds connect = 0;
  Nanoseconds first_access = 0;  // with the registration of the memory
  // Medians of kLoopbackRounds.
  Nanoseconds write = 0;
  Nanoseconds read = 0;
  Nanoseconds compare_and_swap = 0;
  bool device_atomics = false;   // else the server's CPU executed them
};

// Connects to `target`, which exposes `memory`, and runs each verb on it; what is read is checked.
// Requires: memory.bytes >= 4 KiB. Error: what connecting or a verb failed with; kCorruption: wrong bytes came back.
Result<LoopbackTimes> time_loopback(Target& target, Connector& connector, const ArenaInfo& memory,
                                    const Clock& clock, Entropy& entropy);

// The same with a target and a connector of its own over `choice`. `address`: to listen on, of an InfiniBand port;
// elsewhere empty.
Result<LoopbackTimes> time_verbs_loopback(const DeviceChoice& choice, const std::string& address,
                                          const VerbsSettings& settings, const Clock& clock);

}  // namespace skua::doctor
