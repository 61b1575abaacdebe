#include "server/store.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "common/base/check.h"
#include "common/base/hooks.h"
#include "proto/block.h"
#include "server/arena.h"
#include "server/partition.h"
#include "server/reclaimer.h"
#include "server/session_table.h"
#include "server/splitter.h"

namespace skua {
namespace {

constexpr uint32_t kMaxGrantBlocks = 1024;
constexpr uint32_t kMaxWaitCycles = 8;     // complete cycles after which a request that got nothing is refused anyway
constexpr Nanoseconds kMaxWaitLeases = 4;  // a session that reports no epoch can stop all cycles: wait no longer
constexpr uint32_t kMinLog2Buckets = 6;
constexpr uint64_t kLowFraction = 4;       // memory is short when less than 1 / so much of it is free

class StoreImpl final : public Store, private SessionHost, private ReclaimHost {
 public:
  StoreImpl(const StoreOptions& options, std::unique_ptr<Arena> arena, Executor& executor, Entropy& entropy)
      : options_(options),
        executor_(executor),
        arena_(std::move(arena)),
        sessions_({options.lease, options.resume_grace}, executor, entropy, *this),
        reclaimer_(executor, *this, options.sweep_interval),
        splitter_(executor, reclaimer_, [this] { return make_room(); }),
        started_(executor.clock().now()),
        time_offset_ms_(executor.clock().wall_ms() - started_ / kMillisecond) {}
  ~StoreImpl() override {
    if (wait_armed_) executor_.cancel(wait_timer_);
  }

  ArenaInfo arena() const override { return {arena_->data(), arena_->bytes(), arena_->descriptor()}; }
  void add_target(Target& target) override {
    if (target.atomics() != nullptr) arena_->set_atomics(target.atomics());
    sessions_.add_target(target);
  }
  Result<void> serve(const Assignment& assignment) override;

  Result<control::SessionOpened> open_session(const control::OpenSession& request, PushFunction push) override {
    reclaimer_.expect_changes();
    return sessions_.open(request, std::move(push), {reclaimer_.epoch(), cluster_time_ms()}, partitions_);
  }
  void grant(const control::GrantRequest& request, std::function<void(Result<control::Grant>)> done) override;
  void grow_table(const control::GrowTable& request, std::function<void(const Result<void>&)> done) override;
  Result<void> split_table(uint32_t partition, proto::KeyHash hash) override;
  Result<void> compact(uint32_t partition) override;
  Result<void> report(const control::EpochReport& report) override {
    return sessions_.report(report, reclaimer_.epoch());
  }
  void fence_session(const control::FenceSession& request,
                     std::function<void(Result<control::SessionFenced>)> done) override {
    sessions_.fence(request, std::move(done));
  }
  Result<void> resume_session(const control::ResumeSession& request, PushFunction push) override {
    return sessions_.resume(request, std::move(push));
  }
  void detach_session(SessionId session) override { sessions_.detach(session); }
  void close_session(SessionId session) override { sessions_.close(session); }

  uint64_t cluster_time_ms() const override {
    return static_cast<uint64_t>(executor_.clock().now() / kMillisecond + time_offset_ms_);
  }
  void set_cluster_time_ms(uint64_t now_ms) override;
  void statistics(control::ServerStats& out) const override;

 private:
  struct Wait {
    SessionId session{};
    Partition* partition = nullptr;
    int size_class = 0;
    uint32_t blocks = 0;
    uint64_t needed_epoch = 0;  // a cycle counts when it gathered reports of this epoch
    uint32_t cycles = 0;
    Nanoseconds deadline = 0;
    std::function<void(Result<control::Grant>)> done;
  };

  // SessionHost
  void blocks_used(Partition& partition) override { reclaimer_.dirty(partition); }
  void epoch_reported() override { reclaimer_.epoch_reported(); }
  void session_lost(SessionId session) override;
  // ReclaimHost
  uint64_t oldest_epoch() const override { return sessions_.oldest_epoch(); }
  void announce(uint64_t reclaim_epoch) override;
  bool sessions_may_write() const override { return sessions_.writers() > 0; }
  bool memory_plentiful() const override { return waits_.empty() && free_bytes() >= arena_->limit() / 2; }
  bool memory_awaited() const override {
    return std::any_of(waits_.begin(), waits_.end(), [](const Wait& wait) { return wait.cycles > 0; });
  }
  void cycle_finished(uint64_t gathered_epoch, bool pending) override;
  bool can_compact() const;

