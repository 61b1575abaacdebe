#include "bench/ycsb/runner.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace skua::ycsb {
namespace {

Summary summary_of(const std::vector<std::unique_ptr<Worker>>& workers) {
  std::vector<const ThreadMeasurements*> measured;
  for (const auto& worker : workers) measured.push_back(&worker->measurements());
  return Summary::of(measured);
}

// Waits for the workers of a phase, printing a status line at each interval.
class StatusBoard {
 public:
  StatusBoard(const RunnerOptions& options, const Environment& environment, uint64_t operations_total)
      : options_(options), environment_(environment), operations_total_(operations_total) {}

  void worker_ended() {
    const std::lock_guard lock(mutex_);
    ++ended_;
    all_ended_.notify_all();
  }

  void wait_for(const std::vector<std::unique_ptr<Worker>>& workers, Nanoseconds started) {
    last_shown_ = started;
    std::unique_lock lock(mutex_);
    const auto all = [&] { return ended_ == workers.size(); };
    if (!options_.status) return all_ended_.wait(lock, all);
    while (!all_ended_.wait_for(lock, std::chrono::nanoseconds(options_.status_interval), all)) show(workers, started);
    show(workers, started);
  }

 private:
  void show(const std::vector<std::unique_ptr<Worker>>& workers, Nanoseconds started) {
    Progress progress;
    const Nanoseconds now = environment_.clock.now();
    for (const auto& worker : workers) progress.operations += worker->done();
    Summary summary = summary_of(workers);
    progress.wall_time = format_wall_time(environment_.clock.wall_ms());
    progress.elapsed = now - started;
    const Nanoseconds interval = std::max<Nanoseconds>(now - last_shown_, 1);
    progress.current_rate = static_cast<double>(progress.operations - last_operations_) * static_cast<double>(kSecond) /
                            static_cast<double>(interval);
    progress.operations_left = operations_total_ - std::min(operations_total_, progress.operations);
    environment_.print_error(options_.label + format_status(progress, summary.since(last_summary_)));
    last_shown_ = now;
    last_operations_ = progress.operations;
    last_summary_ = std::move(summary);
  }

  const RunnerOptions& options_;
  const Environment& environment_;
  const uint64_t operations_total_;
  std::mutex mutex_;
  std::condition_variable all_ended_;
  size_t ended_ = 0;  // guarded by mutex_
  Nanoseconds last_shown_ = 0;
  uint64_t last_operations_ = 0;
  Summary last_summary_;
};

// Collects what threads that open connections report.
class Opening {
 public:
  void failed(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = status;
  }
  // After all threads have reported.
  const std::optional<Status>& error() const { return error_; }

 private:
  std::mutex mutex_;
  std::optional<Status> error_;  // guarded by mutex_
};

}  // namespace

Result<RunnerOptions> RunnerOptions::parse(const Properties& properties) {
  RunnerOptions options;
  constexpr uint64_t kMostThreads = 1024;
  const auto threads = properties.integer("threadcount", 1, 1);
  if (!threads) return tl::make_unexpected(threads.error());
  if (*threads > kMostThreads) return properties.refuse("threadcount", "must be at most 1024");
  options.threads = *threads;
  const auto target = properties.real("target", 0, {0, 1e12});
  if (!target) return tl::make_unexpected(target.error());
  options.target = *target;
  const auto spin = properties.boolean("spin.sleep", false);
  if (!spin) return tl::make_unexpected(spin.error());
  options.spin = *spin;
  const auto interval = properties.integer("status.interval", 10, 1);
  if (!interval) return tl::make_unexpected(interval.error());
  constexpr uint64_t kLongestInterval = 86'400;
  if (*interval > kLongestInterval) return properties.refuse("status.interval", "must be at most a day, in seconds");
  options.status_interval = static_cast<Nanoseconds>(*interval) * kSecond;
  options.label = properties.text("label", "");
  auto measurements = MeasurementOptions::parse(properties);
  if (!measurements) return tl::make_unexpected(measurements.error());
  options.measurements = *measurements;
  return options;
}

Result<PhaseResult> Runner::run_phase(bool loading) {
  const WorkloadConfig& config = workload_.config();
  const uint64_t total = loading ? config.insert_count : config.operation_count;
  const uint64_t threads = total == 0 ? options_.threads : std::min(options_.threads, total);
  PhaseState phase;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint64_t i = 0; i < threads; ++i) {
    WorkerOptions worker;
    worker.seed = options_.seed + 2 * i + (loading ? 0 : 1);
    worker.operations = total / threads + (i < total % threads ? 1 : 0);
    worker.batch = options_.batch;
    worker.spin = options_.spin;
    if (options_.target > 0) {
      const double tick = static_cast<double>(kSecond) * static_cast<double>(threads) / options_.target;
      worker.tick = std::max<Nanoseconds>(1, static_cast<Nanoseconds>(tick));
    }
    workers.push_back(
        std::make_unique<Worker>(workload_, stores_, environment_, phase, worker, options_.measurements));
  }

  StatusBoard board(options_, environment_, total);
  Opening opening;
  std::latch opened(static_cast<std::ptrdiff_t>(threads));
  std::latch begin(1);
  std::vector<std::jthread> running;
  for (const auto& worker : workers) {
    running.emplace_back([&, worker = worker.get()] {
      const Result<void> open = worker->open();
      if (!open) opening.failed(open.error());
      opened.count_down();
      begin.wait();
      if (!opening.error()) loading ? worker->load() : worker->run();
      board.worker_ended();
      if (open) worker->close();
    });
  }
  opened.wait();
  PhaseResult result;
  phase.started = environment_.clock.now();
  if (config.max_execution_time > 0) phase.stop_at = phase.started + config.max_execution_time;
  begin.count_down();
  board.wait_for(workers, phase.started);
  result.run_time = environment_.clock.now() - phase.started;
  running.clear();
  if (opening.error()) return tl::make_unexpected(*opening.error());

  result.summary = summary_of(workers);
  for (const auto& worker : workers) {
    result.operations += worker->done();
    for (size_t i = 0; i < kSeriesCount; ++i) result.costs[i] += worker->costs()[i];
  }
  return result;
}

}  // namespace skua::ycsb
