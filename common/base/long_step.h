#pragma once
// A thread that is watched for progress tells its watcher, in the middle of a step that takes long, that it goes on:
// copying 64 MiB under a sanitizer on a busy machine takes longer than a session's lease.
// Cost:    a load of a thread-local pointer and one increment; call goes_on once in a MiB, not in a loop over words.
// Threads: a counter is written by the watched thread, read by any.
#include <atomic>
#include <cstdint>

namespace skua {

class LongStep {
 public:
  // Until forget, goes_on of this thread counts on `progress`, and on no other.
  static void watch(std::atomic<uint64_t>& progress) { watched() = &progress; }
  // Requires: on the thread that watches, before `progress` ends its life. Nothing when another is watched by now.
  static void forget(const std::atomic<uint64_t>& progress) {
    if (watched() == &progress) watched() = nullptr;
  }
  // Nothing where nobody watches.
  static void goes_on() {
    if (std::atomic<uint64_t>* const progress = watched()) {
      progress->store(progress->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }

 private:
  static std::atomic<uint64_t>*& watched() {
    static thread_local std::atomic<uint64_t>* progress = nullptr;
    return progress;
  }
};

}  // namespace skua
