#include "server/splitter.h"

#include <algorithm>

#include "common/base/hooks.h"

namespace skua {
namespace {

// Looked at between two other things that the executor does: about a millisecond's work.
constexpr uint64_t kSliceSlots = SKUA_KNOB(64 * 1024, 100);

}  // namespace

void Splitter::look_closely(Partition& partition) {
  for (const size_t table : partition.overloaded_tables()) enqueue(partition, table, {});
}

void Splitter::request(Partition& partition, proto::KeyHash hash, Done done) {
  enqueue(partition, partition.table_of(hash), std::move(done));
}

void Splitter::enqueue(Partition& partition, size_t table, Done done) {
  auto wanted = std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& other) {
    return other.partition == &partition && other.table == table;
  });
  if (wanted == wanted_.end()) wanted = wanted_.insert(wanted_.end(), Wanted{&partition, table, {}});
  if (done) wanted->done.push_back(std::move(done));
  step_soon();
}

void Splitter::finish_first(bool split) {
  const std::vector<Done> done = std::move(wanted_.front().done);
  wanted_.pop_front();
  for (const Done& tell : done) tell(split);
}

void Splitter::step_soon() {
  if (posted_) return;
  posted_ = true;
  executor_.post([this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    posted_ = false;
    step();
  });
}

bool Splitter::begin(const Wanted& wanted) {
  if (wanted.partition->splitting() || wanted.partition->begin_split(wanted.table)) return true;
  if (make_room_() && wanted.partition->begin_split(wanted.table)) return true;
  SKUA_PROBE("split.no-memory");
  ++refused_;
  return false;
}

void Splitter::step() {
  uint64_t slots = kSliceSlots;
  while (!wanted_.empty() && slots != 0) {
    Partition& partition = *wanted_.front().partition;
    if (!begin(wanted_.front())) {
      finish_first(false);
      continue;
    }
    if (!partition.split(slots, reclaimer_.epoch())) break;
    reclaimer_.dirty(partition);  // the old table's memory comes back with a sweep
    finish_first(true);
  }
  if (!wanted_.empty()) step_soon();
}

}  // namespace skua
