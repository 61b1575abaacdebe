#pragma once
// Task<T> is a lazily started coroutine that returns a T to whoever awaits it.
//
// Frames come from a free list of the thread that runs them, so that a warmed-up session allocates nothing.
// Threads: a task is created, resumed and destroyed on one thread.
// g++ 12 destroys an aggregate temporary inside a co_await expression twice: build arguments in named locals, then
// `co_await f(std::move(x))`, and give argument structs constructors.
#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <utility>

namespace skua {

namespace internal {
// Frames of up to 4 KiB in steps of 128 B, kept for reuse until their thread ends; larger ones are not kept.
void* allocate_frame(std::size_t bytes);
void release_frame(void* frame, std::size_t bytes) noexcept;
}  // namespace internal

template <class T>
class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::optional<T> value;
    std::coroutine_handle<> continuation = std::noop_coroutine();

    static void* operator new(std::size_t bytes) { return internal::allocate_frame(bytes); }
    static void operator delete(void* frame, std::size_t bytes) noexcept { internal::release_frame(frame, bytes); }

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct FinalAwaiter {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        return self.promise().continuation;
      }
      void await_resume() noexcept {}
    };
    FinalAwaiter final_suspend() noexcept { return {}; }
    template <class U>
    void return_value(U&& result) { value.emplace(std::forward<U>(result)); }
    [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
  };

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() { reset(); }

  // Awaiting starts the task; its awaiter goes on when it has returned. A task that returns without having suspended is
  // called like a function: handing over to it and back would, where the compiler makes no tail calls, take some stack
  // each time that a loop awaits one.
  struct Awaiter {
    std::coroutine_handle<promise_type> handle;
    bool await_ready() noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> awaiting) noexcept {
      handle.resume();
      if (handle.done()) return false;
      handle.promise().continuation = awaiting;
      return true;
    }
    T await_resume() { return std::move(*handle.promise().value); }
  };
  Awaiter operator co_await() && noexcept { return Awaiter{handle_}; }

  // For whoever drives tasks from outside a coroutine: start runs to the first suspension.
  void start() { handle_.resume(); }
  bool done() const { return handle_ && handle_.done(); }
  // Requires: done(). Once.
  T take() { return std::move(*handle_.promise().value); }
  explicit operator bool() const { return static_cast<bool>(handle_); }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  void reset() {
    if (handle_) std::exchange(handle_, {}).destroy();
  }
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace skua
