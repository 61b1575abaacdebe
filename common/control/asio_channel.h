#pragma once
// Channels over TCP, and the executor that runs them.
#include <cstddef>
#include <memory>
#include <string>

#include "common/base/executor.h"
#include "common/base/net_address.h"
#include "common/base/status.h"
#include "common/control/channel.h"

namespace skua {

namespace internal {
class AsioCore;
}

// AsioExecutor runs functions, timers and sockets on one thread of its own.
// Threads: start and stop from one owner thread; post from any; after and cancel from its own thread.
// Errors:  none. What is posted before start runs after it; what is posted after stop is dropped.
// Channels, listeners and dialers made on it may outlive it: they are then dead.
class AsioExecutor final : public Executor {
 public:
  explicit AsioExecutor(const Clock& clock);
  ~AsioExecutor() override;  // stops
  AsioExecutor(const AsioExecutor&) = delete;
  AsioExecutor& operator=(const AsioExecutor&) = delete;

  void start();
  // Ends the thread, closes every socket, and destroys all that was posted and not run. Calls no one back. Requires:
  // not on its own thread. Once; it cannot be started again.
  void stop();

  void post(std::function<void()> function) override;
  TimerId after(Nanoseconds delay, std::function<void()> function) override;
  void cancel(TimerId timer) override;
  const Clock& clock() const override { return clock_; }
  bool on_its_thread() const;

  const std::shared_ptr<internal::AsioCore>& core() const { return core_; }

 private:
  const Clock& clock_;
  std::shared_ptr<internal::AsioCore> core_;
};

// Tries every address that a name has, in turn. The executor outlives it.
std::unique_ptr<Dialer> make_asio_dialer(AsioExecutor& executor);

struct ListenOptions {
  std::string name = "control listener";       // in errors and logs
  std::string flag = "--listen";               // the setting that an error tells to change
  size_t max_connections = 10'000;             // more are closed at once
  Nanoseconds first_frame_timeout = 5 * kSecond;  // a connection without a whole frame by then is closed
  size_t max_first_frame_bytes = size_t{64} << 10;  // before anything is known about the peer
  size_t max_queued_bytes = size_t{64} << 20;  // sent and not taken by the peer; beyond it the connection is closed
};

// Binds, listens and accepts (SO_REUSEADDR; port 0 takes a free one). Destroying the listener ends it; its channels go
// on. Threads: any; `accept` runs on the executor.
// Error: kConfiguration when the port is taken or not allowed or the address is not this host's, kResourceExhausted
// when descriptors ran out; with the listener's name, the address, errno and a remedy.
Result<std::unique_ptr<Listener>> listen_asio(AsioExecutor& executor, const NetAddress& address, ListenOptions options,
                                              AcceptFunction accept);

}  // namespace skua
