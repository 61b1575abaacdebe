#pragma once
// BounceRing hands out pieces of one registered buffer, first in, first out: what the device reads from and writes to
// for callers whose own memory is not registered.
//
// Cost:    a few instructions; no allocation.
// Threads: one owner thread.
#include <cstddef>
#include <cstdint>

namespace skua {

class BounceRing {
 public:
  static constexpr uint64_t kAlignment = 64;

  BounceRing() = default;
  // `bytes`: a power of two.
  BounceRing(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  struct Piece {
    std::byte* data = nullptr;  // null: no room now
    uint64_t end = 0;           // to hand to release_through
  };
  // Requires: wanted <= bytes / 2, so that an empty ring always has it.
  Piece take(uint64_t wanted) {
    const uint64_t size = (wanted + kAlignment - 1) & ~(kAlignment - 1);
    uint64_t begin = tail_;
    const uint64_t at = begin & (bytes_ - 1);
    if (at + size > bytes_) begin += bytes_ - at;  // pieces do not wrap
    if (head_ == tail_) head_ = begin;             // nothing is out: what is skipped is free at once
    if (begin + size - head_ > bytes_) return {};
    tail_ = begin + size;
    return {data_ + (begin & (bytes_ - 1)), tail_};
  }
  // The piece with this `end` and all taken before it are free.
  void release_through(uint64_t end) { head_ = end; }
  uint64_t in_use() const { return tail_ - head_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace skua
