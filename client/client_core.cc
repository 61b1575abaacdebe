#include "client/client_core.h"

#include <algorithm>
#include <utility>

#include "client/session_core.h"
#include "common/base/hooks.h"

namespace skua {
namespace {

constexpr Nanoseconds kFirstDialDelay = 5 * kMillisecond;
constexpr Nanoseconds kLastDialDelay = 500 * kMillisecond;
constexpr Nanoseconds kReportRetry = kMillisecond;
constexpr Nanoseconds kCloseTimeout = 500 * kMillisecond;
constexpr size_t kMaxUnsentReports = 1024;
constexpr Nanoseconds kGrantTimeout = 60 * kSecond;  // the waiting operation has a deadline of its own

Status unexpected(std::string_view what) {
  return Status(StatusCode::kInternal, "the server answered " + std::string(what) + " with another message");
}

// Hands the wanted body of a reply to `done`, or the error.
template <class Body, class Has, class Get, class Done>
void unpack(Result<control::Envelope> reply, std::string_view what, Has has, Get get, Done& done) {
  if (!reply) {
    done(Result<Body>(tl::make_unexpected(reply.error())));
  } else if (!has(*reply)) {
    done(Result<Body>(tl::make_unexpected(unexpected(what))));
  } else {
    done(Result<Body>(get(*reply)));
  }
}

}  // namespace

ClientCore::ClientCore(ClientOptions options, Environment environment)
    : options_(std::move(options)), environment_(std::move(environment)), random_(environment_.entropy->next()) {}

ClientCore::~ClientCore() = default;

HelloTerms ClientCore::terms(uint64_t cluster_id) const {
  HelloTerms terms;
  terms.token = options_.token;
  terms.cluster_id = cluster_id;
  return terms;
}

// --- Start

void ClientCore::start(std::function<void(Result<void>)> done) {
  for (const std::string& text : options_.seeds) {
    auto address = parse_net_address(text);
    if (!address) return done(tl::make_unexpected(address.error()));
    seeds_.push_back(*address);
  }
  if (seeds_.empty()) return done(fail(StatusCode::kConfiguration, "no server address given; name at least one"));
  keep_alive_timer_ = executor().after(keep_alive_interval_, [this] { keep_alive(); });
  try_seed(0, {}, std::move(done));
}

void ClientCore::try_seed(size_t index, std::vector<std::string> reasons, std::function<void(Result<void>)> done) {
  ControlConnection::OpenOptions options;
  options.address = seeds_[index];
  options.timeout = options_.connect_timeout;
  options.terms = terms(raw_map_.cluster_id());
  auto self = shared_from_this();
  const auto next = [self, index, reasons, done](const Status& why) {
    const bool final = why.code() == StatusCode::kUnauthenticated || why.code() == StatusCode::kIncompatible;
    std::vector<std::string> all = reasons;
    all.push_back(why.message());
    if (!final && index + 1 < self->seeds_.size()) return self->try_seed(index + 1, std::move(all), done);
    std::string text;
    for (const std::string& reason : all) text += (text.empty() ? "" : "; ") + reason;
    done(tl::make_unexpected(Status(why.code(), text)));
  };
  ControlConnection::open(*environment_.dialer, executor(), options,
                          [self, next, done](Result<std::shared_ptr<ControlConnection>> opened) {
    if (!opened) return next(opened.error());
    auto connection = *opened;
    control::Envelope request;
    request.mutable_get_map();
    connection->call(std::move(request), self->options_.connect_timeout,
                     [self, next, done, connection](Result<control::Envelope> reply) {
      connection->close();
      if (!reply) return next(reply.error());
      if (!reply->has_cluster_map()) return next(unexpected("get_map"));
      self->take_map(reply->cluster_map());
      if (!self->map()) return next(Status(StatusCode::kCorruption, "the server's cluster map makes no sense"));
      done({});
    });
  });
}

void ClientCore::stop(std::function<void()> done) {
  if (closing_ == 0) {
    end();
    return done();
  }
  on_closed_ = std::move(done);
  executor().after(kCloseTimeout, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->on_closed_) self->end();
  });
}

