#pragma once
// run_seeds simulates a range of seeds on several threads and adds up what happened.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "tests/sim/scenario.h"
#include "tests/sim/simulation.h"

namespace skua::sim {

struct SeedRange {
  uint64_t first = 1;
  uint64_t count = 1;
  std::string faults = "all";
  std::string focus;
  std::vector<std::pair<std::string, std::string>> settings;  // for Scenario::set
  unsigned jobs = 1;
  bool stop_at_failure = false;
};

struct Failure {
  Scenario scenario;
  std::string violation;
};

struct Totals {
  uint64_t seeds = 0;
  Outcomes outcomes;                  // sums; trace_hash over the seeds' hashes in order
  uint64_t undecided = 0;
  std::vector<Failure> failures;      // by seed
};

Result<Scenario> scenario_for(const SeedRange& range, uint64_t seed);
// Error: kInvalidArgument for faults or settings that are unknown.
Result<Totals> run_seeds(const SeedRange& range, const std::function<void(const Failure&)>& failed = {});

// A smaller scenario that still fails: less load, fewer faults, under the same or a nearby seed.
Scenario shrink(const Scenario& failing);

}  // namespace skua::sim
