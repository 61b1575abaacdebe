#include "common/placement/partition_map.h"

#include <gtest/gtest.h>

#include <functional>

namespace skua {
namespace {

control::ClusterMap two_servers(uint32_t partitions) {
  control::ClusterMap map;
  map.set_cluster_id(9);
  map.set_epoch(3);
  map.set_partitions(partitions);
  for (uint32_t id = 1; id <= 2; ++id) {
    control::Server& server = *map.add_servers();
    server.set_id(id);
    server.set_name("server " + std::to_string(id));
    server.set_control_address("127.0.0.1:740" + std::to_string(id));
    server.set_instance(id * 1000);
    server.set_alive(true);
  }
  for (uint32_t i = 0; i < partitions; ++i) map.add_assignments()->set_primary(1 + i % 2);
  return map;
}

TEST(PartitionMap, AnswersPrimariesAndPartitionsOfAServer) {
  const auto map = PartitionMap::create(two_servers(4));
  ASSERT_TRUE(map) << map.error().message();

  EXPECT_EQ((*map)->primary(0).id, 1u);
  EXPECT_EQ((*map)->primary(3).name, "server 2");
  EXPECT_EQ((*map)->partitions_of(2), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ((*map)->server(2)->instance, 2000u);
  EXPECT_EQ((*map)->server(7), nullptr);
  EXPECT_EQ((*map)->membership_epoch(), 3u);
  EXPECT_FALSE((*map)->forming());
}

TEST(PartitionMap, FormingClusterHasServersAndNoPrimaries) {
  control::ClusterMap forming = two_servers(4);
  forming.set_forming(true);
  forming.clear_assignments();
  const auto map = PartitionMap::create(forming);
  ASSERT_TRUE(map);

  EXPECT_TRUE((*map)->forming());
  EXPECT_EQ((*map)->servers().size(), 2u);
  EXPECT_TRUE((*map)->partitions_of(1).empty());
}

TEST(PartitionMap, WhatCannotBeIsRefused) {
  const std::vector<std::pair<std::string, std::function<void(control::ClusterMap&)>>> cases{
      {"3 partitions", [](auto& map) { map.set_partitions(3); }},
      {"0 partitions", [](auto& map) { map.set_partitions(0); }},
      {"131072 partitions", [](auto& map) { map.set_partitions(131072); }},
      {"4 assignments for 8", [](auto& map) { map.set_partitions(8); }},
      {"0 assignments for 4", [](auto& map) { map.clear_assignments(); }},
      {"forming cluster", [](auto& map) { map.set_forming(true); }},
      {"server 7, which is not", [](auto& map) { map.mutable_assignments(2)->set_primary(7); }},
      {"server 1 twice", [](auto& map) { map.mutable_assignments(2)->add_backups(1); }},
      {"server id 1", [](auto& map) { map.mutable_servers(1)->set_id(1); }},
      {"server id 0", [](auto& map) { map.mutable_servers(1)->set_id(0); }},
      {"server id 65536", [](auto& map) { map.mutable_servers(1)->set_id(65536); }},
      {"server id 4294967295", [](auto& map) { map.mutable_servers(1)->set_id(UINT32_MAX); }},
      {"name 'server 1'", [](auto& map) { map.mutable_servers(1)->set_name("server 1"); }},
  };
  for (const auto& [text, spoil] : cases) {
    control::ClusterMap map = two_servers(4);
    spoil(map);
    const auto result = PartitionMap::create(map);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code(), StatusCode::kCorruption);
    EXPECT_NE(result.error().message().find(text), std::string::npos) << result.error().message();
  }
}

}  // namespace
}  // namespace skua
