#include "common/base/clock.h"

#include <gtest/gtest.h>

namespace skua {
namespace {

TEST(SystemClock, NeverGoesBack) {
  const Clock& clock = system_clock();
  Nanoseconds last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const Nanoseconds now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SystemClock, WallTimeIsInMillisecondsOfThisCentury) {
  constexpr int64_t kYear2020 = 1'577'836'800'000;
  constexpr int64_t kYear2200 = 7'258'118'400'000;
  EXPECT_GT(system_clock().wall_ms(), kYear2020);
  EXPECT_LT(system_clock().wall_ms(), kYear2200);
}

}  // namespace
}  // namespace skua
