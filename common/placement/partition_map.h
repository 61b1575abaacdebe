#pragma once
// PartitionMap answers which server is the primary of a partition, under one membership epoch.
//
// Immutable, and shared as shared_ptr<const>. Threads: any.
// While a cluster forms (`forming()`), servers are known and no partition has a primary yet.
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "proto/control.pb.h"

namespace skua {

struct ServerEntry {
  uint32_t id = 0;
  std::string name;
  std::string control_address;
  uint64_t instance = 0;  // another after each restart
  bool alive = false;
  uint64_t memory_bytes = 0;
};

class PartitionMap {
 public:
  // Checks what the other side sent. Error: kCorruption, naming what cannot be: partitions no power of two or more than
  // 65536, no or another number of assignments, a primary or backup that is no server of the map or named twice, two
  // servers with one id or name, an id of 0 or above proto::kMaxServerId.
  static Result<std::shared_ptr<const PartitionMap>> create(const control::ClusterMap& map);

  uint64_t cluster_id() const { return cluster_id_; }
  uint64_t membership_epoch() const { return membership_epoch_; }
  uint32_t partitions() const { return partitions_; }
  bool forming() const { return primaries_.empty(); }

  // Requires: !forming(), partition < partitions().
  const ServerEntry& primary(uint32_t partition) const { return servers_[primaries_[partition]]; }
  // Null when the map has no such server.
  const ServerEntry* server(uint32_t id) const;
  const std::vector<ServerEntry>& servers() const { return servers_; }
  // Those that `server` is primary of, ascending.
  std::vector<uint32_t> partitions_of(uint32_t server) const;

 private:
  PartitionMap() = default;

  uint64_t cluster_id_ = 0;
  uint64_t membership_epoch_ = 0;
  uint32_t partitions_ = 0;
  std::vector<ServerEntry> servers_;
  std::unordered_map<uint32_t, uint32_t> index_of_;  // server id -> place in servers_
  std::vector<uint32_t> primaries_;                  // place in servers_; empty while forming
};

}  // namespace skua