void ClientCore::end() {
  stopped_ = true;
  executor().cancel(keep_alive_timer_);
  for (auto& [id, peer] : peers_) {
    if (peer.connection) peer.connection->close();
    peer.connection.reset();
    peer.sessions.clear();
  }
  if (on_closed_) std::exchange(on_closed_, nullptr)();
}

// --- Map

std::shared_ptr<const PartitionMap> ClientCore::map() const {
  const std::lock_guard lock(map_mutex_);
  return map_;
}

void ClientCore::take_map(const control::ClusterMap& map) {
  if (map_ && map.epoch() < raw_map_.epoch()) return;
  auto built = PartitionMap::create(map);
  if (!built) return;
  raw_map_ = map;
  for (const control::Server& server : map.servers()) {
    auto address = parse_net_address(server.control_address());
    if (!address) continue;
    Peer& peer = peers_[server.id()];
    peer.id = server.id();
    peer.address = *address;
  }
  const std::lock_guard lock(map_mutex_);
  map_ = std::move(*built);
}

void ClientCore::refresh_map(std::function<void(Result<void>)> done) {
  executor().post([self = shared_from_this(), done = std::move(done)]() mutable {
    if (self->stopped_) return done(fail(StatusCode::kUnavailable, "the client was closed"));
    for (auto& [id, peer] : self->peers_) {
      if (!peer.connection) continue;
      control::Envelope request;
      request.mutable_get_map();
      peer.connection->call(std::move(request), self->options_.connect_timeout,
                            [self, done = std::move(done)](Result<control::Envelope> reply) {
        if (reply && reply->has_cluster_map()) self->take_map(reply->cluster_map());
        done(reply ? Result<void>() : Result<void>(tl::make_unexpected(reply.error())));
      });
      return;
    }
    self->try_seed(0, {}, std::move(done));
  });
}

// --- Connections

void ClientCore::with_connection(uint32_t server, std::function<void(Result<Peer*>)> then) {
  const auto found = peers_.find(server);
  if (stopped_ || found == peers_.end()) {
    return then(fail(StatusCode::kUnavailable, "server " + std::to_string(server) + " is not in the cluster map"));
  }
  Peer& peer = found->second;
  if (peer.connection) return then(&peer);
  if (peer.retry_at != 0 && clock().now() < peer.retry_at) return then(tl::make_unexpected(peer.last_error));
  peer.waiting.push_back(std::move(then));
  if (!peer.dialing) dial(peer);
}

void ClientCore::dial(Peer& peer) {
  peer.dialing = true;
  ControlConnection::OpenOptions options;
  options.address = peer.address;
  options.timeout = options_.connect_timeout;
  options.terms = terms(raw_map_.cluster_id());
  ControlConnection::open(*environment_.dialer, executor(), options,
                          [self = shared_from_this(), server = peer.id](
                              Result<std::shared_ptr<ControlConnection>> opened) {
    if (self->stopped_) return;
    if (!opened) return self->dial_failed(server, opened.error());
    self->connected(server, *opened);
  });
}

void ClientCore::dial_failed(uint32_t server, const Status& why) {
  Peer& peer = peers_[server];
  peer.dialing = false;
  peer.last_error = why;
  peer.delay = std::clamp(peer.delay * 2, kFirstDialDelay, kLastDialDelay);
  peer.retry_at = clock().now() + peer.delay / 2 +
                  static_cast<Nanoseconds>(random_.below(static_cast<uint64_t>(peer.delay)));
  answer_waiting(peer, tl::make_unexpected(why));
}

void ClientCore::answer_waiting(Peer& peer, const Result<void>& outcome) {
  auto waiting = std::exchange(peer.waiting, {});
  for (auto& then : waiting) {
    if (outcome) {
      then(&peer);
    } else {
      then(tl::make_unexpected(outcome.error()));
    }
  }
}

