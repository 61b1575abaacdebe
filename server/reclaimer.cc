#include "server/reclaimer.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/hooks.h"

namespace skua {
namespace {

constexpr uint64_t kSliceSlots = SKUA_KNOB(64 * 1024, 112);
constexpr uint64_t kSliceBlocks = SKUA_KNOB(64 * 1024, 4);
constexpr Nanoseconds kDutyDivisor = 10;        // sweeps take at most so small a part of one core
constexpr Nanoseconds kPlentifulFactor = SKUA_KNOB(5, 1);  // sweeps are so much rarer while half of the memory is free
constexpr Nanoseconds kPeekFactor = 5;          // first peek, in sweep intervals
constexpr Nanoseconds kPeekGrowthMax = 32;      // the rarest ones are so many times rarer
constexpr Nanoseconds kExpiryInterval = SKUA_KNOB(10 * kSecond, 5 * kMillisecond);
constexpr Nanoseconds kCompactionInterval = SKUA_KNOB(2 * kSecond, 5 * kMillisecond);
constexpr Nanoseconds kCompactionGrowthMax = 32;  // looks that find nothing grow so many times rarer
constexpr uint32_t kIdleTrims = 2;              // an extent is given back when it held nothing for so many sweeps

}  // namespace

Reclaimer::Reclaimer(Executor& executor, ReclaimHost& host, Nanoseconds sweep_interval)
    : executor_(executor),
      host_(host),
      sweep_interval_(std::max(sweep_interval, kMillisecond)),
      peek_interval_(kPeekFactor * sweep_interval_) {}

Reclaimer::~Reclaimer() {
  if (armed_) executor_.cancel(timer_);
}

void Reclaimer::serve(std::vector<std::unique_ptr<Partition>>& partitions) {
  partitions_ = &partitions;
  for (const auto& partition : partitions) partition->publish_epoch(epoch_);
}

void Reclaimer::post(void (Reclaimer::*step)()) {
  executor_.post([this, step, alive = std::weak_ptr<char>(alive_)] {
    if (!alive.expired()) (this->*step)();
  });
}

Nanoseconds Reclaimer::interval() const {
  const Nanoseconds base = host_.memory_plentiful() ? kPlentifulFactor * sweep_interval_ : sweep_interval_;
  return std::max(base, kDutyDivisor * scan_time_);
}

void Reclaimer::arm(Nanoseconds delay) {
  const Nanoseconds due = executor_.clock().now() + delay;
  if (armed_ && due_ <= due) return;
  if (armed_) executor_.cancel(timer_);
  armed_ = true;
  due_ = due;
  timer_ = executor_.after(delay, [this] {
    armed_ = false;
    on_timer();
  });
}

void Reclaimer::dirty(Partition& partition) {
  partition.dirty = true;
  expect_changes();
  if (phase_ == Phase::kIdle) arm(interval());
}

void Reclaimer::index_retired() {
  index_waits_ = true;
  if (phase_ == Phase::kIdle) arm(interval());
}

void Reclaimer::expect_changes() {
  peek_interval_ = kPeekFactor * sweep_interval_;
  compaction_interval_ = kCompactionInterval;
  peek_due_ = std::min(peek_due_, executor_.clock().now() + peek_interval_);
  peek_owed_ = true;
  if (phase_ == Phase::kIdle) arm(peek_interval_);
}

void Reclaimer::kick(bool all) {
  if (partitions_ == nullptr) return;
  kick_epoch_ = epoch_ + 1;
  kicked_all_ |= all;
  if (kicked_) return;
  kicked_ = true;
  if (phase_ == Phase::kIdle) post(&Reclaimer::start_cycle);
}

void Reclaimer::compact(Partition& partition) {
  partition.compaction = Heap::Pressure::kForced;
  partition.dirty = true;
  kick(false);
}

void Reclaimer::epoch_reported() {
  start_scan();
  const bool passed = host_.oldest_epoch() >= epoch_ || SKUA_PLANTED_BUG("reuse-without-grace") ||
                      (SKUA_PLANTED_BUG("reuse-one-epoch-early") && host_.oldest_epoch() + 1 >= epoch_);
  if (phase_ == Phase::kRelease && passed) {
    phase_ = Phase::kFree;
    scan_index_ = 0;
    post(&Reclaimer::free_slice);
  }
}

void Reclaimer::advance() {
  ++epoch_;
  for (const auto& partition : *partitions_) partition->publish_epoch(epoch_);
  host_.announce(epoch_);
}

// Requires: a kick, or dirty partitions.
void Reclaimer::start_cycle() {
  if (phase_ != Phase::kIdle) return;
  const bool all = kicked_all_;
  // A kick wants reports that are newer than it.
  const bool fresh = kicked_ && kick_epoch_ > epoch_;
  kicked_ = kicked_all_ = false;
  phase_ = Phase::kGather;
  if (all) {
    for (const auto& partition : *partitions_) partition->dirty = true;
  }
  gather_epoch_ = fresh ? epoch_ + 1 : epoch_;
  if (fresh) advance();
  start_scan();
}

void Reclaimer::start_scan() {
  if (phase_ != Phase::kGather || host_.oldest_epoch() < gather_epoch_) return;
  phase_ = Phase::kScan;
  scanned_.clear();
  for (const auto& partition : *partitions_) {
    if (partition->dirty) scanned_.push_back(partition.get());
  }
  scan_index_ = 0;
  begun_ = false;
  retired_ = 0;
  grace_pending_ = false;
  scan_time_ = 0;
  context_ = {};
  post(&Reclaimer::scan_slice);
}

void Reclaimer::scan_slice() {
  const Nanoseconds start = executor_.clock().now();
  context_.reclaim_epoch = epoch_;
  context_.oldest_epoch = host_.oldest_epoch();
  context_.cluster_time_ms = host_.cluster_time_ms();
  uint64_t slots = kSliceSlots;
  while (scan_index_ < scanned_.size()) {
    Partition& partition = *scanned_[scan_index_];
    if (!begun_) {
      if (slots == 0) break;
      partition.dirty = false;
      if (!partition.compaction && host_.memory_awaited()) partition.compaction = Heap::Pressure::kShort;
      partition.begin_scan(std::exchange(partition.compaction, std::nullopt));
      begun_ = true;
    }
    if (!partition.scan(context_, slots)) break;
    finish_partition(partition);
    begun_ = false;
    ++scan_index_;
  }
  scan_time_ += executor_.clock().now() - start;
  if (scan_index_ < scanned_.size()) return post(&Reclaimer::scan_slice);
  finish_scan();
}

void Reclaimer::finish_partition(Partition& partition) {
  retired_ += partition.heap().finish_sweep().retired;
  if (partition.freed_words() > 0) {
    partition.dirty = true;
    grace_pending_ = true;
  }
}

void Reclaimer::finish_scan() {
  statistics_.sweeps += scanned_.empty() ? 0 : 1;
  statistics_.expired_removed += context_.expired;
  statistics_.tentative_killed += context_.tentative_killed;
  statistics_.blocks_moved += context_.moved;
  statistics_.bytes_moved += context_.moved_bytes;
  if (retired_ == 0 && !grace_pending_ && !index_waits_) return finish_cycle();
  index_waits_ = false;  // what is retired from here on waits for the epoch behind this one
  phase_ = Phase::kRelease;
  advance();
  epoch_reported();
}

void Reclaimer::free_slice() {
  uint64_t blocks = 0;
  for (; scan_index_ < scanned_.size() && blocks < kSliceBlocks; ++scan_index_) {
    blocks += scanned_[scan_index_]->heap().release_retired(epoch_);
  }
  statistics_.blocks_reused += blocks;
  if (scan_index_ < scanned_.size()) return post(&Reclaimer::free_slice);
  for (const auto& partition : *partitions_) {
    if (!partition->retired_index()) continue;
    partition->release_index(host_.oldest_epoch());
    index_waits_ |= partition->retired_index();
  }
  finish_cycle();
}

void Reclaimer::finish_cycle() {
  phase_ = Phase::kIdle;
  for (Partition* partition : scanned_) partition->end_moves();
  if (!kicked_) trim();
  host_.cycle_finished(gather_epoch_, retired_ > 0 || grace_pending_ || context_.moved > 0);
  if (kicked_) return start_cycle();
  schedule();
}

// Is there memory to be given back by moving what is left of it? What was taken lately will be taken again.
bool Reclaimer::look_for_sparse() {
  const Nanoseconds now = executor_.clock().now();
  if (now < compaction_due_ || !may_be_sparse()) return false;
  bool any = false;
  for (const auto& partition : *partitions_) {
    if (!partition->sparse()) continue;
    partition->compaction = Heap::Pressure::kNone;
    partition->dirty = any = true;
  }
  compaction_interval_ = any ? kCompactionInterval
                             : std::min(2 * compaction_interval_, kCompactionGrowthMax * kCompactionInterval);
  compaction_due_ = now + compaction_interval_;
  return any;
}

bool Reclaimer::may_be_sparse() const {
  return std::any_of(partitions_->begin(), partitions_->end(),
                     [](const auto& partition) { return partition->may_be_sparse(); });
}

void Reclaimer::trim() {
  for (const auto& partition : *partitions_) {
    if (partition->extents().idle_extents() > 0) partition->extents().trim(kIdleTrims);
  }
}

bool Reclaimer::collect_dirty() {
  const uint64_t now_ms = host_.cluster_time_ms();
  const bool expiry = executor_.clock().now() >= expiry_due_;
  bool any = false;
  bool any_expiry = false;
  for (const auto& partition : *partitions_) {
    if (expiry && partition->next_expiry_ms().value_or(UINT64_MAX) <= now_ms) {
      partition->dirty = true;
      any_expiry = true;
    }
    any |= partition->dirty;
  }
  if (any_expiry) expiry_due_ = executor_.clock().now() + kExpiryInterval;
  return any;
}

void Reclaimer::on_timer() {
  if (phase_ != Phase::kIdle || partitions_ == nullptr) return;
  const bool sparse = look_for_sparse();
  if (collect_dirty() || sparse || index_waits_) return start_cycle();
  trim();
  if (executor_.clock().now() >= peek_due_ && (peek_owed_ || host_.sessions_may_write())) return start_peek();
  schedule();
}

// Idle: when is there something to do next?
void Reclaimer::schedule() {
  bool soon = false;
  uint64_t expiry_ms = UINT64_MAX;
  for (const auto& partition : *partitions_) {
    soon |= partition->dirty || partition->extents().idle_extents() > 0;
    expiry_ms = std::min(expiry_ms, partition->next_expiry_ms().value_or(UINT64_MAX));
  }
  const Nanoseconds now = executor_.clock().now();
  if (soon || index_waits_) arm(interval());
  if (may_be_sparse()) arm(std::max(compaction_due_ - now, interval()));
  if (expiry_ms != UINT64_MAX) {
    const uint64_t now_ms = host_.cluster_time_ms();
    const auto in_ms = static_cast<Nanoseconds>(std::min<uint64_t>(expiry_ms - std::min(expiry_ms, now_ms), 3'600'000));
    arm(std::max({in_ms * kMillisecond, expiry_due_ - now, sweep_interval_}));
  }
  if (peek_owed_ || host_.sessions_may_write()) arm(std::max(peek_due_ - now, sweep_interval_));
}

void Reclaimer::start_peek() {
  phase_ = Phase::kPeek;
  peek_owed_ = host_.sessions_may_write();
  peek_index_ = 0;
  peek_found_ = false;
  ++statistics_.peeks;
  peek_slice();
}

void Reclaimer::peek_slice() {
  uint64_t slots = 0;
  for (; peek_index_ < partitions_->size() && slots < kSliceSlots && !kicked_; ++peek_index_) {
    Partition& partition = *(*partitions_)[peek_index_];
    slots += partition.slots();
    if (!partition.has_transient_words()) continue;
    partition.dirty = true;
    peek_found_ = true;
  }
  if (peek_index_ < partitions_->size() && !kicked_) return post(&Reclaimer::peek_slice);
  peek_interval_ = peek_found_ ? kPeekFactor * sweep_interval_
                               : std::min(4 * peek_interval_, kPeekGrowthMax * kPeekFactor * sweep_interval_);
  peek_due_ = executor_.clock().now() + peek_interval_;
  phase_ = Phase::kIdle;
  if (kicked_ || peek_found_) return start_cycle();
  schedule();
}

}  // namespace skua
