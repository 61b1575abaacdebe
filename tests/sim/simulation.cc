#include "tests/sim/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "client/data_path.h"
#include "common/base/check.h"
#include "common/placement/partition_map.h"
#include "proto/block.h"
#include "tests/sim/cluster.h"
#include "tests/sim/invariants.h"
#include "tests/sim/keys.h"
#include "tests/sim/workload.h"

namespace skua::sim {
namespace {

constexpr Nanoseconds kStartLimit = 60 * kSecond;
constexpr Nanoseconds kCalmTimeout = 10 * kSecond;  // of an operation: longer than any server takes to say no
constexpr Nanoseconds kLoadLimit = 5 * kSecond;
constexpr Nanoseconds kRestLimit = 600 * kSecond;
constexpr Nanoseconds kRestStep = 5 * kMillisecond;
constexpr Nanoseconds kServerDown = 50 * kMillisecond;  // at most
constexpr Nanoseconds kFarthestJump = 3600 * kSecond;
constexpr size_t kMostClients = 40;                      // replacements included

// What is no fault, but lasts: clocks, and the device.
FaultPlan calm_plan(const Scenario& scenario) {
  FaultPlan plan = FaultPlan::calm();
  plan.clock_skew_max = scenario.plan.clock_skew_max;
  plan.clock_drift_max = scenario.plan.clock_drift_max;
  plan.atomics_by_server = scenario.plan.atomics_by_server;
  return plan;
}

class Simulation {
 public:
  explicit Simulation(const Scenario& scenario)
      : scenario_(scenario), world_(scenario.seed, calm_plan(scenario)), random_(scenario.seed ^ 0xfau),
        invariants_(record_, scenario.writes_are_overtaken == 0) {
    SKUA_CHECK(proto::compiled_version_modulus() == proto::kVersionModulus, "the simulated libraries are linked");
  }
  ~Simulation();

  Report run(const SimulationOptions& options);

 private:
  struct Member {
    std::unique_ptr<SimClient> client;
    std::vector<std::unique_ptr<Worker>> workers;
    bool ready = false;
  };

  bool start_cluster();
  void choose_keys();
  bool store_fillers();
  void load();
  void recover();
  void read_all();
  void rest();
  void judge_fillers();
  void judge_sessions();

  bool all_serve() const {
    return std::all_of(servers_.begin(), servers_.end(), [](const auto& server) { return server->serving(); });
  }
  Member& add_client(uint64_t sessions, Nanoseconds operation_timeout);
  void start_workers(Member& member, uint64_t operations);
  bool workers_done() const;
  // False: it did not end; its client is dead now, so that the task can be destroyed.
  template <class T>
  bool finish(Member& member, const Task<T>& task) {
    if (world_.run_until([&] { return task.done(); }, kStartLimit)) return true;
    member.client->crash();
    member.client->bury();
    return false;
  }
  void arm_faults();
  void again(Nanoseconds mean, void (Simulation::*fault)());
  bool draw(double chance) { return faults_on_ && chance > 0 && random_.chance(chance); }
  void crash_client(Member& member);
  void crash_client_of(const SimProcess& process);
  void crash_some_client();
  void crash_server(SimServer& server);
  void crash_some_server();
  void crash_at_message(SimProcess& process);
  void set_some_clock();
  void split_now_and_then(uint64_t left);
  void split_some_table();
  void move_now_and_then(uint64_t left);
  void pause_some_client();
  void pause_some_server();
  void cut_some_pair();
  void break_some_control();
  void break_some_data();
  Member* some_live_client();
  SimServer& some_server() { return *servers_[random_.below(servers_.size())]; }
  void fail(const std::string& what) { record_.violation(what); }
  bool failed() const { return !record_.violation().empty(); }

