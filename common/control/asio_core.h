#pragma once
// Inside of AsioExecutor, shared with the channels that run on it.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "common/base/executor.h"

namespace skua::internal {

// Whatever owns sockets and callbacks. `abandon` drops both without calling anyone; it comes from stop(), when the
// executor's thread is gone.
class AsioOperation {
 public:
  virtual ~AsioOperation() = default;
  virtual void abandon() = 0;
};

// AsioCore is the io_context with its thread, its queue of functions, and a register of all operations.
// Functions wait in a queue of its own and not in the io_context, so that stop() can destroy them: they may hold
// channels, and channels hold the core.
class AsioCore {
 public:
  AsioCore();

  void start();
  void stop();
  void post(std::function<void()> function);
  // Now when on the executor's thread, else as post.
  void run_or_post(std::function<void()> function);
  Executor::TimerId after(Nanoseconds delay, std::function<void()> function);
  void cancel(Executor::TimerId id);
  bool on_its_thread() { return io_.get_executor().running_in_this_thread(); }

  void add(const std::shared_ptr<AsioOperation>& operation);
  void remove(AsioOperation& operation);  // from its destructor
  boost::asio::io_context& io() { return io_; }

 private:
  struct Timer {
    boost::asio::steady_timer timer;
    std::function<void()> function;
  };
  void drain();

  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;           // guarded by mutex_
  bool drain_posted_ = false;                         // guarded by mutex_
  bool stopped_ = false;                              // guarded by mutex_
  std::unordered_map<AsioOperation*, std::weak_ptr<AsioOperation>> operations_;  // guarded by mutex_
  Executor::TimerId next_timer_ = 1;                  // executor's thread
  // Last, so that handlers which die with it still find the register.
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::unordered_map<Executor::TimerId, Timer> timers_;  // executor's thread
  std::thread thread_;
};

}  // namespace skua::internal
