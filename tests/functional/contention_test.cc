// Sessions of several threads on the same keys, over both transports at once.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>
#include <thread>

#include "common/base/random.h"
#include "tests/functional/local_cluster.h"

namespace skua {
namespace {

using testing::described_value;
using testing::is_described_value;
using testing::LocalCluster;
using testing::must;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 150;
#else
constexpr int kRounds = 1500;
#endif

class Contention : public ::testing::Test {
 protected:
  // Runs `body(session, index)` on four threads: two over shm, two over tcp, each in a client of its own.
  template <class Body>
  void run_on_threads(Body body) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, i, &body] {
        ClientOptions options = cluster_.client_options(i % 2 == 0 ? "shm" : "tcp");
        options.wait_mode = WaitMode::kSleep;
        const auto client = cluster_.connect(options);
        const auto session = std::move(*client->open_session());
        body(*session, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static constexpr size_t kThreads = 4;
  LocalCluster cluster_;
};

TEST_F(Contention, IncrementsOfOneKeyAllCount) {
  run_on_threads([](Session& session, size_t) {
    for (int i = 0; i < kRounds; ++i) {
      const auto sum = session.increment("counter");
      ASSERT_TRUE(sum) << sum.error().to_string();
    }
  });
  const auto client = cluster_.connect(cluster_.client_options("auto"));
  const auto session = std::move(*client->open_session());
  EXPECT_EQ(must(session->increment("counter", 0)), static_cast<int64_t>(kThreads) * kRounds);
}

TEST_F(Contention, OnePutIfAbsentWinsEachRoundAndEveryoneSeesIt) {
  std::barrier barrier(static_cast<std::ptrdiff_t>(kThreads));
  std::atomic<int> winners{0};
  run_on_threads([&](Session& session, size_t thread) {
    for (int round = 0; round < kRounds; ++round) {
      const std::string key = "round" + std::to_string(round);
      barrier.arrive_and_wait();
      // Sizes differ, so that the rivals' blocks are of different classes.
      const std::string value = described_value(key, 40 + 300 * thread, thread);
      const auto outcome = session.put_if_absent(key, value);
      ASSERT_TRUE(outcome) << outcome.error().to_string();
      if (outcome->stored) ++winners;
      const auto got = session.get(key);
      ASSERT_TRUE(got) << got.error().to_string();
      ASSERT_TRUE(*got) << "exists for one and absent for another";
      ASSERT_TRUE(is_described_value(key, (*got)->bytes));
    }
  });
  EXPECT_EQ(winners.load(), kRounds);
}

TEST_F(Contention, ReadersSeeOnlyWholeValuesWhileSizesChange) {
  run_on_threads([](Session& session, size_t thread) {
    Random random(thread + 1);
    const std::string keys[] = {"a", "b", "c"};
    for (int i = 0; i < kRounds * 2; ++i) {
      const std::string& key = keys[random.below(3)];
      const uint64_t dice = random.below(10);
      if (dice < 4) {
        const size_t bytes = 16 + random.below(dice == 0 ? 60'000 : 600);
        const auto stored = session.put(key, described_value(key, bytes, random.next()));
        ASSERT_TRUE(stored) << stored.error().to_string();
      } else if (dice == 4) {
        const auto removed = session.remove(key);
        ASSERT_TRUE(removed) << removed.error().to_string();
      } else {
        const auto got = session.get(key);
        ASSERT_TRUE(got) << got.error().to_string();
        if (*got) {
          ASSERT_TRUE(is_described_value(key, (*got)->bytes));
        }
      }
    }
  });
}

// Each thread's compare_and_swap succeeds only on the version that it read: the sum of what succeeded is the value.
TEST_F(Contention, CompareAndSwapLosesNoUpdate) {
  std::atomic<int64_t> swapped{0};
  run_on_threads([&](Session& session, size_t) {
    for (int i = 0; i < kRounds / 2; ++i) {
      for (;;) {
        const auto current = session.get("cas");
        ASSERT_TRUE(current) << current.error().to_string();
        if (!*current) {
          ASSERT_TRUE(session.put_if_absent("cas", "0"));
          continue;
        }
        const std::string next = std::to_string(std::stoll(std::string((*current)->bytes)) + 1);
        const auto outcome = session.compare_and_swap("cas", (*current)->version, next);
        ASSERT_TRUE(outcome) << outcome.error().to_string();
        if (outcome->swapped) break;
      }
      ++swapped;
    }
  });
  const auto client = cluster_.connect(cluster_.client_options("auto"));
  const auto session = std::move(*client->open_session());
  EXPECT_EQ(std::stoll(std::string((*must(session->get("cas"))).bytes)), swapped.load());
}

}  // namespace
}  // namespace skua
