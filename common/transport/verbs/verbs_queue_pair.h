#pragma once
// Private to transport/verbs: the client's end of one connection.
#include <array>
#include <memory>
#include <span>
#include <string>

#include "common/transport/descriptor.h"
#include "common/transport/handshake.h"
#include "common/transport/region_table.h"
#include "common/transport/transport.h"
#include "common/transport/verbs/bounce_ring.h"
#include "common/transport/verbs/remote_regions.h"
#include "common/transport/verbs/verbs.h"
#include "common/transport/verbs/verbs_handles.h"
#include "common/transport/verbs/verbs_wire.h"

namespace skua {

class SlowConnect;

// Requests are cut into parts, a work request each: at slabs, and where the bounce ring or the device's largest message
// ends. Parts are posted in the order of the requests; the device completes them in that order.
//
//   ring_:   head_ ... next_ ... tail_      requests: posted | to be posted
//   parts_:  sent_head_ ... sent_tail_      work requests on the send queue; a completion settles all up to its own
//   calls_:  call_head_ ... call_tail_      messages whose reply is awaited
//
// Cost:    post: one ibv_post_send for what it can begin at once. poll: one ibv_poll_cq while something is
//          outstanding; one look at the connection's events in kIdlePolls otherwise. No allocation once every slab in
//          use is known.
// Threads: one owner thread.
class VerbsQueuePair final : public QueuePair {
 public:
  struct Options {
    VerbsSettings settings;
    DataHello hello;
    std::string address;
    VerbsSockAddr peer;
    std::string source;             // IP address to connect from; empty: the system's choice
    Nanoseconds response_timeout;
  };
  VerbsQueuePair(Options options, const Clock& clock);
  ~VerbsQueuePair() override { close(); }

  // Starts connecting. Error: as make_event_channel; kUnavailable.
  Result<void> dial();

  QueuePairState state() const override { return state_; }
  const Status& error() const override { return error_; }
  size_t post(std::span<const WorkRequest> requests) override;
  size_t poll(std::span<Completion> completions) override;
  int wait_descriptor() const override;
  const Capabilities& capabilities() const override { return capabilities_; }
  void close() override;

  uint32_t path_mtu() const { return path_mtu_; }  // bytes; 0 on iWARP
  ibv_qp* of_device() const { return connection_.queue_pair(); }

 private:
  static constexpr uint32_t kSendDepth = 512;
  static constexpr uint32_t kChain = 32;            // work requests of one doorbell
  static constexpr uint32_t kSegments = WorkRequest::kMaxLocal;
  static constexpr uint32_t kSignalEvery = 16;      // and one completion for so many requests at least
  static constexpr uint64_t kBounceBytes = uint64_t{1} << 20;
  static constexpr uint64_t kPartBytes = kBounceBytes / 8;
  static constexpr unsigned kIdlePolls = 64;
  static constexpr unsigned kTimeoutPolls = 16;
  static constexpr uint32_t kMostInline = 512;
  static constexpr uint64_t kReceived = uint64_t{1} << 63;  // of a work request id: a receive, and its slot

  struct Entry {
    WorkRequest request;
    CompletionStatus verdict = CompletionStatus::kSuccess;  // other: refused here, not sent
    bool answered = true;       // false: a message's reply is awaited
    uint64_t total = 0;
    uint64_t issued = 0;        // bytes whose parts are posted
    uint64_t sent_end = 0;      // complete when sent_head_ is here
  };
  struct Part {
    uint64_t entry = 0;
    uint64_t offset = 0;            // in the request
    uint32_t bytes = 0;
    bool scatter = false;           // READ or atomic: from bounce to the caller's memory
    const std::byte* bounce = nullptr;
    uint64_t bounce_end = 0;        // 0: none taken
  };
  struct Call {
    bool locate = false;
    uint64_t entry = 0;
    RegionKey key{};
    uint64_t slab = 0;
  };

  // Set-up, verbs_connect.cc.
  bool may_take_events();
  void advance_connect();
  Result<void> on_event(const VerbsEvent& event);
  Result<void> on_address();
  Result<void> on_route();
  Result<void> make_queues();
  Result<void> create_queue_pair();
  Result<void> register_memory();
  Result<void> choose_mtu();
  Result<void> accept_terms(const VerbsEvent& event);
  Result<void> establish(uint32_t path_mtu);
  Status refusal(const VerbsEvent& event) const;
  void check_connection();
  void fail_with(Status status);
  void release_device();

