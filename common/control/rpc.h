#pragma once
// Requests and replies on a channel, for whoever dialled it.
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "common/base/executor.h"
#include "common/base/net_address.h"
#include "common/base/status.h"
#include "common/control/channel.h"
#include "common/control/hello.h"
#include "proto/control.pb.h"

namespace skua {

// ControlConnection pairs requests with replies on one channel that has said hello.
// Owns:    the channel. Borrows Dialer and Executor, which outlive it.
// Threads: the executor's.
// Errors of call: what the server answered as Failure; kDeadlineExceeded; kUnavailable when the connection is or gets
//          closed (every call then ends, in the order made, and on_closed comes last).
// The destructor closes it and calls nobody.
class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  using Reply = std::function<void(Result<control::Envelope>)>;
  using Opened = std::function<void(Result<std::shared_ptr<ControlConnection>>)>;

  struct OpenOptions {
    NetAddress address;
    Nanoseconds timeout = 5 * kSecond;  // for reaching it, and again for its hello
    HelloTerms terms;
  };
  // Error: the dialler's, check_hello_reply's, or the server's refusal; all name the address.
  static void open(Dialer& dialer, Executor& executor, const OpenOptions& options, Opened done);

  ControlConnection(Executor& executor, std::string name);
  ~ControlConnection();
  ControlConnection(const ControlConnection&) = delete;
  ControlConnection& operator=(const ControlConnection&) = delete;

  // Sends `request` under an id of its own. `done` runs once, never from within call. It is kept by the connection: it
  // should hold the connection's owner weakly.
  void call(control::Envelope request, Nanoseconds timeout, Reply done);
  void on_push(std::function<void(const control::Envelope&)> handler) { push_ = std::move(handler); }
  void on_closed(std::function<void(const Status&)> handler) { closed_handler_ = std::move(handler); }
  // Ends it from this side; pending calls end with kUnavailable, on_closed is not called.
  void close();
  bool is_open() const { return channel_ != nullptr; }

  const control::HelloReply& hello_reply() const { return hello_reply_; }
  const std::string& name() const { return name_; }  // the address dialled, for messages

 private:
  struct Pending {
    Reply done;
    Executor::TimerId timer = 0;
    std::string what;
  };
  ChannelEvents events();
  void attach(std::shared_ptr<Channel> channel) { channel_ = std::move(channel); }
  // `keep_alive` is held by the call's timer, which the executor owns.
  void send_call(control::Envelope request, Nanoseconds timeout, Reply done, std::shared_ptr<void> keep_alive);
  void say_hello(const OpenOptions& options, Opened done);
  void receive(const control::Envelope& envelope);
  void lost(const Status& reason);
  void fail_all(const Status& reason);
  void expire(uint64_t id, Nanoseconds timeout);

  Executor& executor_;
  const std::string name_;
  std::shared_ptr<Channel> channel_;  // null: closed
  control::HelloReply hello_reply_;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Pending> pending_;
  std::function<void(const control::Envelope&)> push_;
  std::function<void(const Status&)> closed_handler_;
};

// The name of a message's body for texts: "open_session".
std::string body_name(const control::Envelope& envelope);

}  // namespace skua