void ClientCore::connected(uint32_t server, std::shared_ptr<ControlConnection> connection) {
  Peer& peer = peers_[server];
  peer.dialing = false;
  peer.delay = 0;
  peer.retry_at = 0;
  peer.connection = connection;
  connection->on_push([this, server](const control::Envelope& envelope) { on_push(server, envelope); });
  connection->on_closed([this, server](const Status& why) { connection_closed(server, why); });
  const uint64_t instance = connection->hello_reply().instance();
  const bool restarted = peer.instance != 0 && peer.instance != instance;
  if (peer.instance != instance) peer.time = std::make_shared<ServerTime>();
  peer.instance = instance;
  if (restarted) {
    const Status why(StatusCode::kStaleEpoch, "server " + std::to_string(server) + " was restarted");
    auto sessions = peer.sessions;
    for (const auto& [id, session] : sessions) session_gone(peer, id, why);
  }
  if (peer.sessions.empty()) {
    peer.unsent.clear();
    return answer_waiting(peer, {});
  }
  auto left = std::make_shared<size_t>(peer.sessions.size());
  auto ids = std::vector<std::pair<uint64_t, std::string>>();
  for (const auto& [id, session] : peer.sessions) ids.emplace_back(id, session.secret);
  for (const auto& resumable : ids) {
    control::Envelope request;
    request.mutable_resume_session()->set_session_id(resumable.first);
    request.mutable_resume_session()->set_secret(resumable.second);
    connection->call(std::move(request), options_.connect_timeout,
                     [self = shared_from_this(), server, id = resumable.first,
                      left](const Result<control::Envelope>& reply) {
      Peer& resumed = self->peers_[server];
      if (!reply && reply.error().code() != StatusCode::kUnavailable) self->session_gone(resumed, id, reply.error());
      if (--*left != 0) return;
      for (control::EpochReport& report : std::exchange(resumed.unsent, {})) {
        self->deliver_report(resumed, std::move(report));
      }
      self->answer_waiting(resumed, reply || resumed.connection ? Result<void>()
                                                                : Result<void>(tl::make_unexpected(reply.error())));
    });
  }
}

void ClientCore::connection_closed(uint32_t server, const Status& why) {
  Peer& peer = peers_[server];
  peer.connection.reset();
  peer.last_error = why;
  // Sessions want to be resumed within the server's grace, even when no operation asks for it.
  if (!peer.sessions.empty() && !stopped_) with_connection(server, [](const Result<Peer*>&) {});
}

void ClientCore::session_gone(Peer& peer, uint64_t session, const Status& why) {
  const auto found = peer.sessions.find(session);
  if (found == peer.sessions.end()) return;
  const auto core = found->second.core.lock();
  peer.sessions.erase(found);
  if (!core) return;
  core->deliver([core = core.get(), server = peer.id, session, why] {
    Link& link = core->link(server);
    if (static_cast<uint64_t>(link.session()) == session) link.on_session_gone(why);
  });
}

void ClientCore::call(uint32_t server, control::Envelope request,
                      std::function<void(Result<control::Envelope>)> done) {
  executor().post([self = shared_from_this(), server, request = std::move(request), done = std::move(done)]() mutable {
    self->with_connection(server, [self, request = std::move(request), done = std::move(done)](
                                      Result<Peer*> peer) mutable {
      if (!peer) return done(tl::make_unexpected(peer.error()));
      const Nanoseconds timeout = request.has_grant_request() ? kGrantTimeout : self->options_.connect_timeout;
      (*peer)->connection->call(std::move(request), timeout, std::move(done));
    });
  });
}

// --- Sessions

