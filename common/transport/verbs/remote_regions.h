#pragma once
// RemoteRegions is what a queue pair knows of the server's memory: each region's length, and address and remote key of
// the slabs that it has asked for.
//
// Cost:    find: one probe as a rule; no allocation. add: may allocate, once a region and a slab.
// Threads: one owner thread.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/transport/transport.h"

namespace skua {

struct RemoteSlab {
  uint64_t address = 0;  // of its first byte
  uint32_t remote_key = 0;
  bool known = false;
};

struct RemoteRegion {
  uint64_t bytes = 0;
  std::vector<RemoteSlab> slabs;
};

class RemoteRegions {
 public:
  // Largest region that a server may claim: what a slot word can address.
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

  const RemoteRegion* find(RegionKey key) {
    if (last_ != nullptr && last_key_ == key) return last_;
    const auto found = regions_.find(static_cast<uint64_t>(key));
    if (found == regions_.end()) return nullptr;
    last_key_ = key;
    last_ = &found->second;
    return last_;
  }
  void add_region(RegionKey key, uint64_t bytes) { regions_[static_cast<uint64_t>(key)].bytes = bytes; }
  // Requires: add_region(key) before, and `index` within it.
  void add_slab(RegionKey key, uint64_t index, const RemoteSlab& slab) {
    auto& slabs = regions_[static_cast<uint64_t>(key)].slabs;
    if (slabs.size() <= index) slabs.resize(index + 1);
    slabs[index] = slab;
  }

 private:
  std::unordered_map<uint64_t, RemoteRegion> regions_;  // stable addresses
  RegionKey last_key_{};
  const RemoteRegion* last_ = nullptr;
};

}  // namespace skua
