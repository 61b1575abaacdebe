#include "common/transport/region_table.h"

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace skua {
namespace {

TEST(RegionTable, FindsEachOfManyRegionsAndNoOther) {
  Random random(4);
  std::vector<std::byte> memory(1000);
  std::vector<MappedRegion> regions;
  for (size_t i = 0; i < memory.size(); ++i) regions.push_back({RegionKey{random.next()}, &memory[i], 1});
  RegionTable table;
  table.assign(regions, false);
  for (const MappedRegion& region : regions) {
    const auto access = table.resolve({Verb::kRead, region.key, 0, 1});
    EXPECT_EQ(access.status, CompletionStatus::kSuccess);
    EXPECT_EQ(access.address, region.data);
  }
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(table.resolve({Verb::kRead, RegionKey{random.next()}, 0, 0}).status,
              CompletionStatus::kRemoteAccessError);
  }
}

TEST(RegionTable, KeysThatCollideAreToldApart) {
  std::byte memory[4];
  std::vector<MappedRegion> regions;
  for (uint64_t i = 0; i < 4; ++i) regions.push_back({RegionKey{i << 32}, memory + i, 1});
  RegionTable table;
  table.assign(regions, false);
  for (const MappedRegion& region : regions) {
    EXPECT_EQ(table.resolve({Verb::kWrite, region.key, 0, 1}).address, region.data);
  }
}

TEST(RegionTable, EmptyTableRefusesEverything) {
  RegionTable table;
  EXPECT_EQ(table.resolve({Verb::kRead, RegionKey{}, 0, 0}).status, CompletionStatus::kRemoteAccessError);
  table.assign({}, false);
  EXPECT_EQ(table.resolve({Verb::kRead, RegionKey{}, 0, 0}).status, CompletionStatus::kRemoteAccessError);
}

TEST(RegionTable, SumOfOffsetAndBytesDoesNotWrap) {
  std::byte memory[64];
  RegionTable table;
  table.assign(std::vector<MappedRegion>{{RegionKey{7}, memory, 64}}, false);
  const auto status = [&](uint64_t offset, uint64_t bytes) {
    return table.resolve({Verb::kRead, RegionKey{7}, offset, bytes}).status;
  };
  EXPECT_EQ(status(0, 64), CompletionStatus::kSuccess);
  EXPECT_EQ(status(64, 0), CompletionStatus::kSuccess);
  EXPECT_EQ(status(1, 64), CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(status(65, 0), CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(status(UINT64_MAX - 7, 8), CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(status(UINT64_MAX, 64), CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(status(0, UINT64_MAX), CompletionStatus::kBadRequest);
}

}  // namespace
}  // namespace skua
