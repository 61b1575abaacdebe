#pragma once
// simulate runs one scenario from start to end and judges it.
//
//   start      a calm cluster; fillers are stored
//   load       workers and faults, until all workers are done or the time is up
//   recovery   faults end; every operation must end within its bound (liveness)
//   reading    a new client reads and writes every key without error
//   rest       sessions end; nothing may be left behind; histories are checked
#include <cstdint>
#include <string>

#include "tests/sim/record.h"
#include "tests/sim/scenario.h"

namespace skua::sim {

struct Outcomes {
  uint64_t done = 0;
  uint64_t refused = 0;
  uint64_t in_doubt = 0;
  uint64_t events = 0;      // of the trace: verbs' effects, messages, crashes
  uint64_t faults = 0;      // crashes, pauses, cuts and breaks that the scenario asked for
  int64_t simulated = 0;    // ns
  uint64_t trace_hash = 0;
  bool undecided = false;   // the history of a key was too wide to be judged
};

struct Report {
  std::string violation;  // empty: none
  std::string trace;      // the last events, when asked for or violated
  Outcomes outcomes;
};

struct SimulationOptions {
  size_t trace_events = 0;   // of the report's trace
};

Report simulate(const Scenario& scenario, const SimulationOptions& options = {});

}  // namespace skua::sim
