#pragma once
// ControlService answers the control connections of one server: clients' sessions, and other servers where this one is
// the coordinator.
//
// Hello first: anything else, or a hello that does not fit, closes the connection.
// Sessions belong to the connection that opened or last resumed them. Requests for another's session are refused;
//   epochs are pushed to the owner; a connection that ends leaves its sessions detached (Store's resume_grace).
// Bounds:  kMaxSessions sessions and kMaxWaiting unanswered requests on one connection.
// Borrows Store, Executor and Coordinator, which outlive it. Threads: the executor's.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/base/executor.h"
#include "common/control/channel.h"
#include "common/control/hello.h"
#include "proto/control.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/store.h"

namespace skua {

class ControlService {
 public:
  static constexpr size_t kMaxSessions = 4096;
  static constexpr size_t kMaxWaiting = 1024;

  struct Options {
    HelloTerms terms;                // cluster_id 0 until the server has joined
    uint64_t instance = 0;
    std::string coordinator_address;  // told to servers that ask the wrong one to let them join
    std::function<void(control::ServerStats&)> fill_stats;  // what the Store does not know
  };
  ControlService(Options options, Store& store, Executor& executor);
  ~ControlService();  // closes every connection
  ControlService(const ControlService&) = delete;
  ControlService& operator=(const ControlService&) = delete;

  // For a Listener.
  ChannelEvents accept(std::shared_ptr<Channel> channel);

  // From now on Join and heartbeats of servers are answered.
  void set_coordinator(Coordinator* coordinator) { coordinator_ = coordinator; }
  // This server's copy of the map; a later epoch is pushed to every connection. `server_id` as joined.
  void set_map(const control::ClusterMap& map, uint32_t server_id);
  // From now on sessions are opened.
  void set_serving() { serving_ = true; }
  // No new session and no new server from now on; the sessions that there are end, and their clients are told by the
  // end of their connections.
  void drain();

  size_t connections() const { return connections_.size(); }

 private:
  struct Connection;
  using ConnectionPointer = std::shared_ptr<Connection>;

  void receive(const ConnectionPointer& connection, const control::Envelope& request);
  void dispatch(const ConnectionPointer& connection, const control::Envelope& request);
  bool dispatch_session(const ConnectionPointer& connection, const control::Envelope& request);
  bool dispatch_server(const ConnectionPointer& connection, const control::Envelope& request);
  void ended(const ConnectionPointer& connection);

  void hello(const ConnectionPointer& connection, const control::Envelope& request);
  void open_session(const ConnectionPointer& connection, const control::Envelope& request);
  void resume_session(const ConnectionPointer& connection, const control::Envelope& request);
  void fence_session(const ConnectionPointer& connection, const control::Envelope& request);
  void close_session(const ConnectionPointer& connection, const control::Envelope& request);
  void grant(const ConnectionPointer& connection, const control::Envelope& request);
  void grow_table(const ConnectionPointer& connection, const control::Envelope& request);
  void report(const ConnectionPointer& connection, const control::Envelope& request);
  void stats(const ConnectionPointer& connection, const control::Envelope& request);
  void join(const ConnectionPointer& connection, const control::Envelope& request);
  void heartbeat(const ConnectionPointer& connection, const control::Envelope& request);

  bool owns(const Connection& connection, uint64_t session) const;
  // Answers with the refusal and returns false when it does not own it, or waits for too much already.
  bool may_use(const ConnectionPointer& connection, const control::Envelope& request, uint64_t session);
  void adopt(const ConnectionPointer& connection, uint64_t session);
  PushFunction push_to(const ConnectionPointer& connection);
  void push(Connection& connection, const control::EpochAdvance& advance);
  void acknowledge(Connection& connection, uint64_t id);
  static void refuse(Connection& connection, uint64_t id, const Status& status);
  static void reply(Connection& connection, uint64_t id, control::Envelope& envelope);

  Options options_;
  Store& store_;
  Executor& executor_;
  Coordinator* coordinator_ = nullptr;
  control::ClusterMap map_;  // epoch 0: not joined yet
  uint32_t server_id_ = 0;
  bool serving_ = false;
  bool draining_ = false;
  const Nanoseconds started_;
  std::map<uint64_t, ConnectionPointer> connections_;  // in the order of their coming, which never depends on addresses
  uint64_t accepted_ = 0;
  std::unordered_map<uint64_t, std::weak_ptr<Connection>> owners_;  // by session
};

}  // namespace skua
