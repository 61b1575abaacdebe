#pragma once
// Generators draw numbers from YCSB's distributions: key numbers, field lengths.
//
// Threads: one owner thread each, with its own Random; SharedSequence and AcknowledgedCounter are for all threads.
// Cost:    O(1) a draw and no allocation, but for SkewedLatest after inserts: one pow() for each new key.
#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/status.h"

namespace skua::ycsb {

// FNV-1a over the 8 bytes of `number`, lowest first. As a Java long this is what YCSB's keys are made of.
uint64_t fnv_hash64(uint64_t number);
// Math.abs of the hash read as a Java long: 2^63 stays negative there, and is the one value above INT64_MAX here.
uint64_t java_abs(uint64_t bits);

// First and last value that may be drawn.
struct Interval {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size() const { return last - first + 1; }
};

class Generator {
 public:
  virtual ~Generator() = default;
  virtual uint64_t next(Random& random) = 0;
};

class ConstantGenerator : public Generator {
 public:
  explicit ConstantGenerator(uint64_t value) : value_(value) {}
  uint64_t next(Random&) override { return value_; }

 private:
  uint64_t value_;
};

class UniformGenerator : public Generator {
 public:
  // Requires: interval.first <= interval.last.
  explicit UniformGenerator(Interval interval) : interval_(interval) {}
  uint64_t next(Random& random) override { return interval_.first + random.below(interval_.size()); }

 private:
  Interval interval_;
};

// Zipf's law by the method of Gray et al. (SIGMOD 1994): rank r, from 0, with probability 1 / ((r + 1)^theta zeta(n)).
// Exact for the first two ranks, an approximation beyond.
class ZipfianGenerator : public Generator {
 public:
  static constexpr double kTheta = 0.99;
  static double zeta(uint64_t items, double theta);

  explicit ZipfianGenerator(Interval interval);
  // With zeta(interval.size()) known beforehand.
  ZipfianGenerator(Interval interval, double zeta_of_all);

  uint64_t next(Random& random) override { return interval_first_ + next_rank(random); }
  // In [0, items).
  uint64_t next_rank(Random& random) const;
  // Makes it a distribution over `items`, at a pow() for each new one. Fewer than before are not taken back.
  void grow(uint64_t items);
  uint64_t items() const { return items_; }

 private:
  void set_eta();
  uint64_t interval_first_;
  uint64_t items_;
  double zeta_of_all_;
  double eta_ = 0;
};

// Zipf's law with the frequent ones scattered: ranks among 10^10 items are hashed into the interval, so that which
// keys are frequent does not depend on how many there are.
class ScrambledZipfianGenerator : public Generator {
 public:
  explicit ScrambledZipfianGenerator(Interval interval);
  uint64_t next(Random& random) override;

 private:
  static constexpr uint64_t kItems = 10'000'000'000;
  static constexpr double kZetaOfItems = 26.46902820178302;
  Interval interval_;
  ZipfianGenerator ranks_;
};

// AcknowledgedCounter numbers new keys, and tells up to which one all are inserted.
// Threads: any.
class AcknowledgedCounter {
 public:
  // The first number handed out is `start`; all below count as acknowledged.
  explicit AcknowledgedCounter(uint64_t start) : next_(start), acknowledged_(start) {}

  uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // Requires: `number` came from next() and is acknowledged once, fewer than kWindow past the first that is not.
  void acknowledge(uint64_t number);
  // Every number below is acknowledged.
  uint64_t end() const { return acknowledged_.load(std::memory_order_acquire); }

  static constexpr size_t kWindow = size_t{1} << 20;

 private:
  std::atomic<uint64_t> next_;
  std::atomic<uint64_t> acknowledged_;  // written under mutex_; release: the keys below are in the store
  std::mutex mutex_;
  std::unique_ptr<std::bitset<kWindow>> pending_ = std::make_unique<std::bitset<kWindow>>();  // guarded by mutex_
};

// Zipf's law backwards from the newest acknowledged key.
class SkewedLatestGenerator : public Generator {
 public:
  // Borrows `keys`, which outlives it. `ranks` spans the keys there are at start.
  SkewedLatestGenerator(const AcknowledgedCounter& keys, ZipfianGenerator ranks) : keys_(keys), ranks_(ranks) {}
  uint64_t next(Random& random) override;

 private:
  const AcknowledgedCounter& keys_;
  ZipfianGenerator ranks_;
};

// A share of the draws goes to the first part of the interval, the others to the rest; each part is uniform.
class HotspotGenerator : public Generator {
 public:
  struct Fractions {
    double of_data = 0.2;
    double of_draws = 0.8;
  };
  HotspotGenerator(Interval interval, Fractions fractions);
  uint64_t next(Random& random) override;

 private:
  Interval interval_;
  uint64_t hot_items_;
  double hot_share_;
};

// One key after the other, and again from the first; the order is shared by all threads.
class SharedSequence {
 public:
  explicit SharedSequence(Interval interval) : interval_(interval) {}
  uint64_t next() { return interval_.first + position_.fetch_add(1, std::memory_order_relaxed) % interval_.size(); }

 private:
  Interval interval_;
  std::atomic<uint64_t> position_ = 0;
};
class SequentialGenerator : public Generator {
 public:
  explicit SequentialGenerator(SharedSequence& sequence) : sequence_(sequence) {}
  uint64_t next(Random&) override { return sequence_.next(); }

 private:
  SharedSequence& sequence_;
};

// Distances back from the newest acknowledged key, exponentially distributed; below key 0 it draws again.
class ExponentialGenerator : public Generator {
 public:
  struct Shape {
    double percentile = 95;  // this many per cent of the draws ...
    double range = 1;        // ... are no farther back than this
  };
  ExponentialGenerator(const AcknowledgedCounter& keys, Shape shape);
  uint64_t next(Random& random) override;
  // A distance, without the key.
  uint64_t next_distance(Random& random) const;

 private:
  static constexpr int kMaxDraws = 1000;
  const AcknowledgedCounter& keys_;
  double gamma_;
};

// Field lengths from a file: "BlockSize<TAB>n", then lines "bucket<TAB>count"; bucket i stands for (i + 1) * n bytes.
class HistogramLengthGenerator : public Generator {
 public:
  // Error: kConfiguration, with file, line and what was expected.
  static Result<std::unique_ptr<HistogramLengthGenerator>> load(const std::string& path);
  HistogramLengthGenerator(uint64_t block_bytes, std::vector<uint64_t> counts);
  uint64_t next(Random& random) override;
  uint64_t longest() const { return block_bytes_ * cumulative_.size(); }
  std::unique_ptr<HistogramLengthGenerator> clone() const { return std::make_unique<HistogramLengthGenerator>(*this); }

 private:
  uint64_t block_bytes_;
  std::vector<uint64_t> cumulative_;
};

}  // namespace skua::ycsb
