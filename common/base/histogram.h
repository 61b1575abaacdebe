#pragma once
// Histogram counts values in buckets whose width is at most a thousandth of the value (three significant digits).
//
// Shape:   values below 2048 exactly; above, 1024 linear buckets for each doubling, up to kMaxValue; larger ones count
//          as kMaxValue.
// Cost:    record: a few instructions, no allocation. 264 KiB of address space; only touched pages are resident.
// Threads: one writer. Any thread may copy, merge from or take `since` of it meanwhile: such a snapshot agrees with
//          itself in count and percentiles, while its sum may be a few records ahead or behind.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>

namespace skua {

class Histogram {
 public:
  static constexpr uint64_t kMaxValue = (uint64_t{1} << 42) - 1;

  Histogram();
  Histogram(const Histogram& other);
  Histogram& operator=(const Histogram& other);
  Histogram(Histogram&&) noexcept = default;
  Histogram& operator=(Histogram&&) noexcept = default;

  void record(uint64_t value);
  void merge(const Histogram& other);
  // What was recorded after `earlier`, a copy of this histogram, was taken. Its min and max are exact to three digits.
  Histogram since(const Histogram& earlier) const;

  uint64_t count() const;
  uint64_t min() const;       // 0 when empty
  uint64_t max() const;       // 0 when empty
  double mean() const;        // 0 when empty
  double variance() const;    // of the population; 0 when empty
  // The smallest recorded value, to three digits and never below it, that `percentile` per cent of all do not exceed.
  uint64_t value_at_percentile(double percentile) const;

  struct Bucket {
    uint64_t lowest = 0;
    uint64_t highest = 0;
    uint64_t count = 0;
  };
  // Buckets that hold something, in ascending order.
  void for_each(const std::function<void(const Bucket&)>& visit) const;

 private:
  static constexpr unsigned kExactBits = 11;
  static constexpr size_t kHalf = size_t{1} << (kExactBits - 1);
  static constexpr size_t kBuckets = (42 - kExactBits) * kHalf + 2 * kHalf;
  static size_t index_of(uint64_t value);
  static Bucket bounds_of(size_t index);

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  // Written by the owner thread with relaxed stores, read by any.
  std::unique_ptr<uint64_t[], Free> counts_;
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  double sum_of_squares_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
};

}  // namespace skua
