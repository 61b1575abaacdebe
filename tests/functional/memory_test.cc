// Memory that runs out, comes back, and stays within its bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/base/random.h"
#include "tests/functional/local_cluster.h"

namespace skua {
namespace {

using testing::described_value;
using testing::LocalCluster;
using testing::LocalClusterOptions;
using testing::must;

class Memory : public ::testing::TestWithParam<const char*> {
 protected:
  Memory() : cluster_(options()), client_(cluster_.connect(cluster_.client_options(GetParam()))) {
    session_ = std::move(*client_->open_session());
  }
  static LocalClusterOptions options() {
    LocalClusterOptions options;
    options.partitions = 4;
    options.memory_bytes = uint64_t{32} << 20;
    options.expected_keys = 20'000;
    return options;
  }
  uint64_t statistic(std::string_view name) { return client_->server_statistics(1)->value_or_zero(name); }

  LocalCluster cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
};

TEST_P(Memory, FullHeapRefusesKeepsTheOldValueAndWorksAgainAfterRemoves) {
  const std::string large(100'000, 'x');
  std::vector<std::string> stored;
  Result<VersionToken> put = VersionToken{};
  while (put) {
    ASSERT_LT(stored.size(), 1000U);
    stored.push_back("key" + std::to_string(stored.size()));
    put = session_->put(stored.back(), large);
  }
  EXPECT_EQ(put.error().code(), StatusCode::kOutOfMemory) << put.error().to_string();
  EXPECT_THAT(put.error().message(), ::testing::HasSubstr("--memory"));
  stored.pop_back();
  ASSERT_GT(stored.size(), 100U);
  const auto old = session_->get(stored[0]);
  ASSERT_TRUE(old && *old);
  EXPECT_EQ((*old)->bytes, large);
  // A value of another class does not fit either, and the old one stays.
  const auto larger = session_->put(stored[0], std::string(8'000'000, 'y'));
  ASSERT_FALSE(larger);
  EXPECT_EQ(larger.error().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ((*must(session_->get(stored[0]))).bytes, large);
  for (const std::string& key : stored) EXPECT_TRUE(must(session_->remove(key)));
  for (size_t i = 0; i < stored.size() / 2; ++i) {
    const auto again = session_->put(stored[i], large);
    ASSERT_TRUE(again) << i << ": " << again.error().to_string();
  }
}

TEST_P(Memory, UpdatesRunForeverInABoundedHeap) {
  // 12 MiB live in 32 MiB, rewritten many times over by two sessions.
  constexpr size_t kKeys = 10'000;
  const auto work = [&](Session& session, uint64_t seed) {
    Random random(seed);
    for (size_t i = 0; i < 60'000; ++i) {
      const std::string key = "user" + std::to_string(random.below(kKeys));
      const auto put = session.put(key, described_value(key, 1000, i));
      ASSERT_TRUE(put) << put.error().to_string();
    }
  };
  const auto other = std::move(*client_->open_session());
  std::thread thread([&] { work(*other, 1); });
  work(*session_, 2);
  thread.join();
  EXPECT_EQ(statistic("out_of_memory_replies"), 0U);
  EXPECT_LE(statistic("memory_used_bytes"), uint64_t{32} << 20);
  EXPECT_GT(statistic("blocks_reused"), 0U);
}

TEST_P(Memory, UsedBytesReturnToTheLiveSetAfterValuesGrewAndShrank) {
  ASSERT_TRUE(session_->put("k", std::string(100, 'a')));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(session_->put("k", std::string(2'000'000, 'b')));
    ASSERT_TRUE(session_->put("k", std::string(100, 'a')));
  }
  session_.reset();  // gives back what was granted
  const Nanoseconds end = system_clock().now() + 20 * kSecond;
  while (statistic("used_bytes") > 64 * 1024 && system_clock().now() < end) {
  }
  EXPECT_LE(statistic("used_bytes"), 64 * 1024U);
}

INSTANTIATE_TEST_SUITE_P(Transports, Memory, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

// A table starts for one key, and grows under the keys as they come.
TEST(Tables, GrowWithTheirKeys) {
  LocalClusterOptions options;
  options.partitions = 1;
  options.expected_keys = 1;
  LocalCluster cluster(options);
  const auto client = cluster.connect(cluster.client_options("shm"));
  const auto session = std::move(*client->open_session());
  constexpr int kKeys = 100'000;
  for (int i = 0; i < kKeys; ++i) must(session->put("key" + std::to_string(i), "v" + std::to_string(i)));
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_EQ((*must(session->get("key" + std::to_string(i)))).bytes, "v" + std::to_string(i));
  }
  uint64_t dumped = 0;
  ASSERT_TRUE(session->scan([&](const ScanItem&) {
    ++dumped;
    return true;
  }));
  EXPECT_EQ(dumped, uint64_t{kKeys});
  const auto statistics = must(client->server_statistics(1));
  EXPECT_GT(statistics.value_or_zero("splits"), 10u);
  EXPECT_EQ(statistics.value_or_zero("out_of_memory_replies"), 0u);
}

TEST(Tables, FullMemoryIsOutOfMemoryAndWorksAgainAfterRemoves) {
  LocalClusterOptions options;
  options.partitions = 1;
  options.expected_keys = 1;
  options.memory_bytes = uint64_t{2} << 20;
  LocalCluster cluster(options);
  const auto client = cluster.connect(cluster.client_options("shm"));
  const auto session = std::move(*client->open_session());
  std::vector<std::string> keys;
  Result<VersionToken> put = VersionToken{};
  while (put) {
    ASSERT_LT(keys.size(), 100'000U);
    keys.push_back("key" + std::to_string(keys.size()));
    put = session->put(keys.back(), "v");
  }
  EXPECT_EQ(put.error().code(), StatusCode::kOutOfMemory) << put.error().to_string();
  EXPECT_THAT(put.error().message(), ::testing::HasSubstr("--memory"));
  const std::string refused = keys.back();
  keys.pop_back();
  for (const std::string& key : keys) EXPECT_EQ((*must(session->get(key))).bytes, "v");
  for (const std::string& key : keys) EXPECT_TRUE(must(session->remove(key)));
  EXPECT_TRUE(session->put(refused, "v"));
}

}  // namespace
}  // namespace skua
