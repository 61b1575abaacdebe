#pragma once
// What operations cost, counted always: one relaxed store a counter, no atomic read-modify-write.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace skua {

enum class OperationKind : uint8_t { kGet, kPut, kPutIfAbsent, kCompareAndSwap, kRemove, kExists, kIncrement, kScan };
inline constexpr size_t kOperationKinds = 8;
std::string_view to_string(OperationKind kind);

// Sums since the session began. Round trips are dependent ones: what is posted together counts once.
struct OperationCounters {
  uint64_t operations = 0;
  uint64_t failed = 0;           // ended in a Status
  uint64_t round_trips = 0;
  uint64_t reads = 0;            // verbs
  uint64_t writes = 0;
  uint64_t compare_and_swaps = 0;
  uint64_t bytes = 0;            // payload of the verbs, both ways
  uint64_t cas_lost = 0;
  uint64_t retries = 0;          // starts over, for any reason
  uint64_t cache_hits = 0;       // answered from the cached location
  uint64_t torn_reads = 0;       // blocks or windows read again because a check failed
  uint64_t in_doubt = 0;
  uint64_t cut_off = 0;          // round trips under which the connection broke

  OperationCounters& operator+=(const OperationCounters& other);
};

using CounterTable = std::array<OperationCounters, kOperationKinds>;

}  // namespace skua
