#pragma once
// ScratchPool lends buffers that remote blocks are read into and built in; recycled by size, so that a warmed-up
// session allocates nothing.
//
// Shape:   powers of two from 512 B; up to kKeptBytes of each size are kept.
// Threads: one owner thread. A Scratch does not outlive its pool.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace skua {

class ScratchPool;

class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), data_(other.data_), index_(other.index_) {}
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch() { reset(); }
  std::byte* data() const { return data_; }
  size_t capacity() const { return pool_ == nullptr ? 0 : size_t{512} << index_; }
  void reset();

 private:
  friend class ScratchPool;
  Scratch(ScratchPool* pool, std::byte* data, size_t index) : pool_(pool), data_(data), index_(index) {}
  ScratchPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  size_t index_ = 0;
};

class ScratchPool {
 public:
  ScratchPool() = default;
  ScratchPool(const ScratchPool&) = delete;
  ~ScratchPool() {
    for (auto& list : free_) {
      for (std::byte* buffer : list) ::operator delete(buffer, std::align_val_t{64});
    }
  }
  // At least `bytes`, 64-byte aligned, content undefined.
  Scratch take(size_t bytes) {
    const size_t index = bytes <= 512 ? 0 : std::bit_width((bytes - 1) >> 9);
    auto& list = free_[index];
    if (!list.empty()) {
      std::byte* buffer = list.back();
      list.pop_back();
      return Scratch(this, buffer, index);
    }
    void* buffer = ::operator new(size_t{512} << index, std::align_val_t{64});
    return Scratch(this, static_cast<std::byte*>(buffer), index);
  }

 private:
  friend class Scratch;
  static constexpr size_t kKeptBytes = size_t{64} << 20;
  void give(std::byte* buffer, size_t index) {
    const size_t most = kKeptBytes >> (9 + index);
    if (free_[index].size() < (most == 0 ? 1 : most) && free_[index].size() < 1024) {
      free_[index].push_back(buffer);
    } else {
      ::operator delete(buffer, std::align_val_t{64});
    }
  }
  std::array<std::vector<std::byte*>, 20> free_;
};

inline Scratch& Scratch::operator=(Scratch&& other) noexcept {
  if (this != &other) {
    reset();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = other.data_;
    index_ = other.index_;
  }
  return *this;
}

inline void Scratch::reset() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->give(data_, index_);
}

}  // namespace skua
