#include "common/control/asio_connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>
#include <chrono>

#include "common/base/log.h"
#include "common/base/units.h"

namespace skua::internal {

using boost::asio::ip::tcp;
using boost::system::error_code;

std::string endpoint_text(const tcp::endpoint& endpoint) {
  return NetAddress{endpoint.address().to_string(), endpoint.port()}.to_string();
}

AsioConnection::AsioConnection(AsioCore& core, tcp::socket socket, const ConnectionLimits& limits)
    : core_(core), limits_(limits), socket_(std::move(socket)), decoder_(limits.max_first_frame_bytes) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const tcp::endpoint remote = socket_.remote_endpoint(ignored);
  peer_ = ignored ? "a peer that is gone" : endpoint_text(remote);
}

AsioConnection::~AsioConnection() { core_.remove(*this); }

void AsioConnection::start(ChannelEvents events, std::function<void()> ended) {
  if (state_ == State::kClosed) {
    if (ended) ended();
    return;
  }
  core_.add(shared_from_this());
  ended_ = std::move(ended);
  if (state_ == State::kOpen) {
    events_ = std::make_shared<ChannelEvents>(std::move(events));
    if (limits_.first_frame_timeout > 0) arm(limits_.first_frame_timeout, &AsioConnection::first_frame_missing);
  }
  read();
}

void AsioConnection::arm(Nanoseconds delay, void (AsioConnection::*expired)()) {
  timer_.emplace(core_.io(), std::chrono::nanoseconds(delay));
  timer_->async_wait([self = shared_from_this(), expired](const error_code& error) {
    if (!error && self->timer_) ((*self).*expired)();
  });
}

void AsioConnection::first_frame_missing() {
  if (state_ != State::kOpen || first_frame_seen_) return;
  const std::string seen = decoder_.pending_bytes() > 0 ? "half a frame and then silence" : "not one frame";
  break_off(Status(StatusCode::kPeerLost, seen + " in " + format_duration(limits_.first_frame_timeout)));
}

void AsioConnection::read() {
  socket_.async_read_some(boost::asio::buffer(input_),
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             self->on_read(error, bytes);
                           });
}

void AsioConnection::on_read(const error_code& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (state_ == State::kClosing) {
    if (error) {
      finish();
    } else {
      read();
    }
    return;
  }
  if (error) {
    std::string why = error == boost::asio::error::eof ? std::string(kClosedByPeer) : error.message();
    if (decoder_.pending_bytes() > 0) why += " in the middle of a frame";
    break_off(Status(StatusCode::kPeerLost, std::move(why)));
    return;
  }
  decoder_.feed(std::string_view(input_.data(), bytes));
  dispatch();
  if (state_ != State::kClosed) read();
}

void AsioConnection::dispatch() {
  const std::shared_ptr<ChannelEvents> events = events_;  // lives on when the receiver closes the channel
  while (state_ == State::kOpen) {
    const auto envelope = decoder_.next();
    if (!envelope) {
      break_off(envelope.error());
      return;
    }
    if (!*envelope) return;
    if (!first_frame_seen_) {
      first_frame_seen_ = true;
      decoder_.set_max_frame_bytes(kMaxFrameBytes);
      timer_.reset();
    }
    if (events->on_envelope) events->on_envelope(**envelope);
  }
}

void AsioConnection::send(const control::Envelope& envelope) {
  if (state_ != State::kOpen) return;
  if (const auto encoded = encode_frame(envelope, queued_); !encoded) {
    break_off(encoded.error());
    return;
  }
  if (queued_.size() > limits_.max_queued_bytes) {
    break_off(Status(StatusCode::kPeerLost, "the peer leaves more than " + format_size(limits_.max_queued_bytes) +
                                                " unread"));
    return;
  }
  if (in_flight_.empty()) write();
}

void AsioConnection::write() {
  in_flight_.swap(queued_);
  boost::asio::async_write(socket_, boost::asio::buffer(in_flight_),
                           [self = shared_from_this()](const error_code& error, size_t) { self->on_written(error); });
}

void AsioConnection::on_written(const error_code& error) {
  in_flight_.clear();
  if (state_ == State::kClosed) return;
  if (error) {
    if (state_ == State::kOpen) {
      break_off(Status(StatusCode::kPeerLost, error.message()));
    } else {
      finish();
    }
    return;
  }
  if (!queued_.empty()) {
    write();
  } else if (state_ == State::kClosing) {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);  // then the peer's end of stream ends it
    if (ignored) finish();
  }
}

void AsioConnection::close() {
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  events_.reset();
  if (in_flight_.empty()) {
    finish();
  } else {
    arm(kFlushTimeout, &AsioConnection::finish);
  }
}

void AsioConnection::break_off(Status reason) {
  if (state_ != State::kOpen) return;
  const std::shared_ptr<ChannelEvents> events = std::move(events_);
  events_.reset();
  state_ = State::kClosing;
  finish();
  if (!events || !events->on_closed) return;
  core_.post([events, reason = Status(reason.code(), peer_ + ": " + reason.message())] { events->on_closed(reason); });
}

void AsioConnection::finish() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  timer_.reset();
  close_socket();
  queued_.clear();
  if (const auto ended = std::move(ended_)) ended();
}

void AsioConnection::close_socket() {
  error_code ignored;
  socket_.close(ignored);
}

void AsioConnection::abandon() {
  state_ = State::kClosed;
  timer_.reset();
  close_socket();
  const auto events = std::move(events_);
  const auto ended = std::move(ended_);
}

}  // namespace skua::internal
