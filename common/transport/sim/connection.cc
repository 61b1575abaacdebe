#include "common/transport/sim/connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace skua::sim {
namespace {

constexpr uint64_t kLineBytes = 64;

bool is_atomic(Verb verb) { return verb == Verb::kCompareAndSwap || verb == Verb::kFetchAndAdd; }

uint64_t load_word(const std::byte* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::vector<std::byte> gather(const WorkRequest& request) {
  std::vector<std::byte> data;
  data.reserve(request.bytes());
  for (size_t i = 0; i < request.local_count; ++i) {
    const auto* from = static_cast<const std::byte*>(request.local[i].data);
    data.insert(data.end(), from, from + request.local[i].bytes);
  }
  return data;
}

void scatter(const WorkRequest& request, const std::byte* from) {
  for (size_t i = 0; i < request.local_count; ++i) {
    if (request.local[i].bytes > 0) std::memcpy(request.local[i].data, from, request.local[i].bytes);
    from += request.local[i].bytes;
  }
}

std::string_view name_of(Verb verb) {
  switch (verb) {
    case Verb::kRead: return "READ";
    case Verb::kWrite: return "WRITE";
    case Verb::kCompareAndSwap: return "CAS";
    case Verb::kFetchAndAdd: return "FETCH_ADD";
  }
  return "?";
}

}  // namespace

void TargetState::end() {
  if (!std::exchange(alive, false)) return;
  admitted.clear();
  for (const std::weak_ptr<Connection>& weak : connections) {
    if (const auto connection = weak.lock()) connection->responder_ended();
  }
}

Connection::Connection(SimWorld& world, SimProcess& client, ConnectTarget target)
    : world_(world),
      client_(client),
      incarnation_(client.incarnation()),
      target_(std::move(target)),
      id_(world.next_connection_id()) {
  capabilities_.transport = "sim";
  capabilities_.queue_depth = world.plan().queue_depth;
  capabilities_.max_message_bytes = world.plan().max_message_bytes;
  capabilities_.remote_atomics = !world.plan().atomics_by_server;
  capabilities_.read_only = target_.read_only;
}

bool Connection::client_here() const {
  return !closed_ && client_.alive() && client_.incarnation() == incarnation_;
}

// --- Posting --------------------------------------------------------------------------------------------------------

size_t Connection::post(std::span<const WorkRequest> requests) {
  if (state_ != QueuePairState::kReady || !client_here()) return 0;
  size_t accepted = 0;
  for (const WorkRequest& request : requests) {
    if (outstanding_.size() >= capabilities_.queue_depth) break;
    launch(request);
    ++accepted;
  }
  return accepted;
}

void Connection::launch(const WorkRequest& request) {
  const FaultPlan& plan = world_.plan();
  auto flight = std::make_shared<Flight>();
  flight->sequence = sequence_++;
  flight->request = request;
  flight->data = request.verb == Verb::kWrite ? gather(request) : std::vector<std::byte>(request.bytes());
  outstanding_.push_back(flight);
  const bool misaligned = is_atomic(request.verb) && (request.remote_offset % 8 != 0 || request.bytes() != 8);
  if (misaligned || request.bytes() > capabilities_.max_message_bytes) {
    first_refused_ = std::min(first_refused_, flight->sequence);
    answer(flight, CompletionStatus::kBadRequest);
    return;
  }
  bool late = false;
  if (world_.is_cut(client_, *responder_->process)) {
    first_vanished_ = std::min(first_vanished_, flight->sequence);
    doom(flight->sequence);
  } else if (first_lost_ > flight->sequence && world_.random().chance(plan.break_chance)) {
    // Of this request all, a part or nothing takes effect, of those behind it some of the first or none.
    if (world_.random().chance(0.5)) {
      first_vanished_ = flight->sequence + world_.random().below(4);
      vanishes_in_part_ = world_.random().chance(0.5);
    }
    doom(flight->sequence);
    late = world_.random().chance(plan.late_chance);
  }
  cut_into_pieces(*flight);
  effects_of(flight, world_.now() + world_.between(plan.verb_latency_min, plan.verb_latency_max));
  if (late) shift_what_is_under_way(world_.between(1, plan.late_max));
}

void Connection::cut_into_pieces(Flight& flight) {
  const uint64_t end = flight.request.remote_offset + flight.request.bytes();
  const uint64_t begin = flight.request.remote_offset;
  const uint64_t lines = (end + kLineBytes - 1) / kLineBytes - begin / kLineBytes;
  const uint64_t most = std::max<uint32_t>(world_.plan().lines_apart_max, 1);
  flight.pieces.push_back(0);
  if (lines <= most) {
    for (uint64_t at = (begin / kLineBytes + 1) * kLineBytes; at < end; at += kLineBytes) {
      flight.pieces.push_back(at - begin);
    }
  } else {
    std::set<uint64_t> borders;
    for (uint64_t i = 1; i < most; ++i) borders.insert(begin / kLineBytes + 1 + world_.random().below(lines - 1));
    for (uint64_t line : borders) flight.pieces.push_back(line * kLineBytes - begin);
  }
  flight.pieces.push_back(end - begin);
  flight.pieces_left = flight.pieces.size() - 1;
}

// Gives every piece its moment, none before those that the seam promises to be earlier.
void Connection::effects_of(const FlightPtr& flight, Nanoseconds earliest) {
  const FaultPlan& plan = world_.plan();
  const Verb verb = flight->request.verb;
  if (verb != Verb::kRead && !plan.writes_are_overtaken) earliest = std::max(earliest, writes_done_ + 1);
  if (verb != Verb::kWrite) earliest = std::max(earliest, atomics_done_ + 1);
  Nanoseconds last = earliest;
  for (size_t piece = 0; piece + 1 < flight->pieces.size(); ++piece) {
    Nanoseconds at = earliest + world_.between(0, plan.line_spread);
    if (world_.random().chance(plan.slow_line_chance)) at += world_.between(0, plan.slow_line_max);
    last = std::max(last, at);
    schedule_effect(flight, Effect{at, piece, shift_});
  }
  if (verb == Verb::kWrite) writes_done_ = last;
  if (is_atomic(verb)) atomics_done_ = last;
}

void Connection::schedule_effect(const FlightPtr& flight, const Effect& effect) {
  world_.schedule(effect.at - world_.now(),
                  [self = shared_from_this(), flight, effect] { self->take_effect(flight, effect); });
}

// All that has not happened yet is put off alike, so that its order stays.
void Connection::shift_what_is_under_way(Nanoseconds by) {
  shift_ += by;
  writes_done_ += by;
  atomics_done_ += by;
}

// --- At the responder -----------------------------------------------------------------------------------------------

void Connection::take_effect(const FlightPtr& flight, const Effect& effect) {
  if (effect.shift < shift_) {
    schedule_effect(flight, Effect{world_.now() + shift_ - effect.shift, effect.piece, shift_});
    return;
  }
  if (fenced_ || !responder_->alive || world_.now() >= vanish_at_) return;
  if (flight->sequence >= first_refused_) return;
  if (flight->sequence >= first_vanished_) {
    const bool in_part = vanishes_in_part_ && flight->sequence == first_vanished_;
    if (!in_part || flight->request.verb != Verb::kWrite || world_.random().chance(0.5)) return;
  }
  const Access target = access(*flight);
  if (target.status != CompletionStatus::kSuccess) {
    trace("refused", *flight, effect.piece, nullptr, 0);
    first_refused_ = std::min(first_refused_, flight->sequence);
    answer(flight, target.status);
    return;
  }
  if (is_atomic(flight->request.verb)) {
    if (!run_atomic(flight, target.address)) return;
  } else {
    copy_piece(*flight, effect.piece, target.address);
    if (flight->request.verb == Verb::kRead && world_.random().chance(world_.plan().resent_read_chance)) {
      const Nanoseconds again = world_.now() + world_.between(1, world_.plan().slow_line_max);
      schedule_effect(flight, Effect{again, effect.piece, shift_});
      return;
    }
  }
  if (--flight->pieces_left == 0) answer(flight, CompletionStatus::kSuccess);
}

Connection::Access Connection::access(const Flight& flight) const {
  const auto admission = responder_->admitted.find(target_.session);
  if (admission == responder_->admitted.end()) return {};
  const SessionTicket& ticket = admission->second.ticket;
  const WorkRequest& request = flight.request;
  if (request.verb != Verb::kRead && (target_.read_only || ticket.read_only)) return {};
  for (const ExposedRegion& region : ticket.regions) {
    if (region.key != request.key) continue;
    const uint64_t bytes = request.bytes();
    if (bytes > region.bytes || request.remote_offset > region.bytes - bytes) return {};
    return {region.data + request.remote_offset, CompletionStatus::kSuccess};
  }
  return {};
}

void Connection::copy_piece(Flight& flight, size_t piece, std::byte* memory) {
  const uint64_t begin = flight.pieces[piece];
  const uint64_t bytes = flight.pieces[piece + 1] - begin;
  const uint64_t before = bytes >= 8 ? load_word(memory + begin) : 0;
  if (bytes > 0 && flight.request.verb == Verb::kRead) std::memcpy(flight.data.data() + begin, memory + begin, bytes);
  if (bytes > 0 && flight.request.verb == Verb::kWrite) std::memcpy(memory + begin, flight.data.data() + begin, bytes);
  trace(name_of(flight.request.verb), flight, piece, memory, before);
  if (world_.observer_) {
    std::byte* const region = memory - flight.request.remote_offset;
    world_.observer_({&client_, flight.request.verb, region, memory + begin, bytes, 0, 0});
  }
}

// An atomic waits, and with it all that is under way on this connection.
void Connection::put_off(const FlightPtr& flight, Nanoseconds wait) {
  shift_what_is_under_way(wait);
  schedule_effect(flight, Effect{world_.now() + wait, 0, shift_});
}

// False: it waits for another atomic's write-back, or for the server's process that executes it.
bool Connection::run_atomic(const FlightPtr& flight, std::byte* word) {
  const auto busy = responder_->busy.find(word);
  if (busy != responder_->busy.end() && busy->second >= world_.now()) {
    put_off(flight, busy->second - world_.now() + 1);
    return false;
  }
  if (!capabilities_.remote_atomics) {
    const Nanoseconds standstill = responder_->process->paused_until() - world_.now();
    if (standstill > 0 || !flight->handed_over) {
      flight->handed_over = true;
      put_off(flight, std::max<Nanoseconds>(standstill, 0) + world_.between(1, 2 * world_.plan().verb_latency_max));
      return false;
    }
  }
  const WorkRequest& request = flight->request;
  flight->found = load_word(word);
  std::memcpy(flight->data.data(), &flight->found, sizeof flight->found);
  if (request.verb == Verb::kCompareAndSwap && flight->found != request.compare) {
    trace("CAS lost", *flight, 0, word, flight->found);
    if (world_.plan().failed_cas_writes_back) write_back(word, flight->found);
    return true;
  }
  const uint64_t next =
      request.verb == Verb::kCompareAndSwap ? request.swap_or_add : flight->found + request.swap_or_add;
  std::memcpy(word, &next, sizeof next);
  trace(name_of(request.verb), *flight, 0, word, flight->found);
  if (world_.observer_) {
    world_.observer_({&client_, request.verb, word - request.remote_offset, word, sizeof next, flight->found, next});
  }
  return true;
}

void Connection::write_back(std::byte* word, uint64_t value) {
  const Nanoseconds delay = world_.between(1, 200);
  responder_->busy[word] = world_.now() + delay;
  world_.schedule(delay, [responder = responder_, word, value] {
    responder->busy.erase(word);
    if (responder->alive) std::memcpy(word, &value, sizeof value);
  });
}

void Connection::fence() {
  fenced_ = true;
  fail_at(world_.between(1, world_.plan().verb_latency_max), StatusCode::kPeerLost, "the server ended the session");
}

void Connection::responder_ended() {
  doom(0);
}

// --- Answers --------------------------------------------------------------------------------------------------------

void Connection::answer(const FlightPtr& flight, CompletionStatus status) {
  flight->status = status;
  const FaultPlan& plan = world_.plan();
  world_.schedule(world_.between(plan.verb_latency_min, plan.verb_latency_max),
                  [self = shared_from_this(), flight] { self->answered(flight); });
}

void Connection::answered(const FlightPtr& flight) {
  if (!client_here() || state_ != QueuePairState::kReady || flight->sequence >= first_lost_) return;
  if (world_.is_cut(client_, *responder_->process)) {
    doom(flight->sequence);
    return;
  }
  flight->answered = true;
  while (!outstanding_.empty() && outstanding_.front()->answered) {
    const FlightPtr first = outstanding_.front();
    if (first->status != CompletionStatus::kSuccess) {
      fail_now(first->status, Status(StatusCode::kPeerLost, "a request ended in " +
                                                                std::string(skua::to_string(first->status))));
      return;
    }
    outstanding_.pop_front();
    complete(*first);
  }
}

void Connection::complete(const Flight& flight) {
  const WorkRequest& request = flight.request;
  if (request.verb == Verb::kWrite) {
    SKUA_CHECK(gather(request) == flight.data, "local memory of a WRITE was changed before its completion");
  } else {
    scatter(request, flight.data.data());
  }
  if (!request.signaled) return;
  trace("completed", flight, 0, nullptr, flight.found);
  completions_.push_back(Completion{request.context, CompletionStatus::kSuccess});
  client_.notify_activity();
}

size_t Connection::poll(std::span<Completion> completions) {
  size_t count = 0;
  for (; count < completions.size() && !completions_.empty(); ++count) {
    completions[count] = completions_.front();
    completions_.pop_front();
  }
  return count;
}

// --- Ends -----------------------------------------------------------------------------------------------------------

// From request `first_lost` on no answer arrives; the queue pair learns of it by time-out, or a little earlier.
void Connection::doom(uint64_t first_lost) {
  first_lost_ = std::min(first_lost_, first_lost);
  const bool quickly = world_.random().chance(0.5);
  fail_at(quickly ? world_.between(1, target_.response_timeout / 10) : target_.response_timeout,
          StatusCode::kPeerLost, "no answer from the server");
}

void Connection::fail_at(Nanoseconds delay, StatusCode code, const std::string& why) {
  world_.schedule(delay, [self = shared_from_this(), code, why] {
    if (!self->client_here() || self->state_ == QueuePairState::kError) return;
    self->fail_now(CompletionStatus::kPeerLost, Status(code, why + " (" + self->target_.address + ")"));
  });
}

void Connection::fail_now(CompletionStatus first, Status why) {
  state_ = QueuePairState::kError;
  error_ = std::move(why);
  TraceEvent event;
  event.at = world_.now();
  event.process = client_.id();
  event.connection = id_;
  event.sequence = sequence_;
  world_.trace().add("broken", event, outstanding_.size());
  for (CompletionStatus status = first; !outstanding_.empty(); outstanding_.pop_front()) {
    const WorkRequest& request = outstanding_.front()->request;
    if (request.signaled || status == first) completions_.push_back(Completion{request.context, status});
    status = CompletionStatus::kFlushed;
  }
  abandon();
  client_.notify_activity();
}

// Nobody waits any more for what is under way: it lands as it would have, later, or not at all.
void Connection::abandon() {
  const FaultPlan& plan = world_.plan();
  if (world_.random().chance(plan.late_chance)) {
    shift_what_is_under_way(world_.between(1, plan.late_max));
  } else if (world_.random().chance(0.5)) {
    vanish_at_ = std::min(vanish_at_, world_.now() + world_.between(0, 2 * plan.line_spread));
  }
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  if (state_ != QueuePairState::kError) abandon();
  outstanding_.clear();
  completions_.clear();
}

void Connection::client_ended(const SimProcess& process) {
  if (&process != &client_ || closed_ || incarnation_ + 1 != process.incarnation()) return;
  close();
}

void Connection::break_now() {
  if (!client_here() || state_ != QueuePairState::kReady) return;
  const FaultPlan& plan = world_.plan();
  doom(outstanding_.empty() ? sequence_ : outstanding_.front()->sequence);
  if (world_.random().chance(plan.late_chance)) shift_what_is_under_way(world_.between(1, plan.late_max));
}

bool Connection::joins(const SimProcess& a, const SimProcess& b) const {
  if (responder_ == nullptr) return false;
  return (&client_ == &a && responder_->process == &b) || (&client_ == &b && responder_->process == &a);
}

void Connection::trace(std::string_view what, const Flight& flight, size_t piece, const std::byte* memory,
                       uint64_t before) {
  TraceEvent event;
  event.at = world_.now();
  event.process = client_.id();
  event.connection = id_;
  event.sequence = flight.sequence;
  event.before = before;
  uint64_t content = static_cast<uint64_t>(flight.status);
  if (piece + 1 < flight.pieces.size()) {
    event.offset = flight.request.remote_offset + flight.pieces[piece];
    event.bytes = flight.pieces[piece + 1] - flight.pieces[piece];
    if (memory != nullptr) {
      content ^= hash_bytes(memory + flight.pieces[piece], event.bytes);
      if (event.bytes >= 8) event.after = load_word(memory + flight.pieces[piece]);
    }
  }
  world_.trace().add(what, event, content);
}

}  // namespace skua::sim
