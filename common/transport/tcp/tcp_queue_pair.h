#pragma once
// Private to transport/tcp: the client's end of one connection.
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/transport/descriptor.h"
#include "common/transport/handshake.h"
#include "common/transport/region_table.h"
#include "common/transport/tcp/wire.h"
#include "common/transport/transport.h"

namespace skua {

// Cost:    post: one sendmsg, which gathers payloads from where they lie. poll: one recv while something is
//          outstanding, and one in kIdlePolls otherwise, to notice the end of the connection. No allocation once ready.
// Threads: one owner thread.
// Errors:  kPeerLost: closed, broken, or silent for response_timeout under a request.
class TcpQueuePair final : public QueuePair {
 public:
  struct SocketAddress {
    sockaddr_storage bytes;
    socklen_t size;
  };
  struct Options {
    DataHello hello;
    std::string address;
    std::vector<SocketAddress> candidates;  // tried in order
    Nanoseconds response_timeout;
  };
  TcpQueuePair(Options options, const Clock& clock);
  ~TcpQueuePair() override { close(); }

  // Starts connecting. Error: kResourceExhausted.
  Result<void> dial();

  QueuePairState state() const override { return state_; }
  const Status& error() const override { return error_; }
  size_t post(std::span<const WorkRequest> requests) override;
  size_t poll(std::span<Completion> completions) override;
  int wait_descriptor() const override { return events_.get(); }
  const Capabilities& capabilities() const override { return capabilities_; }
  void close() override;

 private:
  static constexpr size_t kInputBytes = 64 << 10;
  static constexpr size_t kDirectBytes = 8 << 10;  // payload still to come from which on it is received in place
  static constexpr size_t kMaxSegments = 256;      // of one sendmsg
  static constexpr unsigned kIdlePolls = 64;

  struct Entry {
    WorkRequest request;
    CompletionStatus verdict = CompletionStatus::kSuccess;  // other: refused here, not sent
  };
  enum class Phase { kDialing, kWelcome, kOpen };

  // Set-up, tcp_connect.cc.
  void advance_handshake();
  Result<bool> finish_dial();
  Result<void> start_dial();
  Result<bool> receive_welcome();
  void watch(bool writable);
  void fail_with(Status status);

  // Data path, tcp_datapath.cc.
  void send_posted();
  size_t gather(std::span<iovec> segments) const;
  void advance_sent(size_t bytes);
  uint64_t send_end() const { return refused_at_ < tail_ ? refused_at_ : tail_; }
  size_t take_responses(std::span<Completion> completions);
  bool take_header();
  bool take_payload();
  void scatter(const std::byte* from, size_t bytes);
  bool wants_receive();
  bool receive();
  void check_timeout();
  void break_off(CompletionStatus status, const std::string& why);
  size_t flush(std::span<Completion> completions);
  Entry& entry(uint64_t index) { return (*ring_)[index % kQueueDepth]; }
  const Entry& entry(uint64_t index) const { return (*ring_)[index % kQueueDepth]; }

  const Options options_;
  const Clock& clock_;
  Capabilities capabilities_;

  // Owner thread.
  QueuePairState state_ = QueuePairState::kConnecting;
  Phase phase_ = Phase::kDialing;
  Status error_{StatusCode::kInternal, "no error"};
  Descriptor socket_;
  Descriptor events_;       // epoll over the socket: readable when there is something to do
  bool watch_writable_ = false;
  size_t candidate_ = 0;
  Nanoseconds deadline_ = 0;  // of connecting
  std::string received_;      // of the handshake

  std::unique_ptr<std::array<Entry, kQueueDepth>> ring_;
  std::unique_ptr<std::array<WireRequest, kQueueDepth>> headers_;  // as they go out; neighbours go as one segment
  uint64_t head_ = 0;        // next to be answered
  uint64_t sent_ = 0;        // first not sent as a whole
  uint64_t sent_bytes_ = 0;  // of that one, header and payload
  uint64_t tail_ = 0;        // next free
  uint64_t refused_at_ = UINT64_MAX;  // first request that was refused here; nothing from it on is sent
  bool send_broken_ = false;          // what the server answered may still be read
  CompletionStatus break_status_ = CompletionStatus::kPeerLost;
  bool failed_reported_ = false;

  std::unique_ptr<std::byte[]> input_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  bool in_payload_ = false;     // of the request at head_
  uint64_t payload_done_ = 0;
  Nanoseconds last_progress_ = 0;
  unsigned idle_polls_ = 0;
};

}  // namespace skua
