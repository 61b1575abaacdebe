#include "server/control_service.h"

#include <array>
#include <cstdio>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/control/rpc.h"
#include "proto/version.h"

namespace skua {
namespace {

std::string session_text(uint64_t session) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(session));
  return text.data();
}

}  // namespace

struct ControlService::Connection : std::enable_shared_from_this<ControlService::Connection> {
  uint64_t number = 0;
  std::shared_ptr<Channel> channel;  // null once it ended
  ControlService* service = nullptr;  // null once the service is gone
  bool greeted = false;
  std::unordered_set<uint64_t> sessions;
  size_t waiting = 0;                // grants and fences not answered yet
  uint32_t joined_server = 0;        // a server that joined by this connection
  uint64_t joined_instance = 0;
  control::EpochAdvance pushed;      // in this turn of the executor
  bool pushed_now = false;
};

ControlService::ControlService(Options options, Store& store, Executor& executor)
    : options_(std::move(options)), store_(store), executor_(executor), started_(executor.clock().now()) {}

ControlService::~ControlService() {
  for (const auto& [number, connection] : connections_) {
    connection->service = nullptr;
    if (const auto channel = std::exchange(connection->channel, nullptr)) channel->close();
  }
}

ChannelEvents ControlService::accept(std::shared_ptr<Channel> channel) {
  auto connection = std::make_shared<Connection>();
  connection->channel = std::move(channel);
  connection->service = this;
  connection->number = ++accepted_;
  connections_.emplace(connection->number, connection);
  ChannelEvents events;
  events.on_envelope = [connection](const control::Envelope& request) {
    if (connection->service != nullptr) connection->service->receive(connection, request);
  };
  events.on_closed = [connection](const Status&) {
    if (connection->service != nullptr) connection->service->ended(connection);
  };
  return events;
}

void ControlService::reply(Connection& connection, uint64_t id, control::Envelope& envelope) {
  envelope.set_id(id);
  if (connection.channel) connection.channel->send(envelope);
}

void ControlService::refuse(Connection& connection, uint64_t id, const Status& status) {
  control::Envelope envelope;
  set_failure(status, *envelope.mutable_failure());
  reply(connection, id, envelope);
}

void ControlService::acknowledge(Connection& connection, uint64_t id) {
  control::Envelope envelope;
  envelope.mutable_ack()->set_cluster_time_ms(store_.cluster_time_ms());
  reply(connection, id, envelope);
}

void ControlService::ended(const ConnectionPointer& connection) {
  if (const auto channel = std::exchange(connection->channel, nullptr)) channel->close();
  if (connections_.erase(connection->number) == 0) return;
  for (const uint64_t session : connection->sessions) {
    owners_.erase(session);
    store_.detach_session(SessionId{session});
  }
  connection->sessions.clear();
  if (connection->joined_server != 0 && coordinator_ != nullptr) {
    coordinator_->disconnected(connection->joined_server, connection->joined_instance);
  }
}

void ControlService::receive(const ConnectionPointer& connection, const control::Envelope& request) {
  if (!connection->channel) return;
  if (request.id() == 0) {
    log_info("control: " + connection->channel->peer() + ": closed: a request without id");
    ended(connection);
    return;
  }
  if (request.has_hello()) {
    hello(connection, request);
  } else if (!connection->greeted) {
    const Status why(StatusCode::kInvalidArgument, body_name(request) + " before hello");
    log_info("control: " + connection->channel->peer() + ": closed: " + why.message());
    refuse(*connection, request.id(), why);
    ended(connection);
  } else {
    dispatch(connection, request);
  }
}

