#include "server/coordinator/coordinator.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <stdlib.h>

#include <filesystem>
#include <set>

#include "common/control/manual_executor.h"
#include "common/placement/partition_map.h"
#include "proto/limits.h"

namespace skua {
namespace {

class CountingEntropy final : public Entropy {
 public:
  uint64_t next() override { return count_ += 0x9e3779b97f4a7c15ULL; }

 private:
  uint64_t count_ = 7;
};

control::Join join_of(const std::string& name, uint64_t instance) {
  control::Join request;
  request.set_name(name);
  request.set_control_address("127.0.0.1:7400");
  request.set_instance(instance);
  request.set_memory_bytes(1 << 20);
  return request;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  void open(uint32_t partitions = 8, uint32_t initial_servers = 3) {
    coordinator_.reset();
    CoordinatorOptions options;
    options.partitions = partitions;
    options.initial_servers = initial_servers;
    auto opened = Coordinator::open(options, store_, executor_.clock(), entropy_);
    ASSERT_TRUE(opened) << opened.error().message();
    coordinator_ = std::move(*opened);
  }
  void join_three() {
    for (uint64_t i = 1; i <= 3; ++i) {
      ASSERT_EQ(coordinator_->join(join_of("s" + std::to_string(i), i * 10)).value(), i);
    }
  }

  testing::ManualExecutor executor_;
  CountingEntropy entropy_;
  MemoryMapStore store_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, AssignsRoundRobinOnceTheInitialServersHaveJoined) {
  open();
  ASSERT_TRUE(coordinator_->join(join_of("s1", 10)));
  ASSERT_TRUE(coordinator_->join(join_of("s2", 20)));
  EXPECT_TRUE(coordinator_->map().forming());
  EXPECT_EQ(coordinator_->map().assignments_size(), 0);
  ASSERT_TRUE(coordinator_->join(join_of("s3", 30)));

  const auto map = PartitionMap::create(coordinator_->map());
  ASSERT_TRUE(map) << map.error().message();
  EXPECT_EQ((*map)->partitions_of(1), (std::vector<uint32_t>{0, 3, 6}));
  EXPECT_EQ((*map)->partitions_of(2), (std::vector<uint32_t>{1, 4, 7}));
  EXPECT_EQ((*map)->partitions_of(3), (std::vector<uint32_t>{2, 5}));
  EXPECT_NE((*map)->cluster_id(), 0u);
}

TEST_F(CoordinatorTest, LaterServerJoinsWithoutPartitions) {
  open();
  join_three();
  ASSERT_EQ(coordinator_->join(join_of("s4", 40)).value(), 4u);

  EXPECT_TRUE(PartitionMap::create(coordinator_->map()).value()->partitions_of(4).empty());
}

TEST_F(CoordinatorTest, SameInstanceJoiningAgainChangesNothing) {
  open();
  join_three();
  const uint64_t epoch = coordinator_->map().epoch();

  EXPECT_EQ(coordinator_->join(join_of("s2", 20)).value(), 2u);
  EXPECT_EQ(coordinator_->map().epoch(), epoch);
}

TEST_F(CoordinatorTest, RestartedServerKeepsIdAndPartitionsUnderANewInstanceAndEpoch) {
  open();
  join_three();
  const auto before = PartitionMap::create(coordinator_->map()).value();
  coordinator_->disconnected(2, 20);

  EXPECT_EQ(coordinator_->join(join_of("s2", 21)).value(), 2u);
  const auto after = PartitionMap::create(coordinator_->map()).value();
  EXPECT_EQ(after->partitions_of(2), before->partitions_of(2));
  EXPECT_EQ(after->membership_epoch(), before->membership_epoch() + 1);
  EXPECT_EQ(after->server(2)->instance, 21u);
  EXPECT_EQ(coordinator_->heartbeat(2, 20).error().code(), StatusCode::kStaleEpoch);
}

TEST_F(CoordinatorTest, LivingServersNameIsRefusedUntilItFallsSilent) {
  open();
  join_three();
  const auto refused = coordinator_->join(join_of("s2", 99));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kConfiguration);
  EXPECT_NE(refused.error().message().find("'s2'"), std::string::npos);
  EXPECT_NE(refused.error().message().find("--name"), std::string::npos);
  executor_.advance(3 * kSecond);

