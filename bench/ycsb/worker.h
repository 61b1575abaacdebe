#pragma once
// Worker is one client thread of a phase: it draws operations, runs them on its own connection and measures them.
//
// What is timed: the store's operation alone. Choosing a key, making a record and checking one are outside.
// Threads:  its own; done() and what it measures may be read from any.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/ycsb/kv_store.h"
#include "bench/ycsb/measurements.h"
#include "bench/ycsb/workload.h"
#include "common/base/clock.h"

namespace skua::ycsb {

// What a phase gets from outside.
struct Environment {
  const Clock& clock;
  std::function<void(Nanoseconds)> sleep_until;         // of that clock; may return earlier
  std::function<void(const std::string&)> print_error;  // one line for standard error; called from any thread
  const std::atomic<bool>& interrupted;                 // set: the phase ends and is reported
};

struct WorkerOptions {
  uint64_t seed = 0;
  uint64_t operations = 0;      // 0: until told to stop
  Nanoseconds tick = 0;         // between the intended begins of operations; 0: as fast as it goes
  bool spin = false;            // wait for a tick by spinning
  uint64_t batch = 1;           // reads in flight together
};

// The state of a phase that its workers share.
struct PhaseState {
  static constexpr uint64_t kMaxErrorsShown = 5;

  std::atomic<bool> stop = false;
  std::atomic<uint64_t> errors = 0;
  Nanoseconds started = 0;  // written before workers begin
  Nanoseconds stop_at = 0;  // 0: never
};

class Worker {
 public:
  Worker(Workload& workload, KvStoreFactory& stores, const Environment& environment, PhaseState& phase,
         WorkerOptions options, const MeasurementOptions& measurements);

  Result<void> open();
  // Requires: open() succeeded. Return when all operations are done or the phase ends.
  void load();
  void run();
  // Leaves the costs complete and closes the connection.
  void close();

  uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  const ThreadMeasurements& measurements() const { return measurements_; }
  const std::array<OperationCost, kSeriesCount>& costs() const { return costs_; }  // after close

 private:
  struct Timer {
    Nanoseconds begin = 0;
    Nanoseconds intended = 0;
  };

  bool goes_on();
  void finish_operations(uint64_t count);
  void wait_for_tick();
  Timer begin() const;
  void end(const Timer& timer, Series series, Outcome outcome);
  Outcome failed(const Status& status, std::string_view doing);

  void read_or_batch();
  void flush_batch();
  Outcome read();
  Outcome update();
  Outcome merge_field();
  void insert(uint64_t number);
  Outcome write_record(Series series);
  void read_modify_write();
  void verify(std::string_view key, std::string_view record, bool found);
  template <class F>
  Outcome with_costs(Series series, F operation);

  Workload& workload_;
  KvStoreFactory& stores_;
  const Environment& environment_;
  PhaseState& phase_;
  const WorkerOptions options_;
  WorkloadThread thread_;
  ThreadMeasurements measurements_;
  std::unique_ptr<KvStore> store_;
  StoreCosts costs_at_open_;
  // INSERT and UPDATE in one run, or an UPDATE that reads: the store's counters are then read around each of them.
  const bool costs_each_write_;
  bool loading_ = false;
  std::array<OperationCost, kSeriesCount> costs_{};
  OperationCost reads_of_writes_;
  std::atomic<uint64_t> done_ = 0;
  Nanoseconds now_ = 0;             // end of the last operation
  Nanoseconds intended_begin_ = 0;  // of the next one; 0 without a target

  std::string key_;
  std::string record_;
  std::string value_;
  std::vector<std::string> batch_keys_;
  std::vector<KvReadItem> batch_;
  size_t batched_ = 0;
};

}  // namespace skua::ycsb
