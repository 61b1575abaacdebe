#include "proto/slot_word.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/random.h"

namespace skua::proto {
namespace {

TEST(SlotWord, FieldsSurvivePackingForRandomValues) {
  Random random(20261130);
  for (int i = 0; i < 10'000; ++i) {
    const SlotWord::Block block{.block_units = random.below(kMaxBlockUnits),
                                .generation = random.next(),
                                .size_class = static_cast<uint32_t>(random.below(64)),
                                .fingerprint = static_cast<uint32_t>(random.below(kFingerprintModulus))};
    const auto state = static_cast<SlotState>(1 + random.below(3));
    const SlotWord word = SlotWord::of(state, block);
    ASSERT_EQ(word.state(), state);
    ASSERT_EQ(word.block_units(), block.block_units);
    ASSERT_EQ(word.block_offset(), block.block_units * 64);
    ASSERT_EQ(word.version(), block.generation % kVersionModulus);
    ASSERT_EQ(word.size_class(), block.size_class);
    ASSERT_EQ(word.fingerprint(), block.fingerprint);
    ASSERT_FALSE(word.dirty() || word.frozen() || word.cold());
  }
}

TEST(SlotWord, FlagsChangeNothingElse) {
  const SlotWord word = SlotWord::of(SlotState::kLive, {.block_units = 0x3ffffffff, .generation = 255, .size_class = 63,
                                                        .fingerprint = 2047});
  for (const SlotWord flagged : {word.with_dirty(), word.with_frozen(), word.with_dirty().with_frozen()}) {
    EXPECT_EQ(flagged.without_dirty().without_frozen(), word);
    EXPECT_EQ(flagged.block_units(), word.block_units());
    EXPECT_EQ(flagged.state(), word.state());
  }
  EXPECT_TRUE(word.with_dirty().dirty());
  EXPECT_FALSE(word.with_dirty().frozen());
  EXPECT_TRUE(word.with_frozen().frozen());
  EXPECT_EQ(word.with_state(SlotState::kFreed).with_state(SlotState::kLive), word);
}

TEST(SlotWord, EmptyKeepsIdentityOf59Bits) {
  for (const uint64_t identity : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << 59) - 1}) {
    const SlotWord word = SlotWord::empty(identity);
    EXPECT_EQ(word.state(), SlotState::kEmpty);
    EXPECT_EQ(word.empty_identity(), identity);
    EXPECT_FALSE(word.names_block());
    EXPECT_TRUE(word.is_free());
  }
}

TEST(SlotWord, FreeAreEmptyAndCleanFreedButNeverFrozen) {
  const SlotWord::Block block{.block_units = 1, .generation = 1, .size_class = 0, .fingerprint = 1};
  const SlotWord freed = SlotWord::of(SlotState::kFreed, block);
  EXPECT_TRUE(freed.is_free());
  EXPECT_FALSE(freed.with_dirty().is_free());
  EXPECT_FALSE(freed.with_frozen().is_free());
  EXPECT_FALSE(SlotWord::empty(1).with_frozen().is_free());
  EXPECT_FALSE(SlotWord::of(SlotState::kTentative, block).is_free());
  EXPECT_FALSE(SlotWord::of(SlotState::kLive, block).is_free());
}

TEST(SlotWord, EmptyIdentitiesDoNotCollide) {
  std::set<uint64_t> seen;
  for (uint64_t version = 0; version < 8; ++version) {
    for (uint64_t slot = 0; slot < 64; ++slot) EXPECT_TRUE(seen.insert(built_identity(version, slot)).second);
  }
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    for (uint64_t counter = 0; counter < 64; ++counter) {
      EXPECT_TRUE(seen.insert(renamed_identity(epoch, counter)).second);
    }
  }
  for (const uint64_t identity : seen) EXPECT_LT(identity, uint64_t{1} << 59);
}

}  // namespace
}  // namespace skua::proto
