#pragma once
// ClientCore is the client's half of the control plane: the cluster map, one control connection a server, and the
// requests that sessions make of servers.
//
// Threads: its executor's, but for what says "any". Answers to sessions arrive in their mailboxes.
// Errors:  as the server said, or kUnavailable when it cannot be reached; kStaleEpoch when it has another instance.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/client.h"
#include "client/server_time.h"
#include "common/base/executor.h"
#include "common/base/random.h"
#include "common/control/channel.h"
#include "common/control/rpc.h"
#include "common/placement/partition_map.h"
#include "common/transport/transport.h"

namespace skua {

class SessionCore;

class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  struct Environment {
    Executor* executor = nullptr;
    Dialer* dialer = nullptr;
    const Clock* clock = nullptr;
    Entropy* entropy = nullptr;
    std::vector<std::shared_ptr<Connector>> connectors;  // in the order that `auto` prefers
  };
  ClientCore(ClientOptions options, Environment environment);
  ~ClientCore();

  // Finds a seed that answers and fetches the map. Threads: executor.
  void start(std::function<void(Result<void>)> done);
  // Ends every connection. `done` comes when the servers have heard of the sessions that were closed, or soon after.
  void stop(std::function<void()> done);

  // --- Threads: any
  const ClientOptions& options() const { return options_; }
  const Clock& clock() const { return *environment_.clock; }
  Entropy& entropy() { return *environment_.entropy; }
  Executor& executor() { return *environment_.executor; }
  const std::vector<std::shared_ptr<Connector>>& connectors() const { return environment_.connectors; }
  std::shared_ptr<const PartitionMap> map() const;
  void refresh_map(std::function<void(Result<void>)> done);
  // One request to one server; `done` runs on the executor.
  void call(uint32_t server, control::Envelope request, std::function<void(Result<control::Envelope>)> done);

  ClusterInfo cluster_info() const;  // Threads: executor.

  // --- For sessions. Threads: any; `done` arrives in the session's mailbox.
  using Core = std::shared_ptr<SessionCore>;
  using OpenedFunction =
      std::function<void(Result<control::SessionOpened>, std::shared_ptr<const ServerTime> time)>;
  void open_session(const Core& core, uint32_t server, OpenedFunction done);
  void fence_session(const Core& core, uint32_t server, const control::FenceSession& request,
                     std::function<void(Result<control::SessionFenced>)> done);
  void request_grant(const Core& core, uint32_t server, const control::GrantRequest& request,
                     std::function<void(Result<control::Grant>)> done);
  void grow_table(const Core& core, uint32_t server, const control::GrowTable& request,
                  std::function<void(const Result<void>&)> done);
  void send_report(uint32_t server, control::EpochReport report);
  void close_session(uint32_t server, SessionId session);

  void add_session(const Core& core);
  void remove_session(const Core& core);
  CounterTable counters() const;  // of closed and open sessions

 private:
  struct OpenSession {
    std::weak_ptr<SessionCore> core;
    std::string secret;
    uint64_t reclaim_epoch = 0;
    uint64_t last_progress = 0;
  };
  // One server as the control plane sees it.
  struct Peer {
    uint32_t id = 0;
    NetAddress address;
    uint64_t instance = 0;
    std::shared_ptr<ServerTime> time;  // of this instance; null: never connected
    std::shared_ptr<ControlConnection> connection;  // null: not connected
    bool dialing = false;
    Nanoseconds delay = 0;
    Nanoseconds retry_at = 0;
    Status last_error{StatusCode::kUnavailable, "not connected yet"};
    std::vector<std::function<void(Result<Peer*>)>> waiting;
    std::unordered_map<uint64_t, OpenSession> sessions;  // by session id
    std::vector<control::EpochReport> unsent;             // reports for the next connection; repeating one is harmless
  };

  void try_seed(size_t index, std::vector<std::string> reasons, std::function<void(Result<void>)> done);
  void with_connection(uint32_t server, std::function<void(Result<Peer*>)> then);
  void dial(Peer& peer);
  void connected(uint32_t server, std::shared_ptr<ControlConnection> connection);
  void dial_failed(uint32_t server, const Status& why);
  void connection_closed(uint32_t server, const Status& why);
  void answer_waiting(Peer& peer, const Result<void>& outcome);
  void on_push(uint32_t server, const control::Envelope& envelope);
  void session_gone(Peer& peer, uint64_t session, const Status& why);
  void take_map(const control::ClusterMap& map);
  void keep_alive();
  void deliver_report(Peer& peer, control::EpochReport report);
  void end();
  void report_for_idle();
  std::vector<std::shared_ptr<SessionCore>> open_sessions() const;
  HelloTerms terms(uint64_t cluster_id) const;

  const ClientOptions options_;
  const Environment environment_;

  mutable std::mutex map_mutex_;
  std::shared_ptr<const PartitionMap> map_;
  control::ClusterMap raw_map_;  // executor

  std::unordered_map<uint32_t, Peer> peers_;
  std::vector<NetAddress> seeds_;
  Random random_;
  bool stopped_ = false;
  size_t closing_ = 0;  // CloseSession calls under way
  std::function<void()> on_closed_;
  bool retry_pending_ = false;
  Executor::TimerId keep_alive_timer_ = 0;
  Nanoseconds keep_alive_interval_ = kSecond;

  mutable std::mutex sessions_mutex_;
  std::vector<std::weak_ptr<SessionCore>> sessions_;
  CounterTable closed_counters_{};
};

ServerStatistics statistics_of(const control::ServerStats& stats);

}  // namespace skua
