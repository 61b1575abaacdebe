#include "bench/ycsb/report.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace skua::ycsb {
namespace {

constexpr uint64_t kNsPerUs = 1000;
constexpr uint64_t kNsPerMs = 1'000'000;

std::string_view last_name(std::string_view dotted) {
  const size_t dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}

Result<std::vector<double>> parse_percentiles(const Properties& properties) {
  const std::string text = properties.text("hdrhistogram.percentiles", "50,95,99,99.9");
  std::vector<double> percentiles;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    size_t first = begin;
    while (first < end && text[first] == ' ') ++first;
    double value = 0;
    const auto parsed = std::from_chars(text.data() + first, text.data() + end, value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + end || !(value >= 0 && value <= 100)) {
      return properties.refuse("hdrhistogram.percentiles", "must be numbers from 0 to 100 with commas: 50,95,99,99.9");
    }
    percentiles.push_back(value);
    begin = end + 1;
  }
  return percentiles;
}

class Writer {
 public:
  explicit Writer(std::vector<ReportLine>& lines) : lines_(lines) {}
  void open(std::string metric) { metric_ = std::move(metric); }
  void count(std::string measurement, uint64_t value) { lines_.push_back({metric_, std::move(measurement), value}); }
  void real(std::string measurement, double value) { lines_.push_back({metric_, std::move(measurement), value}); }

 private:
  std::vector<ReportLine>& lines_;
  std::string metric_;
};

// Latencies in buckets of one millisecond, as measurementtype=histogram has them: percentiles are lower bounds.
void write_millisecond_latencies(Writer& out, const Histogram& latencies) {
  out.real("LatencyVariance(us)", latencies.variance() / (kNsPerUs * kNsPerUs));
  out.count("MinLatency(us)", latencies.min() / kNsPerUs);
  out.count("MaxLatency(us)", latencies.max() / kNsPerUs);
  for (const double percentile : {95.0, 99.0}) {
    out.count(ordinal(percentile) + "PercentileLatency(us)",
              latencies.value_at_percentile(percentile) / kNsPerMs * 1000);
  }
}

void write_latencies(Writer& out, const Histogram& latencies, const ReportOptions& options) {
  out.count("Operations", latencies.count());
  out.real("AverageLatency(us)", latencies.mean() / kNsPerUs);
  if (options.one_millisecond_buckets) return write_millisecond_latencies(out, latencies);
  out.count("MinLatency(us)", latencies.min() / kNsPerUs);
  out.count("MaxLatency(us)", latencies.max() / kNsPerUs);
  for (const double percentile : options.percentiles) {
    out.count(ordinal(percentile) + "PercentileLatency(us)", latencies.value_at_percentile(percentile) / kNsPerUs);
  }
}

void write_buckets(Writer& out, const Histogram& latencies, const ReportOptions& options) {
  if (!options.one_millisecond_buckets) {
    std::vector<std::pair<uint64_t, uint64_t>> by_us;
    latencies.for_each([&](const Histogram::Bucket& bucket) {
      const uint64_t us = bucket.highest / kNsPerUs;
      if (by_us.empty() || by_us.back().first != us) by_us.emplace_back(us, 0);
      by_us.back().second += bucket.count;
    });
    for (const auto& [us, times] : by_us) out.count(std::to_string(us), times);
    return;
  }
  std::vector<uint64_t> by_ms(options.millisecond_buckets);
  uint64_t beyond = 0;
  latencies.for_each([&](const Histogram::Bucket& bucket) {
    const uint64_t ms = bucket.highest / kNsPerMs;
    (ms < by_ms.size() ? by_ms[ms] : beyond) += bucket.count;
  });
  for (size_t ms = 0; ms < by_ms.size(); ++ms) out.count(std::to_string(ms), by_ms[ms]);
  out.count(">" + std::to_string(options.millisecond_buckets), beyond);
}

