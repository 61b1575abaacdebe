#pragma once
// Node is a whole server in this process: memory, data plane, control plane, membership, files.
//
// Start:   data directory, memory, every listener; then it joins its cluster; then it serves. A failure at any step
//          leaves nothing behind.
// Threads: start, drain, wait and the destructor from one owner thread. It has a control thread, and those of its
//          transports.
// Errors of start: kConfiguration, kResourceExhausted, kUnavailable and what the coordinator says, with what to change.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/net_address.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/transport/verbs/verbs.h"
#include "server/store.h"

namespace skua {

struct NodeOptions {
  NetAddress listen{"127.0.0.1", 7400};
  std::optional<NetAddress> data_listen;  // unset: the host of `listen`, a free port
  std::string advertise;                  // host that others are told; empty: the host of `listen`
  std::optional<NetAddress> join;         // unset: this server is the coordinator
  uint32_t initial_servers = 0;           // 0: as the cluster has it, or 1
  uint32_t partitions = 0;                // 0: as the cluster has it, or 64
  std::string name;                       // empty: as before, or the advertised address
  std::string data_dir;                   // empty: nothing is kept on disk
  std::vector<std::string> transports{"shm", "tcp"};
  VerbsSettings rdma;                     // of verbs, as the following
  std::optional<NetAddress> rdma_listen;  // unset: the address of the GID that is taken, a free port
  std::string rdma_atomics = "auto";      // device, cpu, or auto: the device where verbs is offered alone and it can
  std::string token;
  Nanoseconds join_timeout = 30 * kSecond;
  StoreOptions store;
  bool report_process_cpu = false;        // statistics show this process's CPU time: only where it is the server's own
};

struct NodeEndpoint {
  std::string transport;
  std::string address;
};

class Node {
 public:
  struct Events {
    std::function<void()> serving;                // partitions were assigned; maybe during start
    std::function<void(const Status&)> failed;    // it serves nobody any more; end it. On the control thread
  };
  static Result<std::unique_ptr<Node>> start(const NodeOptions& options, const Clock& clock, Entropy& entropy,
                                             Events events);
  ~Node();  // ends at once
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Orderly end: sessions are fenced, the coordinator is told, then `done` runs on the control thread.
  void drain(std::function<void()> done);

  std::string control_address() const;  // as advertised, with the real port
  const std::vector<NodeEndpoint>& endpoints() const;
  const std::string& name() const;
  uint32_t server_id() const;
  bool serving() const;
  std::string pages() const;

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skua
