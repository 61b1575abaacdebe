#include "client/block_pool.h"

#include <gtest/gtest.h>

#include "proto/control.pb.h"

namespace skua {
namespace {

control::Grant grant_of(uint64_t id, std::initializer_list<uint64_t> blocks) {
  control::Grant grant;
  grant.set_grant_id(id);
  for (const uint64_t block : blocks) {
    grant.add_block_units(block);
    grant.add_generations(block + 1000);
  }
  return grant;
}

TEST(BlockPool, TakesBlocksInTheOrderOfTheirGrants) {
  BlockPool pool;
  auto& shelf = pool.shelf(3, 5);
  EXPECT_FALSE(pool.take(shelf));
  pool.add(shelf, grant_of(1, {10, 11}));
  pool.add(shelf, grant_of(2, {20}));
  EXPECT_EQ(pool.take(shelf)->block_units, 10U);
  EXPECT_EQ(pool.take(shelf)->generation, 1011U);
  EXPECT_EQ(pool.take(shelf)->block_units, 20U);
  EXPECT_FALSE(pool.take(shelf));
}

TEST(BlockPool, ReportsWhatWasTakenOnce) {
  BlockPool pool;
  auto& shelf = pool.shelf(0, 0);
  pool.add(shelf, grant_of(1, {10, 11, 12}));
  pool.take(shelf);
  pool.take(shelf);
  control::EpochReport first;
  pool.report(first, false);
  ASSERT_EQ(first.grants_size(), 1);
  EXPECT_EQ(first.grants(0).grant_id(), 1U);
  EXPECT_EQ(first.grants(0).consumed(), 2U);
  EXPECT_FALSE(first.grants(0).returned());
  control::EpochReport second;
  pool.report(second, false);
  EXPECT_EQ(second.grants_size(), 0);
  EXPECT_EQ(pool.take(shelf)->block_units, 12U);
}

TEST(BlockPool, ReturnsWhatIsUnusedAndNeverHandsItOutAgain) {
  BlockPool pool;
  auto& shelf = pool.shelf(0, 0);
  pool.add(shelf, grant_of(1, {10, 11}));
  pool.take(shelf);
  control::EpochReport report;
  pool.report(report, true);
  ASSERT_EQ(report.grants_size(), 1);
  EXPECT_EQ(report.grants(0).consumed(), 1U);
  EXPECT_TRUE(report.grants(0).returned());
  EXPECT_FALSE(pool.take(shelf));
  EXPECT_EQ(shelf.available, 0U);
}

TEST(BlockPool, AsksOnceUntilAnsweredAndForMoreEachTime) {
  BlockPool pool;
  auto& shelf = pool.shelf(0, 0);
  EXPECT_TRUE(pool.should_request(shelf));
  EXPECT_FALSE(pool.should_request(shelf));
  const uint32_t first = shelf.want;
  pool.add(shelf, grant_of(1, {1, 2, 3, 4}));
  EXPECT_GT(shelf.want, first);
  EXPECT_FALSE(pool.should_request(shelf));
  pool.take(shelf);
  pool.take(shelf);
  EXPECT_TRUE(pool.should_request(shelf));
  pool.refused(shelf, Status(StatusCode::kOutOfMemory, "full"));
  EXPECT_EQ(shelf.refusals, 1U);
  EXPECT_TRUE(pool.should_request(shelf));
}

}  // namespace
}  // namespace skua
