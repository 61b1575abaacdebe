#pragma once
// For tests: an executor in virtual time, and channels that lead nowhere but to the test.
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/executor.h"
#include "common/control/channel.h"

namespace skua::testing {

// Time stands still until advance.
class ManualExecutor final : public Executor, private Clock {
 public:
  ManualExecutor() = default;
  ~ManualExecutor() override {
    // What dies with a timer or a function may cancel others.
    const auto timers = std::exchange(timers_, {});
    const auto queue = std::exchange(queue_, {});
  }
  void post(std::function<void()> function) override { queue_.push_back(std::move(function)); }
  TimerId after(Nanoseconds delay, std::function<void()> function) override {
    const TimerId id = next_timer_++;
    timers_.emplace(std::pair(now_ + delay, id), std::move(function));
    return id;
  }
  void cancel(TimerId timer) override {
    std::erase_if(timers_, [timer](const auto& entry) { return entry.first.second == timer; });
  }
  const Clock& clock() const override { return *this; }

  // Runs what is posted, and what that posts.
  void run() {
    while (!queue_.empty()) {
      const auto function = std::move(queue_.front());
      queue_.pop_front();
      function();
    }
  }
  void advance(Nanoseconds by) {
    const Nanoseconds end = now_ + by;
    for (run(); !timers_.empty() && timers_.begin()->first.first <= end; run()) {
      now_ = std::max(now_, timers_.begin()->first.first);
      const auto node = timers_.extract(timers_.begin());
      node.mapped()();
    }
    now_ = end;
  }
  size_t timers() const { return timers_.size(); }

 private:
  Nanoseconds now() const override { return now_; }
  int64_t wall_ms() const override { return 1'700'000'000'000 + now_ / kMillisecond; }

  Nanoseconds now_ = kSecond;
  TimerId next_timer_ = 1;
  std::deque<std::function<void()>> queue_;
  std::map<std::pair<Nanoseconds, TimerId>, std::function<void()>> timers_;
};

// Keeps what the code under test sends; the test plays the peer through `events`.
class FakeChannel final : public Channel {
 public:
  void send(const control::Envelope& envelope) override {
    if (!closed) sent.push_back(envelope);
  }
  void close() override { closed = true; }
  std::string peer() const override { return "fake:1"; }

  void receive(const control::Envelope& envelope) const {
    if (!closed) events.on_envelope(envelope);
  }
  void break_off(const std::string& why) {
    if (std::exchange(closed, true)) return;
    events.on_closed(Status(StatusCode::kPeerLost, why));
  }
  // The oldest message not looked at yet.
  control::Envelope take() {
    control::Envelope first = sent.empty() ? control::Envelope() : sent.front();
    if (!sent.empty()) sent.erase(sent.begin());
    return first;
  }

  ChannelEvents events;
  std::vector<control::Envelope> sent;
  bool closed = false;
};

// Answers a dial with the channel or the failure that the test put there.
class FakeDialer final : public Dialer {
 public:
  void dial(const NetAddress& address, Nanoseconds, std::function<void(Result<std::shared_ptr<Channel>>)> done,
            ChannelEvents events) override {
    dialled.push_back(address);
    if (failure) {
      done(Error(*failure));
      return;
    }
    channels.push_back(std::make_shared<FakeChannel>());
    channels.back()->events = std::move(events);
    done(channels.back());
  }

  std::optional<Status> failure;
  std::vector<NetAddress> dialled;
  std::vector<std::shared_ptr<FakeChannel>> channels;
};

}  // namespace skua::testing
