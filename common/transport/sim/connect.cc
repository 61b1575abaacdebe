// Setting data connections up, and the server's side of them.
#include <algorithm>
#include <charconv>
#include <utility>

#include "common/transport/sim/connection.h"

namespace skua::sim {

constexpr std::string_view kScheme = "sim:";

// The request to connect travels, is judged by the responder, and the answer travels back.
void Connection::connect(std::shared_ptr<TargetState> responder) {
  const FaultPlan& plan = world_.plan();
  const Nanoseconds there = world_.between(plan.verb_latency_min, plan.message_latency_max);
  const bool unlucky = world_.random().chance(plan.connect_failure_chance);
  if (!client_.alive() || responder == nullptr || unlucky) {
    fail_at(there, StatusCode::kPeerLost, "no answer from the server");
    return;
  }
  world_.schedule(there, [self = shared_from_this(), responder = std::move(responder)] {
    if (!responder->alive || self->world_.is_cut(self->client_, *responder->process)) {
      self->fail_at(self->target_.response_timeout, StatusCode::kPeerLost, "no answer from the server");
      return;
    }
    const Nanoseconds back = self->world_.between(self->world_.plan().verb_latency_min,
                                                  self->world_.plan().message_latency_max);
    const auto known = responder->admitted.find(self->target_.session);
    if (known == responder->admitted.end() || !known->second.open ||
        known->second.ticket.secret != self->target_.secret) {
      self->fail_at(back, StatusCode::kUnauthenticated, "the server does not know the session or its secret");
      return;
    }
    self->responder_ = responder;
    responder->connections.push_back(self);
    self->world_.schedule(back, [self] {
      if (!self->client_here() || self->state_ != QueuePairState::kConnecting) return;
      self->state_ = QueuePairState::kReady;
      self->client_.notify_activity();
    });
  });
}

class SimQueuePair final : public QueuePair {
 public:
  explicit SimQueuePair(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~SimQueuePair() override { connection_->close(); }
  QueuePairState state() const override { return connection_->state(); }
  const Status& error() const override { return connection_->error(); }
  size_t post(std::span<const WorkRequest> requests) override { return connection_->post(requests); }
  size_t poll(std::span<Completion> completions) override { return connection_->poll(completions); }
  int wait_descriptor() const override { return -1; }
  const Capabilities& capabilities() const override { return connection_->capabilities(); }
  void close() override { connection_->close(); }

 private:
  std::shared_ptr<Connection> connection_;
};

class SimConnector final : public Connector {
 public:
  SimConnector(SimWorld& world, SimProcess& process) : world_(world), process_(process) {}
  std::string_view name() const override { return "sim"; }
  Result<std::unique_ptr<QueuePair>> connect(const ConnectTarget& target) override {
    if (!target.address.starts_with(kScheme)) {
      return fail(StatusCode::kConfiguration, "'" + target.address + "' is not an address of a simulated server");
    }
    uint64_t id = 0;
    const std::string_view number = std::string_view(target.address).substr(kScheme.size());
    std::from_chars(number.data(), number.data() + number.size(), id);
    const auto place = world_.targets_.find(id);
    auto connection = std::make_shared<Connection>(world_, process_, target);
    world_.connections_.push_back(connection);
    connection->connect(place == world_.targets_.end() ? nullptr : place->second);
    return std::unique_ptr<QueuePair>(std::make_unique<SimQueuePair>(std::move(connection)));
  }

 private:
  SimWorld& world_;
  SimProcess& process_;
};

class SimTarget final : public Target {
 public:
  SimTarget(SimWorld& world, std::shared_ptr<TargetState> state) : world_(world), state_(std::move(state)) {}
  ~SimTarget() override {
    state_->end();
    world_.targets_.erase(state_->id);
  }
  std::string_view name() const override { return "sim"; }
  std::string endpoint() const override { return std::string(kScheme) + std::to_string(state_->id); }

  void admit(SessionTicket ticket) override {
    if (!state_->alive) return;
    const SessionId session = ticket.session;
    state_->admitted.insert_or_assign(session, Admission{std::move(ticket)});
  }

  // Verbs go on taking effect until the fence is certain.
  void fence(SessionId session, std::function<void()> fenced) override {
    if (!state_->alive) return;
    std::vector<std::shared_ptr<Connection>> doomed;
    for (const std::weak_ptr<Connection>& weak : state_->connections) {
      if (auto connection = weak.lock(); connection && connection->session() == session) {
        doomed.push_back(std::move(connection));
      }
    }
    const Nanoseconds delay = doomed.empty() ? 0 : world_.between(1, world_.plan().fence_max);
    const auto known = state_->admitted.find(session);
    if (known != state_->admitted.end()) known->second.open = false;
    // The verbs end when the network card says so, whether the process runs or not; it is told on its executor.
    world_.schedule(delay, [state = state_, session, doomed = std::move(doomed)] {
      const auto place = state->admitted.find(session);
      if (place != state->admitted.end() && !place->second.open) state->admitted.erase(place);
      for (const auto& connection : doomed) connection->fence();
      std::erase_if(state->connections, [&](const auto& weak) {
        const auto connection = weak.lock();
        return !connection || std::find(doomed.begin(), doomed.end(), connection) != doomed.end();
      });
    });
    world_.schedule(delay + 1, std::move(fenced), state_->process);
  }

  size_t connections() const override {
    return static_cast<size_t>(std::count_if(state_->connections.begin(), state_->connections.end(), [](const auto& c) {
      const auto connection = c.lock();
      return connection && connection->connected();
    }));
  }

 private:
  SimWorld& world_;
  std::shared_ptr<TargetState> state_;
};

std::unique_ptr<Connector> SimProcess::make_connector() { return std::make_unique<SimConnector>(world_, *this); }

std::unique_ptr<Target> SimProcess::make_target(const ArenaInfo&) {
  auto state = std::make_shared<TargetState>();
  state->process = this;
  state->alive = alive_;
  state->id = ++world_.target_ids_;
  world_.targets_.emplace(state->id, state);
  return std::make_unique<SimTarget>(world_, std::move(state));
}

}  // namespace skua::sim
