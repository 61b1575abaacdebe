#include "client/slot_cache.h"

#include <gtest/gtest.h>

namespace skua {
namespace {

SlotCacheEntry entry_of(uint64_t hash, uint32_t tag, uint64_t block) {
  proto::SlotWord::Block fields{};
  fields.block_units = block;
  SlotCacheEntry entry;
  entry.hash = hash;
  entry.tag_and_expiry = tag;
  entry.word = proto::SlotWord::of(proto::SlotState::kLive, fields);
  return entry;
}

TEST(SlotCache, FindsWhatItRemembersAndForgetsIt) {
  SlotCache cache(16);
  cache.remember(entry_of(7, 2, 99));
  ASSERT_NE(cache.find(7, 2), nullptr);
  EXPECT_EQ(cache.find(7, 2)->word.block_units(), 99U);
  cache.remember(entry_of(7, 2, 100));
  EXPECT_EQ(cache.find(7, 2)->word.block_units(), 100U);
  cache.forget(7, 2);
  EXPECT_EQ(cache.find(7, 2), nullptr);
}

TEST(SlotCache, KeysOfOneHashAndOtherTagsDoNotShareAnEntry) {
  SlotCache cache(16);
  cache.remember(entry_of(7, 2, 1));
  EXPECT_EQ(cache.find(7, 4), nullptr);
  cache.remember(entry_of(7, 4, 2));
  EXPECT_EQ(cache.find(7, 2)->word.block_units(), 1U);
  EXPECT_EQ(cache.find(7, 4)->word.block_units(), 2U);
}

TEST(SlotCache, ExpiryBitIsNoPartOfTheTag) {
  SlotCache cache(16);
  cache.remember(entry_of(7, 2 | 1, 1));
  ASSERT_NE(cache.find(7, 2), nullptr);
  EXPECT_TRUE(cache.find(7, 2)->has_expiry());
}

TEST(SlotCache, StaysWithinItsBoundAndKeepsTheNewest) {
  SlotCache cache(64);
  for (uint64_t i = 1; i <= 10'000; ++i) {
    cache.remember(entry_of(i, 0, i));
    ASSERT_NE(cache.find(i, 0), nullptr);
  }
  size_t kept = 0;
  for (uint64_t i = 1; i <= 10'000; ++i) kept += cache.find(i, 0) != nullptr ? 1 : 0;
  EXPECT_LE(kept, 64U);
  EXPECT_GE(kept, 32U);
}

TEST(SlotCache, WithoutEntriesRemembersNothing) {
  SlotCache cache(0);
  cache.remember(entry_of(7, 0, 1));
  EXPECT_EQ(cache.find(7, 0), nullptr);
}

TEST(SlotCache, AgeCountsEpochsAcrossTheWrapOfTheirLowHalf) {
  SlotCacheEntry entry = entry_of(1, 0, 1);
  entry.epoch = 0xffffffff;
  EXPECT_TRUE(entry.younger_than(256, (uint64_t{1} << 32) + 254));
  EXPECT_FALSE(entry.younger_than(256, (uint64_t{1} << 32) + 255));
}

}  // namespace
}  // namespace skua