  // Data path, verbs_datapath.cc.
  void pump();
  void settle_unsignaled();
  bool issue(Entry& entry);
  bool issue_part(Entry& entry, const RemoteSlab& slab, uint64_t slab_offset, uint64_t most);
  bool issue_atomic(Entry& entry, const RemoteSlab& slab, uint64_t slab_offset);
  bool send_call(const VerbsCall& call, const Call& what, bool signaled);
  bool locate(const WorkRequest& request, uint64_t slab);
  bool has_send_room() const { return sent_tail_ - sent_head_ < kSendDepth; }
  ibv_send_wr& next_work_request();
  void commit(ibv_send_wr& work, const Part& part, bool signaled);
  void ring_doorbell();
  void drain();
  void on_sent(const ibv_wc& completion);
  void on_reply(const ibv_wc& completion);
  void apply_location(const Call& call, const VerbsReply& reply);
  void post_receive(uint32_t slot);
  void retire_through(uint64_t position);
  void copy_locals(const WorkRequest& request, uint64_t offset, std::byte* bounce, uint64_t bytes, bool gather);
  size_t take(std::span<Completion> completions);
  size_t flush(std::span<Completion> completions);
  void break_off(CompletionStatus status, uint64_t failed, const std::string& why);
  void check_timeout();
  void consume_wake();
  void arm() const;
  bool is_complete(const Entry& entry) const { return entry.answered && entry.sent_end <= sent_head_; }
  Entry& entry(uint64_t index) { return (*ring_)[index % kQueueDepth]; }
  Part& part(uint64_t position) { return (*parts_)[position % kSendDepth]; }

  const Options options_;
  const Clock& clock_;
  Capabilities capabilities_;

  // Owner thread.
  QueuePairState state_ = QueuePairState::kConnecting;
  Status error_{StatusCode::kInternal, "no error"};
  Nanoseconds deadline_ = 0;  // of connecting

  // Destroyed from the last to the first: the connection before what it uses.
  VerbsHandle<rdma_event_channel> events_;
  Descriptor wake_;                       // eventfd
  Descriptor wait_;                       // epoll over all that may wake
  VerbsHandle<ibv_comp_channel> completion_channel_;
  VerbsHandle<ibv_cq> completions_;
  std::unique_ptr<std::byte[]> memory_;   // bounce ring, then receive buffers
  VerbsHandle<ibv_mr> memory_region_;
  VerbsConnection connection_;
  std::shared_ptr<SlowConnect> slow_connect_;  // while it may not have returned

  uint64_t slab_bytes_ = 0;
  bool device_atomics_ = false;
  bool iwarp_ = false;
  bool removed_ = false;       // the device was, or may have been
  uint32_t max_inline_ = 0;
  uint32_t path_mtu_ = 0;      // what is offered, then what both use
  uint64_t max_message_ = 0;   // of one work request
  mutable bool armed_ = false;
  mutable bool woken_ = false;  // wake_ is set

  RemoteRegions regions_;
  BounceRing bounce_;
  std::unique_ptr<std::array<Entry, kQueueDepth>> ring_;
  uint64_t head_ = 0;          // next to complete
  uint64_t next_ = 0;          // next to post
  uint64_t tail_ = 0;          // next free
  std::unique_ptr<std::array<Part, kSendDepth>> parts_;
  uint64_t sent_head_ = 0;
  uint64_t sent_tail_ = 0;
  uint32_t unsignaled_ = 0;    // work requests since the last signaled one
  uint64_t unsignaled_bytes_ = 0;  // of the bounce ring
  std::array<Call, kCallWindow> calls_;
  uint32_t call_window_ = kCallWindow;
  uint64_t call_head_ = 0;
  uint64_t call_tail_ = 0;
  uint64_t messages_out_ = 0;  // atomics among the calls
  bool locating_ = false;
  CompletionStatus break_status_ = CompletionStatus::kPeerLost;
  uint64_t failed_ = 0;
  bool failed_reported_ = false;
  Nanoseconds last_progress_ = 0;
  unsigned idle_polls_ = 0;

  std::array<ibv_send_wr, kChain> chain_;
  std::array<std::array<ibv_sge, kSegments>, kChain> segments_;
  uint32_t chained_ = 0;
};

}  // namespace skua
