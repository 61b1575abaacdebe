#include "bench/ycsb/generators.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/base/check.h"

namespace skua::ycsb {

uint64_t fnv_hash64(uint64_t number) {
  constexpr uint64_t kOffsetBasis = 0xCBF29CE484222325;
  constexpr uint64_t kPrime = 1099511628211;
  uint64_t hash = kOffsetBasis;
  for (int i = 0; i < 8; ++i) {
    hash ^= number & 0xff;
    hash *= kPrime;
    number >>= 8;
  }
  return hash;
}

uint64_t java_abs(uint64_t bits) {
  return static_cast<int64_t>(bits) < 0 ? ~bits + 1 : bits;
}

double ZipfianGenerator::zeta(uint64_t items, double theta) {
  double sum = 0;
  for (uint64_t i = 1; i <= items; ++i) sum += 1.0 / std::pow(static_cast<double>(i), theta);
  return sum;
}

ZipfianGenerator::ZipfianGenerator(Interval interval) : ZipfianGenerator(interval, zeta(interval.size(), kTheta)) {}

ZipfianGenerator::ZipfianGenerator(Interval interval, double zeta_of_all)
    : interval_first_(interval.first), items_(interval.size()), zeta_of_all_(zeta_of_all) {
  set_eta();
}

void ZipfianGenerator::set_eta() {
  static const double zeta_of_two = zeta(2, kTheta);
  eta_ = (1.0 - std::pow(2.0 / static_cast<double>(items_), 1.0 - kTheta)) / (1.0 - zeta_of_two / zeta_of_all_);
}

void ZipfianGenerator::grow(uint64_t items) {
  if (items <= items_) return;
  for (uint64_t i = items_ + 1; i <= items; ++i) zeta_of_all_ += 1.0 / std::pow(static_cast<double>(i), kTheta);
  items_ = items;
  set_eta();
}

uint64_t ZipfianGenerator::next_rank(Random& random) const {
  static const double first_two = 1.0 + std::pow(0.5, kTheta);
  const double u = random.unit();
  const double scaled = u * zeta_of_all_;
  if (scaled < 1.0 || items_ == 1) return 0;
  if (scaled < first_two || items_ == 2) return 1;
  const double rank = static_cast<double>(items_) * std::pow(eta_ * u - eta_ + 1.0, 1.0 / (1.0 - kTheta));
  return std::min(static_cast<uint64_t>(rank), items_ - 1);
}

ScrambledZipfianGenerator::ScrambledZipfianGenerator(Interval interval)
    : interval_(interval), ranks_({0, kItems}, kZetaOfItems) {}

uint64_t ScrambledZipfianGenerator::next(Random& random) {
  return interval_.first + java_abs(fnv_hash64(ranks_.next_rank(random))) % interval_.size();
}

void AcknowledgedCounter::acknowledge(uint64_t number) {
  const std::lock_guard lock(mutex_);
  uint64_t end = acknowledged_.load(std::memory_order_relaxed);
  SKUA_CHECK(number >= end && number - end < kWindow, "acknowledged twice, or too far ahead");
  pending_->set(number % kWindow);
  while (pending_->test(end % kWindow)) {
    pending_->reset(end % kWindow);
    ++end;
  }
  acknowledged_.store(end, std::memory_order_release);
}

uint64_t SkewedLatestGenerator::next(Random& random) {
  const uint64_t end = std::max<uint64_t>(keys_.end(), 1);
  ranks_.grow(end);
  return end - 1 - std::min(ranks_.next_rank(random), end - 1);
}

HotspotGenerator::HotspotGenerator(Interval interval, Fractions fractions)
    : interval_(interval),
      hot_items_(static_cast<uint64_t>(static_cast<double>(interval.size()) * fractions.of_data)),
      hot_share_(fractions.of_draws) {
  if (hot_items_ == 0) hot_share_ = 0;
  if (hot_items_ >= interval_.size()) {
    hot_items_ = interval_.size();
    hot_share_ = 1;
  }
}

uint64_t HotspotGenerator::next(Random& random) {
  if (random.chance(hot_share_)) return interval_.first + random.below(hot_items_);
  return interval_.first + hot_items_ + random.below(interval_.size() - hot_items_);
}

ExponentialGenerator::ExponentialGenerator(const AcknowledgedCounter& keys, Shape shape)
    : keys_(keys), gamma_(-std::log(1.0 - shape.percentile / 100.0) / shape.range) {}

uint64_t ExponentialGenerator::next_distance(Random& random) const {
  const double distance = -std::log(1.0 - random.unit()) / gamma_;
  return static_cast<uint64_t>(std::min(distance, 9e18));
}

uint64_t ExponentialGenerator::next(Random& random) {
  const uint64_t end = std::max<uint64_t>(keys_.end(), 1);
  uint64_t distance = next_distance(random);
  for (int draws = 1; distance >= end && draws < kMaxDraws; ++draws) distance = next_distance(random);
  return end - 1 - distance % end;
}

HistogramLengthGenerator::HistogramLengthGenerator(uint64_t block_bytes, std::vector<uint64_t> counts)
    : block_bytes_(block_bytes), cumulative_(std::move(counts)) {
  for (size_t i = 1; i < cumulative_.size(); ++i) cumulative_[i] += cumulative_[i - 1];
}

uint64_t HistogramLengthGenerator::next(Random& random) {
  const uint64_t drawn = random.below(cumulative_.back());
  const auto bucket = std::upper_bound(cumulative_.begin(), cumulative_.end(), drawn) - cumulative_.begin();
  return block_bytes_ * (static_cast<uint64_t>(bucket) + 1);
}

Result<std::unique_ptr<HistogramLengthGenerator>> HistogramLengthGenerator::load(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return fail(StatusCode::kConfiguration,
                "property fieldlengthhistogram: " + path + " cannot be read: " + std::strerror(errno));
  }
  const auto refuse = [&](size_t line, std::string_view expected) {
    return fail(StatusCode::kConfiguration, "property fieldlengthhistogram: " + path + ":" + std::to_string(line) +
                                                ": expected " + std::string(expected));
  };
  std::string line, word;
  uint64_t block_bytes = 0;
  if (!std::getline(file, line) || !(std::istringstream(line) >> word >> block_bytes) || word != "BlockSize" ||
      block_bytes == 0) {
    return refuse(1, "\"BlockSize<TAB>bytes\"");
  }
  std::vector<uint64_t> counts;
  uint64_t total = 0;
  for (size_t number = 2; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    uint64_t bucket = 0, count = 0;
    if (!(std::istringstream(line) >> bucket >> count) || bucket != counts.size()) {
      return refuse(number, "\"" + std::to_string(counts.size()) + "<TAB>count\", buckets in ascending order");
    }
    counts.push_back(count);
    total += count;
  }
  if (total == 0) return refuse(2, "at least one bucket with a count above 0");
  return std::make_unique<HistogramLengthGenerator>(block_bytes, std::move(counts));
}

}  // namespace skua::ycsb
