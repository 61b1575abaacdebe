// A session in the middle of a long copy shows that it goes on: it must not look stuck, and be fenced.
#include <gtest/gtest.h>

#include <string>

#include "tests/functional/bare_session.h"
#include "tests/functional/local_cluster.h"

namespace skua {
namespace {

TEST(LongStep, ASessionShowsProgressWithinACopy) {
  constexpr size_t kMebibytes = 16;
  const testing::LocalCluster cluster;
  testing::BareSession session(cluster, "shm");
  const std::string value(kMebibytes << 20, 'v');
  ASSERT_TRUE(session.put("warm", "x"));
  // Over shm a session's polls are few: what it shows for each MiB comes from within.
  uint64_t before = session.core().progress();
  ASSERT_TRUE(session.put("k", value));
  EXPECT_GE(session.core().progress() - before, kMebibytes);
  before = session.core().progress();
  EXPECT_EQ(session.get("k").size(), value.size());
  EXPECT_GE(session.core().progress() - before, kMebibytes - 1);
}

}  // namespace
}  // namespace skua
