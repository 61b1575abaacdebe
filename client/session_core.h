#pragma once
// SessionCore is the event loop of one session: operations wait on it, links and timers wake them.
//
// Threads: one owner thread. The control thread enters only through the gate (when no operation runs) and the mailbox.
// Invariants: I12: the session reports an epoch only between operations, with no verb outstanding.
#include <poll.h>

#include <array>
#include <atomic>
#include <coroutine>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/client.h"
#include "client/link.h"
#include "client/scratch.h"
#include "client/slot_cache.h"
#include "common/base/random.h"

namespace skua {

namespace control {
class EpochAdvance;
}

class ClientCore;
class PartitionMap;

// Who may touch a session's bookkeeping: nobody (idle), its thread while operations run, or the control thread while
// it reports for an idle session.
class SessionGate {
 public:
  void enter() {
    uint32_t expected = kIdle;
    while (!state_.compare_exchange_weak(expected, kSession, std::memory_order_acquire)) expected = kIdle;
  }
  void leave() { state_.store(kIdle, std::memory_order_release); }
  bool try_enter_control() {
    uint32_t expected = kIdle;
    return state_.compare_exchange_strong(expected, kControl, std::memory_order_acquire);
  }

  bool idle() const { return state_.load(std::memory_order_relaxed) == kIdle; }

 private:
  static constexpr uint32_t kIdle = 0;
  static constexpr uint32_t kSession = 1;
  static constexpr uint32_t kControl = 2;
  std::atomic<uint32_t> state_{kIdle};
};

// Counters of one kind of operation; written by the owner thread, read by any.
struct LiveCounters {
  std::atomic<uint64_t> operations{0}, failed{0}, round_trips{0}, reads{0}, writes{0}, compare_and_swaps{0}, bytes{0},
      cas_lost{0}, retries{0}, cache_hits{0}, torn_reads{0}, in_doubt{0}, cut_off{0};
  static void add(std::atomic<uint64_t>& counter, uint64_t amount) {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  OperationCounters read() const;
};

class SessionCore : public std::enable_shared_from_this<SessionCore> {
 public:
  SessionCore(std::shared_ptr<ClientCore> client, const ClientOptions& options);
  ~SessionCore();

  const ClientOptions& options() const { return options_; }
  ClientCore& client() { return *client_; }
  const Clock& clock() const { return clock_; }
  SlotCache& cache() { return cache_; }
  ScratchPool& scratch() { return scratch_; }
  Random& random() { return random_; }
  uint64_t cache_secret() const { return cache_secret_; }
  LiveCounters& counters(OperationKind kind) { return counters_[static_cast<size_t>(kind)]; }
  CounterTable counter_table() const;
  std::string transport_report() const;

  // --- Operations
  void begin_operation() {
    if (operations_++ == 0) enter();
  }
  void end_operation() {
    if (--operations_ == 0 && !polling_) leave();
  }
  bool alone() const { return operations_ == 1; }
  // An operation has let go of `link`: makes the report that was due, and lets in who waited for it.
  void left(Link& link) {
    if (report_due_.load(std::memory_order_relaxed) && !link.has_operations()) [[unlikely]] make_reports();
  }
  bool must_wait_for_report(const Link& link) const {
    return report_due_.load(std::memory_order_relaxed) && link.has_operations() && link.report_due();
  }
  // The link that serves `partition`, or why there is none.
  Result<Link*> link_for(uint32_t partition);
  uint32_t partitions() const;  // 0: no map yet
  void refresh_map();           // asks the control plane for a newer map
  Link& link(uint32_t server);
  void forget_server(uint32_t server);  // its cached locations

  // --- Waiting: the operation is resumed by poll once something changed, or when the deadline has passed.
  struct Waiter {
    std::coroutine_handle<> handle;
    Nanoseconds deadline = 0;
    bool woken = false;
  };
  void wait(Waiter* waiter) { waiters_.push_back(waiter); }
  void wake_all();                                         // links or map changed
  void make_ready(std::coroutine_handle<> handle) { ready_.push_back(handle); }
  void report_soon();

  // --- Loop
  bool poll();
  void poll_or_wait();
  void shut_down();

  // --- Control thread
  void deliver(std::function<void()> mail);  // runs on the owner thread, inside poll. Threads: any.
  // What a server pushed to this session of its. Threads: control.
  void announce(uint32_t server, SessionId session, const control::EpochAdvance& advance);
  // Makes the due reports if the session is idle, else sees to it that its owner does. False: look again soon.
  bool epoch_announced();
  bool idle() const { return gate_.idle(); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  void enter();
  void leave();
  void make_reports();
  void take_announcements();
  bool run_mail();
  bool run_ready();
  bool run_timers();
  void sleep(Nanoseconds limit);
  Nanoseconds next_deadline() const;

  const std::shared_ptr<ClientCore> client_;
  const ClientOptions options_;
  const Clock& clock_;

  SessionGate gate_;
  bool inside_ = false;     // the owner thread holds the gate
  bool polling_ = false;
  size_t operations_ = 0;   // begun and not ended
  std::atomic<bool> report_due_{false};
  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> closed_{false};

  SlotCache cache_;
  ScratchPool scratch_;
  Random random_;
  const uint64_t cache_secret_;
  std::array<LiveCounters, kOperationKinds> counters_;
  std::shared_ptr<const PartitionMap> map_;
  std::vector<std::unique_ptr<Link>> links_;  // by server id
  // What servers pushed and the gate holder has not seen yet.
  struct Announcement {
    SessionId session{};
    uint64_t reclaim_epoch = 0;
    bool return_unused = false;
  };
  std::mutex announced_mutex_;
  std::unordered_map<uint32_t, Announcement> announced_;
  std::atomic<bool> has_announcements_{false};

  std::vector<std::coroutine_handle<>> ready_;
  std::vector<std::coroutine_handle<>> running_;
  std::vector<Waiter*> waiters_;

  std::mutex mail_mutex_;
  std::vector<std::function<void()>> mail_;
  std::vector<std::function<void()>> mail_taken_;
  std::atomic<bool> has_mail_{false};
  int wake_descriptor_ = -1;  // eventfd
  std::atomic<bool> sleeping_{false};
  Nanoseconds idle_since_ = 0;
  std::vector<pollfd> descriptors_;  // of the current sleep
  Nanoseconds map_requested_at_ = 0;
};

}  // namespace skua
