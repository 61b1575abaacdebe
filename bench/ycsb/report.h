#pragma once
// Report: YCSB's lines about a phase, Skua's own beside them, and the status line while it runs.
//
//   [OVERALL], Throughput(ops/sec), 81234.5
//   [READ], 99thPercentileLatency(us), 12
//   [READ], RoundTrips(avg), 1.02
//   [SERVER 1], CpuMs, 3
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bench/ycsb/kv_store.h"
#include "bench/ycsb/measurements.h"
#include "common/base/clock.h"

namespace skua::ycsb {

enum class ReportFormat : uint8_t { kText, kJson, kCsv };

struct ReportOptions {
  bool one_millisecond_buckets = false;  // measurementtype=histogram
  std::vector<double> percentiles = {50, 95, 99, 99.9};
  bool every_bucket = false;             // measurement.histogram.verbose
  uint64_t millisecond_buckets = 1000;   // histogram.buckets
  ReportFormat format = ReportFormat::kText;
  std::string file;                      // empty: standard output

  // measurementtype, hdrhistogram.percentiles, histogram.buckets, measurement.histogram.verbose, exporter, exportfile.
  static Result<ReportOptions> parse(const Properties& properties);
};

struct ServerCpu {
  uint32_t server = 0;
  uint64_t cpu_ms = 0;
};

struct PhaseResult {
  Nanoseconds run_time = 0;
  uint64_t operations = 0;
  Summary summary;
  std::array<OperationCost, kSeriesCount> costs{};
  std::vector<ServerCpu> servers;
};

struct ReportLine {
  std::string metric;
  std::string measurement;
  std::variant<uint64_t, double> value;
};

std::vector<ReportLine> make_report(const PhaseResult& result, const ReportOptions& options);
std::string format_report(const std::vector<ReportLine>& lines, ReportFormat format);

struct Progress {
  std::string wall_time;  // "2026-01-31 12:00:00:000"
  Nanoseconds elapsed = 0;
  uint64_t operations = 0;
  double current_rate = 0;   // operations a second since the last line
  uint64_t operations_left = 0;
};
std::string format_status(const Progress& progress, const Summary& interval);
std::string format_wall_time(int64_t wall_ms);  // local time

// As Java's Double.toString writes numbers between 0.001 and 10^7, in full above.
std::string format_double(double value);
// "99th", "1st", "99.9"
std::string ordinal(double percentile);

}  // namespace skua::ycsb
