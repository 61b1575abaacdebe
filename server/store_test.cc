#include "server/store.h"

#include <gtest/gtest.h>

#include <set>

#include "server/store_testing.h"

namespace skua {
namespace {

using proto::SlotState;
using proto::SlotWord;
using testing::DirectClient;
using testing::World;

StoreOptions small_options(uint64_t memory = 8 << 20) {
  StoreOptions options;
  options.memory_bytes = memory;
  options.expected_keys = 1000;
  return options;
}

TEST(Store, ServedPartitionHasTheLayout) {
  StoreOptions options = small_options(64 << 20);
  options.expected_keys = 400'000;  // 200 k a partition: many tables
  World world(options, 2);
  DirectClient client(world);
  ASSERT_EQ(client.regions.size(), 2U);
  for (uint32_t p = 0; p < 2; ++p) {
    const std::byte* data = client.region(p);
    const auto* header = reinterpret_cast<const proto::RegionHeader*>(data);
    EXPECT_EQ(header->magic, proto::kRegionMagic);
    EXPECT_EQ(header->layout_version, proto::kLayoutVersion);
    EXPECT_EQ(header->partition, p);
    EXPECT_EQ(header->cluster_id, 77U);
    EXPECT_EQ(header->instance, 88U);
    EXPECT_EQ(header->membership_epoch, 3U);
    EXPECT_EQ(header->region_bytes, client.opened.keys(static_cast<int>(p)).region_bytes());
    const proto::DirectoryRoot root(header->directory_root);
    ASSERT_GT(root.depth(), 0U);
    const auto* directory = reinterpret_cast<const uint64_t*>(data + root.offset());
    std::set<uint64_t> tables;
    uint64_t slots = 0;
    for (uint64_t i = 0; i < root.entries(); ++i) {
      const proto::TableRef table(directory[i]);
      EXPECT_EQ(table.log2_buckets(), StoreOptions().log2_table_buckets);
      EXPECT_EQ(table.local_depth(), root.depth());
      EXPECT_EQ(table.offset() % 4096, 0U);
      tables.insert(table.offset());
      const auto* buckets = reinterpret_cast<const proto::Bucket*>(data + table.offset());
      std::set<uint64_t> words;
      for (uint64_t b = 0; b < proto::table_buckets(table.log2_buckets()); ++b) {
        EXPECT_EQ(buckets[b].header, proto::BucketHeader::of(root.depth(), table.version()).bits());
        for (const uint64_t word : buckets[b].slots) words.insert(word);
      }
      slots += words.size();
      EXPECT_EQ(words.size(), proto::table_buckets(table.log2_buckets()) * proto::kSlotsPerBucket);
      EXPECT_TRUE(words.contains(SlotWord::empty(proto::built_identity(table.version(), 0)).bits()));
    }
    EXPECT_EQ(tables.size(), root.entries());
    EXPECT_LE(200'000.0, 0.45 * static_cast<double>(slots));
  }
}

TEST(Store, TablesThatDoNotFitAreRefusedWithNumbers) {
  testing::VirtualExecutor executor;
  testing::SeededEntropy entropy;
  StoreOptions options = small_options(4 << 20);
  options.expected_keys = 10'000'000;
  auto store = Store::create(options, executor, entropy);
  ASSERT_TRUE(store);
  const auto served = (*store)->serve({1, 1, 1, {0, 1, 2, 3}});
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(served.error().message().find("4194304"), std::string::npos) << served.error().message();
}

TEST(Store, GrantsAreUniqueAndNeverOverlap) {
  World world(small_options(), 2);
  DirectClient a(world);
  DirectClient b(world);
  std::set<std::pair<uint32_t, uint64_t>> units;
  for (int i = 0; i < 500; ++i) {
    DirectClient& client = i % 2 == 0 ? a : b;
    const auto partition = static_cast<uint32_t>(i / 2 % 2);
    const int size_class = i % 9;
    const auto block = client.take(partition, size_class);
    ASSERT_TRUE(block);
    EXPECT_GE(block->generation, 1U);
    for (uint64_t u = 0; u < proto::size_class_bytes(size_class) / 64; ++u) {
      EXPECT_TRUE(units.emplace(partition, block->units + u).second) << i;
    }
  }
}

TEST(Store, OverwrittenBlockIsReusedOnlyWhenAllSessionsHaveReported) {
  World world(small_options());
  DirectClient writer(world);
  DirectClient idle(world, true);
  idle.reports = false;
  writer.batch = 1;
  ASSERT_FALSE(writer.put("k", "one"));
  ASSERT_FALSE(writer.put("k", "two"));
  ASSERT_TRUE(writer.report());
  world.executor.advance(2 * kSecond);
  EXPECT_EQ(world.stats().blocks_reused(), 0U);
  ASSERT_EQ(world.stats().classes_size(), 1);
  EXPECT_EQ(world.stats().classes(0).retired(), 1U);

  ASSERT_TRUE(idle.report());
  world.executor.run();
  EXPECT_EQ(world.stats().blocks_reused(), 1U);
  EXPECT_EQ(world.stats().classes(0).used(), 1U);
  EXPECT_EQ(world.stats().live_keys(), 1U);
  EXPECT_EQ(writer.get("k"), "two");
}

TEST(Store, SessionOpenedAfterRetirementHoldsNothingBack) {
  World world(small_options());
  DirectClient writer(world);
  writer.batch = 1;
  ASSERT_FALSE(writer.put("k", "one"));
  ASSERT_FALSE(writer.put("k", "two"));
  writer.reports = false;
  ASSERT_TRUE(writer.report());
  world.executor.advance(2 * kSecond);
  DirectClient late(world);
  late.reports = false;
  ASSERT_TRUE(writer.report());
  world.executor.run();
  EXPECT_EQ(world.stats().blocks_reused(), 1U);
}

TEST(Store, AbandonedTentativeIsKilledAndItsSlotIsAsBefore) {
  World world(small_options());
  DirectClient client(world);
  client.batch = 1;
  const std::string key = "dead";
  const auto block = client.take(0, 0);
  ASSERT_TRUE(block);
  uint64_t* slot = client.free_slot(key);
  const SlotWord empty = DirectClient::load(slot);
  client.write(key, "", *block, empty);
  ASSERT_TRUE(DirectClient::swap(slot, empty, client.word_of(key, *block, SlotState::kTentative)));
  world.executor.advance(2 * kSecond);
  EXPECT_EQ(DirectClient::load(slot).state(), SlotState::kTentative) << "its owner may still commit it";

  ASSERT_TRUE(client.report());
  for (int i = 0; i < 5; ++i) {
    world.executor.advance(kSecond);
    ASSERT_TRUE(client.report());
  }
  EXPECT_EQ(DirectClient::load(slot), empty);
  EXPECT_EQ(world.stats().used_bytes(), 0U);
}

TEST(Store, TentativePinsTheFreedWordItReplaced) {
  World world(small_options());
  DirectClient client(world);
  client.batch = 1;
  const std::string key = "pinned";
  ASSERT_FALSE(client.put(key, "value"));
  uint64_t* slot = client.find(key);
  ASSERT_TRUE(client.remove(key));
  const SlotWord freed = DirectClient::load(slot);
  const auto block = client.take(0, 0);
  ASSERT_TRUE(block);
  client.write(key, "", *block, freed);
  const SlotWord tentative = client.word_of(key, *block, SlotState::kTentative);
  ASSERT_TRUE(DirectClient::swap(slot, freed, tentative));
  // The report says nothing of the second block, so its operation may be under way.
  control::EpochReport report;
  report.set_session_id(client.id);
  control::GrantUse* use = report.add_grants();
  use->set_grant_id(1);
  use->set_consumed(1);
  ASSERT_TRUE(world.store->report(report));
  client.reports = false;
  for (int i = 0; i < 6; ++i) {
    world.executor.advance(kSecond);
    report.set_reclaim_epoch(client.epoch);
    ASSERT_TRUE(world.store->report(report));
  }
  EXPECT_GE(world.stats().sweeps(), 1U);
  EXPECT_EQ(world.stats().blocks_reused(), 0U);
  ASSERT_TRUE(DirectClient::swap(slot, tentative, freed)) << "withdrawal finds its word";
}

TEST(Store, RemovedLargeValueGivesItsMemoryBack) {
  World world(small_options(uint64_t{160} << 20));
  DirectClient client(world);
  client.batch = 1;
  const uint64_t before = world.stats().memory_used_bytes();
  ASSERT_FALSE(client.put("big", std::string(size_t{64} << 20, 'x')));
  ASSERT_TRUE(client.report());
  EXPECT_GE(world.stats().memory_used_bytes(), before + (uint64_t{64} << 20));
  uint64_t* slot = client.find("big");
  ASSERT_TRUE(client.remove("big"));
  const SlotWord freed = DirectClient::load(slot);
  for (int i = 0; i < 20; ++i) {
    world.executor.advance(kSecond);
    ASSERT_TRUE(client.report());
  }
  EXPECT_EQ(world.stats().memory_used_bytes(), before);
  EXPECT_EQ(DirectClient::load(slot).state(), SlotState::kEmpty);
  EXPECT_NE(DirectClient::load(slot), freed);
}

TEST(Store, FreedWordIsRenamedOnlyAfterEverySessionsGrace) {
  World world(small_options());
  DirectClient client(world);
  DirectClient slow(world, true);
  ASSERT_FALSE(client.put("k", "v"));
  ASSERT_TRUE(client.report());
  world.executor.advance(3 * kSecond / 2);
  uint64_t* slot = client.find("k");
  ASSERT_TRUE(client.remove("k"));
  slow.reports = false;
  control::EpochReport alive;  // keeps the lease, reports no epoch
  alive.set_session_id(slow.id);
  for (int i = 0; i < 12; ++i) {
    world.executor.advance(kSecond);
    ASSERT_TRUE(world.store->report(alive));
    ASSERT_TRUE(client.report());
  }
  EXPECT_EQ(DirectClient::load(slot).state(), SlotState::kFreed);
  slow.reports = true;
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(slow.report());
    ASSERT_TRUE(client.report());
    world.executor.advance(kSecond);
  }
  EXPECT_EQ(DirectClient::load(slot).state(), SlotState::kEmpty);
}

TEST(Store, ExpiredValuesGoAndOthersStay) {
  World world(small_options());
  DirectClient client(world);
  const uint64_t now = world.store->cluster_time_ms();
  ASSERT_FALSE(client.put("soon", "v", now + 2000));
  ASSERT_FALSE(client.put("late", "v", now + 3'600'000));
  ASSERT_FALSE(client.put("never", "v"));
  ASSERT_TRUE(client.report());
  for (int i = 0; i < 40; ++i) {
    world.executor.advance(kSecond);
    ASSERT_TRUE(client.report());
  }
  EXPECT_EQ(world.stats().expired_removed(), 1U);
  EXPECT_EQ(world.stats().live_keys(), 2U);
  EXPECT_EQ(client.get("soon"), std::nullopt);
  EXPECT_EQ(client.get("late"), "v");
  EXPECT_EQ(client.get("never"), "v");
  EXPECT_EQ(world.stats().classes(0).used() + world.stats().classes(0).granted(), 2U + 29U);
}

TEST(Store, IdleServerDoesNotSweep) {
  World world(small_options());
  DirectClient client(world);
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(client.put("k" + std::to_string(i), "v"));
  const auto live = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      world.executor.advance(kSecond);
      ASSERT_TRUE(client.report());
    }
  };
  live(10);
  const auto before = world.stats();
  live(60);
  EXPECT_EQ(world.stats().sweeps(), before.sweeps());
  EXPECT_EQ(world.stats().reclaim_epoch(), before.reclaim_epoch());
}

