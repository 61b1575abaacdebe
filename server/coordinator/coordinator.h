#pragma once
// Coordinator decides who is a member and which partitions each server holds.
//
// State:   the cluster map, in a MapStore; who was heard of when, in memory.
// Forming: until `initial_servers` servers have joined no partition is assigned; then all are, round-robin, in the
//          order of joining. Later servers join without partitions.
// Rejoin:  a server that comes back under its name keeps its id and partitions, under a new instance and epoch.
// Cost:    one synced write for every change of the map.
// Threads: the executor's. Borrows MapStore and Clock, which outlive it.
// Errors:  kConfiguration for a join that would take a living server's name; kStaleEpoch for a heartbeat of an instance
//          that was replaced.
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "proto/control.pb.h"
#include "server/coordinator/map_store.h"

namespace skua {

struct CoordinatorOptions {
  uint32_t partitions = 0;       // 0: as stored, or the default for a new cluster
  uint32_t initial_servers = 0;  // 0: as stored, or 1
  Nanoseconds alive_timeout = 3 * kSecond;  // a server silent for so long counts as not alive
};

class Coordinator {
 public:
  // Loads the map or makes a new cluster. Error: the store's; kConfiguration when `partitions` is not what the stored
  // cluster has, or is no power of two.
  static Result<std::unique_ptr<Coordinator>> open(const CoordinatorOptions& options, MapStore& store,
                                                   const Clock& clock, Entropy& entropy);

  const control::ClusterMap& map() const { return map_; }
  // Called after every change of the map.
  void on_change(std::function<void()> handler) { changed_ = std::move(handler); }

  // Returns the server's id. Again with the same instance: no change.
  Result<uint32_t> join(const control::Join& request);
  Result<void> heartbeat(uint32_t server, uint64_t instance);
  // Orderly end: not alive any more.
  Result<void> leave(uint32_t server, uint64_t instance);
  // The instance's connection is gone: another instance may take its name at once.
  void disconnected(uint32_t server, uint64_t instance);
  // Marks silent servers as not alive. To be called several times within alive_timeout.
  Result<void> check_alive();

  // Replaces the map if its epoch is `expected_epoch`; the new one gets the next. False: it was another, nothing
  // changed.
  Result<bool> change(uint64_t expected_epoch, const control::ClusterMap& next);

 private:
  struct Presence {
    Nanoseconds heard = 0;
    bool connected = false;
  };
  Coordinator(const CoordinatorOptions& options, MapStore& store, const Clock& clock)
      : options_(options), store_(store), clock_(clock) {}
  control::Server* find(control::ClusterMap& map, uint32_t server) const;
  Result<control::Server*> member(control::ClusterMap& map, uint32_t server, uint64_t instance) const;
  Result<void> must_change(control::ClusterMap next);
  void heard_of(uint32_t server);

  const CoordinatorOptions options_;
  MapStore& store_;
  const Clock& clock_;
  control::ClusterMap map_;
  std::unordered_map<uint32_t, Presence> presence_;
  std::function<void()> changed_;
};

}  // namespace skua
