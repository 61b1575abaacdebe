#pragma once
// Splitter grows tables ahead of need: it looks at a partition's tables when enough blocks have been handed out, and
// splits those that are half full, a slice at a time.
//
// Cost:    look: a comparison. Each time that the slots of a partition fill up by a thirty-second, one sequential pass
//          over them. A split: one CAS a slot and one access to the block of each key; a table of 1 Ki buckets takes
//          about a millisecond, in which its writers wait.
// Borrows: Executor, Reclaimer and partitions.
// Threads: the executor's.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/executor.h"
#include "server/partition.h"
#include "server/reclaimer.h"

namespace skua {

class Splitter {
 public:
  // `make_room`: tries to free memory of other partitions; true when it is worth to try again.
  Splitter(Executor& executor, Reclaimer& reclaimer, std::function<bool()> make_room)
      : executor_(executor), reclaimer_(reclaimer), make_room_(std::move(make_room)) {}

  // Blocks of `partition` were handed out.
  void look(Partition& partition) {
    if (partition.may_be_overloaded()) [[unlikely]] look_closely(partition);
  }
  // The table that `hash` leads to is split in any case. `done`: somebody waits for it, so it comes before those that
  // are split ahead of need, and is told whether it was split.
  using Done = std::function<void(bool split)>;
  void request(Partition& partition, proto::KeyHash hash, Done done);

  uint64_t refused() const { return refused_; }  // for want of memory

 private:
  struct Wanted {
    Partition* partition;
    size_t table;
    std::vector<Done> done;
  };
  void look_closely(Partition& partition);
  void enqueue(Partition& partition, size_t table, Done done);
  void finish_first(bool split);
  void step();
  void step_soon();
  bool begin(const Wanted& wanted);

  Executor& executor_;
  Reclaimer& reclaimer_;
  std::function<bool()> make_room_;
  std::deque<Wanted> wanted_;  // the first may have begun
  bool posted_ = false;
  uint64_t refused_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace skua
