#pragma once
// Runner runs a workload's load or run phase on several threads, shows its progress and adds up what they measured.
//
// Owns:    the threads of a phase; they have ended when load or run returns.
// Errors:  the first connection that could not be opened. Operations that failed are in the result, not errors.
#include <array>
#include <cstdint>
#include <string>

#include "bench/ycsb/report.h"
#include "bench/ycsb/worker.h"

namespace skua::ycsb {

struct RunnerOptions {
  uint64_t threads = 1;
  double target = 0;  // operations a second of all threads together; 0: no limit
  bool spin = false;
  uint64_t seed = 0;
  uint64_t batch = 1;
  bool status = false;
  Nanoseconds status_interval = 10 * kSecond;
  std::string label;
  MeasurementOptions measurements;

  // threadcount, target, spin.sleep, status.interval, label and the measurements' own.
  static Result<RunnerOptions> parse(const Properties& properties);
};

class Runner {
 public:
  // Borrows all; they outlive it.
  Runner(Workload& workload, KvStoreFactory& stores, RunnerOptions options, const Environment& environment)
      : workload_(workload), stores_(stores), options_(std::move(options)), environment_(environment) {}

  Result<PhaseResult> load() { return run_phase(true); }
  Result<PhaseResult> run() { return run_phase(false); }

 private:
  Result<PhaseResult> run_phase(bool loading);

  Workload& workload_;
  KvStoreFactory& stores_;
  const RunnerOptions options_;
  const Environment& environment_;
};

}  // namespace skua::ycsb
