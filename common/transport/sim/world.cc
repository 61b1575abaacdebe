#include "common/transport/sim/world.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/transport/sim/connection.h"
#include "common/transport/sim/link.h"

namespace skua::sim {

// --- SimProcess ---------------------------------------------------------------------------------------------------

SimProcess::SimProcess(SimWorld& world, uint32_t id, std::string name)
    : world_(world), id_(id), name_(std::move(name)), random_(world.random().next()) {
  clock_skew_ = world.between(0, world.plan().clock_skew_max);
  clock_rate_ = 1 + world.plan().clock_drift_max * (2 * random_.unit() - 1);
}

void SimProcess::post(std::function<void()> function) {
  if (!alive_) return;
  posted_.push_back(std::move(function));
  // Now and then what the executor does first takes as long as a few verbs.
  const Nanoseconds delay = world_.between(0, 9) == 0 ? world_.between(1, 20'000) : world_.between(1, 200);
  world_.schedule(delay, [this] {
    const std::function<void()> first = std::move(posted_.front());
    posted_.pop_front();
    first();
  }, this);
}

Executor::TimerId SimProcess::after(Nanoseconds delay, std::function<void()> function) {
  const TimerId timer = next_timer_++;
  if (!alive_) return timer;
  timers_.insert(timer);
  const Nanoseconds late = world_.between(0, world_.plan().timer_lateness_max);
  const auto own = static_cast<double>(std::max<Nanoseconds>(delay, 0));
  const auto duration = static_cast<Nanoseconds>(own / clock_rate_) + 1;
  world_.schedule(duration + late, [this, timer, run = std::move(function)] {
    if (timers_.erase(timer) != 0) run();
  }, this);
  return timer;
}

void SimProcess::cancel(TimerId timer) { timers_.erase(timer); }

Nanoseconds SimProcess::now() const {
  return static_cast<Nanoseconds>(static_cast<double>(world_.now()) * clock_rate_);
}

int64_t SimProcess::wall_ms() const { return 1'700'000'000'000 + (now() + clock_skew_) / kMillisecond; }

void SimProcess::jump_wall_clock(Nanoseconds by) {
  TraceEvent event;
  event.at = world_.now();
  event.process = id_;
  event.bytes = static_cast<uint64_t>(by < 0 ? -by : by);
  world_.trace().add(by < 0 ? "clock set back" : "clock set forward", event);
  clock_skew_ += by;
}

void SimProcess::notify_activity() {
  if (!alive_ || activity_scheduled_) return;
  activity_scheduled_ = true;
  // Now and then what the executor does first takes as long as a few verbs.
  const Nanoseconds delay = world_.between(0, 9) == 0 ? world_.between(1, 20'000) : world_.between(1, 200);
  world_.schedule(delay, [this] {
    activity_scheduled_ = false;
    if (activity_) activity_();
  }, this);
}

void SimProcess::crash() {
  SKUA_CHECK(alive_, name_);
  TraceEvent event;
  event.at = world_.now();
  event.process = id_;
  world_.trace().add("crash", event);
  alive_ = false;
  ++incarnation_;
  posted_.clear();
  timers_.clear();
  activity_ = nullptr;
  activity_scheduled_ = false;
  paused_until_ = 0;
  world_.end_connections_of(*this);
}

void SimProcess::restart() {
  SKUA_CHECK(!alive_, name_);
  TraceEvent event;
  event.at = world_.now();
  event.process = id_;
  world_.trace().add("restart", event);
  alive_ = true;
}

void SimProcess::pause(Nanoseconds duration) {
  TraceEvent event;
  event.at = world_.now();
  event.process = id_;
  event.bytes = static_cast<uint64_t>(duration);
  world_.trace().add("pause", event);
  paused_until_ = std::max(paused_until_, world_.now() + duration);
}

// --- SimWorld -----------------------------------------------------------------------------------------------------

SimWorld::SimWorld(uint64_t seed, const FaultPlan& plan) : plan_(plan), random_(seed) {}

SimWorld::~SimWorld() {
  ending_ = true;
  for (const std::weak_ptr<Link>& weak : links_) {
    if (const auto link = weak.lock()) link->forget_events();
  }
  for (const auto& process : processes_) {
    process->alive_ = false;
    const auto posted = std::exchange(process->posted_, {});
  }
  const auto events = std::exchange(events_, {});
}

SimProcess& SimWorld::add_process(const std::string& name) {
  const uint32_t id = static_cast<uint32_t>(processes_.size()) + 1;
  processes_.push_back(std::make_unique<SimProcess>(*this, id, name));
  return *processes_.back();
}

void SimWorld::push(Event event) {
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end(), Later{});
}

void SimWorld::schedule(Nanoseconds delay, std::function<void()> function, SimProcess* process) {
  if (ending_) return;
  push(Event{now_ + delay, ++sequence_, process, process == nullptr ? 0 : process->incarnation_, std::move(function)});
}

bool SimWorld::step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end(), Later{});
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ = std::max(now_, event.at);
  if (event.process != nullptr) {
    SimProcess& process = *event.process;
    if (!process.alive_ || process.incarnation_ != event.incarnation) return true;
    if (process.paused_until_ <= now_ && plan_.pause_chance > 0 && random_.chance(plan_.pause_chance)) {
      process.pause(between(1, plan_.pause_max));
    }
    if (process.paused_until_ > now_) {
      event.at = process.paused_until_;
      event.sequence = ++sequence_;
      push(std::move(event));
      return true;
    }
  }
  event.function();
  return true;
}

