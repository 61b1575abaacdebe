#pragma once
// Private to transport/verbs: the server's end. Its thread sleeps but for connections, calls and fences.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/base/log_limit.h"
#include "common/transport/descriptor.h"
#include "common/transport/handshake.h"
#include "common/transport/target.h"
#include "common/transport/verbs/device_select.h"
#include "common/transport/verbs/loopback.h"
#include "common/transport/verbs/verbs.h"
#include "common/transport/verbs/verbs_session.h"

namespace skua {

// Threads: one of its own runs everything but admit and fence, which leave it a command.
class VerbsTarget final : public Target {
 public:
  VerbsTarget(const VerbsTargetOptions& options, const ArenaInfo& arena) : options_(options), arena_(arena) {}
  ~VerbsTarget() override;

  Result<void> start();

  std::string_view name() const override { return "verbs"; }
  std::string endpoint() const override { return endpoint_.to_string(); }
  void admit(SessionTicket ticket) override;
  void fence(SessionId session, std::function<void()> fenced) override;
  AtomicsExecutor* atomics() override { return atomics_ == VerbsAtomics::kDevice ? &loopback_ : nullptr; }
  size_t connections() const override { return open_.load(std::memory_order_relaxed); }

 private:
  // End every connection of `session` whose ticket's serial is below `serial`; then call `done`.
  struct Ending {
    SessionId session{};
    uint64_t serial = 0;
    std::function<void()> done;
  };

  // The device's part, verbs_device.cc.
  Result<void> open_device();
  Result<void> listen();
  Error cannot_listen(int error, const char* what) const;
  void close_device();
  void look_for_device();
  void take_device_events();
  void end_queue_pair(const ibv_qp* queue_pair);
  void watch(int descriptor);

  void wake();
  void run();
  bool take_commands();
  void take_events();
  void take_completions();
  void on_request(const VerbsEvent& event);
  Result<std::unique_ptr<VerbsSession>> admit_request(const VerbsEvent& event);
  void refuse(const VerbsEvent& event, const Status& why);
  void end(const rdma_cm_id* id);
  void end_session(SessionId session, uint64_t below);

  // Constant after start.
  const VerbsTargetOptions options_;
  const ArenaInfo arena_;
  NetAddress endpoint_;
  DeviceWish wish_;
  NetAddress bound_;
  VerbsAtomics atomics_ = VerbsAtomics::kCpu;
  VerbsHandle<rdma_event_channel> events_;
  Descriptor wake_;
  Descriptor wait_;
  std::thread thread_;
  LogLimit refusals_;

  // Guarded by mutex_.
  std::mutex mutex_;
  TicketTable tickets_;
  std::vector<Ending> commands_;
  bool stopping_ = false;

  std::atomic<size_t> open_{0};

  DeviceAtomics loopback_;  // where the device executes atomics

  // The thread's own after start. Without a listener: the device was removed, and is looked for.
  bool decided_ = false;  // atomics_ is
  DeviceChoice choice_;
  VerbsHandle<rdma_cm_id> listener_;
  VerbsHandle<ibv_comp_channel> completions_;
  std::unordered_map<const rdma_cm_id*, std::unique_ptr<VerbsSession>> sessions_;
};

}  // namespace skua
