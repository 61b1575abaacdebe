#pragma once
// ServerCore is a server without its sockets, files and threads: it joins a cluster, serves the partitions that it is
// given, answers control connections, and leaves. Node runs it on Asio; the simulator runs it in virtual time.
//
// Life:    start -> joined (the cluster may still be forming) -> serving -> drain.
// Threads: the executor's. Borrows Store, Executor, Coordinator and Dialer, which outlive it.
// Errors:  `failed` of the events, once: this server can be no member any more (evicted, or its partitions' tables do
//          not fit); it serves nobody and should end.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/executor.h"
#include "common/base/net_address.h"
#include "common/base/status.h"
#include "common/control/channel.h"
#include "server/control_service.h"
#include "server/coordinator/coordinator.h"
#include "server/membership.h"
#include "server/store.h"

namespace skua {

struct ServerCoreOptions {
  HelloTerms terms;                // token; cluster id when it was a member before
  control::Join self;              // name, address to advertise, instance, memory
  std::optional<NetAddress> join;  // the coordinator; none: this server is it
  Nanoseconds join_timeout = 30 * kSecond;
  Nanoseconds heartbeat_interval = kSecond;
  std::function<void(control::ServerStats&)> fill_stats;
};

struct ServerCoreEvents {
  std::function<void(Result<void>)> joined;  // once
  std::function<void()> serving;             // once
  std::function<void(const Status&)> failed;
};

class ServerCore {
 public:
  static constexpr Nanoseconds kLeaveTimeout = kSecond;

  struct Parts {
    Store& store;
    Executor& executor;
    Dialer& dialer;
    Coordinator* coordinator = nullptr;  // Requires: set exactly when options.join is not.
  };
  ServerCore(ServerCoreOptions options, ServerCoreEvents events, const Parts& parts);
  ~ServerCore();

  ChannelEvents accept(std::shared_ptr<Channel> channel) { return service_.accept(std::move(channel)); }
  void start();
  // Ends every session and connection, tells the coordinator, then calls `done`.
  void drain(std::function<void()> done);

  const control::ClusterMap& map() const { return map_; }
  uint32_t server_id() const { return server_id_; }
  bool serving() const { return serving_; }

 private:
  void join_itself();
  void watch_members();
  Result<void> apply(const control::ClusterMap& map);
  void apply_later_map(const control::ClusterMap& map);
  void fail_for_good(const Status& why);
  ControlService::Options service_options() const;

  const ServerCoreOptions options_;
  ServerCoreEvents events_;
  const Parts parts_;
  control::ClusterMap map_;
  uint32_t server_id_ = 0;
  bool serving_ = false;
  bool ended_ = false;  // drained or failed
  Executor::TimerId timer_ = 0;
  std::shared_ptr<Membership> membership_;
  ControlService service_;
};

}  // namespace skua
