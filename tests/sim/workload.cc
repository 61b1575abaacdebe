#include "tests/sim/workload.h"

#include <charconv>
#include <utility>

#include "tests/sim/keys.h"

namespace skua::sim {
namespace {

constexpr Nanoseconds kLongThink = 20 * kMillisecond;
constexpr Nanoseconds kClockWindow = 50 * kMillisecond;  // ServerTime's, as simulated

}  // namespace

Worker::Worker(const Place& place, uint64_t operations, uint64_t seed)
    : place_(place), operations_(operations), random_(seed), known_(place.record.keys().size()),
      task_(run(operations)) {}

void Worker::Pause::await_suspend(std::coroutine_handle<> handle) {
  worker.place_.client.process().after(duration, [handle, &client = worker.place_.client] {
    handle.resume();
    client.poll_soon();
  });
}

Task<bool> Worker::run(uint64_t operations) {
  for (uint64_t i = 0; i < operations && !stopping_; ++i) {
    const bool longer = random_.chance(place_.scenario.long_think_chance);
    const auto most = static_cast<uint64_t>(longer ? kLongThink : place_.scenario.think_time);
    const auto duration = static_cast<Nanoseconds>(random_.below(most + 1));
    co_await Pause{*this, duration};
    if (stopping_) break;
    co_await one_operation();
  }
  doing_.clear();
  co_return true;
}

Worker::Choice Worker::choose(bool counter) {
  const Scenario& s = place_.scenario;
  const uint64_t weights[] = {s.gets, s.exists, s.puts, s.puts_if_absent, s.compare_and_swaps, s.removes};
  uint64_t sum = 0;
  for (const uint64_t weight : weights) sum += weight;
  uint64_t drawn = random_.below(sum);
  size_t choice = 0;
  while (drawn >= weights[choice]) drawn -= weights[choice++];
  const auto chosen = static_cast<Choice>(choice);
  const bool writes = chosen != Choice::kGet && chosen != Choice::kExists && chosen != Choice::kRemove;
  return counter && writes ? Choice::kIncrement : chosen;
}

Task<bool> Worker::one_operation() {
  const size_t key = random_.below(place_.record.keys().size());
  switch (choose(place_.record.keys()[key].counter)) {
    case Choice::kGet: return get(key);
    case Choice::kExists: return exists(key);
    case Choice::kPut: return put(key);
    case Choice::kPutIfAbsent: return put_if_absent(key);
    case Choice::kCompareAndSwap: return compare_and_swap(key);
    case Choice::kRemove: return remove(key);
    case Choice::kIncrement: return increment(key);
  }
  return get(key);
}

Operation Worker::called(sim::OperationKind kind) const {
  Operation operation;
  operation.kind = kind;
  operation.client = place_.number;
  operation.called_at = place_.world.now();
  return operation;
}

Record::Ticket Worker::begin(size_t key, const Operation& operation) {
  doing_ = operation.to_string() + " on " + name_of(key);
  return place_.record.begin(key, operation);
}

void Worker::answered(Record::Ticket ticket, Operation operation) {
  if (place_.client.crashed()) {
    stopping_ = true;
    return;
  }
  operation.outcome = Outcome::kDone;
  operation.answered_at = place_.world.now();
  place_.record.finish(ticket, operation);
}

void Worker::failed(Record::Ticket ticket, Operation operation, const Status& why) {
  if (place_.client.crashed()) {
    stopping_ = true;
    return;
  }
  doing_ += ": " + why.message();
  switch (why.code()) {
    case StatusCode::kInDoubt:
      // Its verbs may still land: it ended because its deadline had passed, or because its session is gone.
      operation.outcome = Outcome::kPending;
      place_.record.finish(ticket, operation);
      return;
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kOutOfMemory:
      place_.record.refused(ticket);
      return;
    default:
      place_.record.violation(operation.to_string() + " ended in " + why.message());
  }
}

std::string Worker::new_value(size_t key, uint64_t number) {
  const Scenario& s = place_.scenario;
  const size_t most = random_.chance(s.large_value_chance) ? s.large_value_bytes : s.value_bytes;
  return make_value(name_of(key), number, random_.below(most + 1));
}

// How far apart two clients' ideas of a server's time may be.
Nanoseconds Worker::time_slack() const {
  const Scenario& s = place_.scenario;
  // Over what a client and the server drift apart: two windows of ServerTime, a silence, a value's life.
  const Nanoseconds apart = 4 * kClockWindow + s.lease + s.longest_ttl;
  Nanoseconds slack = static_cast<Nanoseconds>(2 * s.plan.clock_drift_max * static_cast<double>(apart));
  slack += 2 * kMillisecond + 4 * s.plan.message_latency_max + 2 * s.plan.timer_lateness_max;
  if (s.plan.pause_chance > 0) slack += 4 * s.plan.pause_max;
  if (s.client_pauses > 0 || s.server_pauses > 0 || s.cuts > 0) slack += 4 * s.lease;
  if (s.plan.message_break_chance > 0 || s.control_breaks > 0) slack += 100 * kMillisecond;
  return slack;
}

PutOptions Worker::options_for(size_t key, Operation& operation) {
  PutOptions options;
  if (!place_.record.keys()[key].expires || random_.chance(0.3)) return options;
  const auto longest = static_cast<uint64_t>(place_.scenario.longest_ttl);
  options.ttl = kMillisecond + static_cast<Nanoseconds>(random_.below(longest));
  const Nanoseconds rounded = options.ttl / kMillisecond * kMillisecond;
  operation.expires_from = std::max<Nanoseconds>(operation.called_at, operation.called_at + rounded - time_slack());
  return options;
}

void Worker::must_read(size_t key, std::string_view value, Operation& operation) {
  const Record::Key& k = place_.record.keys()[key];
  if (k.counter) {
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), operation.value);
    if (parsed.ec != std::errc()) place_.record.violation("counter " + k.name + " holds no number");
    return;
  }
  const auto number = read_value(k.name, value);
  if (!number) {
    place_.record.violation("get of " + k.name + " returned " + std::to_string(value.size()) +
                            " bytes that nobody wrote under this key");
    return;
  }
  operation.value = *number;
}

