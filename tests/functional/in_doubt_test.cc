// A completion is lost: did the CAS happen? The client finds out, or says kInDoubt; it never guesses.
#include <gtest/gtest.h>

#include "tests/functional/bare_session.h"
#include "tests/functional/local_cluster.h"

namespace skua {
namespace {

using testing::Fault;

class InDoubt : public ::testing::TestWithParam<const char*> {
 protected:
  template <class T>
  T run(Task<T> task) {
    return session_.run(std::move(task));
  }
  Result<VersionToken> put(const std::string& key, const std::string& value) { return session_.put(key, value); }
  std::string get(const std::string& key) { return session_.get(key); }
  void next_cas(Fault fault, int skip = 0) {
    faults_.next_cas = fault;
    faults_.skip = skip;
  }

  testing::LocalCluster cluster_;
  testing::BareSession session_{cluster_, GetParam()};
  SessionCore& core_ = session_.core();
  testing::FaultSwitch& faults_ = session_.faults();
};

TEST_P(InDoubt, UpdateThatHappenedIsFoundAndNotRepeated) {
  ASSERT_TRUE(put("k", "1"));
  next_cas(Fault::kLoseCompletion);
  const auto second = put("k", "2");
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ(faults_.met, 1);
  EXPECT_EQ(get("k"), "2");
  // Its version is the one that a compare_and_swap now finds: the update was not made a second time.
  EXPECT_TRUE(run(compare_and_swap_operation(core_, "k", *second, "3", {}))->swapped);
}

TEST_P(InDoubt, UpdateThatDidNotHappenIsMade) {
  ASSERT_TRUE(put("k", "1"));
  next_cas(Fault::kLosePost);
  const auto second = put("k", "2");
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ(faults_.met, 1);
  EXPECT_EQ(get("k"), "2");
}

TEST_P(InDoubt, InsertIsResolvedAtEitherOfItsTwoSwaps) {
  for (const int skip : {0, 1}) {
    for (const Fault fault : {Fault::kLoseCompletion, Fault::kLosePost}) {
      const std::string key = "insert" + std::to_string(skip) + std::to_string(static_cast<int>(fault));
      ASSERT_TRUE(put("warm", "x"));
      faults_.met = 0;
      next_cas(fault, skip);
      const auto outcome = run(put_if_absent_operation(core_, key, "v", {}));
      ASSERT_TRUE(outcome) << outcome.error().to_string();
      EXPECT_TRUE(outcome->stored);
      EXPECT_EQ(faults_.met, 1);
      EXPECT_EQ(get(key), "v");
    }
  }
}

TEST_P(InDoubt, CompareAndSwapIsResolvedEitherWay) {
  for (const Fault fault : {Fault::kLoseCompletion, Fault::kLosePost}) {
    const VersionToken version = *put("k", "1");
    next_cas(fault);
    const auto outcome = run(compare_and_swap_operation(core_, "k", version, "2", {}));
    ASSERT_TRUE(outcome) << outcome.error().to_string();
    EXPECT_TRUE(outcome->swapped);
    EXPECT_EQ(get("k"), "2");
  }
}

TEST_P(InDoubt, IncrementCountsOnce) {
  for (int64_t i = 1; i <= 6; ++i) {
    // The first is an insert: its second CAS is met.
    next_cas(i % 2 == 0 ? Fault::kLoseCompletion : Fault::kLosePost, i == 1 ? 1 : 0);
    const auto sum = run(increment_operation(core_, "n", 1));
    ASSERT_TRUE(sum) << sum.error().to_string();
    EXPECT_EQ(*sum, i);
  }
}

TEST_P(InDoubt, RemoveThatFindsTheKeyFreedCannotKnowWhoseItWas) {
  ASSERT_TRUE(put("k", "1"));
  next_cas(Fault::kLoseCompletion);
  const auto removed = run(remove_operation(core_, "k"));
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code(), StatusCode::kInDoubt);
  EXPECT_EQ(get("k"), "<absent>");
}

TEST_P(InDoubt, RemoveThatDidNotHappenIsMade) {
  ASSERT_TRUE(put("k", "1"));
  next_cas(Fault::kLosePost);
  const auto removed = run(remove_operation(core_, "k"));
  ASSERT_TRUE(removed) << removed.error().to_string();
  EXPECT_TRUE(*removed);
  EXPECT_EQ(get("k"), "<absent>");
}

INSTANTIATE_TEST_SUITE_P(Transports, InDoubt, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

}  // namespace
}  // namespace skua
