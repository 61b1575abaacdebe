#pragma once
// KvStore is what a workload needs of a store; the client library is behind it in programs, a map in tests.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace skua::ycsb {

// What one kind of operation has cost since its connection was opened.
struct OperationCost {
  uint64_t operations = 0;
  uint64_t round_trips = 0;
  uint64_t verbs = 0;
  uint64_t bytes = 0;
  uint64_t cas_lost = 0;
  uint64_t cache_hits = 0;

  OperationCost& operator+=(const OperationCost& other);
  OperationCost& operator-=(const OperationCost& other);
};
struct StoreCosts {
  OperationCost reads;
  OperationCost writes;
};

using KvVersion = uint64_t;

struct KvReadItem {
  std::string_view key;
  std::string value;
  Result<bool> found{false};
};

// Threads: one owner thread each.
class KvStore {
 public:
  virtual ~KvStore() = default;
  // False: absent. `version` may be null.
  virtual Result<bool> read(std::string_view key, std::string& value, KvVersion* version) = 0;
  virtual void read_many(std::span<KvReadItem> items) = 0;
  virtual Result<void> write(std::string_view key, std::string_view value) = 0;
  // False: the version is another one by now, or the key is gone.
  virtual Result<bool> replace(std::string_view key, KvVersion expected, std::string_view value) = 0;
  virtual StoreCosts costs() const = 0;
};

// Opens a connection for the calling thread. Threads: any.
class KvStoreFactory {
 public:
  virtual ~KvStoreFactory() = default;
  virtual Result<std::unique_ptr<KvStore>> open() = 0;
};

}  // namespace skua::ycsb
