#pragma once
// Private to transport/verbs: the server's own CAS, executed by the device as its clients' are.
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/transport/target.h"
#include "common/transport/verbs/device_select.h"
#include "common/transport/verbs/verbs_handles.h"

namespace skua {

// A queue pair that is connected to itself, and registrations of the memory that it has been asked to change.
//
// Cost:    a round trip through the device for each CAS, during which the thread spins; a registration for each slab.
// Threads: one owner thread after create.
class VerbsLoopback final : public AtomicsExecutor {
 public:
  // `context` outlives it. Error: kResourceExhausted, kConfiguration.
  static Result<std::unique_ptr<VerbsLoopback>> create(ibv_context* context, const DeviceChoice& choice,
                                                       const ArenaInfo& arena, uint64_t slab_bytes);

  std::optional<uint64_t> compare_and_swap(std::byte* word, uint64_t compare, uint64_t swap) override;

 private:
  struct QueuePairDeleter {
    void operator()(ibv_qp* queue_pair) const { ::ibv_destroy_qp(queue_pair); }
  };

  VerbsLoopback(const ArenaInfo& arena, uint64_t slab_bytes) : arena_(arena), slab_bytes_(slab_bytes) {}
  Result<void> make_queues(ibv_context* context);
  Result<void> connect(const DeviceChoice& choice);
  Result<void> enter_state(ibv_qp_attr& attributes, int mask, const char* name);
  ibv_mr* slab_of(const std::byte* word);
  std::optional<uint64_t> fail_once(const std::string& why);

  const ArenaInfo arena_;
  const uint64_t slab_bytes_;
  bool failed_ = false;
  uint64_t found_ = 0;  // where the device puts the old value
  VerbsHandle<ibv_pd> domain_;
  VerbsHandle<ibv_cq> completions_;
  VerbsHandle<ibv_mr> found_region_;
  std::unordered_map<uint64_t, VerbsHandle<ibv_mr>> slabs_;
  std::unique_ptr<ibv_qp, QueuePairDeleter> queue_pair_;
};

// DeviceAtomics is the loopback of the device that is there now; while there is none, nothing is executed.
// Threads: any.
class DeviceAtomics final : public AtomicsExecutor {
 public:
  std::optional<uint64_t> compare_and_swap(std::byte* word, uint64_t compare, uint64_t swap) override {
    const std::lock_guard lock(mutex_);
    if (!loopback_) return std::nullopt;
    return loopback_->compare_and_swap(word, compare, swap);
  }
  void replace(std::unique_ptr<VerbsLoopback> loopback) {
    const std::lock_guard lock(mutex_);
    loopback_ = std::move(loopback);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<VerbsLoopback> loopback_;
};

}  // namespace skua
