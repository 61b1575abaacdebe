#include "common/base/random.h"

#include <gtest/gtest.h>

#include <array>

namespace skua {
namespace {

TEST(Random, IsXoshiro256StarStarSeededBySplitMix64) {
  Random zero(0);
  for (const uint64_t expected : {0x99ec5f36cb75f2b4u, 0xbf6e1f784956452au, 0x1a5f849d4933e6e0u, 0x6aa594f1262d2d2cu}) {
    EXPECT_EQ(zero.next(), expected);
  }
  Random other(1234567);
  for (const uint64_t expected : {0x30a3a1c363600467u, 0x19405f0f579929cau, 0x115beaac046ddbd9u, 0xeb17caf48f27d7f6u}) {
    EXPECT_EQ(other.next(), expected);
  }
}

TEST(Random, BelowStaysBelowAndReachesEveryValue) {
  Random random(1);
  std::array<int, 7> seen{};
  for (int i = 0; i < 7000; ++i) ++seen.at(random.below(7));
  for (const int count : seen) EXPECT_NEAR(count, 1000, 200);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(random.below(1), 0u);
    EXPECT_LT(random.below(UINT64_MAX), UINT64_MAX);
  }
}

TEST(Random, UnitIsInHalfOpenIntervalAndChanceFollowsIt) {
  Random random(2);
  double sum = 0;
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double u = random.unit();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    hits += random.chance(0.25) ? 1 : 0;
    ASSERT_FALSE(random.chance(0));
    ASSERT_TRUE(random.chance(1));
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
  EXPECT_NEAR(hits, 2500, 200);
}

TEST(SystemEntropy, DoesNotRepeat) { EXPECT_NE(system_entropy().next(), system_entropy().next()); }

}  // namespace
}  // namespace skua
