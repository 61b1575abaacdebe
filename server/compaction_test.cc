// Blocks move out of extents that are nearly empty, and nobody but the memory's limit notices.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/base/random.h"
#include "server/store_testing.h"

namespace skua {
namespace {

using proto::SlotWord;
using testing::DirectClient;
using testing::World;

StoreOptions options_for(uint64_t memory_bytes) {
  StoreOptions options;
  options.memory_bytes = memory_bytes;
  options.pages = PagePolicy::kSmall;
  options.expected_keys = 1;
  options.log2_table_buckets = 7;
  return options;
}

std::string key_of(int i) { return "key" + std::to_string(i); }
std::string value_of(int i, size_t bytes) {
  std::string value(bytes, static_cast<char>('a' + i % 26));
  value.replace(0, std::min<size_t>(bytes, 8), std::to_string(10'000'000 + i).substr(0, std::min<size_t>(bytes, 8)));
  return value;
}
void settle(World& world, DirectClient& client, int seconds) {
  for (int i = 0; i < seconds; ++i) {
    world.executor.advance(kSecond);
    ASSERT_TRUE(client.report());
  }
}

struct Read {
  SlotWord word;
  proto::BlockHeader header;
};
Read read(const DirectClient& client, const std::string& key) {
  const SlotWord word = DirectClient::load(client.find(key));
  Read result{word, {}};
  std::memcpy(&result.header, client.region(client.partition_of(key)) + word.block_offset(), sizeof result.header);
  return result;
}

TEST(Compaction, MemoryOfWhatWasRemovedIsGivenBack) {
  World world(options_for(64 << 20), 2);
  DirectClient client(world);
  constexpr int kKeys = 60'000;
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_FALSE(client.put(key_of(i), value_of(i, 200)));
    if (i % 64 == 0) world.executor.run();
  }
  settle(world, client, 10);
  const auto full = world.stats();
  for (int i = 0; i < kKeys; ++i) {
    if (i % 10 == 3) continue;
    ASSERT_TRUE(client.remove(key_of(i)));
  }
  client.return_unused = true;
  settle(world, client, 120);
  const auto stats = world.stats();
  EXPECT_EQ(stats.live_keys(), static_cast<uint64_t>(kKeys) / 10);
  EXPECT_GT(stats.blocks_moved(), 1000U);
  EXPECT_LT(stats.heap_bytes(), 3 * stats.live_bytes()) << "of " << full.heap_bytes();
  constexpr uint64_t kExtents = 2 << 20;  // one of each partition, not full
  EXPECT_LT(stats.memory_used_bytes() - stats.index_bytes(), 3 * stats.live_bytes() + kExtents);
  for (int i = 3; i < kKeys; i += 10) ASSERT_EQ(client.get(key_of(i)), value_of(i, 200)) << i;
}

TEST(Compaction, FreeMemoryOfOneClassBecomesAnothers) {
  World world(options_for(16 << 20));
  DirectClient client(world);
  int small = 0;
  while (!client.put(key_of(small), value_of(small, 200))) {
    if (++small % 64 == 0) world.executor.run();
  }
  ASSERT_GT(small, 40'000);
  for (int i = 0; i < small; ++i) {
    if (i % 10 == 3) continue;
    ASSERT_TRUE(client.remove(key_of(i)));
  }
  const uint64_t used = world.stats().index_bytes() + static_cast<uint64_t>(small / 10 + 1) * 256;
  int large = 0;
  while (!client.put("l" + std::to_string(large), value_of(large, 30'000))) ++large;
  EXPECT_GT(static_cast<uint64_t>(large) * 32'768, ((16 << 20) - used) / 10 * 9);
  for (int i = 0; i < large; ++i) ASSERT_EQ(client.get("l" + std::to_string(i)), value_of(i, 30'000)) << i;
  for (int i = 3; i < small; i += 10) ASSERT_EQ(client.get(key_of(i)), value_of(i, 200)) << i;
}

TEST(Compaction, AValueThatMovesKeepsItsTokenAndItsExpiry) {
  World world(options_for(16 << 20));
  DirectClient client(world);
  const uint64_t expiry = world.store->cluster_time_ms() + 60'000;
  ASSERT_FALSE(client.put("k", "value", expiry));
  ASSERT_FALSE(client.put("long", std::string(300'000, 'l')));
  const Read before = read(client, "k");
  ASSERT_TRUE(world.store->compact(0));
  settle(world, client, 3);
  const Read after = read(client, "k");
  EXPECT_NE(after.word, before.word);
  EXPECT_EQ(after.word.fingerprint(), before.word.fingerprint());
  EXPECT_EQ(proto::write_id(after.header.generation), proto::write_id(before.header.generation));
  EXPECT_EQ(after.header.expiry_ms(), expiry);
  EXPECT_EQ(SlotWord(after.header.prev), before.word) << "who is in doubt about the old word finds it";
  EXPECT_TRUE((after.header.flags & proto::kBlockConditional) != 0) << "no PUT takes it for one that overwrote it";
  EXPECT_EQ(client.get("k"), "value");
  EXPECT_EQ(client.get("long"), std::string(300'000, 'l'));
  EXPECT_EQ(world.stats().blocks_moved(), 2U);
  settle(world, client, 120);
  EXPECT_EQ(client.find("k"), nullptr) << "the sweep still knows when it expires";
  EXPECT_EQ(world.stats().expired_removed(), 1U);
}

// Whoever read the old word may still be reading its block.
TEST(Compaction, TheOldBlockStaysUntilEverySessionHasMovedOn) {
  World world(options_for(16 << 20));
  DirectClient client(world);
  ASSERT_FALSE(client.put("k", "value"));
  settle(world, client, 2);
  DirectClient reader(world);
  ASSERT_TRUE(reader.report());
  const SlotWord before = read(client, "k").word;
  const uint64_t asked = reader.epoch;
  ASSERT_TRUE(world.store->compact(0));
  // The cycle that moves wants one report; from then on the reader is silent.
  reader.reports = false;
  for (int i = 0; i < 20 && reader.epoch == asked; ++i) world.executor.step();
  ASSERT_TRUE(reader.report());
  for (int i = 0; i < 200; ++i) {
    ASSERT_FALSE(client.put("other" + std::to_string(i % 7), "another value"));
    world.executor.advance(10 * kMillisecond);
  }
  EXPECT_EQ(reader.view("k", before), "value");
  EXPECT_EQ(reader.get("k"), "value");
}

TEST(Compaction, ADamagedBlockStaysWhereItIs) {
  World world(options_for(16 << 20));
  DirectClient client(world);
  ASSERT_FALSE(client.put("k", "value"));
  const SlotWord before = read(client, "k").word;
  client.region(0)[before.block_offset() + sizeof(proto::BlockHeader)] ^= std::byte{1};
  ASSERT_TRUE(world.store->compact(0));
  settle(world, client, 3);
  client.region(0)[before.block_offset() + sizeof(proto::BlockHeader)] ^= std::byte{1};
  EXPECT_EQ(read(client, "k").word, before);
  EXPECT_EQ(client.get("k"), "value");
}

TEST(Compaction, OnlyOfAPartitionServedHere) {
  World world(options_for(16 << 20));
  EXPECT_EQ(world.store->compact(7).error().code(), StatusCode::kStaleEpoch);
}

// Fill, change every value to another size, remove most, fill again: as long as less than nine tenths are live, there
// is room.
TEST(Compaction, SizesShiftForEverBelowNineTenthsLive) {
  constexpr uint64_t kMemory = 24 << 20;
  World world(options_for(kMemory));
  DirectClient client(world);
  client.batch = 8;
  Random random(11);
  std::map<int, size_t> live;  // key -> bytes of its value
  uint64_t live_bytes = 0;
  int next = 0;
  const auto block_of = [](const std::string& key, size_t bytes) {
    return proto::size_class_bytes(proto::size_class_for(proto::block_bytes(key.size(), bytes)));
  };
  const auto store = [&](int i, size_t bytes) {
    const auto error = client.put(key_of(i), value_of(i, bytes));
    ASSERT_FALSE(error) << "at " << live_bytes << " live bytes, " << world.stats().index_bytes() << " of the index";
    if (const auto known = live.find(i); known != live.end()) live_bytes -= block_of(key_of(i), known->second);
    live[i] = bytes;
    live_bytes += block_of(key_of(i), bytes);
    if (random.below(16) == 0) world.executor.step();
  };
  const auto full = [&](size_t next_bytes) {
    return live_bytes + next_bytes > (kMemory - world.stats().index_bytes()) / 10 * 9 - next_bytes;
  };
  const std::vector<size_t> sizes{150, 4000, 700, 20'000, 100, 1500, 60'000, 300, 9000, 200};
  for (size_t round = 0; round < sizes.size(); ++round) {
    const size_t bytes = sizes[round];
    while (!full(2 * bytes)) ASSERT_NO_FATAL_FAILURE(store(next++, bytes)) << "round " << round;
    // All to another class; who would be too much is removed.
    const size_t other = sizes[(round + 1) % sizes.size()] + 20;
    for (auto it = live.begin(); it != live.end();) {
      const int i = it->first;
      if (full(2 * other)) {
        live_bytes -= block_of(key_of(i), it->second);
        ASSERT_TRUE(client.remove(key_of(i)));
        it = live.erase(it);
        continue;
      }
      ++it;
      ASSERT_NO_FATAL_FAILURE(store(i, other)) << "round " << round;
    }
    for (auto it = live.begin(); it != live.end();) {
      if (random.below(10) == 0) {
        ++it;
        continue;
      }
      live_bytes -= block_of(key_of(it->first), it->second);
      ASSERT_TRUE(client.remove(key_of(it->first)));
      it = live.erase(it);
    }
    for (const auto& [i, size] : live) ASSERT_EQ(client.get(key_of(i)), value_of(i, size)) << "round " << round;
  }
  EXPECT_EQ(world.stats().out_of_memory_replies(), 0U);
  EXPECT_GT(world.stats().blocks_moved(), 0U);
  settle(world, client, 120);
  const auto stats = world.stats();
  EXPECT_LT(stats.memory_used_bytes(), stats.index_bytes() + 3 * live_bytes + (1 << 20)) << live_bytes << " live";
}

}  // namespace
}  // namespace skua
