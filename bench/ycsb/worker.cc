#include "bench/ycsb/worker.h"

#include <algorithm>
#include <utility>

namespace skua::ycsb {
namespace {

constexpr int kMaxSwaps = 100;                                // of one field merged into a contended record
constexpr Nanoseconds kLongestSleep = 100 * kMillisecond;     // before the worker looks whether the phase has ended

bool writes_differ(const WorkloadConfig& config) {
  const bool updates = config.update_proportion > 0 || config.read_modify_write_proportion > 0;
  return updates && (config.insert_proportion > 0 || config.updates_by_merge());
}

}  // namespace

Worker::Worker(Workload& workload, KvStoreFactory& stores, const Environment& environment, PhaseState& phase,
               WorkerOptions options, const MeasurementOptions& measurements)
    : workload_(workload),
      stores_(stores),
      environment_(environment),
      phase_(phase),
      options_(options),
      thread_(workload.make_thread(options.seed)),
      measurements_(measurements),
      costs_each_write_(writes_differ(workload.config())) {
  batch_keys_.resize(options_.batch);
  batch_.resize(options_.batch);
}

Result<void> Worker::open() {
  auto opened = stores_.open();
  if (!opened) return tl::make_unexpected(opened.error());
  store_ = std::move(*opened);
  costs_at_open_ = store_->costs();
  return {};
}

void Worker::close() {
  StoreCosts total = store_->costs();
  total.reads -= costs_at_open_.reads;
  total.writes -= costs_at_open_.writes;
  total.reads -= reads_of_writes_;
  costs_[static_cast<size_t>(Series::kRead)] = total.reads;
  if (loading_ || !costs_each_write_) {
    const bool inserts = loading_ || workload_.config().insert_proportion > 0;
    costs_[static_cast<size_t>(inserts ? Series::kInsert : Series::kUpdate)] = total.writes;
  }
  store_.reset();
}

bool Worker::goes_on() {
  if (options_.operations != 0 && done() + batched_ >= options_.operations) return false;
  if (phase_.stop_at != 0 && now_ >= phase_.stop_at) return false;
  return !phase_.stop.load(std::memory_order_relaxed) && !environment_.interrupted.load(std::memory_order_relaxed);
}

void Worker::load() {
  loading_ = true;
  now_ = phase_.started;
  while (goes_on()) {
    insert(workload_.next_load_key());
    finish_operations(1);
  }
}

void Worker::run() {
  now_ = phase_.started;
  while (goes_on()) {
    const Operation operation = thread_.next_operation();
    if (operation == Operation::kRead) {
      read_or_batch();
      continue;
    }
    flush_batch();
    switch (operation) {
      case Operation::kUpdate: {
        thread_.records().make_key(thread_.next_key(), key_);
        (void)update();
        break;
      }
      case Operation::kInsert: {
        const uint64_t number = workload_.inserted().next();
        insert(number);
        workload_.inserted().acknowledge(number);
        break;
      }
      default: read_modify_write();
    }
    finish_operations(1);
  }
  flush_batch();
}

void Worker::finish_operations(uint64_t count) {
  done_.store(done() + count, std::memory_order_relaxed);
  wait_for_tick();
}

void Worker::wait_for_tick() {
  if (options_.tick == 0) return;
  intended_begin_ = phase_.started + static_cast<Nanoseconds>(done()) * options_.tick;
  const Nanoseconds until = phase_.stop_at == 0 ? intended_begin_ : std::min(intended_begin_, phase_.stop_at);
  while (now_ < until && !phase_.stop.load(std::memory_order_relaxed) &&
         !environment_.interrupted.load(std::memory_order_relaxed)) {
    if (!options_.spin) environment_.sleep_until(std::min(until, now_ + kLongestSleep));
    now_ = environment_.clock.now();
  }
}

Worker::Timer Worker::begin() const {
  const Nanoseconds now = environment_.clock.now();
  return {now, intended_begin_ == 0 ? now : intended_begin_};
}

void Worker::end(const Timer& timer, Series series, Outcome outcome) {
  now_ = environment_.clock.now();
  measurements_.record(series, outcome, {now_ - timer.begin, now_ - timer.intended});
}

Outcome Worker::failed(const Status& status, std::string_view doing) {
  const uint64_t before = phase_.errors.fetch_add(1, std::memory_order_relaxed);
  if (before < PhaseState::kMaxErrorsShown) {
    environment_.print_error("error: " + std::string(doing) + " " + key_ + ": " + status.to_string());
  } else if (before == PhaseState::kMaxErrorsShown) {
    environment_.print_error("error: more operations fail; they are counted under Return= and no longer shown");
  }
  return outcome_of(status.code());
}

template <class F>
Outcome Worker::with_costs(Series series, F operation) {
  if (loading_ || !costs_each_write_) return operation();
  const StoreCosts before = store_->costs();
  const Outcome outcome = operation();
  StoreCosts cost = store_->costs();
  cost.reads -= before.reads;
  cost.writes -= before.writes;
  reads_of_writes_ += cost.reads;
  cost.reads += cost.writes;
  cost.reads.operations = 1;
  costs_[static_cast<size_t>(series)] += cost.reads;
  return outcome;
}

void Worker::read_or_batch() {
  if (options_.batch > 1) {
    thread_.records().make_key(thread_.next_key(), batch_keys_[batched_]);
    ++batched_;
    if (batched_ == options_.batch) flush_batch();
    return;
  }
  thread_.records().make_key(thread_.next_key(), key_);
  (void)read();
  finish_operations(1);
}

// Each read of a batch took as long as the batch.
void Worker::flush_batch() {
  if (batched_ == 0) return;
  const size_t count = std::exchange(batched_, 0);
  const std::span<KvReadItem> items(batch_.data(), count);
  for (size_t i = 0; i < count; ++i) items[i].key = batch_keys_[i];
  const Timer timer = begin();
  store_->read_many(items);
  now_ = environment_.clock.now();
  for (const KvReadItem& item : items) {
    Outcome outcome = Outcome::kOk;
    if (!item.found) {
      key_ = item.key;
      outcome = failed(item.found.error(), "READ");
    } else if (!*item.found) {
      outcome = Outcome::kNotFound;
    }
    measurements_.record(Series::kRead, outcome, {now_ - timer.begin, now_ - timer.intended});
    if (item.found) verify(item.key, item.value, *item.found);
  }
  finish_operations(count);
}

// Of key_; the record is in value_.
Outcome Worker::read() {
  const Timer timer = begin();
  const Result<bool> found = store_->read(key_, value_, nullptr);
  const Outcome outcome =
      !found ? failed(found.error(), "READ") : *found ? Outcome::kOk : Outcome::kNotFound;
  end(timer, Series::kRead, outcome);
  if (found) verify(key_, value_, *found);
  return outcome;
}

void Worker::verify(std::string_view key, std::string_view record, bool found) {
  if (!workload_.config().data_integrity) return;
  std::optional<uint64_t> field;
  if (!workload_.config().read_all_fields) field = thread_.next_field();
  const Nanoseconds begin = environment_.clock.now();
  const bool right = found && thread_.records().verify(key, record, field);
  const Nanoseconds took = environment_.clock.now() - begin;
  const Outcome outcome = right ? Outcome::kOk : found ? Outcome::kUnexpectedState : Outcome::kError;
  if (found && !right) {
    (void)failed(Status(StatusCode::kCorruption, std::to_string(record.size()) + " bytes that are not this record's"),
                 "VERIFY");
  }
  measurements_.record(Series::kVerify, outcome, {took, took});
}

Outcome Worker::update() {
  if (workload_.config().updates_by_merge()) {
    return with_costs(Series::kUpdate, [&] { return merge_field(); });
  }
  thread_.records().make_record(key_, thread_.random(), record_);
  return with_costs(Series::kUpdate, [&] { return write_record(Series::kUpdate); });
}

Outcome Worker::write_record(Series series) {
  const Timer timer = begin();
  const Result<void> written = store_->write(key_, record_);
  const Outcome outcome = written ? Outcome::kOk : failed(written.error(), to_string(series));
  end(timer, series, outcome);
  return outcome;
}

Outcome Worker::merge_field() {
  const uint64_t field = thread_.next_field();
  Outcome outcome = Outcome::kError;
  const Timer timer = begin();
  for (int swaps = 0; swaps < kMaxSwaps; ++swaps) {
    KvVersion version{};
    const Result<bool> found = store_->read(key_, record_, &version);
    if (!found || !*found) {
      outcome = found ? Outcome::kNotFound : failed(found.error(), "UPDATE");
      break;
    }
    if (!thread_.records().change_field(key_, field, thread_.random(), record_)) {
      outcome = failed(Status(StatusCode::kCorruption, "the record has another layout than this workload's"), "UPDATE");
      break;
    }
    const Result<bool> swapped = store_->replace(key_, version, record_);
    if (!swapped || *swapped) {
      outcome = swapped ? Outcome::kOk : failed(swapped.error(), "UPDATE");
      break;
    }
  }
  end(timer, Series::kUpdate, outcome);
  return outcome;
}

void Worker::insert(uint64_t number) {
  const WorkloadConfig& config = workload_.config();
  thread_.records().make_key(number, key_);
  thread_.records().make_record(key_, thread_.random(), record_);
  const auto insert_once = [&] { return with_costs(Series::kInsert, [&] { return write_record(Series::kInsert); }); };
  Outcome outcome = insert_once();
  for (uint64_t retries = 0; loading_ && outcome != Outcome::kOk && retries < config.insert_retries; ++retries) {
    const double spread = 0.8 + 0.4 * thread_.random().unit();
    const Nanoseconds wake_up =
        now_ + static_cast<Nanoseconds>(spread * static_cast<double>(config.insert_retry_interval));
    while (now_ < wake_up && goes_on()) {
      environment_.sleep_until(std::min(wake_up, now_ + kLongestSleep));
      now_ = environment_.clock.now();
    }
    if (!goes_on()) break;
    outcome = insert_once();
  }
  if (loading_ && outcome != Outcome::kOk && !phase_.stop.exchange(true)) {
    environment_.print_error(
        "error: the load ends at the first record that cannot be inserted; "
        "-p core_workload_insertion_retry_limit=N retries");
  }
}

void Worker::read_modify_write() {
  thread_.records().make_key(thread_.next_key(), key_);
  const Timer timer = begin();
  Outcome outcome = read();
  if (outcome == Outcome::kOk) outcome = update();
  end(timer, Series::kReadModifyWrite, outcome);
}

}  // namespace skua::ycsb
