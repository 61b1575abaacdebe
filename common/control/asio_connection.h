#pragma once
// One TCP connection of the control plane.
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/control/asio_core.h"
#include "common/control/channel.h"
#include "common/control/frame.h"

namespace skua::internal {

inline constexpr std::string_view kClosedByPeer = "closed by the peer";  // the end of an orderly one

struct ConnectionLimits {
  size_t max_queued_bytes = size_t{64} << 20;
  size_t max_first_frame_bytes = kMaxFrameBytes;
  Nanoseconds first_frame_timeout = 0;  // 0: none
};

// AsioConnection reads frames off a socket and writes them to it.
// Close:   what was sent before close() still goes out, for up to kFlushTimeout; what arrives then is thrown away.
// Threads: the executor's, but for the destructor.
class AsioConnection final : public AsioOperation, public std::enable_shared_from_this<AsioConnection> {
 public:
  static constexpr Nanoseconds kFlushTimeout = kSecond;

  AsioConnection(AsioCore& core, boost::asio::ip::tcp::socket socket, const ConnectionLimits& limits);
  ~AsioConnection() override;

  // Begins to read, unless the channel was closed before. Once. `ended` runs when the socket is closed for good.
  void start(ChannelEvents events, std::function<void()> ended);
  void send(const control::Envelope& envelope);
  void close();
  const std::string& peer() const { return peer_; }
  void abandon() override;

 private:
  enum class State : uint8_t { kOpen, kClosing, kClosed };

  void read();
  void on_read(const boost::system::error_code& error, size_t bytes);
  void dispatch();
  void write();
  void on_written(const boost::system::error_code& error);
  void break_off(Status reason);  // tells on_closed, from the executor and not from within send
  void finish();
  void close_socket();
  void arm(Nanoseconds delay, void (AsioConnection::*expired)());
  void first_frame_missing();

  AsioCore& core_;
  const ConnectionLimits limits_;
  boost::asio::ip::tcp::socket socket_;  // closed, never destroyed, while operations on it are under way
  std::optional<boost::asio::steady_timer> timer_;  // first frame, later the flush
  std::string peer_;
  State state_ = State::kOpen;
  std::shared_ptr<ChannelEvents> events_;
  std::function<void()> ended_;
  FrameDecoder decoder_;
  bool first_frame_seen_ = false;
  std::string queued_;
  std::string in_flight_;
  std::array<char, size_t{16} << 10> input_;
};

// What users hold; the last copy closes the connection, from whichever thread.
class AsioChannel final : public Channel {
 public:
  AsioChannel(std::shared_ptr<AsioCore> core, std::shared_ptr<AsioConnection> connection)
      : core_(std::move(core)), connection_(std::move(connection)) {}
  ~AsioChannel() override {
    core_->run_or_post([connection = std::move(connection_)] { connection->close(); });
  }
  void send(const control::Envelope& envelope) override { connection_->send(envelope); }
  void close() override { connection_->close(); }
  std::string peer() const override { return connection_->peer(); }

 private:
  std::shared_ptr<AsioCore> core_;
  std::shared_ptr<AsioConnection> connection_;
};

std::string endpoint_text(const boost::asio::ip::tcp::endpoint& endpoint);

}  // namespace skua::internal