// What YCSB has no name for: nanoseconds, and what the operations did on the wire.
void write_own(Writer& out, const Histogram& latencies, const OperationCost& cost) {
  out.count("MinLatency(ns)", latencies.min());
  for (const double percentile : {50.0, 99.0, 99.9}) {
    out.count(ordinal(percentile) + "PercentileLatency(ns)", latencies.value_at_percentile(percentile));
  }
  if (cost.operations == 0) return;
  const auto average = [&](uint64_t sum) { return static_cast<double>(sum) / static_cast<double>(cost.operations); };
  out.real("RoundTrips(avg)", average(cost.round_trips));
  out.real("Verbs(avg)", average(cost.verbs));
  out.real("BytesOnWire(avg)", average(cost.bytes));
  out.count("CasLost", cost.cas_lost);
  out.count("CacheHits", cost.cache_hits);
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string format_value(const std::variant<uint64_t, double>& value) {
  if (const auto* count = std::get_if<uint64_t>(&value)) return std::to_string(*count);
  return format_double(std::get<double>(value));
}

// As Java's DecimalFormat("#.##").
std::string two_decimals(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f", value);
  std::string out = text;
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

std::string format_time_left(uint64_t seconds) {
  struct Unit {
    uint64_t seconds;
    std::string_view name;
  };
  std::string out;
  int shown = 0;
  for (const Unit unit : {Unit{86400, "day"}, Unit{3600, "hour"}, Unit{60, "minute"}, Unit{1, "second"}}) {
    const uint64_t whole = seconds / unit.seconds;
    seconds %= unit.seconds;
    const bool last = unit.seconds == 1;
    if (shown == 2 || (whole == 0 && !(last && out.empty()))) continue;
    out += std::to_string(whole) + " " + std::string(unit.name) + (whole == 1 ? " " : "s ");
    ++shown;
  }
  return out;
}

}  // namespace

Result<ReportOptions> ReportOptions::parse(const Properties& properties) {
  ReportOptions options;
  const std::string type = properties.text("measurementtype", "hdrhistogram");
  if (type != "hdrhistogram" && type != "histogram") {
    return properties.refuse("measurementtype", "must be hdrhistogram or histogram; others are not built in");
  }
  options.one_millisecond_buckets = type == "histogram";
  auto percentiles = parse_percentiles(properties);
  if (!percentiles) return tl::make_unexpected(percentiles.error());
  options.percentiles = std::move(*percentiles);
  const auto buckets = properties.integer("histogram.buckets", 1000, 1);
  if (!buckets) return tl::make_unexpected(buckets.error());
  constexpr uint64_t kMostBuckets = 10'000'000;
  if (*buckets > kMostBuckets) return properties.refuse("histogram.buckets", "must be at most 10000000");
  options.millisecond_buckets = *buckets;
  const auto verbose = properties.boolean("measurement.histogram.verbose", false);
  if (!verbose) return tl::make_unexpected(verbose.error());
  options.every_bucket = *verbose;

  const std::string exporter = properties.text("exporter", "text");
  const std::string_view name = last_name(exporter);
  if (name == "text" || name == "TextMeasurementsExporter") {
    options.format = ReportFormat::kText;
  } else if (name == "json" || name == "JSONMeasurementsExporter" || name == "JSONArrayMeasurementsExporter") {
    options.format = ReportFormat::kJson;
  } else if (name == "csv") {
    options.format = ReportFormat::kCsv;
  } else {
    return properties.refuse("exporter", "must be text, json, csv, or the name of YCSB's text or JSON exporter");
  }
  options.file = properties.text("exportfile", "");
  return options;
}

std::vector<ReportLine> make_report(const PhaseResult& result, const ReportOptions& options) {
  std::vector<ReportLine> lines;
  Writer out(lines);
  out.open("OVERALL");
  out.count("RunTime(ms)", static_cast<uint64_t>(result.run_time / kMillisecond));
  const double seconds = static_cast<double>(std::max<Nanoseconds>(result.run_time, 1)) / static_cast<double>(kSecond);
  out.real("Throughput(ops/sec)", static_cast<double>(result.operations) / seconds);
  for (const Summary::Line& line : result.summary.lines()) {
    out.open(line.name);
    write_latencies(out, line.latencies, options);
    for (const auto& [outcome, times] : line.outcomes) out.count("Return=" + std::string(to_string(outcome)), times);
    if (options.every_bucket) write_buckets(out, line.latencies, options);
    if (line.series) write_own(out, line.latencies, result.costs[static_cast<size_t>(*line.series)]);
  }
  for (const ServerCpu& server : result.servers) {
    out.open("SERVER " + std::to_string(server.server));
    out.count("CpuMs", server.cpu_ms);
  }
  return lines;
}

std::string format_report(const std::vector<ReportLine>& lines, ReportFormat format) {
  std::string out;
  if (format == ReportFormat::kText) {
    for (const ReportLine& line : lines) {
      out += "[" + line.metric + "], " + line.measurement + ", " + format_value(line.value) + "\n";
    }
  } else if (format == ReportFormat::kCsv) {
    out += "metric,measurement,value\n";
    for (const ReportLine& line : lines) {
      out += line.metric + "," + line.measurement + "," + format_value(line.value) + "\n";
    }
  } else {
    out += "[";
    for (const ReportLine& line : lines) {
      out += &line == lines.data() ? "\n" : ",\n";
      out += "  {\"metric\": " + json_text(line.metric) + ", \"measurement\": " + json_text(line.measurement) +
             ", \"value\": " + format_value(line.value) + "}";
    }
    out += "\n]\n";
  }
  return out;
}

std::string format_status(const Progress& progress, const Summary& interval) {
  std::string out = progress.wall_time + " " + std::to_string(progress.elapsed / kSecond) + " sec: " +
                    std::to_string(progress.operations) + " operations; ";
  if (progress.operations != 0) out += two_decimals(progress.current_rate) + " current ops/sec; ";
  if (progress.operations_left != 0 && progress.operations != 0) {
    const double rate = static_cast<double>(progress.operations) / static_cast<double>(progress.elapsed);
    const double left = static_cast<double>(progress.operations_left) / rate / static_cast<double>(kSecond);
    out += "est completion in " + format_time_left(static_cast<uint64_t>(std::ceil(left)));
  }
  for (const Summary::Line& line : interval.lines()) {
    const Histogram& latencies = line.latencies;
    const auto at = [&](double percentile) {
      return std::to_string(latencies.value_at_percentile(percentile) / kNsPerUs);
    };
    out += "[" + line.name + ": Count=" + std::to_string(latencies.count()) +
           ", Max=" + std::to_string(latencies.max() / kNsPerUs) +
           ", Min=" + std::to_string(latencies.min() / kNsPerUs) +
           ", Avg=" + two_decimals(latencies.mean() / kNsPerUs) + ", 90=" + at(90) + ", 99=" + at(99) +
           ", 99.9=" + at(99.9) + ", 99.99=" + at(99.99) + "] ";
  }
  return out;
}

std::string format_wall_time(int64_t wall_ms) {
  const std::time_t seconds = static_cast<std::time_t>(wall_ms / 1000);
  std::tm fields{};
  localtime_r(&seconds, &fields);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &fields);
  char text[48];
  std::snprintf(text, sizeof(text), "%s:%03d", date, static_cast<int>(wall_ms % 1000));
  return text;
}

std::string format_double(double value) {
  char text[400];
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed).ptr;
  std::string out(text, end);
  if (out.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
  return out;
}

std::string ordinal(double percentile) {
  if (percentile != std::floor(percentile)) return format_double(percentile);
  const auto whole = static_cast<uint64_t>(percentile);
  const uint64_t last = whole % 10;
  const bool teen = whole % 100 >= 11 && whole % 100 <= 13;
  const char* const suffix = teen || last == 0 || last > 3 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd";
  return std::to_string(whole) + suffix;
}

}  // namespace skua::ycsb
