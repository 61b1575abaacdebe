#include "common/base/task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>

namespace {
thread_local long allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// g++ sees a `new` expression of its own and this free, and not that both are replaced here.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace skua {
namespace {

// Gate suspends whoever awaits it until open() is called.
class Gate {
 public:
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiting) { waiting_ = waiting; }
  void await_resume() const {}
  void open() { std::exchange(waiting_, nullptr).resume(); }

 private:
  std::coroutine_handle<> waiting_;
};

// Counts its own lives.
class Tracked {
 public:
  explicit Tracked(int* alive) : alive_(alive) { ++*alive_; }
  Tracked(Tracked&& other) noexcept : alive_(other.alive_) { ++*alive_; }
  Tracked& operator=(Tracked&&) = delete;
  ~Tracked() { --*alive_; }

 private:
  int* alive_;
};

Task<int> number(int value) { co_return value; }

Task<int> sum_to(int n) {
  if (n == 0) co_return 0;
  const int rest = co_await sum_to(n - 1);
  co_return n + rest;
}

Task<int> behind(Gate& gate, int value) {
  co_await gate;
  co_return value;
}

Task<int> both(Gate& first, Gate& second) {
  const int a = co_await behind(first, 1);
  const int b = co_await behind(second, 2);
  co_return 10 * a + b;
}

Task<int> holding(Gate& gate, int* alive) {
  const Tracked tracked(alive);
  co_await gate;
  co_return 1;
}

TEST(Task, DoesNothingUntilStarted) {
  bool ran = false;
  const auto make = [](bool* flag) -> Task<int> {
    *flag = true;
    co_return 1;
  };
  Task<int> task = make(&ran);
  EXPECT_FALSE(ran);
  EXPECT_FALSE(task.done());
  task.start();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(task.done());
  EXPECT_EQ(task.take(), 1);
}

TEST(Task, NestsThousandsDeepWithoutUsingUpTheStack) {
  Task<int> task = sum_to(5'000);
  task.start();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.take(), 12'502'500);
}

TEST(Task, SuspendsAtEachGateAndGoesOnWhereItWas) {
  Gate first;
  Gate second;
  Task<int> task = both(first, second);
  task.start();
  EXPECT_FALSE(task.done());
  first.open();
  EXPECT_FALSE(task.done());
  second.open();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.take(), 12);
}

TEST(Task, CarriesValuesThatOnlyMove) {
  const auto make = [](int value) -> Task<std::unique_ptr<int>> { co_return std::make_unique<int>(value); };
  Task<std::unique_ptr<int>> task = make(7);
  task.start();
  EXPECT_EQ(*task.take(), 7);
}

TEST(Task, DestroyedWhileSuspendedDestroysItsLocals) {
  Gate gate;
  int alive = 0;
  {
    Task<int> task = holding(gate, &alive);
    task.start();
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Task, AssignmentDestroysWhatItHeldAndEmptiesTheOther) {
  Gate gate;
  int alive = 0;
  Task<int> task = holding(gate, &alive);
  task.start();
  Task<int> other = number(3);
  task = std::move(other);
  EXPECT_EQ(alive, 0);
  EXPECT_FALSE(other);
  task.start();
  EXPECT_EQ(task.take(), 3);
}

TEST(Task, DefaultOneHoldsNothing) {
  const Task<int> task;
  EXPECT_FALSE(task);
  EXPECT_FALSE(task.done());
}

TEST(TaskFrames, WarmThreadAllocatesNothing) {
  const auto round = [] {
    Gate first;
    Gate second;
    Task<int> task = both(first, second);
    task.start();
    first.open();
    second.open();
    return task.take();
  };
  EXPECT_EQ(round(), 12);
  const long before = allocations;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(round(), 12);
  EXPECT_EQ(allocations - before, 0);
}

TEST(TaskFrames, LargerThanTheListsAreNotKept) {
  void* large = internal::allocate_frame(5000);
  internal::release_frame(large, 5000);
  const long before = allocations;
  large = internal::allocate_frame(5000);
  EXPECT_EQ(allocations - before, 1);
  internal::release_frame(large, 5000);
}

TEST(TaskFrames, EachStepHasItsOwnList) {
  void* small = internal::allocate_frame(128);
  void* next = internal::allocate_frame(129);
  internal::release_frame(small, 128);
  internal::release_frame(next, 129);
  EXPECT_EQ(internal::allocate_frame(1), small);
  EXPECT_EQ(internal::allocate_frame(256), next);
  internal::release_frame(small, 1);
  internal::release_frame(next, 256);
}

TEST(TaskFrames, ThreadsKeepTheirOwn) {
  void* const kept = internal::allocate_frame(128);
  internal::release_frame(kept, 128);
  void* of_other_thread = nullptr;
  std::thread thread([&of_other_thread] {
    of_other_thread = internal::allocate_frame(128);
    internal::release_frame(of_other_thread, 128);
  });
  thread.join();
  EXPECT_NE(of_other_thread, kept);
  void* const again = internal::allocate_frame(128);
  EXPECT_EQ(again, kept);
  internal::release_frame(again, 128);
}

Task<int> sum_of_ready_tasks(int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += co_await number(1);
  co_return sum;
}

// Also in a build that is not optimised.
TEST(Task, AwaitingReadyTasksInALoopTakesNoStack) {
  Task<int> task = sum_of_ready_tasks(1'000'000);
  task.start();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.take(), 1'000'000);
}

}  // namespace
}  // namespace skua