void ClientCore::open_session(const Core& core, uint32_t server, OpenedFunction done) {
  control::Envelope request;
  request.mutable_open_session()->set_access(options_.read_only ? control::ACCESS_READ_ONLY
                                                                : control::ACCESS_READ_WRITE);
  request.mutable_open_session()->set_client_name(options_.name);
  call(server, std::move(request),
       [self = shared_from_this(), server, weak = std::weak_ptr(core), done](Result<control::Envelope> reply) {
    const auto owner = weak.lock();
    const std::shared_ptr<ServerTime> time = self->peers_[server].time;
    if (reply && reply->has_session_opened()) {
      const control::SessionOpened& opened = reply->session_opened();
      time->heard(opened.cluster_time_ms(), self->clock().now());
      if (!owner || owner->closed()) return self->close_session(server, SessionId{opened.session_id()});
      OpenSession& session = self->peers_[server].sessions[opened.session_id()];
      session.core = weak;
      session.secret = opened.secret();
      session.reclaim_epoch = opened.reclaim_epoch();
      const Nanoseconds third = std::max<Nanoseconds>(opened.lease_ms() * kMillisecond / 3, kMillisecond);
      if (third < self->keep_alive_interval_ && !SKUA_PLANTED_BUG("first-sign-of-life-is-late")) {
        // The timer that runs was set for longer leases.
        self->keep_alive_interval_ = third;
        self->executor().cancel(self->keep_alive_timer_);
        self->keep_alive_timer_ = self->executor().after(third, [core = self.get()] { core->keep_alive(); });
      }
    }
    if (!owner) return;
    owner->deliver([reply = std::move(reply), time, done] {
      const auto opened = [&](Result<control::SessionOpened> session) { done(std::move(session), time); };
      unpack<control::SessionOpened>(
          reply, "open_session", [](const auto& e) { return e.has_session_opened(); },
          [](const auto& e) { return e.session_opened(); }, opened);
    });
  });
}

void ClientCore::fence_session(const Core& core, uint32_t server, const control::FenceSession& request,
                               std::function<void(Result<control::SessionFenced>)> done) {
  control::Envelope envelope;
  *envelope.mutable_fence_session() = request;
  const uint64_t id = request.session_id();
  call(server, std::move(envelope),
       [self = shared_from_this(), server, id, weak = std::weak_ptr(core), done](Result<control::Envelope> reply) {
    auto& sessions = self->peers_[server].sessions;
    if (!reply && reply.error().code() == StatusCode::kStaleEpoch) sessions.erase(id);
    const auto owner = weak.lock();
    if (!owner) return;
    owner->deliver([reply = std::move(reply), done] {
      unpack<control::SessionFenced>(
          reply, "fence_session", [](const auto& e) { return e.has_session_fenced(); },
          [](const auto& e) { return e.session_fenced(); }, done);
    });
  });
}

void ClientCore::request_grant(const Core& core, uint32_t server, const control::GrantRequest& request,
                               std::function<void(Result<control::Grant>)> done) {
  control::Envelope envelope;
  *envelope.mutable_grant_request() = request;
  call(server, std::move(envelope), [self = shared_from_this(), server, id = request.session_id(),
                                     weak = std::weak_ptr(core), done](Result<control::Envelope> reply) {
    const bool gone = !reply && reply.error().code() == StatusCode::kStaleEpoch;
    if (gone && !SKUA_PLANTED_BUG("stale-grant-ends-operation")) {
      self->session_gone(self->peers_[server], id, reply.error());
    }
    const auto owner = weak.lock();
    if (!owner) return;
    owner->deliver([reply = std::move(reply), done] {
      unpack<control::Grant>(
          reply, "grant_request", [](const auto& e) { return e.has_grant(); },
          [](const auto& e) { return e.grant(); }, done);
    });
  });
}

void ClientCore::grow_table(const Core& core, uint32_t server, const control::GrowTable& request,
                            std::function<void(const Result<void>&)> done) {
  control::Envelope envelope;
  *envelope.mutable_grow_table() = request;
  call(server, std::move(envelope), [self = shared_from_this(), server, id = request.session_id(),
                                     weak = std::weak_ptr(core), done](Result<control::Envelope> reply) {
    if (!reply && reply.error().code() == StatusCode::kStaleEpoch) {
      self->session_gone(self->peers_[server], id, reply.error());
    }
    const auto owner = weak.lock();
    if (!owner) return;
    owner->deliver([reply = std::move(reply), done] {
      if (!reply) return done(tl::make_unexpected(reply.error()));
      if (!reply->has_ack()) return done(tl::make_unexpected(unexpected("grow_table")));
      done({});
    });
  });
}