Task<bool> Worker::get(size_t key) {
  Operation operation = called(OperationKind::kGet);
  const Record::Ticket ticket = begin(key, operation);
  auto got = co_await get_operation(place_.session, name_of(key), {});
  if (!got) {
    failed(ticket, operation, got.error());
    co_return false;
  }
  if (place_.client.crashed()) {
    answered(ticket, operation);
    co_return false;
  }
  if (got->present) {
    must_read(key, got->value, operation);
    if (!place_.record.keys()[key].counter) {
      place_.record.saw_version(ticket, got->version, operation.value);
      known_[key] = {got->version, operation.value};
    }
  }
  answered(ticket, operation);
  co_return true;
}

Task<bool> Worker::exists(size_t key) {
  Operation operation = called(OperationKind::kExists);
  const Record::Ticket ticket = begin(key, operation);
  const auto there = co_await exists_operation(place_.session, name_of(key));
  if (!there) {
    failed(ticket, operation, there.error());
    co_return false;
  }
  operation.succeeded = *there;
  answered(ticket, operation);
  co_return true;
}

// What put, put_if_absent and compare_and_swap begin with: a value of its own, its expiry, and the record of the call.
Worker::Write Worker::begin_write(OperationKind kind, size_t key, uint64_t expected) {
  Write write;
  write.operation = called(kind);
  write.operation.expected = expected;
  write.operation.value = place_.record.new_number();
  write.value = new_value(key, write.operation.value);
  write.options = options_for(key, write.operation);
  write.ticket = begin(key, write.operation);
  return write;
}

// `version`: of what was written; null when nothing was.
void Worker::end_write(size_t key, Write& write, const VersionToken* version) {
  // The answer is there, so it is known when at the latest the value has gone.
  if (write.options.ttl != 0) {
    write.operation.expires_until = place_.world.now() + write.options.ttl + time_slack();
  }
  if (version != nullptr && !place_.client.crashed()) {
    place_.record.saw_version(write.ticket, *version, write.operation.value);
    known_[key] = {*version, write.operation.value};
  }
  answered(write.ticket, write.operation);
}

Task<bool> Worker::put(size_t key) {
  Write write = begin_write(OperationKind::kPut, key);
  const auto stored = co_await put_operation(place_.session, name_of(key), write.value, write.options);
  if (!stored) {
    failed(write.ticket, write.operation, stored.error());
    co_return stored.error().code() == StatusCode::kOutOfMemory;
  }
  end_write(key, write, &*stored);
  co_return true;
}

Task<bool> Worker::put_if_absent(size_t key) {
  Write write = begin_write(OperationKind::kPutIfAbsent, key);
  const auto outcome = co_await put_if_absent_operation(place_.session, name_of(key), write.value, write.options);
  if (!outcome) {
    failed(write.ticket, write.operation, outcome.error());
    co_return false;
  }
  write.operation.succeeded = outcome->stored;
  end_write(key, write, outcome->stored ? &outcome->version : nullptr);
  co_return true;
}

Task<bool> Worker::compare_and_swap(size_t key) {
  if (known_[key].number == kAbsent) co_return co_await get(key);
  const Known expected = known_[key];
  Write write = begin_write(OperationKind::kCompareAndSwap, key, expected.number);
  const auto outcome = co_await compare_and_swap_operation(place_.session, name_of(key), expected.version, write.value,
                                                           write.options);
  if (!outcome) {
    failed(write.ticket, write.operation, outcome.error());
    co_return false;
  }
  write.operation.succeeded = outcome->swapped;
  if (!outcome->swapped && random_.chance(0.5)) known_[key] = {};
  end_write(key, write, outcome->swapped ? &outcome->version : nullptr);
  co_return true;
}

Task<bool> Worker::remove(size_t key) {
  const Operation operation = called(OperationKind::kRemove);
  const Record::Ticket ticket = begin(key, operation);
  const auto removed = co_await remove_operation(place_.session, name_of(key));
  if (!removed) {
    failed(ticket, operation, removed.error());
    co_return false;
  }
  Operation done = operation;
  done.succeeded = *removed;
  answered(ticket, done);
  co_return true;
}

Task<bool> Worker::increment(size_t key) {
  Operation operation = called(OperationKind::kIncrement);
  operation.delta = 1 + static_cast<int64_t>(random_.below(3));
  const Record::Ticket ticket = begin(key, operation);
  const auto sum = co_await increment_operation(place_.session, name_of(key), operation.delta);
  if (!sum) {
    failed(ticket, operation, sum.error());
    co_return sum.error().code() == StatusCode::kOutOfMemory;
  }
  operation.number = *sum;
  answered(ticket, operation);
  co_return true;
}

Task<bool> Worker::read(size_t key) { return get(key); }
Task<bool> Worker::write(size_t key) { return place_.record.keys()[key].counter ? increment(key) : put(key); }

}  // namespace skua::sim
