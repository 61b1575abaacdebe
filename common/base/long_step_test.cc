#include "common/base/long_step.h"

#include <gtest/gtest.h>

#include <thread>

namespace skua {
namespace {

TEST(LongStep, CountsForWhoWatchesThisThread) {
  std::atomic<uint64_t> first{0};
  std::atomic<uint64_t> second{0};
  LongStep::goes_on();  // nobody watches
  LongStep::watch(first);
  LongStep::goes_on();
  std::thread([] { LongStep::goes_on(); }).join();
  LongStep::watch(second);
  LongStep::forget(first);  // is not watched any more
  LongStep::goes_on();
  LongStep::forget(second);
  LongStep::goes_on();
  EXPECT_EQ(first.load(), 1u);
  EXPECT_EQ(second.load(), 1u);
}

}  // namespace
}  // namespace skua