  Result<Partition*> check_request(const control::GrantRequest& request) const;
  bool serve_wait(const Wait& wait, bool may_commit);
  uint32_t fair_share(const Wait& wait, bool may_commit) const;
  void enqueue(Wait wait);
  void refuse(Wait& wait, const std::string& reason);
  void arm_wait_timer();
  void refuse_overdue();
  void trim_all();
  bool make_room() {
    if (arena_->idle() == 0) return false;
    trim_all();
    return true;
  }
  uint64_t index_bytes() const;
  void relieve_shortage();
  uint64_t free_bytes() const {
    const uint64_t taken = index_bytes() + arena_->block_bytes();
    return arena_->limit() - std::min(arena_->limit(), taken);
  }

  StoreOptions options_;
  Executor& executor_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<Partition>> partitions_;
  std::unordered_map<uint32_t, Partition*> by_id_;
  SessionTable sessions_;
  Reclaimer reclaimer_;
  Splitter splitter_;
  std::deque<Wait> waits_;
  bool wait_armed_ = false;
  Executor::TimerId wait_timer_ = 0;
  Assignment assignment_;
  bool served_ = false;
  uint64_t granted_since_cycle_ = 0;  // bytes
  uint64_t out_of_memory_ = 0;
  Nanoseconds started_;
  int64_t time_offset_ms_;
};

Result<void> StoreImpl::serve(const Assignment& assignment) {
  SKUA_CHECK(!served_, "partitions are served once");
  served_ = true;
  assignment_ = assignment;
  if (assignment.partitions.empty()) {
    reclaimer_.serve(partitions_);
    return {};
  }
  const size_t count = assignment.partitions.size();
  SKUA_RETURN_IF_ERROR(arena_->divide(count));
  // Tables that hold nothing yet take at most an eighth of the memory.
  uint32_t log2_buckets = options_.log2_table_buckets;
  while (log2_buckets > kMinLog2Buckets && proto::table_bytes(log2_buckets) * count * 8 > arena_->limit()) {
    --log2_buckets;
  }
  const TableShape shape = TableShape::for_keys(options_.expected_keys / count + 1, log2_buckets);
  for (size_t i = 0; i < count; ++i) {
    auto partition = std::make_unique<Partition>(*arena_, assignment.partitions[i], i * arena_->stride());
    const auto formatted = partition->format(
        {assignment.cluster_id, assignment.instance, assignment.membership_epoch, shape});
    if (!formatted) {
      return fail(StatusCode::kOutOfMemory,
                  formatted.error().message() + ", " + std::to_string(shape.index_bytes() * count) + " for all " +
                      std::to_string(count) + " partitions, but memory is " + std::to_string(arena_->limit()) +
                      " bytes: raise --memory, or lower the number of expected keys or partitions");
    }
    by_id_[partition->id()] = partition.get();
    partitions_.push_back(std::move(partition));
  }
  reclaimer_.serve(partitions_);
  return {};
}

uint64_t StoreImpl::index_bytes() const {
  uint64_t bytes = 0;
  for (const auto& partition : partitions_) bytes += partition->index_bytes();
  return bytes;
}

Result<void> StoreImpl::split_table(uint32_t partition, proto::KeyHash hash) {
  const auto found = by_id_.find(partition);
  if (found == by_id_.end()) {
    return fail(StatusCode::kStaleEpoch, "partition " + std::to_string(partition) + " is not served here");
  }
  splitter_.request(*found->second, hash, {});
  return {};
}

Result<void> StoreImpl::compact(uint32_t partition) {
  const auto found = by_id_.find(partition);
  if (found == by_id_.end()) {
    return fail(StatusCode::kStaleEpoch, "partition " + std::to_string(partition) + " is not served here");
  }
  reclaimer_.compact(*found->second);
  return {};
}

bool StoreImpl::can_compact() const {
  return std::any_of(partitions_.begin(), partitions_.end(), [](const auto& partition) {
    return !partition->heap().plan_evacuation(Heap::Pressure::kShort).empty();
  });
}

void StoreImpl::grow_table(const control::GrowTable& request, std::function<void(const Result<void>&)> done) {
  if (const auto allowed = sessions_.may_write(SessionId{request.session_id()}); !allowed) return done(allowed);
  const auto found = by_id_.find(request.partition());
  if (found == by_id_.end()) {
    return done(fail(StatusCode::kStaleEpoch, "partition " + std::to_string(request.partition()) +
                                                  " is not served here: refresh the cluster map"));
  }
  Partition& partition = *found->second;
  const proto::KeyHash hash(request.hash());
  if (partition.table_ref(hash).bits() != request.table() || !partition.window_is_full(hash)) return done({});
  splitter_.request(partition, hash, [this, &partition, done = std::move(done)](bool split) {
    if (split) return done({});
    ++out_of_memory_;
    done(fail(StatusCode::kOutOfMemory,
              "a table of partition " + std::to_string(partition.id()) + " is full and cannot be split: " +
                  std::to_string(index_bytes() + arena_->block_bytes()) + " bytes used of " +
                  std::to_string(arena_->limit()) + ", " + std::to_string(partition.tables()) +
                  " tables in the partition; remove keys or raise --memory"));
  });
}

void StoreImpl::set_cluster_time_ms(uint64_t now_ms) {
  const auto offset = static_cast<int64_t>(now_ms) - executor_.clock().now() / kMillisecond;
  // Before anybody was told this server's time it may be set back.
  time_offset_ms_ = served_ ? std::max(time_offset_ms_, offset) : offset;
}

Result<Partition*> StoreImpl::check_request(const control::GrantRequest& request) const {
  SKUA_RETURN_IF_ERROR(sessions_.may_write(SessionId{request.session_id()}));
  const auto partition = by_id_.find(request.partition());
  if (partition == by_id_.end()) {
    return fail(StatusCode::kStaleEpoch, "partition " + std::to_string(request.partition()) +
                                             " is not served here: refresh the cluster map");
  }
  if (request.size_class() >= static_cast<uint32_t>(proto::kSizeClasses) || request.blocks() == 0) {
    return fail(StatusCode::kInvalidArgument, "request for " + std::to_string(request.blocks()) + " blocks of class " +
                                                  std::to_string(request.size_class()) + ": classes are 0 to " +
                                                  std::to_string(proto::kSizeClasses - 1) + ", blocks 1 or more");
  }
  return partition->second;
}

void StoreImpl::grant(const control::GrantRequest& request, std::function<void(Result<control::Grant>)> done) {
  const auto partition = check_request(request);
  if (!partition) return done(Error(partition.error()));
  Wait wait;
  wait.session = SessionId{request.session_id()};
  wait.partition = *partition;
  wait.size_class = static_cast<int>(request.size_class());
  wait.blocks = std::min(request.blocks(), kMaxGrantBlocks);
  wait.done = std::move(done);
  if (segment_shape(wait.size_class).chunks * kChunkBytes > arena_->limit() - index_bytes()) {
    return refuse(wait, "a block of " + std::to_string(proto::size_class_bytes(wait.size_class)) +
                            " bytes can never fit");
  }
  // Who came first goes first; memory of other partitions is kept for those who wait.
  const bool contended = std::any_of(waits_.begin(), waits_.end(), [&](const Wait& other) {
    return other.partition == wait.partition && other.size_class == wait.size_class;
  });
  if (contended || !serve_wait(wait, waits_.empty())) return enqueue(std::move(wait));
  relieve_shortage();
}

// Starts a cycle at once when what was granted since the last one is a good part of what is left.
void StoreImpl::relieve_shortage() {
  const uint64_t free = free_bytes();
  if (free < arena_->limit() / kLowFraction && granted_since_cycle_ >= free / kLowFraction) {
    granted_since_cycle_ = 0;
    reclaimer_.kick(false);
  }
}

uint32_t StoreImpl::fair_share(const Wait& wait, bool may_commit) const {
  const SegmentShape shape = segment_shape(wait.size_class);
  ExtentMap& extents = wait.partition->extents();
  uint64_t chunks = extents.free_chunks();
  if (may_commit) {
    const uint64_t uncommitted = arena_->limit() - arena_->committed();
    chunks += std::min(uncommitted, 2 * uncommitted / partitions_.size()) / kChunkBytes;
  }
  const uint64_t available =
      wait.partition->heap().counts(wait.size_class).free + chunks / shape.chunks * shape.blocks;
  const uint64_t sessions = std::max<uint64_t>(1, sessions_.writers());
  if (available >= 4 * sessions * wait.blocks) return wait.blocks;
  return static_cast<uint32_t>(std::clamp<uint64_t>(available / (2 * sessions), 1, wait.blocks));
}

bool StoreImpl::serve_wait(const Wait& wait, bool may_commit) {
  Heap& heap = wait.partition->heap();
  const uint32_t count = fair_share(wait, may_commit);
  control::Grant grant;
  std::vector<BlockRef> blocks;
  while (blocks.size() < count) {
    auto block = heap.take(wait.size_class, reclaimer_.epoch(), may_commit);
    if (!block && blocks.empty() && may_commit && arena_->idle() > 0) {
      trim_all();
      block = heap.take(wait.size_class, reclaimer_.epoch(), may_commit);
    }
    if (!block) break;
    blocks.push_back(block->ref);
    grant.add_block_units(block->block_units);
    const uint64_t life = SKUA_PLANTED_BUG("token-without-generation") ? 0 : block->generation;
    grant.add_generations(proto::moved_generation(proto::make_generation(block->block_units, life), block->generation));
  }
  if (blocks.empty()) return false;
  granted_since_cycle_ += blocks.size() * proto::size_class_bytes(wait.size_class);
  grant.set_grant_id(sessions_.record_grant(wait.session, *wait.partition, std::move(blocks)));
  splitter_.look(*wait.partition);
  wait.done(std::move(grant));
  return true;
}

void StoreImpl::trim_all() {
  for (const auto& partition : partitions_) {
    if (partition->extents().idle_extents() > 0) partition->extents().trim(0);
  }
}

void StoreImpl::enqueue(Wait wait) {
  wait.needed_epoch = reclaimer_.epoch() + 1;
  wait.deadline = executor_.clock().now() + kMaxWaitLeases * options_.lease;
  waits_.push_back(std::move(wait));
  granted_since_cycle_ = 0;
  reclaimer_.kick(true);
  arm_wait_timer();
}

void StoreImpl::refuse(Wait& wait, const std::string& reason) {
  SKUA_PROBE("server.out-of-memory");
  ++out_of_memory_;
  wait.done(fail(StatusCode::kOutOfMemory,
                 "heap is full: " + reason + "; " + std::to_string(index_bytes() + arena_->block_bytes()) +
                     " bytes used of " + std::to_string(arena_->limit()) + "; remove keys or raise --memory"));
}

void StoreImpl::cycle_finished(uint64_t gathered_epoch, bool pending) {
  granted_since_cycle_ = 0;
  // Some wait in vain: blocks that move may make room.
  std::optional<bool> compaction_helps;
  std::deque<Wait> waits = std::exchange(waits_, {});
  while (!waits.empty()) {
    Wait wait = std::move(waits.front());
    waits.pop_front();
    if (const auto allowed = sessions_.may_write(wait.session); !allowed) {
      wait.done(Error(allowed.error()));
      continue;
    }
    if (serve_wait(wait, true)) continue;
    if (gathered_epoch >= wait.needed_epoch) ++wait.cycles;
    if (wait.cycles > 0 && !compaction_helps) compaction_helps = can_compact();
    const bool hope = pending || compaction_helps.value_or(true);
    if (wait.cycles > 0 && (!hope || wait.cycles >= kMaxWaitCycles)) {
      refuse(wait, "no block of " + std::to_string(proto::size_class_bytes(wait.size_class)) + " bytes in partition " +
                       std::to_string(wait.partition->id()));
    } else {
      waits_.push_back(std::move(wait));
    }
  }
  if (!waits_.empty()) reclaimer_.kick(true);
}

void StoreImpl::session_lost(SessionId session) {
  reclaimer_.expect_changes();
  std::deque<Wait> waits = std::exchange(waits_, {});
  for (Wait& wait : waits) {
    if (wait.session == session) {
      wait.done(fail(StatusCode::kUnavailable, "the session's connection ended while it waited for blocks"));
    } else {
      waits_.push_back(std::move(wait));
    }
  }
}

void StoreImpl::arm_wait_timer() {
  if (wait_armed_ || waits_.empty()) return;
  wait_armed_ = true;
  wait_timer_ = executor_.after(std::max(options_.lease, kMillisecond), [this] {
    wait_armed_ = false;
    refuse_overdue();
    arm_wait_timer();
  });
}

void StoreImpl::refuse_overdue() {
  const Nanoseconds now = executor_.clock().now();
  std::deque<Wait> waits = std::exchange(waits_, {});
  for (Wait& wait : waits) {
    if (now >= wait.deadline) {
      refuse(wait, "a session has not reported for long, so that nothing could be reclaimed");
    } else {
      waits_.push_back(std::move(wait));
    }
  }
}

void StoreImpl::announce(uint64_t reclaim_epoch) {
  control::EpochAdvance advance;
  advance.set_reclaim_epoch(reclaim_epoch);
  advance.set_return_unused(!waits_.empty());
  advance.set_cluster_time_ms(cluster_time_ms());
  advance.set_map_epoch(assignment_.membership_epoch);
  sessions_.announce(advance);
}

void StoreImpl::statistics(control::ServerStats& out) const {
  out.set_instance(assignment_.instance);
  out.set_uptime_ms(static_cast<uint64_t>((executor_.clock().now() - started_) / kMillisecond));
  out.set_memory_limit_bytes(arena_->limit());
  out.set_memory_used_bytes(arena_->committed());
  out.set_index_bytes(index_bytes());
  uint64_t heap = 0;
  uint64_t live = 0;
  uint64_t keys = 0;
  uint64_t tables = 0;
  uint64_t splits = 0;
  for (const auto& partition : partitions_) {
    heap += partition->heap().heap_bytes();
    live += partition->heap().live_bytes();
    keys += partition->live_keys();
    tables += partition->tables();
    splits += partition->splits();
  }
  out.set_tables(tables);
  out.set_splits(splits);
  out.set_splits_refused(splitter_.refused());
  out.set_heap_bytes(heap);
  out.set_live_bytes(live);
  out.set_used_bytes(arena_->block_bytes());
  out.set_live_keys(keys);
  out.set_reclaim_epoch(reclaimer_.epoch());
  out.set_sweeps(reclaimer_.statistics().sweeps);
  out.set_blocks_reused(reclaimer_.statistics().blocks_reused);
  out.set_blocks_moved(reclaimer_.statistics().blocks_moved);
  out.set_bytes_moved(reclaimer_.statistics().bytes_moved);
  out.set_expired_removed(reclaimer_.statistics().expired_removed);
  out.set_sessions(sessions_.size());
  out.set_sessions_fenced(sessions_.fenced());
  out.set_sessions_expired(sessions_.expired());
  out.set_out_of_memory_replies(out_of_memory_);
  out.set_partitions(static_cast<uint32_t>(partitions_.size()));
  out.set_pages(arena_->pages());
  for (int c = 0; c < proto::kSizeClasses; ++c) {
    control::ClassStats sum;
    for (const auto& partition : partitions_) {
      const ClassCounts& counts = partition->heap().counts(c);
      sum.set_segments(sum.segments() + counts.segments);
      sum.set_free(sum.free() + counts.free);
      sum.set_granted(sum.granted() + counts.granted);
      sum.set_used(sum.used() + counts.used);
      sum.set_retired(sum.retired() + counts.retired);
    }
    if (sum.segments() == 0) continue;
    sum.set_size_class(static_cast<uint32_t>(c));
    sum.set_block_bytes(proto::size_class_bytes(c));
    *out.add_classes() = sum;
  }
  for (const Target* target : sessions_.targets()) {
    control::Endpoint* endpoint = out.add_endpoints();
    endpoint->set_transport(std::string(target->name()));
    endpoint->set_address(target->endpoint());
    (*out.mutable_sessions_by_transport())[std::string(target->name())] = target->connections();
  }
}

}  // namespace

Result<std::unique_ptr<Store>> Store::create(const StoreOptions& options, Executor& executor, Entropy& entropy) {
  auto arena = Arena::create(options.memory_bytes, options.pages);
  if (!arena) return Error(arena.error());
  if (options.keeps_memory) (*arena)->keep_memory();
  return std::make_unique<StoreImpl>(options, std::move(*arena), executor, entropy);
}

}  // namespace skua
