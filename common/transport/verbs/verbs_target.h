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
  AtomicsExecutor* atomics() override { return loopback_.get(); }
  size_t connections() const override { return open_.load(std::memory_order_relaxed); }

 private:
  // End every connection of `session` whose ticket's serial is below `serial`; then call `done`.
  struct Ending {
    SessionId session{};
    uint64_t serial = 0;
    std::function<void()> done;
  };

  Result<void> listen();
  Error cannot_listen(int error, const char* what) const;
  void wake();
  void run();
  bool take_commands();
  void take_events();
  void take_completions();
  void take_device_events();
  void on_request(const VerbsEvent& event);
  Result<std::unique_ptr<VerbsSession>> admit_request(const VerbsEvent& event);
  void refuse(const VerbsEvent& event, const Status& why);
  void end(const rdma_cm_id* id);
  void end_session(SessionId session, uint64_t below);

  // Constant after start.
  const VerbsTargetOptions options_;
  const ArenaInfo arena_;
  NetAddress endpoint_;
  DeviceChoice choice_;
  VerbsAtomics atomics_ = VerbsAtomics::kCpu;
  VerbsHandle<rdma_event_channel> events_;
  VerbsHandle<rdma_cm_id> listener_;
  std::unique_ptr<VerbsLoopback> loopback_;  // where the device executes atomics
  VerbsHandle<ibv_comp_channel> completions_;
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

  // The thread's own.
  std::unordered_map<const rdma_cm_id*, std::unique_ptr<VerbsSession>> sessions_;
};

}  // namespace skua
