// Tables split while their keys stay where a reader looks for them.
#include <gtest/gtest.h>

#include <set>

#include "server/store_testing.h"

namespace skua {
namespace {

using proto::SlotState;
using proto::SlotWord;
using testing::DirectClient;
using testing::World;

StoreOptions tiny_tables() {
  StoreOptions options;
  options.memory_bytes = uint64_t{64} << 20;
  options.pages = PagePolicy::kSmall;
  options.expected_keys = 1;
  options.log2_table_buckets = 6;
  return options;
}

std::string key_of(int i) { return "key" + std::to_string(i); }

proto::DirectoryRoot root_of(const std::byte* region) {
  return proto::DirectoryRoot(reinterpret_cast<const proto::RegionHeader*>(region)->directory_root);
}
std::vector<proto::TableRef> tables_of(const std::byte* region) {
  const auto root = root_of(region);
  const auto* entries = reinterpret_cast<const uint64_t*>(region + root.offset());
  std::vector<proto::TableRef> tables;
  for (uint64_t i = 0; i < root.entries(); ++i) tables.emplace_back(entries[i]);
  return tables;
}

TEST(TableSplit, GrowsAheadOfNeedAndLosesNothing) {
  World world(tiny_tables());
  DirectClient client(world);
  constexpr int kKeys = 20'000;
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_FALSE(client.put(key_of(i), "v" + std::to_string(i))) << i;
    world.executor.run();
  }
  for (int i = 0; i < kKeys; ++i) ASSERT_EQ(client.get(key_of(i)), "v" + std::to_string(i)) << i;
  const auto stats = world.stats();
  EXPECT_GE(stats.tables(), kKeys / 448 + 1);
  EXPECT_LE(stats.tables(), 16 * kKeys / 448);  // not split for nothing
  EXPECT_EQ(stats.splits() + 1, stats.tables());
  EXPECT_EQ(stats.out_of_memory_replies(), 0u);
}

TEST(TableSplit, DirectoryAndTablesAgree) {
  World world(tiny_tables());
  DirectClient client(world);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_FALSE(client.put(key_of(i), "v"));
    world.executor.run();
  }
  const std::byte* region = client.region(0);
  const auto tables = tables_of(region);
  std::set<uint64_t> versions;
  for (uint64_t i = 0; i < tables.size(); ++i) {
    const proto::TableRef table = tables[i];
    const uint64_t stride = uint64_t{1} << table.local_depth();
    EXPECT_EQ(tables[i & (stride - 1)], table) << i;  // all entries with the same bits lead to it
    const auto* buckets = reinterpret_cast<const proto::Bucket*>(region + table.offset());
    for (uint64_t b = 0; b < proto::table_buckets(table.log2_buckets()); ++b) {
      const proto::BucketHeader header(buckets[b].header);
      ASSERT_EQ(header.table_version(), table.version());
      ASSERT_EQ(header.local_depth(), table.local_depth());
      for (uint64_t word : buckets[b].slots) ASSERT_FALSE(SlotWord(word).frozen());
    }
    versions.insert(table.version());
  }
  EXPECT_EQ(versions.size(), world.stats().tables());
}

TEST(TableSplit, KeysOfTheSecondHalfAreFoundAndMoveToTheFirstWhereThereIsRoom) {
  World world(tiny_tables());
  DirectClient client(world);
  // One home bucket, so that its window fills up to the second half; a split by the directory's bits halves it.
  std::vector<std::string> keys;
  for (int i = 0; keys.size() < 24; ++i) {
    if (proto::KeyHash::of(key_of(i)).home_bucket(6) == 5) keys.push_back(key_of(i));
  }
  for (const std::string& key : keys) ASSERT_FALSE(client.put(key, "v"));
  ASSERT_TRUE(world.store->split_table(0, proto::KeyHash::of(keys[0])));
  world.executor.run();
  ASSERT_EQ(world.stats().splits(), 1u);
  size_t in_second_half = 0;
  for (const std::string& key : keys) {
    ASSERT_EQ(client.get(key), "v");
    const auto window = client.window(key);
    uint64_t* const slot = client.find(key);
    const bool second = std::find(window.begin() + proto::kWindowSlots / 2, window.end(), slot) != window.end();
    in_second_half += second ? 1 : 0;
    const auto* bucket = reinterpret_cast<const proto::Bucket*>(reinterpret_cast<std::byte*>(window[0]) - 8);
    // A reader looks at the second half only where the header says so.
    EXPECT_TRUE(!second || proto::BucketHeader(bucket->header).overflow());
  }
  EXPECT_LE(in_second_half, 8u);
}

