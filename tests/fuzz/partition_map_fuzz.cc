// Promises of the cluster map as a client takes it from a server (common/placement/partition_map.h), for any bytes:
//   it is refused as corrupt, or every partition has exactly one primary, a server of the map;
//   ids are small enough to index by them, unique, and so are names.
#include <bit>
#include <set>
#include <string>

#include "common/base/check.h"
#include "common/placement/partition_map.h"
#include "proto/limits.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  control::ClusterMap message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto created = PartitionMap::create(message);
  if (!created) {
    SKUA_CHECK(created.error().code() == StatusCode::kCorruption, "kind of refusal");
    return 0;
  }
  const PartitionMap& map = **created;
  SKUA_CHECK(std::has_single_bit(map.partitions()) && map.partitions() <= proto::kMaxPartitions, "partitions");
  SKUA_CHECK(map.cluster_id() == message.cluster_id() && map.membership_epoch() == message.epoch(), "epoch");
  std::set<uint32_t> ids;
  std::set<std::string> names;
  size_t assigned = 0;
  for (const ServerEntry& server : map.servers()) {
    SKUA_CHECK(server.id != 0 && server.id <= proto::kMaxServerId, "ids are indices");
    SKUA_CHECK(ids.insert(server.id).second && names.insert(server.name).second, "unique");
    SKUA_CHECK(map.server(server.id) == &server, "found by its id");
    const auto partitions = map.partitions_of(server.id);
    for (const uint32_t partition : partitions) SKUA_CHECK(&map.primary(partition) == &server, "primary");
    assigned += partitions.size();
  }
  SKUA_CHECK(assigned == (map.forming() ? 0 : map.partitions()), "each partition has one primary");
  SKUA_CHECK(map.server(0) == nullptr, "0 is no server");
  return 0;
}
