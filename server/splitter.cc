#include "server/splitter.h"

#include <algorithm>

#include "common/base/hooks.h"

namespace skua {
namespace {

// Looked at between two other things that the executor does: two tables of 1 Ki buckets, about three milliseconds.
constexpr uint64_t kSliceSlots = SKUA_KNOB(16 * 1024, 10);

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
  if (!done) {
    if (wanted == wanted_.end()) wanted_.push_back({&partition, table, {}});
    return step_soon();
  }
  // Somebody waits for this one: it comes before those that are split ahead of need.
  Wanted urgent{&partition, table, {}};
  if (wanted != wanted_.end()) {
    if (wanted == wanted_.begin()) {
      wanted->done.push_back(std::move(done));
      return;
    }
    urgent = std::move(*wanted);
    wanted_.erase(wanted);
  }
  urgent.done.push_back(std::move(done));
  const auto first_waiting = std::find_if(wanted_.begin() + (wanted_.empty() ? 0 : 1), wanted_.end(),
                                          [](const Wanted& other) { return other.done.empty(); });
  wanted_.insert(first_waiting, std::move(urgent));
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
    reclaimer_.index_retired();
    finish_first(true);
  }
  if (!wanted_.empty()) step_soon();
}

}  // namespace skua