  const Scenario& scenario_;
  Record record_;
  SimWorld world_;
  Random random_;
  Invariants invariants_;
  std::vector<std::unique_ptr<SimServer>> servers_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<bool> forgot_;  // servers that have crashed
  uint64_t faults_ = 0;
  bool faults_on_ = false;
};

Simulation::~Simulation() {
  faults_on_ = false;
  for (const auto& member : members_) {
    for (const auto& worker : member->workers) worker->stop();
  }
  for (const auto& member : members_) {
    // A run that failed leaves clients in the middle of operations: they end like dead ones.
    if (!member->client->crashed()) member->client->crash();
  }
  for (const auto& server : servers_) {
    if (server->process().alive()) server->crash();
  }
  for (const auto& member : members_) member->client->bury();
  members_.clear();
}

// --- Phases --------------------------------------------------------------------------------------------------------

bool Simulation::start_cluster() {
  for (size_t i = 0; i < scenario_.servers; ++i) {
    servers_.push_back(std::make_unique<SimServer>(world_, scenario_, i));
    servers_.back()->start();
  }
  forgot_.resize(scenario_.servers);
  if (world_.run_until([&] { return all_serve(); }, kStartLimit)) return true;
  fail("the cluster did not form");
  return false;
}

Simulation::Member& Simulation::add_client(uint64_t sessions, Nanoseconds operation_timeout) {
  members_.push_back(std::make_unique<Member>());
  Member& member = *members_.back();
  const SimClient::Shape shape{"client" + std::to_string(members_.size()), sessions, operation_timeout};
  member.client = std::make_unique<SimClient>(world_, scenario_, shape);
  return member;
}

void Simulation::choose_keys() {
  std::vector<size_t> server_of(scenario_.partitions);
  for (const auto& server : servers_) {
    for (const uint32_t partition : server->partitions()) server_of[partition] = server->index();
  }
  const uint64_t group = std::clamp<uint64_t>(scenario_.group, 1, kGroupKeys);
  for (uint64_t i = 0; i < scenario_.keys + scenario_.counter_keys + scenario_.expiring_keys; ++i) {
    Record::Key key;
    key.name = colliding_key(i / group % kGroups, i % group);
    if (i / group >= kGroups) key.name += "." + std::to_string(i);
    key.counter = i >= scenario_.keys && i < scenario_.keys + scenario_.counter_keys;
    key.expires = i >= scenario_.keys + scenario_.counter_keys;
    key.server = server_of[proto::KeyHash::of(key.name).partition(static_cast<uint32_t>(scenario_.partitions))];
    record_.add_key(std::move(key));
  }
}

bool Simulation::store_fillers() {
  if (scenario_.filler_keys == 0) return true;
  Member& member = add_client(1, kCalmTimeout);
  member.client->start([&] { member.ready = true; });
  if (!world_.run_until([&] { return member.ready; }, kStartLimit)) {
    fail("no client could reach the calm cluster");
    return false;
  }
  SessionCore& session = *member.client->sessions()[0];
  for (uint64_t i = 0; i < std::min<uint64_t>(scenario_.filler_keys, kFillers); ++i) {
    const std::string& key = filler_key(0, i);
    const std::string value = make_value(key, i + 1, 30);
    auto put = put_operation(session, key, value, {});
    put.start();
    if (!finish(member, put)) {
      fail("a put in a calm cluster did not end");
      return false;
    }
    const auto stored = put.take();
    if (!stored && stored.error().code() != StatusCode::kOutOfMemory) fail("filler: " + stored.error().message());
    if (!stored) break;
  }
  member.client->close();
  world_.run_for(10 * kMillisecond);
  return true;
}

void Simulation::start_workers(Member& member, uint64_t operations) {
  member.client->start([this, &member, operations] {
    member.ready = true;
    for (const auto& session : member.client->sessions()) {
      for (uint64_t i = 0; i < scenario_.workers; ++i) {
        const Worker::Place place{world_, scenario_, record_, *member.client, *session,
                                  member.client->process().id()};
        // Who gets in only when the load is over has nothing to do any more.
        const uint64_t number = faults_on_ ? operations : 0;
        member.workers.push_back(std::make_unique<Worker>(place, number, random_.next()));
        member.workers.back()->start();
      }
    }
  });
}

bool Simulation::workers_done() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& member) {
    if (member->client->crashed()) return true;
    return member->ready && std::all_of(member->workers.begin(), member->workers.end(),
                                        [](const auto& worker) { return worker->done(); });
  });
}

