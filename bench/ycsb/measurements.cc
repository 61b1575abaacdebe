#include "bench/ycsb/measurements.h"

#include <algorithm>

namespace skua::ycsb {
namespace {

constexpr std::array<std::string_view, kSeriesCount> kSeriesNames{"READ", "UPDATE", "INSERT", "READ-MODIFY-WRITE",
                                                                  "VERIFY"};
constexpr std::array<std::string_view, kOutcomeCount> kOutcomeNames{
    "OK",        "NOT_FOUND",           "UNEXPECTED_STATE",  "ERROR",         "BAD_REQUEST",
    "FORBIDDEN", "SERVICE_UNAVAILABLE", "DEADLINE_EXCEEDED", "OUT_OF_MEMORY", "IN_DOUBT"};

}  // namespace

std::string_view to_string(Series series) { return kSeriesNames[static_cast<size_t>(series)]; }
std::string_view to_string(Outcome outcome) { return kOutcomeNames[static_cast<size_t>(outcome)]; }

Outcome outcome_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument: return Outcome::kBadRequest;
    case StatusCode::kOutOfMemory: return Outcome::kOutOfMemory;
    case StatusCode::kUnavailable:
    case StatusCode::kPeerLost: return Outcome::kServiceUnavailable;
    case StatusCode::kDeadlineExceeded: return Outcome::kDeadlineExceeded;
    case StatusCode::kInDoubt: return Outcome::kInDoubt;
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnauthenticated: return Outcome::kForbidden;
    case StatusCode::kCorruption: return Outcome::kUnexpectedState;
    default: return Outcome::kError;
  }
}

Result<MeasurementOptions> MeasurementOptions::parse(const Properties& properties) {
  MeasurementOptions options;
  const auto target = properties.real("target", 0, {0, 1e12});
  if (!target) return tl::make_unexpected(target.error());
  const std::string interval = properties.text("measurement.interval", *target > 0 ? "both" : "op");
  if (interval != "op" && interval != "intended" && interval != "both") {
    return properties.refuse("measurement.interval", "must be op, intended or both");
  }
  options.operation = interval != "intended";
  options.intended = interval != "op";

  const auto each = properties.boolean("reportlatencyforeacherror", false);
  if (!each) return tl::make_unexpected(each.error());
  const std::string tracked = "," + properties.text("latencytrackederrors", "") + ",";
  for (size_t i = 1; i < kOutcomeCount; ++i) {
    const std::string name = "," + std::string(kOutcomeNames[i]) + ",";
    options.own_series[i] = *each || tracked.find(name) != std::string::npos;
  }
  return options;
}

ThreadMeasurements::~ThreadMeasurements() {
  for (auto& histogram : histograms_) delete histogram.load(std::memory_order_relaxed);
}

void ThreadMeasurements::record_in(size_t histogram, Nanoseconds latency) {
  Histogram* found = histograms_[histogram].load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = std::make_unique<Histogram>().release();
    histograms_[histogram].store(found, std::memory_order_release);
  }
  found->record(static_cast<uint64_t>(std::max<Nanoseconds>(latency, 0)));
}

void ThreadMeasurements::record(Series series, Outcome outcome, Latency latency) {
  count(series, outcome);
  const auto code = static_cast<size_t>(outcome);
  const size_t slot = code == 0 || options_.own_series[code] ? code : kOutcomeCount;
  if (options_.operation || series == Series::kVerify) record_in(index(series, slot, 0), latency.of_operation);
  if (options_.intended && series != Series::kVerify) record_in(index(series, slot, 1), latency.intended);
}

void ThreadMeasurements::count(Series series, Outcome outcome) {
  auto& counter = outcomes_[static_cast<size_t>(series) * kOutcomeCount + static_cast<size_t>(outcome)];
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

Summary Summary::of(std::span<const ThreadMeasurements* const> threads) {
  Summary summary;
  if (threads.empty()) return summary;
  const MeasurementOptions& options = threads.front()->options_;
  for (size_t side = 0; side < ThreadMeasurements::kSides; ++side) {
    for (size_t s = 0; s < kSeriesCount; ++s) {
      const auto series = static_cast<Series>(s);
      // Outcomes belong to the line of the operation itself: the intended one only when it is the only one.
      const bool carries_outcomes = (side == 0) == (options.operation || series == Series::kVerify);
      for (size_t slot = 0; slot < ThreadMeasurements::kSlots; ++slot) {
        Line line;
        bool measured = false;
        for (const ThreadMeasurements* const thread : threads) {
          const Histogram* const histogram =
              thread->histograms_[ThreadMeasurements::index(series, slot, side)].load(std::memory_order_acquire);
          if (histogram == nullptr) continue;
          line.latencies.merge(*histogram);
          measured = true;
        }
        if (slot == 0 && carries_outcomes) {
          line.series = series;
          for (size_t code = 0; code < kOutcomeCount; ++code) {
            uint64_t times = 0;
            for (const ThreadMeasurements* const thread : threads) {
              times += thread->outcomes_[s * kOutcomeCount + code].load(std::memory_order_relaxed);
            }
            if (times > 0) line.outcomes.emplace_back(static_cast<Outcome>(code), times);
          }
        }
        if (!measured && line.outcomes.empty()) continue;
        line.name = side == 1 && options.operation ? "Intended-" : "";
        line.name += kSeriesNames[s];
        if (slot == kOutcomeCount) line.name += "-FAILED";
        if (slot > 0 && slot < kOutcomeCount) line.name += "-" + std::string(kOutcomeNames[slot]);
        summary.lines_.push_back(std::move(line));
      }
    }
  }
  return summary;
}

uint64_t Summary::failures() const {
  uint64_t failures = 0;
  for (const Line& line : lines_) {
    for (const auto& [outcome, times] : line.outcomes) failures += outcome == Outcome::kOk ? 0 : times;
  }
  return failures;
}

Summary Summary::since(const Summary& earlier) const {
  Summary interval;
  for (const Line& line : lines_) {
    const auto before = std::find_if(earlier.lines_.begin(), earlier.lines_.end(),
                                     [&](const Line& candidate) { return candidate.name == line.name; });
    Line added{line.name, line.series, line.latencies, {}};
    if (before != earlier.lines_.end()) added.latencies = line.latencies.since(before->latencies);
    if (added.latencies.count() > 0) interval.lines_.push_back(std::move(added));
  }
  return interval;
}

}  // namespace skua::ycsb