void ControlService::hello(const ConnectionPointer& connection, const control::Envelope& request) {
  if (const auto checked = check_hello(request.hello(), options_.terms); !checked) {
    log_warning("control: " + connection->channel->peer() + " (" + request.hello().software() + "): refused: " +
                checked.error().message());
    refuse(*connection, request.id(), checked.error());
    ended(connection);
    return;
  }
  connection->greeted = true;
  control::Envelope envelope;
  control::HelloReply& answer = *envelope.mutable_hello_reply();
  answer.set_control_version(proto::kControlVersion);
  answer.set_layout_version(proto::kLayoutVersion);
  answer.set_cluster_id(options_.terms.cluster_id);
  answer.set_server_id(server_id_);
  answer.set_instance(options_.instance);
  answer.set_map_epoch(map_.epoch());
  answer.set_cluster_time_ms(store_.cluster_time_ms());
  answer.set_software(software_text());
  reply(*connection, request.id(), envelope);
}

void ControlService::dispatch(const ConnectionPointer& connection, const control::Envelope& request) {
  if (dispatch_session(connection, request) || dispatch_server(connection, request)) return;
  control::Envelope envelope;
  switch (request.body_case()) {
    case control::Envelope::kGetMap:
      if (map_.epoch() == 0) {
        refuse(*connection, request.id(),
               Status(StatusCode::kUnavailable, "this server is joining its cluster; ask again in a moment"));
        return;
      }
      *envelope.mutable_cluster_map() = map_;
      reply(*connection, request.id(), envelope);
      return;
    case control::Envelope::kGetStats:
      stats(connection, request);
      return;
    case control::Envelope::kPing:
      *envelope.mutable_ping() = request.ping();
      reply(*connection, request.id(), envelope);
      return;
    default:
      refuse(*connection, request.id(),
             Status(StatusCode::kInvalidArgument, "this server answers no request '" + body_name(request) + "'"));
  }
}

bool ControlService::dispatch_session(const ConnectionPointer& connection, const control::Envelope& request) {
  switch (request.body_case()) {
    case control::Envelope::kOpenSession: open_session(connection, request); return true;
    case control::Envelope::kResumeSession: resume_session(connection, request); return true;
    case control::Envelope::kFenceSession: fence_session(connection, request); return true;
    case control::Envelope::kCloseSession: close_session(connection, request); return true;
    case control::Envelope::kGrantRequest: grant(connection, request); return true;
    case control::Envelope::kGrowTable: grow_table(connection, request); return true;
    case control::Envelope::kEpochReport: report(connection, request); return true;
    default: return false;
  }
}

bool ControlService::dispatch_server(const ConnectionPointer& connection, const control::Envelope& request) {
  if (!request.has_join() && !request.has_server_heartbeat() && !request.has_leave()) return false;
  if (coordinator_ == nullptr) {
    refuse(*connection, request.id(),
           Status(StatusCode::kConfiguration,
                  "this server is not the coordinator" +
                      (options_.coordinator_address.empty() ? "" : "; join " + options_.coordinator_address)));
  } else if (request.has_join()) {
    join(connection, request);
  } else if (request.has_server_heartbeat()) {
    heartbeat(connection, request);
  } else if (const auto left = coordinator_->leave(request.leave().server_id(), request.leave().instance()); !left) {
    refuse(*connection, request.id(), left.error());
  } else {
    acknowledge(*connection, request.id());
  }
  return true;
}

// --- sessions ---

bool ControlService::owns(const Connection& connection, uint64_t session) const {
  return connection.sessions.count(session) != 0;
}

bool ControlService::may_use(const ConnectionPointer& connection, const control::Envelope& request, uint64_t session) {
  if (!owns(*connection, session)) {
    const bool known = owners_.count(session) != 0;
    refuse(*connection, request.id(),
           known ? Status(StatusCode::kPermissionDenied, "session " + session_text(session) +
                                                             " belongs to another control connection; resume it first")
                 : Status(StatusCode::kStaleEpoch, "session " + session_text(session) +
                                                       " is not open here; resume it or open another"));
    return false;
  }
  if (connection->waiting >= kMaxWaiting) {
    refuse(*connection, request.id(),
           Status(StatusCode::kResourceExhausted, std::to_string(connection->waiting) +
                                                      " requests of this connection wait; await answers first"));
    return false;
  }
  return true;
}

