#include <boost/asio/post.hpp>
#include <chrono>
#include <vector>

#include "common/base/check.h"
#include "common/control/asio_channel.h"
#include "common/control/asio_core.h"

namespace skua {
namespace internal {

AsioCore::AsioCore() : io_(1), work_(boost::asio::make_work_guard(io_)) {}

void AsioCore::start() {
  SKUA_CHECK(!thread_.joinable(), "the executor runs already");
  thread_ = std::thread([this] { io_.run(); });
}

void AsioCore::stop() {
  SKUA_CHECK(!on_its_thread(), "an executor cannot stop itself");
  io_.stop();
  if (thread_.joinable()) thread_.join();
  std::deque<std::function<void()>> queue;
  std::vector<std::shared_ptr<AsioOperation>> operations;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    queue.swap(queue_);
    for (const auto& [pointer, operation] : operations_) operations.push_back(operation.lock());
  }
  for (const auto& operation : operations) {
    if (operation) operation->abandon();
  }
  auto timers = std::move(timers_);
}

void AsioCore::post(std::function<void()> function) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    queue_.push_back(std::move(function));
    if (drain_posted_) return;
    drain_posted_ = true;
  }
  boost::asio::post(io_, [this] { drain(); });
}

void AsioCore::run_or_post(std::function<void()> function) {
  if (on_its_thread()) {
    function();
  } else {
    post(std::move(function));
  }
}

void AsioCore::drain() {
  std::deque<std::function<void()>> queue;
  {
    const std::lock_guard lock(mutex_);
    drain_posted_ = false;
    queue.swap(queue_);
  }
  for (auto& function : queue) {
    function();
    function = nullptr;
  }
}

Executor::TimerId AsioCore::after(Nanoseconds delay, std::function<void()> function) {
  const Executor::TimerId id = next_timer_++;
  auto [place, fresh] = timers_.try_emplace(id, Timer{boost::asio::steady_timer(io_), std::move(function)});
  place->second.timer.expires_after(std::chrono::nanoseconds(delay));
  place->second.timer.async_wait([this, id](const boost::system::error_code& error) {
    if (error) return;
    auto node = timers_.extract(id);
    if (!node.empty()) node.mapped().function();
  });
  return id;
}

void AsioCore::cancel(Executor::TimerId id) { const auto dropped = timers_.extract(id); }

void AsioCore::add(const std::shared_ptr<AsioOperation>& operation) {
  const std::lock_guard lock(mutex_);
  operations_.emplace(operation.get(), operation);
}

void AsioCore::remove(AsioOperation& operation) {
  const std::lock_guard lock(mutex_);
  operations_.erase(&operation);
}

}  // namespace internal

AsioExecutor::AsioExecutor(const Clock& clock) : clock_(clock), core_(std::make_shared<internal::AsioCore>()) {}
AsioExecutor::~AsioExecutor() { core_->stop(); }
void AsioExecutor::start() { core_->start(); }
void AsioExecutor::stop() { core_->stop(); }
void AsioExecutor::post(std::function<void()> function) { core_->post(std::move(function)); }
Executor::TimerId AsioExecutor::after(Nanoseconds delay, std::function<void()> function) {
  return core_->after(delay, std::move(function));
}
void AsioExecutor::cancel(TimerId timer) { core_->cancel(timer); }
bool AsioExecutor::on_its_thread() const { return core_->on_its_thread(); }

}  // namespace skua
