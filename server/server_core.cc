#include "server/server_core.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/placement/partition_map.h"

namespace skua {

ServerCore::ServerCore(ServerCoreOptions options, ServerCoreEvents events, const Parts& parts)
    : options_(std::move(options)), events_(std::move(events)), parts_(parts),
      service_(service_options(), parts.store, parts.executor) {
  SKUA_CHECK((parts_.coordinator == nullptr) == options_.join.has_value(), "a server joins or coordinates");
}

ServerCore::~ServerCore() {
  if (timer_ != 0) parts_.executor.cancel(timer_);
  if (membership_) membership_->stop();
  if (parts_.coordinator != nullptr) parts_.coordinator->on_change(nullptr);
}

ControlService::Options ServerCore::service_options() const {
  ControlService::Options options;
  options.terms = options_.terms;
  options.instance = options_.self.instance();
  if (options_.join) options.coordinator_address = options_.join->to_string();
  options.fill_stats = options_.fill_stats;
  return options;
}

void ServerCore::start() {
  if (!options_.join) {
    join_itself();
    return;
  }
  MembershipOptions options;
  options.coordinator = *options_.join;
  options.terms = options_.terms;
  options.self = options_.self;
  options.heartbeat_interval = options_.heartbeat_interval;
  options.join_timeout = options_.join_timeout;
  MembershipEvents events;
  events.joined = [this](Result<control::Joined> joined) {
    if (!joined) {
      ended_ = true;
      events_.joined(Error(joined.error()));
      return;
    }
    server_id_ = joined->server_id();
    events_.joined(apply(joined->map()));
  };
  events.map = [this](const control::ClusterMap& map) { apply_later_map(map); };
  events.cluster_time_ms = [this](uint64_t now_ms) { parts_.store.set_cluster_time_ms(now_ms); };
  events.evicted = [this](const Status& why) { fail_for_good(why); };
  membership_ = std::make_shared<Membership>(std::move(options), std::move(events), parts_.dialer, parts_.executor);
  membership_->start();
}

void ServerCore::join_itself() {
  Coordinator& coordinator = *parts_.coordinator;
  const auto joined = coordinator.join(options_.self);
  if (!joined) {
    ended_ = true;
    events_.joined(Error(joined.error()));
    return;
  }
  server_id_ = *joined;
  const auto applied = apply(coordinator.map());
  if (applied) {
    coordinator.on_change([this] { apply_later_map(parts_.coordinator->map()); });
    service_.set_coordinator(&coordinator);
    watch_members();
  }
  events_.joined(applied);
}

void ServerCore::watch_members() {
  timer_ = parts_.executor.after(options_.heartbeat_interval, [this] {
    auto beaten = parts_.coordinator->heartbeat(server_id_, options_.self.instance());
    if (beaten) beaten = parts_.coordinator->check_alive();
    if (!beaten) {
      timer_ = 0;
      fail_for_good(beaten.error());
      return;
    }
    watch_members();
  });
}

Result<void> ServerCore::apply(const control::ClusterMap& map) {
  const auto checked = PartitionMap::create(map);
  if (!checked) return Error(checked.error());
  map_ = map;
  service_.set_map(map, server_id_);
  if (serving_ || (*checked)->forming()) return {};
  Store::Assignment assignment;
  assignment.cluster_id = map.cluster_id();
  assignment.instance = options_.self.instance();
  assignment.membership_epoch = map.epoch();
  assignment.partitions = (*checked)->partitions_of(server_id_);
  SKUA_RETURN_IF_ERROR(parts_.store.serve(assignment));
  serving_ = true;
  service_.set_serving();
  log_info("serves " + std::to_string(assignment.partitions.size()) + " of " + std::to_string(map.partitions()) +
           " partitions as server " + std::to_string(server_id_) + " under membership epoch " +
           std::to_string(map.epoch()));
  if (events_.serving) events_.serving();
  return {};
}

void ServerCore::apply_later_map(const control::ClusterMap& map) {
  if (ended_) return;
  if (const auto applied = apply(map); !applied) fail_for_good(applied.error());
}

void ServerCore::fail_for_good(const Status& why) {
  if (std::exchange(ended_, true)) return;
  service_.drain();
  if (events_.failed) events_.failed(why);
}

void ServerCore::drain(std::function<void()> done) {
  ended_ = true;
  if (timer_ != 0) parts_.executor.cancel(std::exchange(timer_, 0));
  if (parts_.coordinator != nullptr) {
    if (server_id_ != 0) {
      if (const auto left = parts_.coordinator->leave(server_id_, options_.self.instance()); !left) {
        log_warning("leaving: " + left.error().message());
      }
    }
    service_.drain();
    done();
    return;
  }
  service_.drain();
  if (membership_) {
    membership_->leave(kLeaveTimeout, std::move(done));
  } else {
    done();
  }
}

}  // namespace skua
