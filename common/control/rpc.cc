#include "common/control/rpc.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/units.h"

namespace skua {

std::string body_name(const control::Envelope& envelope) {
  const auto* field = control::Envelope::descriptor()->FindFieldByNumber(static_cast<int>(envelope.body_case()));
  return field != nullptr ? field->name() : "message of no known kind";
}

ControlConnection::ControlConnection(Executor& executor, std::string name)
    : executor_(executor), name_(std::move(name)) {}

ControlConnection::~ControlConnection() {
  for (const auto& [id, pending] : pending_) executor_.cancel(pending.timer);
  if (channel_) channel_->close();
}

ChannelEvents ControlConnection::events() {
  const std::weak_ptr<ControlConnection> weak = weak_from_this();
  return ChannelEvents{
      [weak](const control::Envelope& envelope) {
        if (const auto self = weak.lock()) self->receive(envelope);
      },
      [weak](const Status& reason) {
        if (const auto self = weak.lock()) self->lost(reason);
      }};
}

void ControlConnection::open(Dialer& dialer, Executor& executor, const OpenOptions& options, Opened done) {
  auto connection = std::make_shared<ControlConnection>(executor, options.address.to_string());
  ChannelEvents events = connection->events();
  dialer.dial(
      options.address, options.timeout,
      [connection, options, done = std::move(done)](Result<std::shared_ptr<Channel>> channel) {
        if (!channel) {
          done(Error(channel.error()));
          return;
        }
        connection->attach(std::move(*channel));
        connection->say_hello(options, done);
      },
      std::move(events));
}

void ControlConnection::say_hello(const OpenOptions& options, Opened done) {
  control::Envelope request;
  *request.mutable_hello() = make_hello(options.terms);
  auto answered = [weak = weak_from_this(), wanted = options.terms.cluster_id,
                   done = std::move(done)](Result<control::Envelope> reply) {
    const std::shared_ptr<ControlConnection> self = weak.lock();
    if (!self) return;
    const auto refuse = [&](const Status& status) {
      self->close();
      done(fail(status.code(), self->name_ + ": " + status.message()));
    };
    if (!reply) return refuse(reply.error());
    if (!reply->has_hello_reply()) {
      return refuse(Status(StatusCode::kCorruption, "hello answered by " + body_name(*reply)));
    }
    const auto checked = check_hello_reply(reply->hello_reply(), wanted);
    if (!checked) return refuse(checked.error());
    self->hello_reply_ = reply->hello_reply();
    done(self);
  };
  send_call(std::move(request), options.timeout, std::move(answered), shared_from_this());
}

void ControlConnection::call(control::Envelope request, Nanoseconds timeout, Reply done) {
  send_call(std::move(request), timeout, std::move(done), nullptr);
}

void ControlConnection::send_call(control::Envelope request, Nanoseconds timeout, Reply done,
                                  std::shared_ptr<void> keep_alive) {
  const uint64_t id = next_id_++;
  const std::weak_ptr<ControlConnection> weak = weak_from_this();
  if (!channel_) {
    executor_.post([done = std::move(done), text = "the control connection to " + name_ + " is closed"] {
      done(fail(StatusCode::kUnavailable, text));
    });
    return;
  }
  Pending pending;
  pending.done = std::move(done);
  pending.what = body_name(request);
  pending.timer = executor_.after(timeout, [weak, id, timeout, keep_alive = std::move(keep_alive)] {
    if (const auto self = weak.lock()) self->expire(id, timeout);
  });
  pending_.emplace(id, std::move(pending));
  request.set_id(id);
  channel_->send(request);
}

void ControlConnection::receive(const control::Envelope& envelope) {
  if (envelope.id() == 0) {
    const auto handler = push_;  // lives on when the receiver closes or replaces it
    if (handler) handler(envelope);
    return;
  }
  auto node = pending_.extract(envelope.id());
  if (node.empty()) return;  // answered after its time-out
  executor_.cancel(node.mapped().timer);
  if (envelope.has_failure()) {
    node.mapped().done(Error(status_of(envelope.failure())));
  } else {
    node.mapped().done(envelope);
  }
}

void ControlConnection::expire(uint64_t id, Nanoseconds timeout) {
  auto node = pending_.extract(id);
  if (node.empty()) return;
  node.mapped().done(fail(StatusCode::kDeadlineExceeded, name_ + " did not answer " + node.mapped().what + " within " +
                                                             format_duration(timeout)));
}

void ControlConnection::fail_all(const Status& reason) {
  std::vector<std::pair<uint64_t, Pending>> ended;
  for (auto& [id, pending] : pending_) {
    executor_.cancel(pending.timer);
    ended.emplace_back(id, std::move(pending));
  }
  pending_.clear();
  std::sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [id, pending] : ended) pending.done(Error(reason));
}

void ControlConnection::lost(const Status& reason) {
  if (!channel_) return;
  const Status told(StatusCode::kUnavailable, "the control connection to " + name_ + " ended: " + reason.message());
  channel_ = nullptr;
  const auto handler = std::move(closed_handler_);
  fail_all(told);
  if (handler) handler(told);
}

void ControlConnection::close() {
  if (!channel_) return;
  const auto channel = std::exchange(channel_, nullptr);
  channel->close();
  const auto self = shared_from_this();
  fail_all(Status(StatusCode::kUnavailable, "the control connection to " + name_ + " was closed from this side"));
}

}  // namespace skua
