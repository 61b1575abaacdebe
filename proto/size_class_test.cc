#include "proto/size_class.h"

#include <gtest/gtest.h>

#include "proto/block.h"
#include "proto/limits.h"

namespace skua::proto {
namespace {

TEST(SizeClass, ClassesGrowByAtMostAThirdBeyondFourUnits) {
  for (size_t c = 1; c < kSizeClasses; ++c) {
    EXPECT_GT(kSizeClassUnits[c], kSizeClassUnits[c - 1]) << c;
    if (kSizeClassUnits[c - 1] >= 4) {
      EXPECT_LE(kSizeClassUnits[c] * 3, kSizeClassUnits[c - 1] * 4 + 3) << c;
    }
  }
}

TEST(SizeClass, FirstClassesAreThoseOfTheLayout) {
  const size_t bytes[] = {64, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280};
  int size_class = 0;
  for (const size_t expected : bytes) EXPECT_EQ(size_class_bytes(size_class++), expected);
}

TEST(SizeClass, EachBoundaryTakesTheClassAndOneByteMoreTheNext) {
  EXPECT_EQ(size_class_for(0), 0);
  EXPECT_EQ(size_class_for(1), 0);
  for (int c = 0; c < kSizeClasses; ++c) {
    EXPECT_EQ(size_class_for(size_class_bytes(c)), c);
    EXPECT_EQ(size_class_for(size_class_bytes(c) + 1), c + 1 < kSizeClasses ? c + 1 : -1) << c;
  }
}

TEST(SizeClass, TheLongestKeyWithTheLargestValueFits) {
  const size_t largest = block_bytes(kMaxKeyBytes, kMaxValueBytes);
  EXPECT_EQ(size_class_for(largest), kSizeClasses - 1);
  EXPECT_EQ(size_class_for(kMaxBlockBytes + 1), -1);
  EXPECT_EQ(size_class_for(SIZE_MAX), -1);
}

TEST(SizeClass, AllFitTheSixBitsOfASlotWord) { EXPECT_LE(kSizeClasses, 64); }

}  // namespace
}  // namespace skua::proto
