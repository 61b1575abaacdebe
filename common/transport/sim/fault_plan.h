#pragma once
// FaultPlan says how slow, how weak and how unlucky a simulated world is. Chances are per verb, message or dial.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/clock.h"

namespace skua::sim {

struct FaultPlan {
  // Data plane.
  Nanoseconds verb_latency_min = 500;       // one way
  Nanoseconds verb_latency_max = 1'500;
  Nanoseconds line_spread = 1'000;          // the lines of a verb take effect within so long of each other
  double slow_line_chance = 0.01;           // a line that lags behind
  Nanoseconds slow_line_max = 30'000;
  double break_chance = 0;                  // the connection breaks at this verb, and its completion is lost
  double late_chance = 0;                   // of a broken or abandoned connection: what is under way lands later
  Nanoseconds late_max = 500 * kMillisecond;
  double resent_read_chance = 0;            // a line of a READ whose answer was lost: it is read once more, later
  double connect_failure_chance = 0;
  Nanoseconds fence_max = 50'000;           // until a fence is certain
  // A CAS that fails stores what it read a little later: atomic among verbs, not with what the server's CPU does.
  // Only for a server whose own CAS goes through the data plane; no seed turns it on.
  bool failed_cas_writes_back = false;
  // A device without remote atomics: CAS and FETCH_ADD are messages, which the server's process executes, later when it
  // is paused.
  bool atomics_by_server = false;
  // A device that breaks the seam's promise: a CAS may overtake the WRITE before it. Blocks are then seen in part, and
  // their checksum must show it. Only without breaks and crashes, which would leave such blocks for good.
  bool writes_are_overtaken = false;
  uint32_t queue_depth = 64;
  uint32_t lines_apart_max = 128;           // verbs of more lines take effect in so many pieces
  uint64_t max_message_bytes = (uint64_t{64} << 20) + (uint64_t{64} << 10);

  // Control plane.
  Nanoseconds message_latency_min = 5'000;
  Nanoseconds message_latency_max = 50'000;
  double message_break_chance = 0;          // the connection breaks instead of carrying this message
  double dial_failure_chance = 0;
  double silent_crash_chance = 0;           // a crash that closes no connection

  // Processes.
  Nanoseconds timer_lateness_max = 20'000;
  Nanoseconds clock_skew_max = 0;           // of wall clocks against each other
  double clock_drift_max = 0;               // how much faster or slower than the world's a process's clock may run
  double pause_chance = 0;                  // per function that a process runs
  Nanoseconds pause_max = 20 * kMillisecond;

  // Weak as the weakest device, but nothing breaks.
  static FaultPlan calm() { return FaultPlan{}; }
  // Some mixture of everything else, the same for the same seed.
  static FaultPlan from_seed(uint64_t seed);

  std::string to_string() const;
};

}  // namespace skua::sim
