#pragma once
// Reclaimer turns garbage into free blocks: it sweeps partitions, advances the reclaim epoch, and frees what was
// retired when every session has moved past it (I11).
//
//   idle -> gather -> scan -> release -> idle
//     gather   until every session has reported the newest epoch, so that what it consumed is known
//     scan     slices of the dirty partitions' slots; at the end of each, what was used and not found retires
//     release  the next epoch begins; when every session has reported it, the retired blocks are free
//   Scans also move blocks out of sparse extents (compaction.cc): when somebody waits for memory, and when a good part
//   of a heap has lain idle for a while.
//   peek       in between, now and then: does a partition hold a FREED or TENTATIVE word that no report told of?
//
// Cost:    nothing while nothing changes but a peek (one sequential pass over the slots) at growing intervals. Slices
//          of 64 Ki slots. Unless memory is short, at most a tenth of one core.
// Borrows: Executor, host and partitions.
// Threads: the executor's.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/executor.h"
#include "server/partition.h"

namespace skua {

class ReclaimHost {
 public:
  virtual ~ReclaimHost() = default;
  virtual uint64_t oldest_epoch() const = 0;
  virtual void announce(uint64_t reclaim_epoch) = 0;
  virtual uint64_t cluster_time_ms() const = 0;
  virtual bool sessions_may_write() const = 0;
  virtual bool memory_plentiful() const = 0;
  virtual bool memory_awaited() const = 0;  // somebody waits for blocks, and a cycle did not bring them
  // A cycle has ended that began when every session had reported `gathered_epoch` or later; what it retired is free.
  // `pending`: another cycle may free more without anything else happening. Calls kick when it needs that other cycle.
  virtual void cycle_finished(uint64_t gathered_epoch, bool pending) = 0;
};

class Reclaimer {
 public:
  Reclaimer(Executor& executor, ReclaimHost& host, Nanoseconds sweep_interval);
  ~Reclaimer();

  void serve(std::vector<std::unique_ptr<Partition>>& partitions);
  uint64_t epoch() const { return epoch_; }

  // Something in `partition` may be garbage: it is swept in the next cycle, an interval from now.
  void dirty(Partition& partition);
  // Pages of a table or directory wait for the next epoch to pass; no sweep is needed for them.
  void index_retired();
  // Sessions come, go, or change what nobody reports: peeks start over.
  void expect_changes();
  // Memory is short: a cycle that begins with fresh reports starts as soon as it can. `all`: in every partition.
  void kick(bool all);
  // Every block of `partition` moves, soon.
  void compact(Partition& partition);
  // Sessions have reported; goes on if that was waited for.
  void epoch_reported();

  struct Statistics {
    uint64_t sweeps = 0;
    uint64_t blocks_reused = 0;
    uint64_t expired_removed = 0;
    uint64_t tentative_killed = 0;
    uint64_t peeks = 0;
    uint64_t blocks_moved = 0;
    uint64_t bytes_moved = 0;
  };
  const Statistics& statistics() const { return statistics_; }

 private:
  enum class Phase : uint8_t { kIdle, kGather, kScan, kRelease, kFree, kPeek };

  void start_cycle();
  void start_scan();
  void scan_slice();
  void finish_partition(Partition& partition);
  void finish_scan();
  void free_slice();
  void finish_cycle();
  void advance();
  bool look_for_sparse();
  bool may_be_sparse() const;
  void start_peek();
  void peek_slice();
  void trim();
  void post(void (Reclaimer::*step)());
  void arm(Nanoseconds delay);
  void on_timer();
  void schedule();
  bool collect_dirty();
  Nanoseconds interval() const;

  Executor& executor_;
  ReclaimHost& host_;
  Nanoseconds sweep_interval_;
  std::vector<std::unique_ptr<Partition>>* partitions_ = nullptr;

  Phase phase_ = Phase::kIdle;
  uint64_t epoch_ = 1;
  bool kicked_ = false;
  bool kicked_all_ = false;
  uint64_t kick_epoch_ = 0;      // reports of this epoch or later are new enough for the last kick
  uint64_t gather_epoch_ = 0;
  std::vector<Partition*> scanned_;
  size_t scan_index_ = 0;
  bool begun_ = false;           // scanned_[scan_index_] has
  size_t peek_index_ = 0;
  bool peek_found_ = false;
  ScanContext context_;
  uint64_t retired_ = 0;
  bool grace_pending_ = false;
  bool index_waits_ = false;     // pages were retired that no epoch has been advanced for
  Nanoseconds scan_time_ = 0;    // of the last cycle's slices together

  bool armed_ = false;
  Executor::TimerId timer_ = 0;
  Nanoseconds due_ = 0;
  Nanoseconds peek_due_ = 0;
  Nanoseconds peek_interval_ = 0;
  bool peek_owed_ = false;       // one more, though no session could have changed anything since
  Nanoseconds compaction_due_ = 0;       // no look for sparse extents before
  Nanoseconds compaction_interval_ = 0;
  Nanoseconds expiry_due_ = 0;   // no sweep for expired keys before
  Statistics statistics_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace skua