void Simulation::load() {
  world_.plan() = scenario_.plan;
  world_.plan().writes_are_overtaken = scenario_.writes_are_overtaken != 0;
  faults_on_ = true;
  for (uint64_t i = 0; i < scenario_.clients; ++i) {
    start_workers(add_client(scenario_.sessions, scenario_.operation_timeout), scenario_.operations);
  }
  arm_faults();
  world_.run_until([&] { return failed() || workers_done(); }, kLoadLimit);
}

void Simulation::recover() {
  faults_on_ = false;
  world_.plan() = calm_plan(scenario_);
  for (const auto& member : members_) {
    for (const auto& worker : member->workers) worker->stop();
    for (const auto& server : servers_) world_.heal(member->client->process(), server->process());
  }
  for (const auto& server : servers_) {
    if (!server->process().alive()) server->restart();
  }
  // Whoever is paused wakes within three leases; an operation ends by its deadline, and by then it may be taking its
  // last step.
  const Nanoseconds bound = 3 * scenario_.lease + 2 * scenario_.operation_timeout + kSecond;
  if (world_.run_until([&] { return failed() || workers_done(); }, bound) || failed()) return;
  for (const auto& member : members_) {
    if (member->client->crashed()) continue;
    if (!member->ready) fail(member->client->process().name() + " could not reach the cluster after all faults ended");
    for (const auto& worker : member->workers) {
      if (!worker->done()) fail("after all faults had ended, this did not end: " + worker->doing());
    }
  }
}

void Simulation::read_all() {
  Member& member = add_client(1, kCalmTimeout + 10 * scenario_.lease);
  member.client->start([&] { member.ready = true; });
  if (!world_.run_until([&] { return member.ready && all_serve(); }, kStartLimit)) {
    fail("no new client could reach the cluster after all faults had ended");
    return;
  }
  const Worker::Place place{world_, scenario_, record_, *member.client, *member.client->sessions()[0],
                            member.client->process().id()};
  Worker reader(place, 0, 1);
  for (const bool write : {false, true, false}) {
    for (size_t key = 0; key < record_.keys().size(); ++key) {
      // Leases of the dead run out meanwhile, and memory comes back.
      for (int attempt = 0;; ++attempt) {
        Task<bool> task = write ? reader.write(key) : reader.read(key);
        task.start();
        if (!finish(member, task)) return fail("after all faults had ended, this did not end: " + reader.doing());
        if (task.take()) break;
        if (attempt == 10) return fail("after all faults had ended, this keeps failing: " + reader.doing());
        world_.run_for(scenario_.lease);
      }
    }
  }
  judge_fillers();
  if (!failed()) judge_sessions();
}

// Whoever is alive and heard is never given up.
void Simulation::judge_sessions() {
  if (!scenario_.calm()) return;
  for (const auto& server : servers_) {
    control::ServerStats stats;
    server->store()->statistics(stats);
    if (stats.sessions_expired() != 0) fail("a session was given up though nothing had happened to its client");
  }
}

void Simulation::judge_fillers() {
  if (failed()) return;
  SessionCore& session = *members_.back()->client->sessions()[0];
  const uint64_t count = std::min<uint64_t>(scenario_.filler_keys, kFillers);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string& key = filler_key(0, i);
    const auto partition = proto::KeyHash::of(key).partition(static_cast<uint32_t>(scenario_.partitions));
    bool forgotten = false;
    for (const auto& server : servers_) {
      const auto held = server->partitions();
      if (std::find(held.begin(), held.end(), partition) != held.end()) forgotten = forgot_[server->index()];
    }
    auto get = get_operation(session, key, {});
    get.start();
    if (!finish(*members_.back(), get)) return fail("a get of " + key + " did not end");
    const auto got = get.take();
    if (!got) return fail("get of " + key + ": " + got.error().message());
    if (got->present == forgotten) {
      return fail("filler " + key + (got->present ? " is there though its server forgot it" : " is gone"));
    }
    if (got->present && read_value(key, got->value) != i + 1) return fail("filler " + key + " has another value");
  }
}

void Simulation::rest() {
  for (const auto& member : members_) {
    if (!member->client->crashed()) member->client->close();
  }
  std::string fault = "?";
  const Nanoseconds end = world_.now() + kRestLimit;
  while (!fault.empty() && world_.now() < end && !failed()) {
    world_.run_for(kRestStep);
    fault.clear();
    for (const auto& server : servers_) {
      if (fault.empty() && server->store() != nullptr) fault = invariants_.judge_quiet(*server->store());
    }
  }
  if (!fault.empty()) fail("long after all sessions had ended: " + fault);
}

