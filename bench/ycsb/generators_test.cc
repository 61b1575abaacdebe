#include "bench/ycsb/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <thread>

namespace skua::ycsb {
namespace {

constexpr uint64_t kDraws = 400'000;

TEST(FnvHash64, GivesTheKeysThatYcsbIsKnownFor) {
  EXPECT_EQ(java_abs(fnv_hash64(0)), 6284781860667377211u);
  EXPECT_EQ(java_abs(fnv_hash64(1)), 8517097267634966620u);
}

TEST(FnvHash64, IsFnv1aOfTheBytesLowestFirst) {
  // FNV-1a of eight zero bytes and of 01 00 00 00 00 00 00 00, from the definition.
  const auto reference = [](std::array<uint8_t, 8> bytes) {
    uint64_t hash = 14695981039346656037u;
    for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
    return hash;
  };
  EXPECT_EQ(fnv_hash64(0), reference({}));
  EXPECT_EQ(fnv_hash64(0x0102), reference({2, 1}));
  EXPECT_EQ(fnv_hash64(UINT64_MAX), reference({255, 255, 255, 255, 255, 255, 255, 255}));
}

TEST(JavaAbs, IsTheMagnitudeAndLeavesTheSmallestLong) {
  EXPECT_EQ(java_abs(5), 5u);
  EXPECT_EQ(java_abs(static_cast<uint64_t>(int64_t{-5})), 5u);
  EXPECT_EQ(java_abs(0), 0u);
  EXPECT_EQ(java_abs(uint64_t{1} << 63), uint64_t{1} << 63);
}

TEST(ZipfianGenerator, FrequenciesFollowTheLaw) {
  constexpr uint64_t kItems = 1000;
  ZipfianGenerator generator({100, 100 + kItems - 1});
  Random random(1);
  std::vector<double> share(kItems);
  for (uint64_t i = 0; i < kDraws; ++i) {
    const uint64_t value = generator.next(random);
    ASSERT_GE(value, 100u);
    ASSERT_LT(value, 100 + kItems);
    share[value - 100] += 1.0 / kDraws;
  }
  const double zeta = ZipfianGenerator::zeta(kItems, 0.99);
  EXPECT_NEAR(share[0], 1.0 / zeta, 0.003);
  EXPECT_NEAR(share[1], 1.0 / std::pow(2.0, 0.99) / zeta, 0.003);
  for (const uint64_t ranks : {10u, 100u, 500u}) {
    double measured = 0;
    for (uint64_t i = 0; i < ranks; ++i) measured += share[i];
    EXPECT_NEAR(measured, ZipfianGenerator::zeta(ranks, 0.99) / zeta, 0.03) << ranks;
  }
}

TEST(ZipfianGenerator, GrowingEqualsStartingWithMore) {
  ZipfianGenerator grown({0, 99});
  grown.grow(500);
  ZipfianGenerator fresh({0, 499});
  Random a(2), b(2);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(grown.next(a), fresh.next(b));
}

TEST(ZipfianGenerator, OneOrTwoItemsStayInRange) {
  Random random(3);
  ZipfianGenerator one({7, 7}), two({7, 8});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(one.next(random), 7u);
    EXPECT_LE(two.next(random), 8u);
  }
}

TEST(ScrambledZipfianGenerator, ScattersTheFrequentOnesOverTheInterval) {
  constexpr uint64_t kItems = 1000;
  ScrambledZipfianGenerator generator({5000, 5000 + kItems - 1});
  Random random(4);
  std::map<uint64_t, uint64_t> counts;
  double mean = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const uint64_t value = generator.next(random);
    ASSERT_GE(value, 5000u);
    ASSERT_LT(value, 5000 + kItems);
    ++counts[value];
    mean += static_cast<double>(value - 5000) / static_cast<double>(kDraws);
  }
  EXPECT_GT(counts.size(), 900u);
  const uint64_t most_frequent = 5000 + java_abs(fnv_hash64(0)) % kItems;
  const double expected = 1.0 / 26.46902820178302;
  EXPECT_NEAR(static_cast<double>(counts[most_frequent]) / kDraws, expected, 0.005);
  EXPECT_NEAR(mean, 500.0, 100.0);
}

TEST(ScrambledZipfianGenerator, WhichKeysAreFrequentDependsOnTheSeedOnlyInOrder) {
  ScrambledZipfianGenerator a({0, 99}), b({0, 99});
  Random first(5), same(5);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(a.next(first), b.next(same));
}