  EXPECT_EQ(coordinator_->join(join_of("s2", 99)).value(), 2u);
}

TEST_F(CoordinatorTest, LateDisconnectOfAnOldInstanceDoesNotExposeTheNewOne) {
  open();
  join_three();
  coordinator_->disconnected(2, 20);
  ASSERT_TRUE(coordinator_->join(join_of("s2", 21)));
  coordinator_->disconnected(2, 20);

  EXPECT_FALSE(coordinator_->join(join_of("s2", 22)));
}

TEST_F(CoordinatorTest, SilentServerIsMarkedAndComesBackByItsHeartbeat) {
  open();
  join_three();
  executor_.advance(2 * kSecond);
  ASSERT_TRUE(coordinator_->heartbeat(1, 10));
  ASSERT_TRUE(coordinator_->heartbeat(3, 30));
  executor_.advance(kSecond);
  ASSERT_TRUE(coordinator_->check_alive());
  auto map = PartitionMap::create(coordinator_->map()).value();
  EXPECT_TRUE(map->server(1)->alive);
  EXPECT_FALSE(map->server(2)->alive);

  ASSERT_TRUE(coordinator_->heartbeat(2, 20));
  map = PartitionMap::create(coordinator_->map()).value();
  EXPECT_TRUE(map->server(2)->alive);
}

TEST_F(CoordinatorTest, ServerThatLeavesIsNotAliveAtOnce) {
  open();
  join_three();
  ASSERT_TRUE(coordinator_->leave(3, 30));

  EXPECT_FALSE(PartitionMap::create(coordinator_->map()).value()->server(3)->alive);
  EXPECT_FALSE(coordinator_->leave(3, 31));
  EXPECT_FALSE(coordinator_->leave(9, 31));
}

TEST_F(CoordinatorTest, ChangeAgainstAnotherEpochDoesNothing) {
  open();
  join_three();
  control::ClusterMap next = coordinator_->map();
  next.mutable_servers(0)->set_memory_bytes(42);
  const uint64_t epoch = coordinator_->map().epoch();

  EXPECT_FALSE(coordinator_->change(epoch - 1, next).value());
  EXPECT_NE(coordinator_->map().servers(0).memory_bytes(), 42u);
  EXPECT_TRUE(coordinator_->change(epoch, next).value());
  EXPECT_EQ(coordinator_->map().servers(0).memory_bytes(), 42u);
  EXPECT_EQ(coordinator_->map().epoch(), epoch + 1);
}

TEST_F(CoordinatorTest, ServerBeyondTheLastIdIsRefused) {
  open(8, 1);
  ASSERT_TRUE(coordinator_->join(join_of("s1", 10)));
  control::ClusterMap full = coordinator_->map();
  full.add_servers()->set_id(proto::kMaxServerId);
  full.mutable_servers(1)->set_name("last");
  ASSERT_TRUE(coordinator_->change(full.epoch(), full).value());

  const auto refused = coordinator_->join(join_of("s2", 20));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(coordinator_->map().servers_size(), 2);
}

TEST_F(CoordinatorTest, RestartKeepsClusterAndRefusesAnotherNumberOfPartitions) {
  open();
  join_three();
  const control::ClusterMap before = coordinator_->map();
  open(0, 0);
  EXPECT_EQ(coordinator_->map().SerializeAsString(), before.SerializeAsString());

  CoordinatorOptions options;
  options.partitions = 16;
  const auto refused = Coordinator::open(options, store_, executor_.clock(), entropy_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("made with 8"), std::string::npos);
  options.partitions = 12;
  EXPECT_EQ(Coordinator::open(options, store_, executor_.clock(), entropy_).error().code(), StatusCode::kConfiguration);
}

class EmbeddedMapStoreTest : public ::testing::Test {
 protected:
  EmbeddedMapStoreTest() {
    std::string pattern = "/dev/shm/skua-coordinator-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~EmbeddedMapStoreTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

control::ClusterMap map_of(uint64_t epoch) {
  control::ClusterMap map;
  map.set_epoch(epoch);
  map.set_partitions(4);
  return map;
}

TEST_F(EmbeddedMapStoreTest, KeepsTheMapAcrossReopeningAndSwapsOnItsEpochAlone) {
  {
    auto store = open_embedded_map_store(directory_ + "/a/b");
    ASSERT_TRUE(store) << store.error().message();
    EXPECT_FALSE((*store)->load().value().has_value());
    EXPECT_FALSE((*store)->compare_and_swap(1, map_of(2)).value());
    EXPECT_TRUE((*store)->compare_and_swap(0, map_of(1)).value());
    EXPECT_FALSE((*store)->compare_and_swap(0, map_of(9)).value());
  }
  auto store = open_embedded_map_store(directory_ + "/a/b");
  ASSERT_TRUE(store) << store.error().message();

  EXPECT_EQ((*store)->load().value()->epoch(), 1u);
  EXPECT_TRUE((*store)->compare_and_swap(1, map_of(2)).value());
}

TEST_F(EmbeddedMapStoreTest, SecondUserAndUnusableDirectoriesAreNamed) {
  const auto first = open_embedded_map_store(directory_ + "/one");
  ASSERT_TRUE(first);
  const auto second = open_embedded_map_store(directory_ + "/one");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), StatusCode::kUnavailable);
  EXPECT_NE(second.error().message().find(directory_ + "/one"), std::string::npos);

  const auto impossible = open_embedded_map_store("/proc/no/such");
  ASSERT_FALSE(impossible);
  EXPECT_EQ(impossible.error().code(), StatusCode::kConfiguration);
  EXPECT_NE(impossible.error().message().find("/proc/no/such"), std::string::npos);
}

TEST_F(EmbeddedMapStoreTest, AnotherProgramsDatabaseAndAnotherFormatAreRefused) {
  for (const auto& [key, value, text] : {std::tuple{"song", "la", "not a coordinator's"},
                                         std::tuple{"format", "skua coordinator 9", "'skua coordinator 9'"}}) {
    const std::string path = directory_ + "/" + key;
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* raw = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(options, path, &raw).ok());
    std::unique_ptr<rocksdb::DB> database(raw);
    ASSERT_TRUE(database->Put({}, key, value).ok());
    database.reset();

    const auto refused = open_embedded_map_store(path);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), StatusCode::kConfiguration);
    EXPECT_NE(refused.error().message().find(text), std::string::npos) << refused.error().message();
  }
}

}  // namespace
}  // namespace skua
