#include "common/placement/partition_map.h"

#include <bit>
#include <set>

#include "proto/limits.h"

namespace skua {
namespace {

Error refuse(const std::string& why) { return fail(StatusCode::kCorruption, "cluster map: " + why); }

}  // namespace

Result<std::shared_ptr<const PartitionMap>> PartitionMap::create(const control::ClusterMap& map) {
  if (map.partitions() > proto::kMaxPartitions || !std::has_single_bit(map.partitions())) {
    return refuse(std::to_string(map.partitions()) + " partitions; it is a power of two up to " +
                  std::to_string(proto::kMaxPartitions));
  }
  const std::shared_ptr<PartitionMap> result(new PartitionMap());
  result->cluster_id_ = map.cluster_id();
  result->membership_epoch_ = map.epoch();
  result->partitions_ = map.partitions();
  std::set<std::string> names;
  for (const control::Server& server : map.servers()) {
    const auto place = static_cast<uint32_t>(result->servers_.size());
    if (server.id() == 0 || server.id() > proto::kMaxServerId ||
        !result->index_of_.emplace(server.id(), place).second) {
      return refuse("server id " + std::to_string(server.id()) + " is zero, above " +
                    std::to_string(proto::kMaxServerId) + " or there twice");
    }
    if (!names.insert(server.name()).second) return refuse("two servers have the name '" + server.name() + "'");
    result->servers_.push_back({server.id(), server.name(), server.control_address(), server.instance(),
                                server.alive(), server.memory_bytes()});
  }
  if (map.forming() && map.assignments_size() == 0) return result;
  if (map.forming() || static_cast<uint32_t>(map.assignments_size()) != map.partitions()) {
    return refuse(std::to_string(map.assignments_size()) + " assignments for " + std::to_string(map.partitions()) +
                  " partitions" + (map.forming() ? " of a forming cluster" : ""));
  }
  for (int partition = 0; partition < map.assignments_size(); ++partition) {
    const control::PartitionAssignment& assignment = map.assignments(partition);
    std::set<uint32_t> replicas;
    std::vector<uint32_t> wanted(assignment.backups().begin(), assignment.backups().end());
    wanted.insert(wanted.begin(), assignment.primary());
    for (const uint32_t id : wanted) {
      if (result->index_of_.count(id) == 0) {
        return refuse("partition " + std::to_string(partition) + " lies on server " + std::to_string(id) +
                      ", which is not in the map");
      }
      if (!replicas.insert(id).second) {
        return refuse("partition " + std::to_string(partition) + " lies on server " + std::to_string(id) + " twice");
      }
    }
    result->primaries_.push_back(result->index_of_.at(assignment.primary()));
  }
  return result;
}

const ServerEntry* PartitionMap::server(uint32_t id) const {
  const auto found = index_of_.find(id);
  return found == index_of_.end() ? nullptr : &servers_[found->second];
}

std::vector<uint32_t> PartitionMap::partitions_of(uint32_t server) const {
  std::vector<uint32_t> result;
  for (uint32_t partition = 0; partition < primaries_.size(); ++partition) {
    if (primary(partition).id == server) result.push_back(partition);
  }
  return result;
}

}  // namespace skua