void ClientCore::send_report(uint32_t server, control::EpochReport report) {
  executor().post([self = shared_from_this(), server, report = std::move(report)]() mutable {
    const auto found = self->peers_.find(server);
    if (found != self->peers_.end()) self->deliver_report(found->second, std::move(report));
  });
}

// What a report says of grants is said once, so it is kept until the server has it or the session is gone.
void ClientCore::deliver_report(Peer& peer, control::EpochReport report) {
  const uint64_t id = report.session_id();
  if (!peer.sessions.contains(id)) return;
  if (!peer.connection) {
    if (report.grants_size() != 0 && peer.unsent.size() < kMaxUnsentReports) peer.unsent.push_back(std::move(report));
    return;
  }
  control::Envelope envelope;
  *envelope.mutable_epoch_report() = report;
  peer.connection->call(std::move(envelope), options_.connect_timeout,
                        [self = shared_from_this(), server = peer.id, id,
                         report = std::move(report)](const Result<control::Envelope>& reply) mutable {
    Peer& now = self->peers_[server];
    if (reply) {
      if (reply->has_ack()) now.time->heard(reply->ack().cluster_time_ms(), self->clock().now());
      return;
    }
    if (reply.error().code() == StatusCode::kStaleEpoch) self->session_gone(now, id, reply.error());
    if (reply.error().code() == StatusCode::kUnavailable && !self->stopped_) {
      if (report.grants_size() != 0 && now.unsent.size() < kMaxUnsentReports) now.unsent.push_back(std::move(report));
    }
  });
}

void ClientCore::close_session(uint32_t server, SessionId session) {
  executor().post([self = shared_from_this(), server, session] {
    const auto found = self->peers_.find(server);
    if (found == self->peers_.end()) return;
    found->second.sessions.erase(static_cast<uint64_t>(session));
    if (!found->second.connection) return;
    control::Envelope envelope;
    envelope.mutable_close_session()->set_session_id(static_cast<uint64_t>(session));
    ++self->closing_;
    found->second.connection->call(std::move(envelope), self->options_.connect_timeout, [self](const auto&) {
      if (--self->closing_ == 0 && self->on_closed_) self->end();
    });
  });
}

void ClientCore::on_push(uint32_t server, const control::Envelope& envelope) {
  if (envelope.has_cluster_map()) take_map(envelope.cluster_map());
  if (!envelope.has_epoch_advance()) return;
  const control::EpochAdvance& advance = envelope.epoch_advance();
  peers_[server].time->heard(advance.cluster_time_ms(), clock().now());
  if (advance.map_epoch() > raw_map_.epoch()) refresh_map([](const Result<void>&) {});
  for (auto& [id, session] : peers_[server].sessions) {
    const auto core = session.core.lock();
    if (!core || core->closed()) continue;
    session.reclaim_epoch = std::max(session.reclaim_epoch, advance.reclaim_epoch());
    core->announce(server, SessionId{id}, advance);
  }
  report_for_idle();
}

void ClientCore::report_for_idle() {
  bool again = false;
  for (const auto& core : open_sessions()) again |= !core->epoch_announced();
  if (!again || retry_pending_ || stopped_) return;
  // A session in the middle of an operation reports by itself; one that has just ended its last may need another look.
  retry_pending_ = true;
  executor().after(kReportRetry, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->stopped_) return;
    self->retry_pending_ = false;
    self->report_for_idle();
  });
}