TEST(SkewedLatestGenerator, PrefersTheNewestAndFollowsInserts) {
  AcknowledgedCounter keys(1000);
  SkewedLatestGenerator generator(keys, ZipfianGenerator({0, 999}));
  Random random(6);
  std::map<uint64_t, uint64_t> counts;
  for (uint64_t i = 0; i < 100'000; ++i) ++counts[generator.next(random)];
  EXPECT_EQ(counts.rbegin()->first, 999u);
  EXPECT_NEAR(static_cast<double>(counts[999]) / 100'000, 1.0 / ZipfianGenerator::zeta(1000, 0.99), 0.01);
  EXPECT_GT(counts[999], counts[900] * 20);

  for (int i = 0; i < 10; ++i) keys.acknowledge(keys.next());
  counts.clear();
  for (uint64_t i = 0; i < 10'000; ++i) ++counts[generator.next(random)];
  EXPECT_EQ(counts.rbegin()->first, 1009u);
}

TEST(HotspotGenerator, HotPartGetsItsShare) {
  HotspotGenerator generator({100, 1099}, {.of_data = 0.1, .of_draws = 0.7});
  Random random(7);
  uint64_t hot = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const uint64_t value = generator.next(random);
    ASSERT_GE(value, 100u);
    ASSERT_LE(value, 1099u);
    if (value < 200) ++hot;
  }
  EXPECT_NEAR(static_cast<double>(hot) / kDraws, 0.7, 0.005);
}

TEST(HotspotGenerator, EmptyOrWholeHotPartDrawsFromTheInterval) {
  Random random(8);
  HotspotGenerator none({0, 9}, {.of_data = 0.0, .of_draws = 0.8}), all({0, 9}, {.of_data = 1.0, .of_draws = 0.1});
  std::set<uint64_t> seen_none, seen_all;
  for (int i = 0; i < 1000; ++i) {
    seen_none.insert(none.next(random));
    seen_all.insert(all.next(random));
  }
  EXPECT_EQ(seen_none.size(), 10u);
  EXPECT_EQ(seen_all.size(), 10u);
  EXPECT_EQ(*seen_all.rbegin(), 9u);
}

TEST(ExponentialGenerator, PercentileLiesWithinTheRangeFromTheNewest) {
  AcknowledgedCounter keys(100'000);
  ExponentialGenerator generator(keys, {.percentile = 90, .range = 1000});
  Random random(9);
  uint64_t within = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const uint64_t key = generator.next(random);
    ASSERT_LT(key, 100'000u);
    if (99'999 - key < 1000) ++within;
  }
  EXPECT_NEAR(static_cast<double>(within) / kDraws, 0.9, 0.005);
}

TEST(ExponentialGenerator, DrawsAgainBelowTheFirstKey) {
  AcknowledgedCounter keys(10);
  ExponentialGenerator generator(keys, {.percentile = 50, .range = 100});
  Random random(10);
  for (int i = 0; i < 10'000; ++i) ASSERT_LT(generator.next(random), 10u);
}

TEST(SequentialGenerator, WrapsAndIsShared) {
  SharedSequence sequence({3, 5});
  SequentialGenerator one(sequence), other(sequence);
  Random random(11);
  EXPECT_EQ(one.next(random), 3u);
  EXPECT_EQ(other.next(random), 4u);
  EXPECT_EQ(one.next(random), 5u);
  EXPECT_EQ(other.next(random), 3u);
}

TEST(AcknowledgedCounter, EndStopsAtTheFirstThatIsMissing) {
  AcknowledgedCounter counter(10);
  EXPECT_EQ(counter.end(), 10u);
  const uint64_t first = counter.next(), second = counter.next(), third = counter.next();
  EXPECT_EQ(first, 10u);
  counter.acknowledge(third);
  counter.acknowledge(second);
  EXPECT_EQ(counter.end(), 10u);
  counter.acknowledge(first);
  EXPECT_EQ(counter.end(), 13u);
}

TEST(AcknowledgedCounter, ThreadsTogetherAcknowledgeEveryNumberAndTheEndNeverRunsAhead) {
  constexpr uint64_t kEach = 20'000;
  AcknowledgedCounter counter(0);
  std::vector<std::atomic<bool>> inserted(4 * kEach);
  std::atomic<uint64_t> ran_ahead = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const uint64_t number = counter.next();
        inserted[number].store(true, std::memory_order_relaxed);
        counter.acknowledge(number);
        const uint64_t end = counter.end();
        if (end > 0 && !inserted[end - 1].load(std::memory_order_relaxed)) ++ran_ahead;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.end(), 4 * kEach);
  EXPECT_EQ(ran_ahead, 0u);
}

TEST(HistogramLengthGenerator, DrawsBlocksByTheirCounts) {
  HistogramLengthGenerator generator(100, {1, 0, 3});
  Random random(12);
  std::map<uint64_t, uint64_t> counts;
  for (int i = 0; i < 40'000; ++i) ++counts[generator.next(random)];
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(static_cast<double>(counts[100]) / 40'000, 0.25, 0.01);
  EXPECT_NEAR(static_cast<double>(counts[300]) / 40'000, 0.75, 0.01);
}

TEST(HistogramLengthGenerator, FileIsReadAndItsErrorsNameTheLine) {
  const std::string path = ::testing::TempDir() + "skua_length_histogram";
  std::ofstream(path) << "BlockSize\t64\n0\t5\n1\t5\n";
  const auto loaded = HistogramLengthGenerator::load(path);
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ((*loaded)->longest(), 128u);

  std::ofstream(path) << "BlockSize\t64\n0\t5\n2\t5\n";
  const auto gap = HistogramLengthGenerator::load(path);
  ASSERT_FALSE(gap);
  EXPECT_THAT(gap.error().message(), ::testing::HasSubstr(path + ":3: expected \"1<TAB>count\""));
  std::remove(path.c_str());
  EXPECT_FALSE(HistogramLengthGenerator::load(path));
}

}  // namespace
}  // namespace skua::ycsb