void SimWorld::run_for(Nanoseconds duration) {
  const Nanoseconds end = now_ + duration;
  while (!events_.empty() && events_.front().at <= end) step();
  now_ = end;
}

bool SimWorld::run_until(const std::function<bool()>& done, Nanoseconds limit) {
  const Nanoseconds end = now_ + limit;
  while (!done()) {
    if (events_.empty() || events_.front().at > end) return false;
    step();
  }
  return true;
}

Nanoseconds SimWorld::between(Nanoseconds low, Nanoseconds high) {
  if (high <= low) return low;
  return low + static_cast<Nanoseconds>(random_.below(static_cast<uint64_t>(high - low) + 1));
}

SimWorld::Pair SimWorld::pair_of(const SimProcess& a, const SimProcess& b) {
  return std::minmax(a.id(), b.id());
}

void SimWorld::cut(const SimProcess& a, const SimProcess& b) { cuts_[pair_of(a, b)] = true; }

void SimWorld::heal(const SimProcess& a, const SimProcess& b) {
  cuts_.erase(pair_of(a, b));
  for (const std::weak_ptr<Link>& weak : links_) {
    if (const auto link = weak.lock(); link && link->joins(a, b)) link->deliver_what_waits();
  }
}

bool SimWorld::is_cut(const SimProcess& a, const SimProcess& b) const { return cuts_.contains(pair_of(a, b)); }

void SimWorld::break_control(const SimProcess& a, const SimProcess& b) {
  for (const std::weak_ptr<Link>& weak : std::vector(links_)) {
    if (const auto link = weak.lock(); link && link->joins(a, b)) link->break_off("the connection was reset");
  }
}

void SimWorld::break_data(const SimProcess& a, const SimProcess& b) {
  for (const std::weak_ptr<Connection>& weak : std::vector(connections_)) {
    if (const auto connection = weak.lock(); connection && connection->joins(a, b)) connection->break_now();
  }
}

void SimWorld::end_connections_of(SimProcess& process) {
  const bool silent = random_.chance(plan_.silent_crash_chance);
  std::erase_if(listeners_, [&](const auto& entry) { return entry.second->process == &process; });
  for (const std::weak_ptr<Link>& weak : std::vector(links_)) {
    if (const auto link = weak.lock()) link->end_of(process, silent);
  }
  for (auto& [id, target] : targets_) {
    if (target->process == &process) target->end();
  }
  std::erase_if(targets_, [&](const auto& entry) { return entry.second->process == &process; });
  for (const std::weak_ptr<Connection>& weak : std::vector(connections_)) {
    if (const auto connection = weak.lock()) connection->client_ended(process);
  }
  std::erase_if(links_, [](const auto& weak) { return weak.expired(); });
  std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
}

}  // namespace skua::sim
