#pragma once
// Control-plane connections as the logic of client and server sees them: whole envelopes, in order, until closed.
// asio_channel.h carries them over TCP; the simulator carries them itself.
#include <functional>
#include <memory>
#include <string>

#include "common/base/executor.h"
#include "common/base/net_address.h"
#include "common/base/status.h"
#include "proto/control.pb.h"

namespace skua {

// Channel is one connection. Threads: its executor's only. send on a closed channel does nothing.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual void send(const control::Envelope& envelope) = 0;
  virtual void close() = 0;              // on_closed is not called for it
  virtual std::string peer() const = 0;  // for messages: "10.0.0.7:41220"
};

struct ChannelEvents {
  std::function<void(const control::Envelope&)> on_envelope;
  // The peer closed it, it broke, or a frame was refused; nothing comes after it.
  std::function<void(const Status&)> on_closed;
};

// Dials out. Threads: the executor's.
class Dialer {
 public:
  virtual ~Dialer() = default;
  // `done` gets an open channel or the reason (kUnavailable with address and errno; kConfiguration for a name that
  // does not resolve). Events come only after `done`.
  virtual void dial(const NetAddress& address, Nanoseconds timeout,
                    std::function<void(Result<std::shared_ptr<Channel>>)> done, ChannelEvents events) = 0;
};

// Accepts. `accept` returns the events of the new channel.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual NetAddress address() const = 0;  // with the real port
};
using AcceptFunction = std::function<ChannelEvents(std::shared_ptr<Channel>)>;

}  // namespace skua