Report Simulation::run(const SimulationOptions& options) {
  Report report;
  world_.observe([this](const VerbEffect& effect) {
    invariants_.effect(effect);
    if (draw(scenario_.crash_at_verb_chance)) {
      world_.schedule(0, [this, process = effect.client] { crash_client_of(*process); });
    }
  });
  world_.observe_messages([this](SimProcess& process) { crash_at_message(process); });
  if (start_cluster()) {
    choose_keys();
    if (store_fillers()) {
      load();
      if (!failed()) recover();
      if (!failed()) read_all();
      if (!failed()) rest();
      if (!failed()) {
        const CheckResult checked = record_.check();
        if (checked.verdict == Verdict::kViolation) fail("not linearizable: " + checked.explanation);
        report.outcomes.undecided = checked.verdict == Verdict::kUndecided;
      }
    }
  }
  report.violation = record_.violation();
  report.outcomes.done = record_.counts.done;
  report.outcomes.refused = record_.counts.refused;
  report.outcomes.in_doubt = record_.counts.in_doubt;
  report.outcomes.events = world_.trace().count();
  report.outcomes.faults = faults_;
  report.outcomes.simulated = world_.now();
  report.outcomes.trace_hash = world_.trace().hash();
  if (options.trace_events > 0) report.trace = world_.trace().to_string(options.trace_events);
  return report;
}

// --- Faults --------------------------------------------------------------------------------------------------------

void Simulation::arm_faults() {
  again(scenario_.client_crashes, &Simulation::crash_some_client);
  again(scenario_.server_crashes, &Simulation::crash_some_server);
  again(scenario_.client_pauses, &Simulation::pause_some_client);
  again(scenario_.server_pauses, &Simulation::pause_some_server);
  again(scenario_.cuts, &Simulation::cut_some_pair);
  again(scenario_.control_breaks, &Simulation::break_some_control);
  again(scenario_.data_breaks, &Simulation::break_some_data);
  again(scenario_.clock_jumps, &Simulation::set_some_clock);
  split_now_and_then(scenario_.most_splits);
  move_now_and_then(scenario_.most_moves);
}

void Simulation::move_now_and_then(uint64_t left) {
  if (scenario_.moves <= 0 || left == 0) return;
  const auto delay = static_cast<Nanoseconds>(random_.below(2 * static_cast<uint64_t>(scenario_.moves)));
  world_.schedule(delay, [this, left] {
    if (!faults_on_) return;
    for (const auto& server : servers_) {
      if (!server->serving() || server->store() == nullptr) continue;
      for (const uint32_t partition : server->partitions()) {
        static_cast<void>(server->store()->compact(partition));
      }
    }
    move_now_and_then(left - 1);
  });
}

void Simulation::split_now_and_then(uint64_t left) {
  if (scenario_.splits <= 0 || left == 0) return;
  const auto delay = static_cast<Nanoseconds>(random_.below(2 * static_cast<uint64_t>(scenario_.splits)));
  world_.schedule(delay, [this, left] {
    if (!faults_on_) return;
    split_some_table();
    split_now_and_then(left - 1);
  });
}

// Where one of the keys lies.
void Simulation::split_some_table() {
  const auto& keys = record_.keys();
  const proto::KeyHash hash = proto::KeyHash::of(keys[random_.below(keys.size())].name);
  const uint32_t partition = hash.partition(static_cast<uint32_t>(scenario_.partitions));
  for (const auto& server : servers_) {
    const auto held = server->partitions();
    const bool holds = std::find(held.begin(), held.end(), partition) != held.end();
    if (holds && server->serving() && server->store() != nullptr) {
      static_cast<void>(server->store()->split_table(partition, hash));
    }
  }
}

void Simulation::again(Nanoseconds mean, void (Simulation::*fault)()) {
  if (mean <= 0) return;
  const auto delay = static_cast<Nanoseconds>(random_.below(2 * static_cast<uint64_t>(mean)));
  world_.schedule(delay, [this, mean, fault] {
    if (!faults_on_) return;
    ++faults_;
    (this->*fault)();
    again(mean, fault);
  });
}

