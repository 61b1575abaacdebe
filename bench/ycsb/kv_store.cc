#include "bench/ycsb/kv_store.h"

namespace skua::ycsb {

OperationCost& OperationCost::operator+=(const OperationCost& other) {
  operations += other.operations;
  round_trips += other.round_trips;
  verbs += other.verbs;
  bytes += other.bytes;
  cas_lost += other.cas_lost;
  cache_hits += other.cache_hits;
  return *this;
}

OperationCost& OperationCost::operator-=(const OperationCost& other) {
  operations -= other.operations;
  round_trips -= other.round_trips;
  verbs -= other.verbs;
  bytes -= other.bytes;
  cas_lost -= other.cas_lost;
  cache_hits -= other.cache_hits;
  return *this;
}

}  // namespace skua::ycsb
