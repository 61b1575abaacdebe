#pragma once
// Trace keeps the last events of a simulated world, and a hash over all of them: two runs of one seed end with the
// same hash, or something in them was not deterministic.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"

namespace skua::sim {

struct TraceEvent {
  static constexpr size_t kNameBytes = 15;

  Nanoseconds at = 0;
  char what[kNameBytes + 1] = {};   // "READ", "CAS lost", "crash", ...
  uint32_t process = 0;             // who caused it
  uint32_t connection = 0;          // data or control connection; 0: none
  uint64_t sequence = 0;            // of the verb or message on its connection
  uint64_t offset = 0;              // verbs: from the region's start
  uint64_t bytes = 0;
  uint64_t before = 0;              // verbs: the first word there, or what an atomic found
  uint64_t after = 0;               // verbs: the first word written, or what an atomic left
};

class Trace {
 public:
  explicit Trace(size_t capacity = size_t{1} << 14) : ring_(capacity) {}

  // Copies `event`; `content` only goes into the hash.
  void add(std::string_view what, TraceEvent event, uint64_t content = 0);

  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }
  // The last `limit` events, oldest first.
  std::vector<TraceEvent> last(size_t limit) const;
  std::string to_string(size_t limit) const;

 private:
  std::vector<TraceEvent> ring_;
  uint64_t count_ = 0;
  uint64_t hash_ = 0x736b7561;
};

// For `content`: any change of the bytes changes it.
uint64_t hash_bytes(const void* data, size_t bytes);

}  // namespace skua::sim
