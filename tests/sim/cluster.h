#pragma once
// The product's servers and clients as processes of a simulated world.
//
// A server that crashes forgets its memory and keeps what it had on disk (the coordinator's map, its name). A client
// that crashes keeps its objects, which cause nothing any more, until the run ends.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/client_core.h"
#include "client/session_core.h"
#include "common/transport/sim/world.h"
#include "server/coordinator/coordinator.h"
#include "server/server_core.h"
#include "server/store.h"
#include "tests/sim/scenario.h"

namespace skua::sim {

class SimServer {
 public:
  SimServer(SimWorld& world, const Scenario& scenario, size_t index);

  void start();  // and once more, after a while, whenever it could not
  void crash();  // Requires: running.
  void restart();

  size_t index() const { return index_; }
  SimProcess& process() { return process_; }
  const SimProcess& process() const { return process_; }
  NetAddress address() const { return address_of(index_); }
  bool serving() const { return core_ && core_->serving(); }
  Store* store() { return store_.get(); }  // null: crashed
  std::vector<uint32_t> partitions() const;

  static NetAddress address_of(size_t index);

 private:
  void drop_objects();
  void try_again();

  SimWorld& world_;
  const Scenario& scenario_;
  const size_t index_;
  SimProcess& process_;
  MemoryMapStore map_store_;  // its disk

  std::unique_ptr<Store> store_;
  std::unique_ptr<Target> target_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<Listener> listener_;
  uint64_t life_ = 0;
};

// One client process and its sessions.
class SimClient {
 public:
  struct Shape {
    std::string name;
    uint64_t sessions = 1;
    Nanoseconds operation_timeout = 0;
  };
  SimClient(SimWorld& world, const Scenario& scenario, const Shape& shape);
  ~SimClient();

  // `ready` runs when it has found the cluster; it keeps trying.
  void start(std::function<void()> ready);
  void crash();
  bool crashed() const { return crashed_; }
  // Ends what a crashed client had begun, so that its objects can go. Nothing of it reaches anybody.
  void bury();
  void close();  // orderly

  SimProcess& process() { return process_; }
  const std::vector<std::shared_ptr<SessionCore>>& sessions() const { return sessions_; }
  std::shared_ptr<const PartitionMap> map() const { return core_->map(); }
  // Something was started outside poll: look soon.
  void poll_soon();

 private:
  void make_core();
  void connect(std::function<void()> ready);
  void poll();
  void arm(Nanoseconds delay);

  SimWorld& world_;
  SimProcess& process_;
  const uint64_t session_count_;
  bool crashed_ = false;
  bool closed_ = false;
  bool armed_ = false;
  Executor::TimerId timer_ = 0;
  Nanoseconds poll_interval_;
  ClientOptions options_;
  std::shared_ptr<ClientCore> core_;
  std::vector<std::shared_ptr<SessionCore>> sessions_;
};

}  // namespace skua::sim
