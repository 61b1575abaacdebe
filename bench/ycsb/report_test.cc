#include "bench/ycsb/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skua::ycsb {
namespace {

using ::testing::HasSubstr;

Summary summary_of(const ThreadMeasurements& measurements) {
  const ThreadMeasurements* const one[] = {&measurements};
  return Summary::of(one);
}

Properties properties_of(std::string_view text) {
  Properties properties;
  EXPECT_TRUE(properties.load_text(text, "test"));
  return properties;
}

// 100 reads of 1 to 100 us, one of which finds nothing after 7 us.
PhaseResult hundred_reads(ThreadMeasurements& measurements) {
  for (int us = 1; us <= 100; ++us) measurements.record(Series::kRead, Outcome::kOk, {us * kMicrosecond, 0});
  measurements.record(Series::kRead, Outcome::kNotFound, {7 * kMicrosecond, 0});
  PhaseResult result;
  result.run_time = 50 * kMillisecond;
  result.operations = 101;
  result.summary = summary_of(measurements);
  result.costs[static_cast<size_t>(Series::kRead)] = {.operations = 100, .round_trips = 105, .verbs = 205,
                                                       .bytes = 110'000, .cas_lost = 0, .cache_hits = 95};
  result.servers = {{1, 3}};
  return result;
}

TEST(Report, TextIsYcsbsLinesAndOurs) {
  ThreadMeasurements measurements{MeasurementOptions{}};
  const PhaseResult result = hundred_reads(measurements);
  EXPECT_EQ(format_report(make_report(result, {}), ReportFormat::kText),
            "[OVERALL], RunTime(ms), 50\n"
            "[OVERALL], Throughput(ops/sec), 2020.0\n"
            "[READ], Operations, 100\n"
            "[READ], AverageLatency(us), 50.5\n"
            "[READ], MinLatency(us), 1\n"
            "[READ], MaxLatency(us), 100\n"
            "[READ], 50thPercentileLatency(us), 50\n"
            "[READ], 95thPercentileLatency(us), 95\n"
            "[READ], 99thPercentileLatency(us), 99\n"
            "[READ], 99.9PercentileLatency(us), 100\n"
            "[READ], Return=OK, 100\n"
            "[READ], Return=NOT_FOUND, 1\n"
            "[READ], MinLatency(ns), 1000\n"
            "[READ], 50thPercentileLatency(ns), 50015\n"
            "[READ], 99thPercentileLatency(ns), 99007\n"
            "[READ], 99.9PercentileLatency(ns), 100000\n"
            "[READ], RoundTrips(avg), 1.05\n"
            "[READ], Verbs(avg), 2.05\n"
            "[READ], BytesOnWire(avg), 1100.0\n"
            "[READ], CasLost, 0\n"
            "[READ], CacheHits, 95\n"
            "[READ-FAILED], Operations, 1\n"
            "[READ-FAILED], AverageLatency(us), 7.0\n"
            "[READ-FAILED], MinLatency(us), 7\n"
            "[READ-FAILED], MaxLatency(us), 7\n"
            "[READ-FAILED], 50thPercentileLatency(us), 7\n"
            "[READ-FAILED], 95thPercentileLatency(us), 7\n"
            "[READ-FAILED], 99thPercentileLatency(us), 7\n"
            "[READ-FAILED], 99.9PercentileLatency(us), 7\n"
            "[SERVER 1], CpuMs, 3\n");
  EXPECT_EQ(result.summary.failures(), 1u);
}

TEST(Report, JsonAndCsvHoldTheSameNumbers) {
  const std::vector<ReportLine> lines{{"OVERALL", "RunTime(ms)", uint64_t{50}}, {"READ", "AverageLatency(us)", 1.5}};
  EXPECT_EQ(format_report(lines, ReportFormat::kJson),
            "[\n"
            "  {\"metric\": \"OVERALL\", \"measurement\": \"RunTime(ms)\", \"value\": 50},\n"
            "  {\"metric\": \"READ\", \"measurement\": \"AverageLatency(us)\", \"value\": 1.5}\n"
            "]\n");
  EXPECT_EQ(format_report(lines, ReportFormat::kCsv),
            "metric,measurement,value\nOVERALL,RunTime(ms),50\nREAD,AverageLatency(us),1.5\n");
}

TEST(Report, HistogramTypeCountsMilliseconds) {
  ThreadMeasurements measurements{MeasurementOptions{}};
  for (int ms = 0; ms < 100; ++ms) {
    measurements.record(Series::kUpdate, Outcome::kOk, {ms * kMillisecond + 500 * kMicrosecond, 0});
  }
  PhaseResult result;
  result.run_time = kSecond;
  result.summary = summary_of(measurements);
  const auto options = ReportOptions::parse(
      properties_of("measurementtype=histogram\nhistogram.buckets=50\nmeasurement.histogram.verbose=true\n"));
  ASSERT_TRUE(options);
  const std::string text = format_report(make_report(result, *options), ReportFormat::kText);
  EXPECT_THAT(text, HasSubstr("[UPDATE], 95thPercentileLatency(us), 94000\n"));
  EXPECT_THAT(text, HasSubstr("[UPDATE], LatencyVariance(us), 833250000.0"));
  EXPECT_THAT(text, HasSubstr("[UPDATE], 49, 1\n[UPDATE], >50, 50\n"));
}

TEST(Report, IntendedLatenciesHaveTheirOwnLines) {
  const auto options = MeasurementOptions::parse(properties_of("target=1000\n"));
  ASSERT_TRUE(options);
  ThreadMeasurements measurements(*options);
  measurements.record(Series::kRead, Outcome::kOk, {10 * kMicrosecond, 900 * kMicrosecond});
  PhaseResult result;
  result.run_time = kSecond;
  result.summary = summary_of(measurements);
  const std::string text = format_report(make_report(result, {}), ReportFormat::kText);
  EXPECT_THAT(text, HasSubstr("[READ], MaxLatency(us), 10\n"));
  EXPECT_THAT(text, HasSubstr("[Intended-READ], MaxLatency(us), 900\n"));
}

TEST(Report, TrackedErrorsGetTheirOwnSeries) {
  const auto options = MeasurementOptions::parse(properties_of("latencytrackederrors=NOT_FOUND\n"));
  ASSERT_TRUE(options);
  ThreadMeasurements measurements(*options);
  measurements.record(Series::kRead, Outcome::kNotFound, {kMicrosecond, 0});
  measurements.record(Series::kRead, Outcome::kError, {kMicrosecond, 0});
  const Summary summary = summary_of(measurements);
  std::vector<std::string> names;
  for (const auto& line : summary.lines()) names.push_back(line.name);
  EXPECT_THAT(names, ::testing::ElementsAre("READ", "READ-NOT_FOUND", "READ-FAILED"));
}

TEST(Report, StatusLineIsYcsbs) {
  ThreadMeasurements measurements{MeasurementOptions{}};
  for (int us = 1; us <= 100; ++us) measurements.record(Series::kRead, Outcome::kOk, {us * kMicrosecond, 0});
  const Progress progress{.wall_time = "2026-01-31 12:00:00:000", .elapsed = 10 * kSecond, .operations = 100,
                          .current_rate = 10.256, .operations_left = 900};
  EXPECT_EQ(format_status(progress, summary_of(measurements)),
            "2026-01-31 12:00:00:000 10 sec: 100 operations; 10.26 current ops/sec; est completion in 1 minute 30 "
            "seconds [READ: Count=100, Max=100, Min=1, Avg=50.5, 90=90, 99=99, 99.9=100, 99.99=100] ");
}

TEST(Report, OptionsRefuseWhatIsNotBuiltIn) {
  EXPECT_THAT(ReportOptions::parse(properties_of("measurementtype=raw\n")).error().message(),
              HasSubstr("measurementtype=raw (test:1): must be hdrhistogram or histogram"));
  EXPECT_FALSE(ReportOptions::parse(properties_of("exporter=xml\n")));
  EXPECT_FALSE(ReportOptions::parse(properties_of("hdrhistogram.percentiles=50,,99\n")));
  EXPECT_FALSE(ReportOptions::parse(properties_of("hdrhistogram.percentiles=101\n")));
  const auto options = ReportOptions::parse(
      properties_of("exporter=site.ycsb.measurements.exporter.JSONArrayMeasurementsExporter\n"
                    "hdrhistogram.percentiles=90, 99.99\n"));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->format, ReportFormat::kJson);
  EXPECT_EQ(options->percentiles, (std::vector<double>{90, 99.99}));
}

TEST(Report, OrdinalsAreEnglish) {
  EXPECT_EQ(ordinal(1), "1st");
  EXPECT_EQ(ordinal(2), "2nd");
  EXPECT_EQ(ordinal(11), "11th");
  EXPECT_EQ(ordinal(93), "93rd");
  EXPECT_EQ(ordinal(95), "95th");
  EXPECT_EQ(ordinal(99.99), "99.99");
}

}  // namespace
}  // namespace skua::ycsb
