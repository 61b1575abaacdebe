#include "proto/region_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace skua::proto {
namespace {

TEST(WindowSlotOffset, NamesEachSlotOfTheWindowOnceAndNoHeader) {
  std::set<uint64_t> offsets;
  for (size_t slot = 0; slot < kWindowSlots; ++slot) {
    const uint64_t offset = window_slot_offset(slot);
    EXPECT_TRUE(offsets.insert(offset).second) << slot;
    EXPECT_LE(offset + 8, kWindowBytes);
    EXPECT_EQ(offset % 8, 0u);
    EXPECT_NE(offset % kBucketBytes, 0u) << "a bucket's header";
  }
  EXPECT_EQ(offsets.size(), 28u);
}

TEST(Table, HasRoomForTheWindowOfItsLastBucket) {
  for (uint32_t log2 = 0; log2 <= kMaxLog2Buckets; ++log2) {
    const uint64_t last_home = (uint64_t{1} << log2) - 1;
    EXPECT_EQ(last_home * kBucketBytes + kWindowBytes, table_bytes(log2));
  }
}

TEST(DirectoryRoot, KeepsItsLargestFields) {
  const auto root = DirectoryRoot::of(uint64_t{0xffffffff} << 12, kMaxDirectoryDepth, (1u << 26) - 1);
  EXPECT_EQ(root.offset(), uint64_t{0xffffffff} << 12);
  EXPECT_EQ(root.depth(), kMaxDirectoryDepth);
  EXPECT_EQ(root.version(), (1u << 26) - 1);
}

TEST(TableRef, KeepsItsLargestFields) {
  const auto ref = TableRef::of({.offset = ((uint64_t{1} << 28) - 1) << 12,
                                 .log2_buckets = kMaxLog2Buckets,
                                 .local_depth = kMaxDirectoryDepth,
                                 .version = (1u << 26) - 1});
  EXPECT_EQ(ref.offset(), ((uint64_t{1} << 28) - 1) << 12);
  EXPECT_EQ(ref.log2_buckets(), kMaxLog2Buckets);
  EXPECT_EQ(ref.local_depth(), kMaxDirectoryDepth);
  EXPECT_EQ(ref.version(), (1u << 26) - 1);
}

TEST(BucketHeader, OverflowChangesNothingElse) {
  const auto header = BucketHeader::of(kMaxDirectoryDepth, (1u << 26) - 1);
  EXPECT_FALSE(header.overflow());
  EXPECT_TRUE(header.with_overflow().overflow());
  EXPECT_EQ(header.with_overflow().local_depth(), kMaxDirectoryDepth);
  EXPECT_EQ(header.with_overflow().table_version(), (1u << 26) - 1);
}

}  // namespace
}  // namespace skua::proto