void ControlService::adopt(const ConnectionPointer& connection, uint64_t session) {
  std::weak_ptr<Connection>& owner = owners_[session];
  if (const ConnectionPointer earlier = owner.lock()) earlier->sessions.erase(session);
  owner = connection;
  connection->sessions.insert(session);
}

PushFunction ControlService::push_to(const ConnectionPointer& connection) {
  return [weak = std::weak_ptr<Connection>(connection)](const control::EpochAdvance& advance) {
    const ConnectionPointer target = weak.lock();
    if (target && target->service != nullptr && target->channel) target->service->push(*target, advance);
  };
}

// The sessions of a connection are told once a turn, not each.
void ControlService::push(Connection& connection, const control::EpochAdvance& advance) {
  if (connection.pushed_now && connection.pushed.reclaim_epoch() == advance.reclaim_epoch() &&
      connection.pushed.return_unused() == advance.return_unused()) {
    return;
  }
  control::Envelope envelope;
  *envelope.mutable_epoch_advance() = advance;
  envelope.mutable_epoch_advance()->set_map_epoch(map_.epoch());
  reply(connection, 0, envelope);
  connection.pushed = advance;
  if (std::exchange(connection.pushed_now, true)) return;
  executor_.post([weak = connection.weak_from_this()] {
    if (const ConnectionPointer target = weak.lock()) target->pushed_now = false;
  });
}

void ControlService::open_session(const ConnectionPointer& connection, const control::Envelope& request) {
  if (draining_ || !serving_) {
    refuse(*connection, request.id(),
           Status(StatusCode::kUnavailable, draining_ ? "this server is shutting down"
                                                      : "this server waits for its partitions; ask again in a moment"));
    return;
  }
  if (connection->sessions.size() >= kMaxSessions) {
    refuse(*connection, request.id(),
           Status(StatusCode::kResourceExhausted, "this control connection has " + std::to_string(kMaxSessions) +
                                                      " sessions open; close some or connect again"));
    return;
  }
  auto opened = store_.open_session(request.open_session(), push_to(connection));
  if (!opened) {
    refuse(*connection, request.id(), opened.error());
    return;
  }
  adopt(connection, opened->session_id());
  control::Envelope envelope;
  *envelope.mutable_session_opened() = std::move(*opened);
  reply(*connection, request.id(), envelope);
}

void ControlService::resume_session(const ConnectionPointer& connection, const control::Envelope& request) {
  const uint64_t session = request.resume_session().session_id();
  if (!owns(*connection, session) && connection->sessions.size() >= kMaxSessions) {
    refuse(*connection, request.id(),
           Status(StatusCode::kResourceExhausted, "this control connection has too many sessions open"));
    return;
  }
  if (const auto resumed = store_.resume_session(request.resume_session(), push_to(connection)); !resumed) {
    refuse(*connection, request.id(), resumed.error());
    return;
  }
  adopt(connection, session);
  acknowledge(*connection, request.id());
}

void ControlService::fence_session(const ConnectionPointer& connection, const control::Envelope& request) {
  if (!may_use(connection, request, request.fence_session().session_id())) return;
  ++connection->waiting;
  store_.fence_session(request.fence_session(), [connection, id = request.id()](Result<control::SessionFenced> fenced) {
    --connection->waiting;
    if (!fenced) {
      refuse(*connection, id, fenced.error());
      return;
    }
    control::Envelope envelope;
    *envelope.mutable_session_fenced() = std::move(*fenced);
    reply(*connection, id, envelope);
  });
}

void ControlService::close_session(const ConnectionPointer& connection, const control::Envelope& request) {
  const uint64_t session = request.close_session().session_id();
  if (!may_use(connection, request, session)) return;
  connection->sessions.erase(session);
  owners_.erase(session);
  store_.close_session(SessionId{session});
  acknowledge(*connection, request.id());
}

void ControlService::grant(const ConnectionPointer& connection, const control::Envelope& request) {
  if (!may_use(connection, request, request.grant_request().session_id())) return;
  ++connection->waiting;
  store_.grant(request.grant_request(), [connection, id = request.id()](Result<control::Grant> granted) {
    --connection->waiting;
    if (!granted) {
      refuse(*connection, id, granted.error());
      return;
    }
    control::Envelope envelope;
    *envelope.mutable_grant() = std::move(*granted);
    reply(*connection, id, envelope);
  });
}

