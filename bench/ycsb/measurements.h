#pragma once
// Measurements: how long operations took and how they ended, one set of histograms for each thread.
//
// Threads: ThreadMeasurements is written by its owner thread; any thread may summarize meanwhile.
// Cost:    record: two histogram updates at most; a histogram is allocated when its series first appears.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/ycsb/properties.h"
#include "common/base/clock.h"
#include "common/base/histogram.h"

namespace skua::ycsb {

enum class Series : uint8_t { kRead, kUpdate, kInsert, kReadModifyWrite, kVerify };
inline constexpr size_t kSeriesCount = 5;
std::string_view to_string(Series series);  // "READ-MODIFY-WRITE"

enum class Outcome : uint8_t {
  kOk,
  kNotFound,
  kUnexpectedState,  // a value that dataintegrity=true did not write, or a record of another layout
  kError,
  kBadRequest,
  kForbidden,
  kServiceUnavailable,
  kDeadlineExceeded,
  kOutOfMemory,
  kInDoubt,
};
inline constexpr size_t kOutcomeCount = 10;
std::string_view to_string(Outcome outcome);  // "UNEXPECTED_STATE"
Outcome outcome_of(StatusCode code);

struct MeasurementOptions {
  bool operation = true;   // from the operation's begin
  bool intended = false;   // from when the target rate wanted it to begin
  std::array<bool, kOutcomeCount> own_series{};  // failures that get "READ-<outcome>" instead of "READ-FAILED"

  // measurement.interval (default: op, or both when a target is set), reportlatencyforeacherror, latencytrackederrors.
  static Result<MeasurementOptions> parse(const Properties& properties);
};

struct Latency {
  Nanoseconds of_operation = 0;
  Nanoseconds intended = 0;
};

class ThreadMeasurements {
 public:
  explicit ThreadMeasurements(const MeasurementOptions& options) : options_(options) {}
  ~ThreadMeasurements();
  ThreadMeasurements(const ThreadMeasurements&) = delete;
  ThreadMeasurements& operator=(const ThreadMeasurements&) = delete;

  void record(Series series, Outcome outcome, Latency latency);
  // An outcome without a latency of its own.
  void count(Series series, Outcome outcome);

 private:
  friend class Summary;
  // One for success, one for each outcome with a series of its own, and the last for all other failures.
  static constexpr size_t kSlots = kOutcomeCount + 1;
  static constexpr size_t kSides = 2;
  static constexpr size_t index(Series series, size_t slot, size_t side) {
    return (static_cast<size_t>(series) * kSlots + slot) * kSides + side;
  }
  void record_in(size_t histogram, Nanoseconds latency);

  const MeasurementOptions options_;
  std::array<std::atomic<Histogram*>, kSeriesCount * kSlots * kSides> histograms_{};  // release when first stored
  std::array<std::atomic<uint64_t>, kSeriesCount * kOutcomeCount> outcomes_{};
};

// What several threads measured, added up.
class Summary {
 public:
  struct Line {
    std::string name;             // "READ", "READ-FAILED", "Intended-READ"
    std::optional<Series> series;  // of a line that stands for the operation itself
    Histogram latencies;          // nanoseconds
    std::vector<std::pair<Outcome, uint64_t>> outcomes;
  };

  static Summary of(std::span<const ThreadMeasurements* const> threads);
  const std::vector<Line>& lines() const { return lines_; }
  // Operations that did not end in kOk.
  uint64_t failures() const;
  // What came after `earlier`, for the status line; lines without anything new are left out.
  Summary since(const Summary& earlier) const;

 private:
  std::vector<Line> lines_;
};

}  // namespace skua::ycsb
