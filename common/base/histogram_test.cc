#include "common/base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "common/base/random.h"

namespace skua {
namespace {

std::vector<uint64_t> latency_like_values(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<uint64_t> values;
  for (size_t i = 0; i < count; ++i) {
    const double spread = std::exp(random.unit() * 18.0);
    values.push_back(static_cast<uint64_t>(spread));
  }
  return values;
}

uint64_t exact_percentile(std::vector<uint64_t> values, double percentile) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percentile / 100.0 * static_cast<double>(values.size()) * (1.0 - 1e-12));
  return values[std::max<size_t>(1, static_cast<size_t>(rank)) - 1];
}

TEST(Histogram, EmptyHasNoValues) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0.0);
  EXPECT_EQ(histogram.value_at_percentile(99), 0u);
}

TEST(Histogram, PercentilesAgreeWithSortingToThreeDigits) {
  const auto values = latency_like_values(7, 50'000);
  Histogram histogram;
  for (const uint64_t value : values) histogram.record(value);

  for (const double percentile : {0.0, 1.0, 25.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0}) {
    const uint64_t exact = exact_percentile(values, percentile);
    const uint64_t measured = histogram.value_at_percentile(percentile);
    EXPECT_GE(measured, exact) << percentile;
    EXPECT_LE(static_cast<double>(measured), static_cast<double>(exact) * 1.001) << percentile;
  }
}

TEST(Histogram, MeanVarianceMinAndMaxAreExact) {
  Histogram histogram;
  for (const uint64_t value : {2u, 4u, 4u, 4u, 5u, 5u, 7u, 9u}) histogram.record(value);
  EXPECT_DOUBLE_EQ(histogram.mean(), 5.0);
  EXPECT_DOUBLE_EQ(histogram.variance(), 4.0);
  EXPECT_EQ(histogram.min(), 2u);
  EXPECT_EQ(histogram.max(), 9u);
}

TEST(Histogram, BucketsOfEveryPowerOfTwoHoldTheirBounds) {
  for (unsigned bit = 0; bit < 42; ++bit) {
    for (const int64_t offset : {-1, 0, 1}) {
      const uint64_t value = (uint64_t{1} << bit) + static_cast<uint64_t>(offset);
      if (value > Histogram::kMaxValue) continue;
      Histogram histogram;
      histogram.record(value);
      size_t buckets = 0;
      histogram.for_each([&](const Histogram::Bucket& bucket) {
        ++buckets;
        EXPECT_LE(bucket.lowest, value);
        EXPECT_GE(bucket.highest, value);
        EXPECT_LE(bucket.highest - bucket.lowest, value / 1000);
        EXPECT_EQ(bucket.count, 1u);
      });
      EXPECT_EQ(buckets, 1u) << value;
    }
  }
}

TEST(Histogram, ValuesAboveTheLimitCountAsTheLimit) {
  Histogram histogram;
  histogram.record(UINT64_MAX);
  EXPECT_EQ(histogram.max(), Histogram::kMaxValue);
  EXPECT_EQ(histogram.value_at_percentile(50), Histogram::kMaxValue);
}

TEST(Histogram, MergeEqualsRecordingEverythingInOne) {
  const auto values = latency_like_values(11, 10'000);
  Histogram all, even, odd;
  for (size_t i = 0; i < values.size(); ++i) {
    all.record(values[i]);
    (i % 2 == 0 ? even : odd).record(values[i]);
  }
  even.merge(odd);
  EXPECT_EQ(even.count(), all.count());
  EXPECT_EQ(even.min(), all.min());
  EXPECT_EQ(even.max(), all.max());
  EXPECT_DOUBLE_EQ(even.mean(), all.mean());
  for (const double percentile : {10.0, 50.0, 99.0, 99.99}) {
    EXPECT_EQ(even.value_at_percentile(percentile), all.value_at_percentile(percentile));
  }
}

TEST(Histogram, SinceHoldsOnlyWhatCameLater) {
  Histogram histogram;
  for (uint64_t value = 1; value <= 100; ++value) histogram.record(value);
  const Histogram earlier = histogram;
  for (uint64_t value = 1001; value <= 1100; ++value) histogram.record(value);

  const Histogram interval = histogram.since(earlier);
  EXPECT_EQ(interval.count(), 100u);
  EXPECT_EQ(interval.min(), 1001u);
  EXPECT_EQ(interval.max(), 1100u);
  EXPECT_DOUBLE_EQ(interval.mean(), 1050.5);
  EXPECT_EQ(interval.value_at_percentile(50), 1050u);
  EXPECT_EQ(histogram.since(histogram).count(), 0u);
}

TEST(Histogram, SnapshotsTakenWhileAThreadRecordsNeverShrinkAndEndComplete) {
  constexpr uint64_t kRecords = 200'000;
  Histogram histogram;
  std::atomic<bool> started = false;
  std::thread writer([&] {
    Random random(3);
    started = true;
    started.notify_all();
    for (uint64_t i = 0; i < kRecords; ++i) histogram.record(random.below(100'000));
  });
  started.wait(false);
  uint64_t previous = 0;
  for (int round = 0; round < 20; ++round) {
    const Histogram snapshot = histogram;
    EXPECT_GE(snapshot.count(), previous);
    EXPECT_LE(snapshot.count(), kRecords);
    previous = snapshot.count();
  }
  writer.join();
  EXPECT_EQ(Histogram(histogram).count(), kRecords);
}

}  // namespace
}  // namespace skua