void ClientCore::keep_alive() {
  if (stopped_) return;
  for (auto& [server, peer] : peers_) {
    for (auto& [id, session] : peer.sessions) {
      const auto core = session.core.lock();
      if (!core || core->closed()) continue;
      // A session whose owner neither is idle nor makes progress is not kept alive: it holds back everyone's memory.
      const uint64_t progress = core->progress();
      const bool alive = core->idle() || progress != session.last_progress;
      session.last_progress = progress;
      if (!alive) continue;
      control::EpochReport report;
      report.set_session_id(id);
      send_report(server, std::move(report));
    }
    if (!peer.sessions.empty() && !peer.connection) with_connection(server, [](const Result<Peer*>&) {});
  }
  report_for_idle();
  keep_alive_timer_ = executor().after(keep_alive_interval_, [this] { keep_alive(); });
}

std::vector<std::shared_ptr<SessionCore>> ClientCore::open_sessions() const {
  const std::lock_guard lock(sessions_mutex_);
  std::vector<std::shared_ptr<SessionCore>> cores;
  for (const auto& weak : sessions_) {
    auto core = weak.lock();
    if (core && !core->closed()) cores.push_back(std::move(core));
  }
  return cores;
}

void ClientCore::add_session(const Core& core) {
  const std::lock_guard lock(sessions_mutex_);
  sessions_.push_back(core);
}

void ClientCore::remove_session(const Core& core) {
  const std::lock_guard lock(sessions_mutex_);
  const CounterTable table = core->counter_table();
  for (size_t i = 0; i < kOperationKinds; ++i) closed_counters_[i] += table[i];
  std::erase_if(sessions_, [&](const auto& weak) { return weak.lock() == core || weak.expired(); });
}

CounterTable ClientCore::counters() const {
  CounterTable sum;
  {
    const std::lock_guard lock(sessions_mutex_);
    sum = closed_counters_;
  }
  for (const auto& core : open_sessions()) {
    const CounterTable table = core->counter_table();
    for (size_t i = 0; i < kOperationKinds; ++i) sum[i] += table[i];
  }
  return sum;
}

ClusterInfo ClientCore::cluster_info() const {
  ClusterInfo info;
  info.cluster_id = raw_map_.cluster_id();
  info.membership_epoch = raw_map_.epoch();
  info.partitions = raw_map_.partitions();
  info.forming = raw_map_.forming();
  for (const control::Server& server : raw_map_.servers()) {
    ServerInfo out;
    out.id = server.id();
    out.name = server.name();
    out.address = server.control_address();
    out.instance = server.instance();
    out.alive = server.alive();
    out.memory_bytes = server.memory_bytes();
    out.partitions = static_cast<uint32_t>(std::count_if(
        raw_map_.assignments().begin(), raw_map_.assignments().end(),
        [&](const control::PartitionAssignment& assignment) { return assignment.primary() == server.id(); }));
    info.servers.push_back(std::move(out));
  }
  return info;
}

ServerStatistics statistics_of(const control::ServerStats& stats) {
  ServerStatistics out;
  out.server = stats.server_id();
  out.pages = stats.pages();
  const google::protobuf::Descriptor& type = *control::ServerStats::descriptor();
  const google::protobuf::Reflection& reflection = *control::ServerStats::GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) continue;
    if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
      out.values.emplace_back(field.name(), reflection.GetUInt64(stats, &field));
    } else if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT32) {
      out.values.emplace_back(field.name(), reflection.GetUInt32(stats, &field));
    }
  }
  for (const control::ClassStats& c : stats.classes()) {
    const std::string prefix = "class." + std::to_string(c.block_bytes()) + ".";
    out.values.emplace_back(prefix + "segments", c.segments());
    out.values.emplace_back(prefix + "free", c.free());
    out.values.emplace_back(prefix + "granted", c.granted());
    out.values.emplace_back(prefix + "used", c.used());
    out.values.emplace_back(prefix + "retired", c.retired());
  }
  for (const auto& [transport, sessions] : stats.sessions_by_transport()) {
    out.values.emplace_back("sessions." + transport, sessions);
  }
  return out;
}

}  // namespace skua