void ControlService::grow_table(const ConnectionPointer& connection, const control::Envelope& request) {
  if (!may_use(connection, request, request.grow_table().session_id())) return;
  ++connection->waiting;
  store_.grow_table(request.grow_table(), [connection, id = request.id(), &store = store_](const Result<void>& grown) {
    --connection->waiting;
    if (!grown) {
      refuse(*connection, id, grown.error());
      return;
    }
    control::Envelope envelope;
    envelope.mutable_ack()->set_cluster_time_ms(store.cluster_time_ms());
    reply(*connection, id, envelope);
  });
}

void ControlService::report(const ConnectionPointer& connection, const control::Envelope& request) {
  if (!may_use(connection, request, request.epoch_report().session_id())) return;
  if (const auto taken = store_.report(request.epoch_report()); !taken) {
    refuse(*connection, request.id(), taken.error());
  } else {
    acknowledge(*connection, request.id());
  }
}

void ControlService::stats(const ConnectionPointer& connection, const control::Envelope& request) {
  control::Envelope envelope;
  control::ServerStats& statistics = *envelope.mutable_server_stats();
  store_.statistics(statistics);
  statistics.set_server_id(server_id_);
  statistics.set_instance(options_.instance);
  statistics.set_uptime_ms(static_cast<uint64_t>((executor_.clock().now() - started_) / kMillisecond));
  if (options_.fill_stats) options_.fill_stats(statistics);
  reply(*connection, request.id(), envelope);
}

// --- other servers ---

void ControlService::join(const ConnectionPointer& connection, const control::Envelope& request) {
  if (draining_) {
    refuse(*connection, request.id(), Status(StatusCode::kUnavailable, "the coordinator is shutting down"));
    return;
  }
  const auto joined = coordinator_->join(request.join());
  if (!joined) {
    log_warning("control: " + connection->channel->peer() + ": join refused: " + joined.error().message());
    refuse(*connection, request.id(), joined.error());
    return;
  }
  connection->joined_server = *joined;
  connection->joined_instance = request.join().instance();
  control::Envelope envelope;
  envelope.mutable_joined()->set_server_id(*joined);
  *envelope.mutable_joined()->mutable_map() = coordinator_->map();
  envelope.mutable_joined()->set_cluster_time_ms(store_.cluster_time_ms());
  reply(*connection, request.id(), envelope);
}

void ControlService::heartbeat(const ConnectionPointer& connection, const control::Envelope& request) {
  const control::ServerHeartbeat& beat = request.server_heartbeat();
  if (const auto taken = coordinator_->heartbeat(beat.server_id(), beat.instance()); !taken) {
    refuse(*connection, request.id(), taken.error());
  } else if (coordinator_->map().epoch() > beat.map_epoch()) {
    control::Envelope envelope;
    *envelope.mutable_cluster_map() = coordinator_->map();
    reply(*connection, request.id(), envelope);
  } else {
    acknowledge(*connection, request.id());
  }
}

// --- from the server itself ---

void ControlService::set_map(const control::ClusterMap& map, uint32_t server_id) {
  server_id_ = server_id;
  options_.terms.cluster_id = map.cluster_id();
  if (map.epoch() <= map_.epoch()) return;
  map_ = map;
  control::Envelope envelope;
  *envelope.mutable_cluster_map() = map_;
  for (const auto& [number, connection] : connections_) {
    if (connection->greeted) reply(*connection, 0, envelope);
  }
}

void ControlService::drain() {
  draining_ = true;
  std::vector<ConnectionPointer> all;
  for (const auto& [number, connection] : connections_) all.push_back(connection);
  for (const ConnectionPointer& connection : all) {
    for (const uint64_t session : std::exchange(connection->sessions, {})) {
      owners_.erase(session);
      store_.close_session(SessionId{session});
    }
    ended(connection);
  }
}

}  // namespace skua
