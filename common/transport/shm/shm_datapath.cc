// The hot half of the shm queue pair: verbs as loads, stores and CPU atomics on the mapped arena.
#include <algorithm>

#include "common/base/long_step.h"
#include "common/base/remote_memory.h"
#include "common/transport/shm/shm_queue_pair.h"

namespace skua {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPrefetchBytes = 512;  // of one READ; from there on the hardware's own prefetcher runs ahead

std::atomic_ref<uint64_t> shared(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

}  // namespace

size_t ShmQueuePair::post(std::span<const WorkRequest> requests) {
  if (state_ != QueuePairState::kReady) return 0;
  const size_t taken = std::min<size_t>(requests.size(), kQueueDepth - (tail_ - head_));
  for (size_t i = 0; i < taken; ++i) {
    Entry& entry = (*ring_)[(tail_ + i) % kQueueDepth];
    entry.request = requests[i];
    prepare(entry);
  }
  tail_ += taken;
  return taken;
}

void ShmQueuePair::prepare(Entry& entry) {
  const WorkRequest& request = entry.request;
  const uint64_t bytes = request.bytes();
  const auto access = regions_.resolve({request.verb, request.key, request.remote_offset, bytes});
  entry.remote = access.address;
  entry.verdict = access.status;
  if (access.status != CompletionStatus::kSuccess || bytes == 0) return;
  if (request.verb == Verb::kRead) {
    const std::byte* end = access.address + std::min(bytes, kPrefetchBytes);
    for (const std::byte* line = access.address; line < end; line += kLine) __builtin_prefetch(line, 0);
  } else {
    __builtin_prefetch(access.address, 1);
  }
}

size_t ShmQueuePair::poll(std::span<Completion> completions) {
  if (state_ == QueuePairState::kConnecting) advance_handshake();
  size_t count = 0;
  if (state_ == QueuePairState::kReady) {
    if (head_ == tail_ && revoked()) break_off(CompletionStatus::kPeerLost, nullptr);
    while (head_ != tail_ && count < completions.size()) {
      Entry& entry = (*ring_)[head_ % kQueueDepth];
      const CompletionStatus status = execute(entry);
      if (status != CompletionStatus::kSuccess) {
        break_off(status, &entry);
        break;
      }
      ++head_;
      if (entry.request.signaled) completions[count++] = {entry.request.context, CompletionStatus::kSuccess};
    }
    disarm();
    if (head_ == tail_) head_ = tail_ = 0;  // a ring that is mostly empty stays in the nearest cache
  }
  if (state_ == QueuePairState::kError) count += flush(completions.subspan(count));
  return count;
}

CompletionStatus ShmQueuePair::execute(Entry& entry) {
  if (entry.verdict != CompletionStatus::kSuccess) return entry.verdict;
  switch (entry.request.verb) {
    case Verb::kRead: entry.verdict = execute_read(entry); break;
    case Verb::kWrite: entry.verdict = execute_write(entry); break;
    case Verb::kCompareAndSwap:
    case Verb::kFetchAndAdd: entry.verdict = execute_atomic(entry); break;
  }
  return entry.verdict;
}

CompletionStatus ShmQueuePair::execute_read(const Entry& entry) {
  const WorkRequest& request = entry.request;
  const uint64_t bytes = request.bytes();
  if (bytes > armed_bytes_left_) disarm();  // a fence must not wait for a long READ
  const std::byte* remote = entry.remote;
  for (size_t i = 0; i < request.local_count; ++i) {
    auto* local = static_cast<std::byte*>(request.local[i].data);
    uint64_t left = request.local[i].bytes;
    while (left > kStepBytes) {
      copy_from_remote(local, remote, kStepBytes);
      local += kStepBytes;
      remote += kStepBytes;
      left -= kStepBytes;
      LongStep::goes_on();
    }
    copy_from_remote(local, remote, left);
    remote += left;
  }
  if (armed_) armed_bytes_left_ -= bytes;
  std::atomic_thread_fence(std::memory_order_acquire);  // the copy's loads before the check
  return revoked() ? CompletionStatus::kPeerLost : CompletionStatus::kSuccess;
}

CompletionStatus ShmQueuePair::execute_write(const Entry& entry) {
  const WorkRequest& request = entry.request;
  std::byte* remote = entry.remote;
  if (!arm(0)) return CompletionStatus::kPeerLost;
  for (size_t i = 0; i < request.local_count; ++i) {
    const auto* local = static_cast<const std::byte*>(request.local[i].data);
    uint64_t left = request.local[i].bytes;
    while (left != 0) {
      // Pieces end at aligned words of the target, so that no word is stored in two armed sections.
      uint64_t piece = std::min(left, kArmedBytes);
      if (piece < left) piece -= reinterpret_cast<uintptr_t>(remote + piece) & 7;
      if (!arm(piece)) return CompletionStatus::kPeerLost;
      copy_to_remote(remote, local, piece);
      remote += piece;
      local += piece;
      left -= piece;
      if (left != 0) LongStep::goes_on();
    }
  }
  return CompletionStatus::kSuccess;
}

CompletionStatus ShmQueuePair::execute_atomic(const Entry& entry) {
  const WorkRequest& request = entry.request;
  if (!arm(8)) return CompletionStatus::kPeerLost;
  const uint64_t found = request.verb == Verb::kCompareAndSwap
                             ? compare_and_swap_word(entry.remote, {request.compare, request.swap_or_add})
                             : fetch_add_word(entry.remote, request.swap_or_add);
  const auto* from = reinterpret_cast<const std::byte*>(&found);
  for (size_t i = 0; i < request.local_count; ++i) {
    std::copy_n(from, request.local[i].bytes, static_cast<std::byte*>(request.local[i].data));
    from += request.local[i].bytes;
  }
  return CompletionStatus::kSuccess;
}

// True: stores of up to `bytes` may follow. False: the session is fenced, or the server gone.
bool ShmQueuePair::arm(uint64_t bytes) {
  if (armed_ && bytes <= armed_bytes_left_) {
    armed_bytes_left_ -= bytes;
    return true;
  }
  disarm();
  shared(session_->armed).store(1, std::memory_order_seq_cst);
  armed_ = true;
  armed_bytes_left_ = kArmedBytes - bytes;
  if (shared(session_->fenced).load(std::memory_order_seq_cst) != 0 || revoked()) {
    disarm();
    return false;
  }
  return true;
}

void ShmQueuePair::disarm() {
  if (!armed_) return;
  shared(session_->armed).store(0, std::memory_order_release);
  armed_ = false;
  armed_bytes_left_ = 0;
}

bool ShmQueuePair::revoked() const {
  const std::atomic_ref<uint32_t> owner(*const_cast<uint32_t*>(&life_->owner));
  return shared(session_->fenced).load(std::memory_order_acquire) != 0 ||
         (owner.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

void ShmQueuePair::break_off(CompletionStatus status, const Entry* entry) {
  disarm();
  if (status == CompletionStatus::kPeerLost) {
    fail_with(Status(StatusCode::kPeerLost, "the server ended, or ended this session's data connection"));
    return;
  }
  const WorkRequest& request = entry->request;
  fail_with(Status(StatusCode::kPeerLost,
                   std::string(to_string(status)) + ": verb " + std::to_string(static_cast<int>(request.verb)) +
                       " on " + std::to_string(request.bytes()) + " bytes at offset " +
                       std::to_string(request.remote_offset) + " of a region"));
}

// The request that failed, with its status, then all behind it.
size_t ShmQueuePair::flush(std::span<Completion> completions) {
  size_t count = 0;
  for (; head_ != tail_ && count < completions.size(); ++head_) {
    const Entry& entry = (*ring_)[head_ % kQueueDepth];
    if (!failed_reported_) {
      completions[count++] = {entry.request.context, entry.verdict};
      failed_reported_ = true;
    } else if (entry.request.signaled) {
      completions[count++] = {entry.request.context, CompletionStatus::kFlushed};
    }
  }
  return count;
}

}  // namespace skua
