#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/placement/partition_map.h"

namespace skua::sim {
namespace {

constexpr Nanoseconds kStartAgain = 20 * kMillisecond;
constexpr Nanoseconds kShortestPoll = 20 * kMicrosecond;
constexpr Nanoseconds kLongestPoll = kMillisecond;
constexpr uint16_t kPort = 7400;

}  // namespace

// --- SimServer -----------------------------------------------------------------------------------------------------

SimServer::SimServer(SimWorld& world, const Scenario& scenario, size_t index)
    : world_(world), scenario_(scenario), index_(index),
      process_(world.add_process("server" + std::to_string(index + 1))) {}

NetAddress SimServer::address_of(size_t index) { return {"10.0.0." + std::to_string(index + 1), kPort}; }

void SimServer::start() {
  StoreOptions options;
  options.memory_bytes = scenario_.memory_kib << 10;
  options.pages = PagePolicy::kSmall;
  options.expected_keys = 1;
  options.log2_table_buckets = 6;
  options.lease = scenario_.lease;
  options.resume_grace = scenario_.resume_grace;
  options.sweep_interval = scenario_.sweep_interval;
  auto created = Store::create(options, process_, process_);
  SKUA_CHECK(created.has_value(), created.error().message());
  store_ = std::move(*created);
  target_ = process_.make_target(store_->arena());
  store_->add_target(*target_);

  ServerCoreOptions core_options;
  core_options.self.set_name("server" + std::to_string(index_ + 1));
  core_options.self.set_control_address(address().to_string());
  core_options.self.set_instance(process_.next() | 1);
  core_options.self.set_memory_bytes(options.memory_bytes);
  core_options.heartbeat_interval = 50 * kMillisecond;
  if (index_ == 0) {
    CoordinatorOptions coordinator_options;
    coordinator_options.partitions = static_cast<uint32_t>(scenario_.partitions);
    coordinator_options.initial_servers = static_cast<uint32_t>(scenario_.servers);
    coordinator_options.alive_timeout = 300 * kMillisecond;
    auto opened = Coordinator::open(coordinator_options, map_store_, process_.clock(), process_);
    SKUA_CHECK(opened.has_value(), opened.error().message());
    coordinator_ = std::move(*opened);
  } else {
    core_options.join = address_of(0);
  }
  ServerCoreEvents events;
  events.joined = [this](Result<void> joined) {
    if (!joined) try_again();
  };
  events.failed = [this](const Status&) { try_again(); };
  core_ = std::make_unique<ServerCore>(std::move(core_options), std::move(events),
                                       ServerCore::Parts{*store_, process_, process_, coordinator_.get()});
  auto listening = process_.listen(address(), [this](std::shared_ptr<Channel> channel) {
    return core_->accept(std::move(channel));
  });
  SKUA_CHECK(listening.has_value(), listening.error().message());
  listener_ = std::move(*listening);
  core_->start();
}

// A supervisor would start a server again that could not join or was evicted.
void SimServer::try_again() {
  world_.schedule(kStartAgain, [this, life = life_] {
    if (life != life_ || !process_.alive()) return;
    crash();
    restart();
  });
}

void SimServer::crash() {
  ++life_;
  process_.crash();
  drop_objects();
}

void SimServer::restart() {
  process_.restart();
  start();
}

void SimServer::drop_objects() {
  listener_.reset();
  core_.reset();
  coordinator_.reset();
  target_.reset();
  store_.reset();
}

std::vector<uint32_t> SimServer::partitions() const {
  if (!core_) return {};
  const auto map = PartitionMap::create(core_->map());
  return map && !(*map)->forming() ? (*map)->partitions_of(core_->server_id()) : std::vector<uint32_t>{};
}

// --- SimClient -----------------------------------------------------------------------------------------------------

SimClient::SimClient(SimWorld& world, const Scenario& scenario, const Shape& shape)
    : world_(world), process_(world.add_process(shape.name)), session_count_(shape.sessions),
      poll_interval_(kShortestPoll) {
  for (size_t i = 0; i < scenario.servers; ++i) options_.seeds.push_back(SimServer::address_of(i).to_string());
  options_.name = shape.name;
  options_.connect_timeout = 100 * kMillisecond;
  options_.operation_timeout = shape.operation_timeout;
  options_.response_timeout = scenario.response_timeout;
  options_.cache_entries = scenario.cache_entries;
  make_core();
}

void SimClient::make_core() {
  ClientCore::Environment environment;
  environment.executor = &process_;
  environment.dialer = &process_;
  environment.clock = &process_.clock();
  environment.entropy = &process_;
  environment.connectors = {process_.make_connector()};
  core_ = std::make_shared<ClientCore>(options_, environment);
}

SimClient::~SimClient() {
  if (!crashed_ && !closed_) core_->stop([] {});
}

void SimClient::start(std::function<void()> ready) {
  process_.on_activity([this] { poll(); });
  connect(std::move(ready));
}

void SimClient::connect(std::function<void()> ready) {
  core_->start([this, ready](const Result<void>& started) {
    if (!started) {
      core_->stop([] {});
      make_core();
      process_.after(kMillisecond, [this, ready] { connect(ready); });
      return;
    }
    for (uint64_t i = 0; i < session_count_; ++i) {
      sessions_.push_back(std::make_shared<SessionCore>(core_, core_->options()));
      core_->add_session(sessions_.back());
    }
    arm(kShortestPoll);
    ready();
  });
}

void SimClient::arm(Nanoseconds delay) {
  if (armed_) process_.cancel(timer_);
  armed_ = true;
  timer_ = process_.after(delay, [this] {
    armed_ = false;
    poll();
  });
}

// Mail and time-outs announce themselves to nobody, so a session is looked at now and then; less often while nothing
// happens.
void SimClient::poll() {
  if (closed_) return;
  bool happened = false;
  for (const auto& session : sessions_) happened |= session->poll();
  poll_interval_ = happened ? kShortestPoll : std::min(2 * poll_interval_, kLongestPoll);
  arm(poll_interval_);
}

void SimClient::poll_soon() {
  poll_interval_ = kShortestPoll;
  arm(kShortestPoll);
}

void SimClient::crash() {
  crashed_ = true;
  process_.crash();
}

void SimClient::bury() {
  SKUA_CHECK(crashed_, "only the dead are buried");
  constexpr int kMostPolls = 100'000;
  for (const auto& session : sessions_) {
    for (int i = 0; i < kMostPolls && !session->idle(); ++i) {
      session->poll();
      if (i % 64 == 63) world_.run_for(kMillisecond);
    }
    SKUA_CHECK(session->idle(), "an operation of a dead client passes its deadline");
    core_->remove_session(session);
    session->shut_down();
  }
  core_->stop([] {});  // lets go of what would wait for answers for ever
}

void SimClient::close() {
  closed_ = true;
  if (armed_) process_.cancel(timer_);
  for (const auto& session : sessions_) {
    core_->remove_session(session);
    session->shut_down();
  }
  process_.after(kMillisecond, [core = core_] { core->stop([] {}); });
}

}  // namespace skua::sim