TEST(Store, FullHeapSaysSoAndWorksAgainAfterRemoves) {
  World world(small_options(2 << 20));
  DirectClient client(world);
  client.batch = 4;
  int stored = 0;
  std::optional<StatusCode> error;
  while (!error) error = client.put("k" + std::to_string(stored++), std::string(4000, 'v'));
  --stored;
  EXPECT_EQ(*error, StatusCode::kOutOfMemory);
  EXPECT_GT(stored, 300);
  EXPECT_EQ(world.stats().out_of_memory_replies(), 1U);
  for (int i = 0; i < stored; ++i) EXPECT_EQ(client.get("k" + std::to_string(i)), std::string(4000, 'v'));
  EXPECT_EQ(client.put("k1", std::string(4000, 'w')), StatusCode::kOutOfMemory);
  EXPECT_EQ(client.get("k1"), std::string(4000, 'v'));

  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client.remove("k" + std::to_string(i)));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(client.put("k" + std::to_string(i), std::string(4000, 'n'))) << i;
  EXPECT_EQ(client.get("k99"), std::string(4000, 'n'));
}

TEST(Store, MemoryOfOneClassServesAnother) {
  World world(small_options(4 << 20), 2);
  DirectClient client(world);
  int small = 0;
  while (!client.put("s" + std::to_string(small), std::string(200, 's'))) ++small;
  ASSERT_GT(small, 2000);
  for (int i = 0; i < small; ++i) ASSERT_TRUE(client.remove("s" + std::to_string(i)));
  int large = 0;
  while (!client.put("l" + std::to_string(large), std::string(30'000, 'l'))) ++large;
  EXPECT_GT(large, 60);
  for (int i = 0; i < large; ++i) EXPECT_EQ(client.get("l" + std::to_string(i)), std::string(30'000, 'l'));
}

TEST(Store, UnusedGrantsOfOtherSessionsAreAskedBack) {
  World world(small_options(2 << 20));
  DirectClient hoarder(world);
  hoarder.batch = 1024;
  while (world.stats().used_bytes() < (1 << 20)) {
    std::optional<Result<control::Grant>> answer;
    hoarder.ask(0, 11, 1024, [&](Result<control::Grant> result) { answer = std::move(result); });
    world.executor.run();
    if (!answer || !*answer) break;
    // The grant counts as unknown to the hoarder's stock, so it gives back by hand below.
    control::EpochReport report;
    report.set_session_id(hoarder.id);
    control::GrantUse* use = report.add_grants();
    use->set_grant_id((*answer)->grant_id());
    use->set_returned(true);
    world.executor.post([&world, report] { EXPECT_TRUE(world.store->report(report)); });
    if (world.stats().used_bytes() > (1 << 19)) break;
  }
  DirectClient other(world);
  other.batch = 64;
  int stored = 0;
  while (!other.put("k" + std::to_string(stored), std::string(1000, 'v')) && stored < 5000) ++stored;
  EXPECT_GT(stored, 1200);
}

TEST(Store, ScarceMemoryIsSharedOut) {
  World world(small_options(2 << 20));
  DirectClient a(world);
  DirectClient b(world);
  size_t first = 0;
  a.ask(0, 11, 1024, [&](Result<control::Grant> result) { first = static_cast<size_t>(result->block_units_size()); });
  EXPECT_GT(first, 100U);
  EXPECT_LT(first, 600U) << "the other session finds something left";
}

// Two sessions overwrite a live set of two fifths of the heap for ever.
TEST(Store, UpdateChurnStaysWithinTheHeapForEver) {
  StoreOptions options = small_options(4 << 20);
  World world(options, 4);
  DirectClient a(world);
  DirectClient b(world);
  Random random(3);
  constexpr int kKeys = 1200;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kRounds = 50'000;
#else
  constexpr int kRounds = 1'000'000;
#endif
  const std::string value(1024, 'v');
  for (int i = 0; i < kRounds; ++i) {
    DirectClient& client = i % 2 == 0 ? a : b;
    const auto error = client.put("user" + std::to_string(random.below(kKeys)), value);
    ASSERT_FALSE(error) << "round " << i;
    if (i % 64 == 0) world.executor.step();
  }
  const auto stats = world.stats();
  EXPECT_EQ(stats.out_of_memory_replies(), 0U);
  EXPECT_LE(stats.memory_used_bytes(), options.memory_bytes);
  EXPECT_GT(stats.blocks_reused(), static_cast<uint64_t>(kRounds) / 2);
  for (int i = 0; i < 60; ++i) {
    world.executor.advance(kSecond);
    ASSERT_TRUE(a.report());
    ASSERT_TRUE(b.report());
  }
  EXPECT_EQ(world.stats().live_keys(), static_cast<uint64_t>(kKeys));
  EXPECT_EQ(world.stats().live_bytes(), uint64_t{kKeys} * 1280);
}

TEST(Store, ManyPartitionsShareSmallMemory) {
  StoreOptions options = small_options(uint64_t{640} << 20);
  options.expected_keys = 100'000;
  World world(options, 4096);
  DirectClient client(world);
  client.batch = 4;
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_FALSE(client.put("user" + std::to_string(i), std::string(100, 'v'))) << i;
  }
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(client.get("user" + std::to_string(i)), std::string(100, 'v'));
  EXPECT_LE(world.stats().memory_used_bytes(), options.memory_bytes);
}

TEST(Store, ClusterTimeNeverGoesBack) {
  World world(small_options());
  const uint64_t start = world.store->cluster_time_ms();
  EXPECT_EQ(start, 1'700'000'000'000U);
  world.executor.advance(1500 * kMillisecond);
  EXPECT_EQ(world.store->cluster_time_ms(), start + 1500);
  world.store->set_cluster_time_ms(start);
  EXPECT_EQ(world.store->cluster_time_ms(), start + 1500);
  world.store->set_cluster_time_ms(start + 9000);
  EXPECT_EQ(world.store->cluster_time_ms(), start + 9000);
}

}  // namespace
}  // namespace skua
