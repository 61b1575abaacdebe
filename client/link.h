#pragma once
// Link is a session's connection to one server: its queue pair, the partitions it may reach, and its granted blocks.
//
// Owns:    the queue pair and the block pool. Borrows its SessionCore.
// Threads: whoever holds the session's gate.
// States:  kClosed -> kOpening (control plane opens the session) -> kConnecting (queue pair) -> kReady;
//          kReady -> kBroken (queue pair in error) -> kFencing (server ends the old connection) -> kConnecting.
//          A session that the server gave up goes back to kClosed, with a new serial: whatever was read under the old
//          serial means nothing any more.
// Invariants: I8 (directory re-read after a reconnect), I9 (fence before doubt is resolved), I12.
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/block_pool.h"
#include "client/server_time.h"
#include "common/base/clock.h"
#include "common/transport/transport.h"
#include "proto/key_hash.h"
#include "proto/region_layout.h"

namespace skua {

namespace control {
class SessionFenced;
class SessionOpened;
}  // namespace control

class SessionCore;

// Requests that one operation posts together: one round trip. Lives in the operation's frame until it is done.
// Only the last request is signaled.
struct Batch {
  static constexpr size_t kMaxRequests = 8;

  Batch() {}
  union {
    WorkRequest requests[kMaxRequests];  // the first `count` are alive; add makes them so
  };
  uint32_t count = 0;
  CompletionStatus status = CompletionStatus::kSuccess;
  bool posted = false;        // taken by a link: it may take effect
  bool done = false;
  Nanoseconds deadline = 0;
  std::coroutine_handle<> waiter;
  Batch* previous = nullptr;  // in the link's list of what is outstanding
  Batch* next = nullptr;

  void clear() {
    count = 0;
    status = CompletionStatus::kSuccess;
    posted = false;
    done = false;
    waiter = {};
  }
  WorkRequest& add() { return *std::construct_at(&requests[count++]); }
  bool full() const { return count == kMaxRequests; }
};

// What a session knows of one partition.
struct PartitionState {
  uint32_t partition = 0;
  RegionKey key{};
  uint64_t bytes = 0;
  proto::DirectoryRoot root;
  std::vector<proto::TableRef> tables;
  bool loaded = false;
  bool stale = true;  // the root is read again before the next use
  bool growing = false;          // a GrowTable is under way
  uint64_t growth_answers = 0;   // GrowTables that were answered
  std::optional<Status> growth_refusal;  // of the last one
};

enum class LinkState : uint8_t { kClosed, kOpening, kConnecting, kReady, kBroken, kFencing };

class Link {
 public:
  Link(SessionCore& core, uint32_t server) : core_(core), server_(server) {}

  // --- Constant
  uint32_t server() const { return server_; }

  // --- Gate holder
  LinkState state() const { return state_; }
  bool ready() const { return state_ == LinkState::kReady; }
  uint64_t serial() const { return serial_; }      // of the session at the server; changes when it is given up
  SessionId session() const { return session_; }
  uint64_t epoch() const { return epoch_; }        // reclaim epoch last reported
  Nanoseconds retry_at() const { return retry_at_; }
  const Status& last_error() const { return last_error_; }
  // The server offers no transport that this client may use: no wait changes that.
  bool without_transport() const { return without_transport_; }
  const Capabilities& capabilities() const { return queue_pair_->capabilities(); }
  PartitionState* partition(uint32_t index) {
    return index < partitions_.size() ? partitions_[index].get() : nullptr;
  }
  // `first`, and behind it loaded partitions whose root is to be read again, as many as there is room for. Returns how
  // many.
  size_t stale_partitions(PartitionState& first, std::span<PartitionState*> out);
  BlockPool& pool() { return pool_; }
  // The server's time now, for expiry. Never goes back within a session.
  uint64_t cluster_time_ms();
  std::string transport_report() const;

  // Starts whatever brings the link towards kReady; returns at once.
  void ensure_open();
  // The queue pair is no good any more: everything outstanding fails, and the way back to kReady begins.
  void fail(Status why);
  // Takes `batch`, to be posted by the next poll, or at once when `now`. True: it is done already.
  bool submit(Batch& batch, bool now);
  // Asks for blocks where they run low.
  void request_blocks(BlockPool::Shelf& shelf);
  // The window of `hash` in `table` of this partition is full: asks the server to split it, once at a time.
  void request_growth(PartitionState& partition, proto::KeyHash hash, proto::TableRef table);
  // Posts what waits and takes completions. True when something happened.
  bool poll();
  bool busy() const { return outstanding_ != nullptr || !staged_.empty() || state_ == LinkState::kConnecting; }
  int wait_descriptor() const { return queue_pair_ ? queue_pair_->wait_descriptor() : -1; }
  // --- Operations that hold references to this server's memory
  void enter() { ++active_; }
  void leave() {
    if (--active_ == 0) left_behind_.clear();
  }
  bool has_operations() const { return active_ != 0; }
  bool report_due() const {
    return ready() && (announced_epoch_ > epoch_ || pool_.wants_report() || return_unused_);
  }
  // What was used and which epoch is left behind. Requires: ready() and no operation here.
  void make_report(control::EpochReport& report);
  std::vector<std::coroutine_handle<>>& admission() { return admission_; }
  void close();

  // --- Answers of the control plane, on the gate holder's thread
  void on_opened(Result<control::SessionOpened> opened, std::shared_ptr<const ServerTime> time);
  void on_fenced(Result<control::SessionFenced> fenced);
  void on_session_gone(const Status& why);  // expired, or the server has restarted
  void announce(uint64_t reclaim_epoch, bool return_unused);

 private:
  void start_connect();
  void connect_next();
  void became_ready();
  void fail_outstanding();
  void forget_session();
  bool take_completions();
  void finish(Batch& batch);
  void back_off(const Status& why);
  void check_deadlines();

  SessionCore& core_;
  const uint32_t server_;

  LinkState state_ = LinkState::kClosed;
  uint64_t serial_ = 0;
  SessionId session_{};
  std::string secret_;       // of the session, for the control plane
  std::string data_secret_;  // for the next data connection
  std::unique_ptr<QueuePair> queue_pair_;
  struct Endpoint {
    std::string transport;
    std::string address;
  };
  std::vector<Endpoint> endpoints_;
  std::vector<Endpoint> untried_;
  std::string transport_;
  std::string transport_notes_;
  std::vector<std::unique_ptr<PartitionState>> partitions_;  // by partition; null: not this server's
  // Of an earlier serial: operations that have not noticed yet may look at them.
  std::vector<std::unique_ptr<PartitionState>> left_behind_;
  std::vector<std::coroutine_handle<>> admission_;           // begin when the due report is made
  size_t active_ = 0;
  BlockPool pool_;
  uint64_t epoch_ = 0;
  uint64_t announced_epoch_ = 0;
  bool return_unused_ = false;
  std::shared_ptr<const ServerTime> time_ = std::make_shared<ServerTime>();
  uint64_t latest_time_ms_ = 0;  // that anyone was told
  bool without_transport_ = false;  // of this session at the server
  Status last_error_{StatusCode::kUnavailable, "not connected yet"};
  Nanoseconds retry_delay_ = 0;
  Nanoseconds retry_at_ = 0;

  std::vector<WorkRequest> staged_;  // accepted from operations, not yet by the queue pair
  Batch* outstanding_ = nullptr;     // oldest first
  Batch* newest_ = nullptr;
  uint64_t polls_ = 0;
};

}  // namespace skua
