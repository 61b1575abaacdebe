#include "tests/sim/runner.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "common/transport/sim/trace.h"

namespace skua::sim {

Result<Scenario> scenario_for(const SeedRange& range, uint64_t seed) {
  auto scenario = Scenario::from_seed(seed, range.faults, range.focus);
  if (!scenario) return scenario;
  for (const auto& [name, value] : range.settings) SKUA_RETURN_IF_ERROR(scenario->set(name, value));
  return scenario;
}

Result<Totals> run_seeds(const SeedRange& range, const std::function<void(const Failure&)>& failed) {
  if (const auto valid = scenario_for(range, range.first); !valid) return tl::make_unexpected(valid.error());
  Totals totals;
  std::vector<uint64_t> hashes(range.count);
  std::mutex mutex;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&] {
    for (uint64_t i = next++; i < range.count && !stop; i = next++) {
      const Scenario scenario = *scenario_for(range, range.first + i);
      const Report report = simulate(scenario);
      const std::lock_guard lock(mutex);
      ++totals.seeds;
      hashes[i] = report.outcomes.trace_hash;
      totals.outcomes.done += report.outcomes.done;
      totals.outcomes.refused += report.outcomes.refused;
      totals.outcomes.in_doubt += report.outcomes.in_doubt;
      totals.outcomes.events += report.outcomes.events;
      totals.outcomes.faults += report.outcomes.faults;
      totals.outcomes.simulated += report.outcomes.simulated;
      totals.undecided += report.outcomes.undecided ? 1 : 0;
      if (report.violation.empty()) continue;
      totals.failures.push_back({scenario, report.violation});
      if (failed) failed(totals.failures.back());
      if (range.stop_at_failure) stop = true;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < range.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::sort(totals.failures.begin(), totals.failures.end(),
            [](const Failure& a, const Failure& b) { return a.scenario.seed < b.scenario.seed; });
  totals.outcomes.trace_hash = hash_bytes(hashes.data(), hashes.size() * sizeof hashes[0]);
  return totals;
}

namespace {

using Step = void (*)(Scenario&);

// From what takes away most to what takes away least.
constexpr Step kSteps[] = {
    [](Scenario& s) { s.splits = 0; },
    [](Scenario& s) { s.most_splits = std::max<uint64_t>(s.most_splits / 2, 1); },
    [](Scenario& s) { s.moves = 0; },
    [](Scenario& s) { s.most_moves = std::max<uint64_t>(s.most_moves / 2, 1); },
    [](Scenario& s) { s.client_crashes = 0; },
    [](Scenario& s) { s.server_crashes = 0; },
    [](Scenario& s) { s.client_pauses = s.server_pauses = 0; },
    [](Scenario& s) { s.cuts = 0; },
    [](Scenario& s) { s.control_breaks = 0; },
    [](Scenario& s) { s.data_breaks = 0; },
    [](Scenario& s) { s.crash_at_verb_chance = 0; },
    [](Scenario& s) { s.crash_at_message_chance = 0; },
    [](Scenario& s) { s.server_crash_at_message_chance = 0; },
    [](Scenario& s) { s.clock_jumps = 0; },
    [](Scenario& s) { s.plan.break_chance = 0; },
    [](Scenario& s) { s.plan.message_break_chance = s.plan.dial_failure_chance = s.plan.connect_failure_chance = 0; },
    [](Scenario& s) { s.plan.pause_chance = 0; },
    [](Scenario& s) { s.plan.clock_skew_max = 0; },
    [](Scenario& s) { s.plan.clock_drift_max = 0; },
    [](Scenario& s) { s.plan.atomics_by_server = false; },
    [](Scenario& s) { s.plan.resent_read_chance = 0; },
    [](Scenario& s) { s.plan.slow_line_chance = 0; },
    [](Scenario& s) { s.filler_keys = 0; },
    [](Scenario& s) { s.counter_keys = 0; },
    [](Scenario& s) { s.expiring_keys = 0; },
    [](Scenario& s) { s.keys = std::min<uint64_t>(s.keys, 1); },
    [](Scenario& s) { s.large_value_chance = 0; },
    [](Scenario& s) { s.servers = 1, s.partitions = std::min<uint64_t>(s.partitions, 4); },
    [](Scenario& s) { s.sessions = 1; },
    [](Scenario& s) { s.clients = std::max<uint64_t>(s.clients / 2, 1); },
    [](Scenario& s) { s.workers = std::max<uint64_t>(s.workers - 1, 1); },
    [](Scenario& s) { s.operations = std::max<uint64_t>(s.operations / 2, 2); },
    [](Scenario& s) { s.operations = std::max<uint64_t>(s.operations * 3 / 4, 2); },
    [](Scenario& s) { s.exists = 0; },
    [](Scenario& s) { s.removes = 0; },
    [](Scenario& s) { s.compare_and_swaps = 0; },
    [](Scenario& s) { s.puts_if_absent = 0; },
};
constexpr uint64_t kNearbySeeds = 6;

}  // namespace

Scenario shrink(const Scenario& failing) {
  Scenario best = failing;
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Step step : kSteps) {
      Scenario candidate = best;
      step(candidate);
      if (candidate.gets + candidate.exists + candidate.puts + candidate.puts_if_absent +
              candidate.compare_and_swaps + candidate.removes == 0) {
        continue;
      }
      if (candidate.differences(best).empty()) continue;
      for (uint64_t i = 0; i < kNearbySeeds; ++i) {
        candidate.seed = best.seed + i;
        if (simulate(candidate).violation.empty()) continue;
        best = candidate;
        smaller = true;
        break;
      }
    }
  }
  return best;
}

}  // namespace skua::sim
