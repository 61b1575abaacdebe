#pragma once
// Where the cluster map is kept. It changes by compare-and-swap on its membership epoch and in no other way.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "proto/control.pb.h"

namespace skua {

// Threads: one owner.
class MapStore {
 public:
  virtual ~MapStore() = default;
  // Nothing when no map was ever stored.
  virtual Result<std::optional<control::ClusterMap>> load() = 0;
  // Stores `map` for good if the stored one's epoch is `expected_epoch` (0: none is stored). False: it is another, and
  // nothing was changed.
  virtual Result<bool> compare_and_swap(uint64_t expected_epoch, const control::ClusterMap& map) = 0;
};

// In RocksDB under `directory`, which is created; each change is on disk before it is answered. One process at a time.
// Error: kConfiguration (cannot be used, or holds something else: which path, why), kUnavailable (another process has
// it), kCorruption (what it holds is no map).
Result<std::unique_ptr<MapStore>> open_embedded_map_store(const std::string& directory);

// Forgets with the process; for the simulator and throw-away clusters.
class MemoryMapStore final : public MapStore {
 public:
  Result<std::optional<control::ClusterMap>> load() override { return map_; }
  Result<bool> compare_and_swap(uint64_t expected_epoch, const control::ClusterMap& map) override {
    if ((map_ ? map_->epoch() : 0) != expected_epoch) return false;
    map_ = map;
    return true;
  }

 private:
  std::optional<control::ClusterMap> map_;
};

}  // namespace skua
