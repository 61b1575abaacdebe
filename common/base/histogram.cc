#include "common/base/histogram.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "common/base/check.h"

namespace skua {
namespace {

template <class T>
T load(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}
template <class T>
void store(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}

}  // namespace

Histogram::Histogram() : counts_(static_cast<uint64_t*>(std::calloc(kBuckets, sizeof(uint64_t)))) {
  SKUA_CHECK(counts_ != nullptr, "no memory for a histogram");
}

Histogram::Histogram(const Histogram& other) : Histogram() { merge(other); }

Histogram& Histogram::operator=(const Histogram& other) {
  if (this != &other) *this = Histogram(other);
  return *this;
}

size_t Histogram::index_of(uint64_t value) {
  const unsigned width = static_cast<unsigned>(std::bit_width(value));
  if (width <= kExactBits) return static_cast<size_t>(value);
  const unsigned shift = width - kExactBits;
  return shift * kHalf + static_cast<size_t>(value >> shift);
}

Histogram::Bucket Histogram::bounds_of(size_t index) {
  if (index < 2 * kHalf) return {index, index, 0};
  const size_t shift = index / kHalf - 1;
  const uint64_t lowest = uint64_t{index - shift * kHalf} << shift;
  return {lowest, lowest + (uint64_t{1} << shift) - 1, 0};
}

void Histogram::record(uint64_t value) {
  value = std::min(value, kMaxValue);
  uint64_t& bucket = counts_[index_of(value)];
  const double real = static_cast<double>(value);
  if (value < min_) store(min_, value);
  if (value > max_) store(max_, value);
  store(sum_, sum_ + value);
  store(sum_of_squares_, sum_of_squares_ + real * real);
  store(bucket, bucket + 1);
  store(count_, count_ + 1);
}

void Histogram::merge(const Histogram& other) {
  const uint64_t other_max = load(other.max_);
  const uint64_t other_min = load(other.min_);
  if (other_min > other_max) return;
  uint64_t added = 0;
  for (size_t i = index_of(other_min); i <= index_of(other_max); ++i) {
    const uint64_t count = load(other.counts_[i]);
    if (count == 0) continue;
    store(counts_[i], counts_[i] + count);
    added += count;
  }
  store(count_, count_ + added);
  store(sum_, sum_ + load(other.sum_));
  store(sum_of_squares_, sum_of_squares_ + load(other.sum_of_squares_));
  store(min_, std::min(min_, other_min));
  store(max_, std::max(max_, other_max));
}

Histogram Histogram::since(const Histogram& earlier) const {
  Histogram now(*this);
  Histogram interval;
  if (now.count_ == 0) return interval;
  for (size_t i = index_of(now.min_); i <= index_of(now.max_); ++i) {
    const uint64_t count = now.counts_[i] - std::min(earlier.counts_[i], now.counts_[i]);
    if (count == 0) continue;
    const Bucket bounds = bounds_of(i);
    interval.counts_[i] = count;
    interval.count_ += count;
    interval.min_ = std::min(interval.min_, std::max(bounds.lowest, now.min_));
    interval.max_ = std::max(interval.max_, std::min(bounds.highest, now.max_));
  }
  interval.sum_ = now.sum_ - std::min(earlier.sum_, now.sum_);
  interval.sum_of_squares_ = std::max(0.0, now.sum_of_squares_ - earlier.sum_of_squares_);
  return interval;
}

uint64_t Histogram::count() const { return load(count_); }
uint64_t Histogram::min() const { return count() == 0 ? 0 : load(min_); }
uint64_t Histogram::max() const { return load(max_); }

double Histogram::mean() const {
  const uint64_t n = count();
  return n == 0 ? 0.0 : static_cast<double>(load(sum_)) / static_cast<double>(n);
}

double Histogram::variance() const {
  const uint64_t n = count();
  if (n == 0) return 0.0;
  const double average = mean();
  return std::max(0.0, load(sum_of_squares_) / static_cast<double>(n) - average * average);
}

uint64_t Histogram::value_at_percentile(double percentile) const {
  const uint64_t n = count();
  if (n == 0) return 0;
  const double share = std::clamp(percentile, 0.0, 100.0) / 100.0;
  // The product is rounded in the last place first, so that 99.9 % of 1000 is 999 and not 1000.
  const double exact = share * static_cast<double>(n);
  const uint64_t wanted = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(exact * (1.0 - 1e-12))));
  uint64_t seen = 0;
  const uint64_t largest = max();
  for (size_t i = index_of(load(min_)); i <= index_of(largest); ++i) {
    seen += load(counts_[i]);
    if (seen >= wanted) return std::min(bounds_of(i).highest, largest);
  }
  return largest;
}

void Histogram::for_each(const std::function<void(const Bucket&)>& visit) const {
  if (count() == 0) return;
  for (size_t i = index_of(load(min_)); i <= index_of(load(max_)); ++i) {
    Bucket bucket = bounds_of(i);
    bucket.count = load(counts_[i]);
    if (bucket.count != 0) visit(bucket);
  }
}

}  // namespace skua