Simulation::Member* Simulation::some_live_client() {
  std::vector<Member*> live;
  for (const auto& member : members_) {
    if (!member->client->crashed() && !member->workers.empty()) live.push_back(member.get());
  }
  return live.empty() ? nullptr : live[random_.below(live.size())];
}

void Simulation::crash_client(Member& member) {
  uint64_t left = 0;
  for (const auto& worker : member.workers) {
    worker->stop();
    left += worker->done() ? 0 : 1;
  }
  if (member.workers.empty()) left = 1;  // it was on its way in
  member.client->crash();
  record_.client_died(member.client->process().id());
  if (left != 0 && members_.size() < kMostClients) {
    start_workers(add_client(scenario_.sessions, scenario_.operation_timeout), scenario_.operations / 2 + 1);
  }
}

void Simulation::crash_client_of(const SimProcess& process) {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& member) {
    return &member->client->process() == &process;
  });
  if (found == members_.end() || (*found)->client->crashed() || !faults_on_) return;
  ++faults_;
  crash_client(**found);
}

void Simulation::crash_at_message(SimProcess& process) {
  const auto server = std::find_if(servers_.begin(), servers_.end(), [&](const auto& candidate) {
    return &candidate->process() == &process;
  });
  const bool of_server = server != servers_.end();
  if (!draw(of_server ? scenario_.server_crash_at_message_chance : scenario_.crash_at_message_chance)) return;
  if (!of_server) return world_.schedule(0, [this, &process] { crash_client_of(process); });
  world_.schedule(0, [this, &dead = **server, life = process.incarnation()] {
    if (!faults_on_ || !dead.process().alive() || dead.process().incarnation() != life) return;
    ++faults_;
    crash_server(dead);
  });
}

void Simulation::crash_some_client() {
  if (Member* member = some_live_client()) crash_client(*member);
}

void Simulation::crash_some_server() {
  SimServer& server = some_server();
  if (server.process().alive()) crash_server(server);
}

void Simulation::crash_server(SimServer& server) {
  server.crash();
  invariants_.server_forgot();
  record_.server_forgot(server.index());
  forgot_[server.index()] = true;
  const auto down = static_cast<Nanoseconds>(random_.below(static_cast<uint64_t>(kServerDown)));
  world_.schedule(down, [&server] {
    if (!server.process().alive()) server.restart();
  });
}

void Simulation::pause_some_client() {
  Member* member = some_live_client();
  if (member == nullptr) return;
  member->client->process().pause(static_cast<Nanoseconds>(random_.below(3 * static_cast<uint64_t>(scenario_.lease))));
}

void Simulation::pause_some_server() {
  SimServer& server = some_server();
  if (!server.process().alive()) return;
  server.process().pause(static_cast<Nanoseconds>(random_.below(static_cast<uint64_t>(scenario_.lease))));
}

void Simulation::set_some_clock() {
  const auto by = static_cast<Nanoseconds>(random_.below(2 * static_cast<uint64_t>(kFarthestJump)));
  Member* const member = random_.chance(0.5) ? some_live_client() : nullptr;
  SimProcess& process = member != nullptr ? member->client->process() : some_server().process();
  process.jump_wall_clock(by - kFarthestJump);
}

void Simulation::cut_some_pair() {
  Member* member = some_live_client();
  if (member == nullptr) return;
  SimProcess& client = member->client->process();
  SimProcess& server = some_server().process();
  world_.cut(client, server);
  const auto duration = static_cast<Nanoseconds>(random_.below(2 * static_cast<uint64_t>(scenario_.lease)));
  world_.schedule(duration, [this, &client, &server] { world_.heal(client, server); });
}

void Simulation::break_some_control() {
  if (Member* member = some_live_client()) world_.break_control(member->client->process(), some_server().process());
}

void Simulation::break_some_data() {
  if (Member* member = some_live_client()) world_.break_data(member->client->process(), some_server().process());
}

}  // namespace

Report simulate(const Scenario& scenario, const SimulationOptions& options) {
  return Simulation(scenario).run(options);
}

}  // namespace skua::sim
