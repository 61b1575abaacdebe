#pragma once
// Scenario is everything that a simulated run depends on: sizes, loads and faults. The same seed and the same changes
// to it give the same run.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/transport/sim/fault_plan.h"

namespace skua::sim {

struct Scenario {
  uint64_t seed = 0;

  // Cluster.
  uint64_t servers = 1;
  uint64_t partitions = 1;
  uint64_t memory_kib = 1024;      // of each server
  Nanoseconds lease = 400 * kMillisecond;
  Nanoseconds resume_grace = 200 * kMillisecond;
  Nanoseconds sweep_interval = kMillisecond;

  // Clients.
  uint64_t clients = 2;
  uint64_t sessions = 1;           // of each client
  uint64_t workers = 2;            // of each session: operations that it has under way at a time
  uint64_t operations = 40;        // of each worker
  uint64_t cache_entries = 64;
  Nanoseconds operation_timeout = 200 * kMillisecond;
  Nanoseconds response_timeout = 5 * kMillisecond;
  Nanoseconds think_time = 20 * kMicrosecond;  // at most, between two operations of a worker
  double long_think_chance = 0;    // then up to 20 ms
  Nanoseconds longest_ttl = 30 * kMillisecond;

  // Keys. Those of one group have one partition, one home bucket and one fingerprint.
  uint64_t keys = 3;
  uint64_t counter_keys = 0;
  uint64_t expiring_keys = 0;
  uint64_t group = 2;              // keys in a group
  uint64_t filler_keys = 0;        // fill the window of the first group before anything else
  uint64_t value_bytes = 200;      // at most, of most values
  double large_value_chance = 0;
  uint64_t large_value_bytes = 20'000;  // at most, of those

  // What is done, by weight.
  uint64_t gets = 4;
  uint64_t exists = 1;
  uint64_t puts = 4;
  uint64_t puts_if_absent = 2;
  uint64_t compare_and_swaps = 2;
  uint64_t removes = 2;

  // What happens besides: mean time between two of a kind, 0 = never.
  Nanoseconds splits = 0;          // of tables, up to `most_splits`; no fault, and under all kinds of them
  uint64_t most_splits = 24;
  Nanoseconds moves = 0;           // of all blocks of a partition to other places, up to `most_moves` times; likewise
  uint64_t most_moves = 24;
  Nanoseconds client_crashes = 0;
  Nanoseconds server_crashes = 0;  // forgets its memory, starts again
  Nanoseconds client_pauses = 0;   // as under SIGSTOP, up to three leases
  Nanoseconds server_pauses = 0;
  Nanoseconds cuts = 0;            // a client and a server lose sight of each other for a while
  Nanoseconds control_breaks = 0;
  Nanoseconds data_breaks = 0;
  Nanoseconds clock_jumps = 0;     // a process's wall clock is set, by up to an hour
  double crash_at_verb_chance = 0; // of a verb's effect: its client crashes right behind it
  double crash_at_message_chance = 0;         // of a control message sent or received: that client crashes behind it,
  double server_crash_at_message_chance = 0;  // or that server

  uint64_t writes_are_overtaken = 0;  // 1: as FaultPlan says; only where nothing breaks or crashes
  FaultPlan plan;                  // while the load runs; calm before and after

  // Draws one. `faults`: "none", "all", or names of kinds joined by '+': data, control, crash, pause, restart, clock.
  // `focus`: what it looks at closely (scenario.cc names them); empty: whatever the seed draws, often nothing.
  static Result<Scenario> from_seed(uint64_t seed, std::string_view faults, std::string_view focus = {});

  // By the names above, as `skua-sim --set name=value` does. Error: kInvalidArgument.
  Result<void> set(std::string_view name, std::string_view value);
  // What set can repeat: those fields that differ from `base`.
  std::vector<std::string> differences(const Scenario& base) const;
  std::string to_string() const;
  // Nothing breaks, dies or stands still: whatever happens to a client is its own or a server's doing.
  bool calm() const;
};

}  // namespace skua::sim