TEST(TableSplit, KillsTentativeKeepsLiveAndDropsFreed) {
  World world(tiny_tables());
  DirectClient client(world);
  client.reports = false;
  client.batch = 1;
  ASSERT_FALSE(client.put("live", "v"));
  ASSERT_FALSE(client.put("removed", "v"));
  ASSERT_TRUE(client.remove("removed"));
  const auto block = client.take(0, 0);
  ASSERT_TRUE(block);
  uint64_t* slot = client.free_slot("insert");
  const SlotWord before = DirectClient::load(slot);
  client.write("insert", "", *block, before);
  const SlotWord tentative = client.word_of("insert", *block, SlotState::kTentative);
  ASSERT_TRUE(DirectClient::swap(slot, before, tentative));

  ASSERT_TRUE(world.store->split_table(0, proto::KeyHash::of("live")));
  world.executor.run();
  EXPECT_EQ(client.get("live"), "v");
  EXPECT_EQ(client.get("removed"), std::nullopt);
  // The owner's commit in the old table fails: the word is what it replaced, frozen.
  EXPECT_FALSE(DirectClient::swap(slot, tentative, client.word_of("insert", *block, SlotState::kLive)));
  EXPECT_EQ(DirectClient::load(slot), before.with_frozen());
  for (const auto& table : tables_of(client.region(0))) {
    const auto* buckets = reinterpret_cast<const proto::Bucket*>(client.region(0) + table.offset());
    for (uint64_t b = 0; b < proto::table_buckets(table.log2_buckets()); ++b) {
      for (const uint64_t word : buckets[b].slots) {
        EXPECT_TRUE(SlotWord(word).is_live() || SlotWord(word).state() == SlotState::kEmpty);
      }
    }
  }
}

TEST(TableSplit, OldTablesMemoryWaitsForEverySession) {
  StoreOptions options = tiny_tables();
  options.lease = 1000 * kSecond;
  World world(options);
  DirectClient client(world);
  DirectClient idle(world, true);
  idle.reports = false;
  ASSERT_FALSE(client.put("k", "v"));
  uint64_t* const old_slot = client.find("k");
  const SlotWord word = DirectClient::load(old_slot);
  ASSERT_TRUE(world.store->split_table(0, proto::KeyHash::of("k")));
  world.executor.run();
  world.executor.advance(2 * kSecond);
  // Splits that would reuse its pages at once.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(world.store->split_table(0, proto::KeyHash::of(key_of(i))));
    world.executor.advance(2 * kSecond);
  }
  EXPECT_EQ(DirectClient::load(old_slot), word.with_frozen()) << "a session may still read here";
  const uint64_t held = world.stats().index_bytes();
  idle.reports = true;
  ASSERT_TRUE(idle.report());
  world.executor.advance(10 * kSecond);
  // All pages but those of the tables that there are can be had again: many splits need little more.
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(world.store->split_table(0, proto::KeyHash::of(key_of(i))));
    world.executor.advance(10 * kSecond);
  }
  EXPECT_EQ(client.get("k"), "v");
  EXPECT_LE(world.stats().index_bytes(), 2 * held);
  EXPECT_EQ(world.stats().splits(), 10u);
}

TEST(TableSplit, KeysChosenToShareTheirBitsDoNotGrowTheDirectory) {
  World world(tiny_tables());
  DirectClient client(world);
  ASSERT_FALSE(client.put("k", "v"));
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(world.store->split_table(0, proto::KeyHash::of("k")));
    world.executor.advance(2 * kSecond);
  }
  EXPECT_LE(root_of(client.region(0)).depth(), 8u);
  EXPECT_EQ(client.get("k"), "v");
}

TEST(TableSplit, WithoutMemoryTheTableStaysAsItIs) {
  StoreOptions options = tiny_tables();
  options.memory_bytes = uint64_t{1} << 20;
  World world(options);
  DirectClient client(world);
  ASSERT_FALSE(client.put("k", "v"));
  // The heap takes what there is.
  for (int i = 0; !client.put(key_of(i), std::string(3000, 'v')); ++i) ASSERT_LT(i, 1000);
  const uint64_t before = world.stats().tables();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(world.store->split_table(0, proto::KeyHash::of("k")));
    world.executor.run();
  }
  EXPECT_LE(world.stats().tables(), before + 16);  // pages that the index held already
  EXPECT_GT(world.stats().splits_refused(), 0u);
  EXPECT_EQ(client.get("k"), "v");
  EXPECT_FALSE(DirectClient::load(client.find("k")).frozen());
}

}  // namespace
}  // namespace skua
