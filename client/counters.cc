#include "client/counters.h"

namespace skua {

std::string_view to_string(OperationKind kind) {
  constexpr std::string_view kNames[kOperationKinds] = {"get",    "put",    "put_if_absent", "compare_and_swap",
                                                        "remove", "exists", "increment",     "scan"};
  return kNames[static_cast<size_t>(kind)];
}

OperationCounters& OperationCounters::operator+=(const OperationCounters& other) {
  operations += other.operations;
  failed += other.failed;
  round_trips += other.round_trips;
  reads += other.reads;
  writes += other.writes;
  compare_and_swaps += other.compare_and_swaps;
  bytes += other.bytes;
  cas_lost += other.cas_lost;
  retries += other.retries;
  cache_hits += other.cache_hits;
  torn_reads += other.torn_reads;
  in_doubt += other.in_doubt;
  cut_off += other.cut_off;
  return *this;
}

}  // namespace skua
