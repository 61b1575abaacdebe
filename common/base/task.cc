#include "common/base/task.h"

#include <array>

namespace skua::internal {
namespace {

constexpr std::size_t kStep = 128;
constexpr std::size_t kKeptBytes = 4096;

class FramePool {
 public:
  ~FramePool() {
    for (Free*& list : lists_) {
      while (list != nullptr) ::operator delete(std::exchange(list, list->next));
    }
  }
  void* take(std::size_t index) {
    Free*& list = lists_[index];
    if (list == nullptr) return ::operator new((index + 1) * kStep);
    return std::exchange(list, list->next);
  }
  void give(void* frame, std::size_t index) {
    Free* entry = static_cast<Free*>(frame);
    entry->next = lists_[index];
    lists_[index] = entry;
  }

 private:
  struct Free {
    Free* next;
  };
  std::array<Free*, kKeptBytes / kStep> lists_{};
};

thread_local FramePool pool;

constexpr std::size_t index_of(std::size_t bytes) { return (bytes - 1) / kStep; }

}  // namespace

void* allocate_frame(std::size_t bytes) {
  return bytes <= kKeptBytes ? pool.take(index_of(bytes)) : ::operator new(bytes);
}

void release_frame(void* frame, std::size_t bytes) noexcept {
  if (bytes <= kKeptBytes) {
    pool.give(frame, index_of(bytes));
  } else {
    ::operator delete(frame);
  }
}

}  // namespace skua::internal
