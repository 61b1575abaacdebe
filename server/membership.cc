#include "server/membership.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/units.h"

namespace skua {

Membership::Membership(MembershipOptions options, MembershipEvents events, Dialer& dialer, Executor& executor)
    : options_(std::move(options)), events_(std::move(events)), dialer_(dialer), executor_(executor),
      back_off_(options_.retry_min) {}

Membership::~Membership() { stop(); }

void Membership::stop() {
  stopped_ = true;
  if (timer_ != 0) executor_.cancel(std::exchange(timer_, 0));
  if (const auto connection = std::exchange(connection_, nullptr)) connection->close();
}

void Membership::start() {
  deadline_ = executor_.clock().now() + options_.join_timeout;
  connect();
}

// Nothing that waiting would change.
bool Membership::final_refusal(StatusCode code) {
  return code == StatusCode::kConfiguration || code == StatusCode::kUnauthenticated ||
         code == StatusCode::kIncompatible || code == StatusCode::kInvalidArgument || code == StatusCode::kStaleEpoch;
}

void Membership::connect() {
  timer_ = 0;
  ControlConnection::OpenOptions options;
  options.address = options_.coordinator;
  options.timeout = options_.call_timeout;
  options.terms = options_.terms;
  ControlConnection::open(dialer_, executor_, options,
                          [weak = weak_from_this()](Result<std::shared_ptr<ControlConnection>> connection) {
                            const auto self = weak.lock();
                            if (!self || self->stopped_) return;
                            if (!connection) {
                              self->retry(connection.error());
                              return;
                            }
                            self->connection_ = *connection;
                            self->connection_->on_closed([weak](const Status& why) {
                              if (const auto owner = weak.lock()) owner->lost(why);
                            });
                            self->connection_->on_push([weak](const control::Envelope& push) {
                              if (const auto owner = weak.lock()) owner->pushed(push);
                            });
                            self->join();
                          });
}

void Membership::retry(const Status& why) {
  if (stopped_) return;
  if (const auto connection = std::exchange(connection_, nullptr)) connection->close();
  const Status told(why.code(), "coordinator " + options_.coordinator.to_string() + ": " + why.message());
  const bool first = !joined_once_;
  if (final_refusal(why.code()) || (first && executor_.clock().now() >= deadline_)) {
    stop();
    if (first) {
      if (events_.joined) events_.joined(Error(told));
    } else if (events_.evicted) {
      events_.evicted(told);
    }
    return;
  }
  log_info("membership: " + told.message() + "; again in " + format_duration(back_off_));
  timer_ = executor_.after(back_off_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->connect();
  });
  back_off_ = std::min(2 * back_off_, options_.retry_max);
}

void Membership::lost(const Status& why) {
  if (timer_ != 0) executor_.cancel(std::exchange(timer_, 0));
  connection_ = nullptr;
  if (!stopped_ && joined_once_) log_warning("membership: " + why.message());
  retry(why);
}

void Membership::join() {
  control::Envelope request;
  *request.mutable_join() = options_.self;
  connection_->call(request, options_.call_timeout, [weak = weak_from_this()](Result<control::Envelope> reply) {
    const auto self = weak.lock();
    if (!self || self->stopped_ || !self->connection_ || !self->connection_->is_open()) return;  // lost() retries
    if (!reply) {
      self->retry(reply.error());
    } else if (!reply->has_joined()) {
      self->retry(Status(StatusCode::kCorruption, "join answered by " + body_name(*reply)));
    } else {
      self->taken_in(reply->joined());
    }
  });
}

void Membership::taken_in(const control::Joined& joined) {
  back_off_ = options_.retry_min;
  server_id_ = joined.server_id();
  options_.terms.cluster_id = joined.map().cluster_id();
  if (events_.cluster_time_ms) events_.cluster_time_ms(joined.cluster_time_ms());
  const bool newer = joined.map().epoch() > map_epoch_;
  map_epoch_ = std::max(map_epoch_, joined.map().epoch());
  timer_ = executor_.after(options_.heartbeat_interval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->beat();
  });
  if (!std::exchange(joined_once_, true)) {
    if (events_.joined) events_.joined(joined);
  } else if (newer && events_.map) {
    events_.map(joined.map());
  }
}

void Membership::beat() {
  timer_ = 0;
  control::Envelope request;
  request.mutable_server_heartbeat()->set_server_id(server_id_);
  request.mutable_server_heartbeat()->set_instance(options_.self.instance());
  request.mutable_server_heartbeat()->set_map_epoch(map_epoch_);
  connection_->call(request, options_.call_timeout, [weak = weak_from_this()](Result<control::Envelope> reply) {
    const auto self = weak.lock();
    if (self && !self->stopped_ && self->connection_ && self->connection_->is_open()) {
      self->beat_answered(std::move(reply));
    }
  });
}

void Membership::beat_answered(Result<control::Envelope> reply) {
  if (!reply) {
    retry(reply.error());
    return;
  }
  timer_ = executor_.after(options_.heartbeat_interval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->beat();
  });
  if (reply->has_ack() && events_.cluster_time_ms) events_.cluster_time_ms(reply->ack().cluster_time_ms());
  if (reply->has_cluster_map()) offered(reply->cluster_map());
}

// Spares a heartbeat's wait; the heartbeat makes up for a push that was lost.
void Membership::pushed(const control::Envelope& push) {
  if (joined_once_ && !stopped_ && push.has_cluster_map()) offered(push.cluster_map());
}

void Membership::offered(const control::ClusterMap& map) {
  if (map.epoch() <= map_epoch_) return;
  map_epoch_ = map.epoch();
  if (events_.map) events_.map(map);
}

void Membership::leave(Nanoseconds timeout, std::function<void()> done) {
  if (!connection_ || !connection_->is_open() || !joined_once_) {
    stop();
    done();
    return;
  }
  if (timer_ != 0) executor_.cancel(std::exchange(timer_, 0));
  stopped_ = true;  // whatever else is answered now matters no more
  control::Envelope request;
  request.mutable_leave()->set_server_id(server_id_);
  request.mutable_leave()->set_instance(options_.self.instance());
  connection_->call(request, timeout, [self = shared_from_this(), done = std::move(done)](Result<control::Envelope>) {
    self->stop();
    done();
  });
}

}  // namespace skua
