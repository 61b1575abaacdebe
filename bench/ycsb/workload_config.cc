#include <algorithm>
#include <array>

#include "bench/ycsb/workload.h"

namespace skua::ycsb {
namespace {

constexpr uint64_t kMaxRecordBytes = uint64_t{64} << 20;

// Reads properties one after the other and keeps the first error.
class Reader {
 public:
  explicit Reader(const Properties& properties) : properties_(properties) {}

  uint64_t integer(const std::string& name, uint64_t default_value, uint64_t least = 0) {
    return keep(properties_.integer(name, default_value, least), default_value);
  }
  double real(const std::string& name, double default_value, Properties::Range range) {
    return keep(properties_.real(name, default_value, range), default_value);
  }
  bool boolean(const std::string& name, bool default_value) {
    return keep(properties_.boolean(name, default_value), default_value);
  }
  template <class T>
  struct Choice {
    std::string_view name;
    T value;
  };
  // The first choice is the default.
  template <class T, size_t kCount>
  T choice(const std::string& name, const std::array<Choice<T>, kCount>& choices) {
    const std::string text = properties_.text(name, choices[0].name);
    std::string accepted;
    for (const Choice<T>& known : choices) {
      if (text == known.name) return known.value;
      accepted += (accepted.empty() ? "" : ", ") + std::string(known.name);
    }
    refuse(name, "must be one of " + accepted);
    return choices[0].value;
  }
  void refuse(const std::string& name, const std::string& problem) {
    if (!error_) error_ = properties_.refuse(name, problem).value();
  }
  const std::optional<Status>& error() const { return error_; }

 private:
  template <class T>
  T keep(Result<T> result, T default_value) {
    if (result) return *result;
    if (!error_) error_ = result.error();
    return default_value;
  }
  const Properties& properties_;
  std::optional<Status> error_;
};

void read_record(Reader& reader, const Properties& properties, WorkloadConfig& config) {
  config.field_count = reader.integer("fieldcount", 10, 1);
  config.field_length = reader.integer("fieldlength", 100);
  config.min_field_length = reader.integer("minfieldlength", 1);
  config.field_name_prefix = properties.text("fieldnameprefix", "field");
  using Length = Reader::Choice<LengthDistribution>;
  config.length_distribution =
      reader.choice("fieldlengthdistribution", std::array{Length{"constant", LengthDistribution::kConstant},
                                                          Length{"uniform", LengthDistribution::kUniform},
                                                          Length{"zipfian", LengthDistribution::kZipfian},
                                                          Length{"histogram", LengthDistribution::kHistogram}});
  config.length_histogram = properties.text("fieldlengthhistogram", "hist.txt");
  const bool spread = config.length_distribution == LengthDistribution::kUniform ||
                      config.length_distribution == LengthDistribution::kZipfian;
  if (spread && config.min_field_length > config.field_length) {
    reader.refuse("minfieldlength", "must not exceed fieldlength, " + std::to_string(config.field_length));
  }
  if (config.field_count > kMaxRecordBytes || config.field_length > kMaxRecordBytes ||
      config.field_count * (config.field_length + 4) > kMaxRecordBytes) {
    reader.refuse("fieldlength", "fieldcount x fieldlength exceeds the limit of a value, 64 MiB");
  }
  config.read_all_fields = reader.boolean("readallfields", true);
  config.write_all_fields = reader.boolean("writeallfields", false);
  using Update = Reader::Choice<FieldUpdate>;
  config.field_update = reader.choice("skua.fieldupdate", std::array{Update{"replace", FieldUpdate::kReplace},
                                                                     Update{"merge", FieldUpdate::kMerge}});
  config.data_integrity = reader.boolean("dataintegrity", false);
  if (config.data_integrity && config.length_distribution != LengthDistribution::kConstant) {
    reader.refuse("dataintegrity", "needs fieldlengthdistribution=constant: a field's data follow from its length");
  }
}

void read_keys(Reader& reader, const Properties& properties, WorkloadConfig& config) {
  using Request = Reader::Choice<RequestDistribution>;
  config.request_distribution =
      reader.choice("requestdistribution", std::array{Request{"uniform", RequestDistribution::kUniform},
                                                      Request{"zipfian", RequestDistribution::kZipfian},
                                                      Request{"latest", RequestDistribution::kLatest},
                                                      Request{"hotspot", RequestDistribution::kHotspot},
                                                      Request{"sequential", RequestDistribution::kSequential},
                                                      Request{"exponential", RequestDistribution::kExponential}});
  config.hotspot.of_data = reader.real("hotspotdatafraction", 0.2, {0, 1});
  config.hotspot.of_draws = reader.real("hotspotopnfraction", 0.8, {0, 1});
  config.exponential_percentile = reader.real("exponential.percentile", 95, {0.001, 99.999999});
  config.exponential_fraction = reader.real("exponential.frac", 0.8571428571, {1e-12, 1e6});
  using Order = Reader::Choice<bool>;
  config.ordered_keys = reader.choice("insertorder", std::array{Order{"hashed", false}, Order{"ordered", true}});
  config.unsigned_key_hash = reader.choice("skua.keyhash", std::array{Order{"java", false}, Order{"unsigned", true}});
  config.zero_padding = reader.integer("zeropadding", 1);
  if (config.zero_padding > 4000) reader.refuse("zeropadding", "must be at most 4000: a key has at most 4096 bytes");
  config.key_prefix = properties.text("keyprefix", "user");
  if (config.key_prefix.size() > 64) reader.refuse("keyprefix", "must have at most 64 bytes");
}

void read_operations(Reader& reader, WorkloadConfig& config, Phases phases) {
  constexpr Properties::Range kShare{0, 1e9};
  config.read_proportion = reader.real("readproportion", 0.95, kShare);
  config.update_proportion = reader.real("updateproportion", 0.05, kShare);
  config.insert_proportion = reader.real("insertproportion", 0, kShare);
  config.read_modify_write_proportion = reader.real("readmodifywriteproportion", 0, kShare);
  if (reader.real("scanproportion", 0, kShare) > 0 && phases.run) {
    reader.refuse("scanproportion",
                  "scans are not supported: Skua is a hash store and keeps no order of keys; run another workload than "
                  "E, or set scanproportion=0");
  }
  const double sum = config.read_proportion + config.update_proportion + config.insert_proportion +
                     config.read_modify_write_proportion;
  if (phases.run && sum <= 0) {
    reader.refuse("readproportion", "no operation has a proportion above 0: there is nothing to run");
  }
  config.insert_retries = reader.integer("core_workload_insertion_retry_limit", 0);
  constexpr double kLongestWait = 3600;
  config.insert_retry_interval = static_cast<Nanoseconds>(
      reader.real("core_workload_insertion_retry_interval", 3, {0, kLongestWait}) * static_cast<double>(kSecond));
}

void read_counts(Reader& reader, const Properties& properties, WorkloadConfig& config, Phases phases) {
  if (!properties.has("recordcount")) {
    reader.refuse("recordcount", "is missing: say how many records the store holds, -p recordcount=1000000");
  }
  constexpr uint64_t kMostRecords = uint64_t{1} << 53;
  config.record_count = reader.integer("recordcount", 1, 1);
  config.insert_start = reader.integer("insertstart", 0);
  if (config.record_count > kMostRecords) reader.refuse("recordcount", "must be at most 2^53");
  if (config.insert_start >= config.record_count) {
    reader.refuse("insertstart", "must be below recordcount, " + std::to_string(config.record_count));
  }
  const uint64_t rest = config.record_count - std::min(config.insert_start, config.record_count);
  config.insert_count = reader.integer("insertcount", rest, 1);
  if (config.insert_count > rest) {
    reader.refuse("insertcount", "insertstart + insertcount must not exceed recordcount, " +
                                     std::to_string(config.record_count));
  }
  config.operation_count = reader.integer("operationcount", 0);
  constexpr uint64_t kTenYearsInSeconds = 315'360'000;
  const uint64_t seconds = reader.integer("maxexecutiontime", 0);
  if (seconds > kTenYearsInSeconds) reader.refuse("maxexecutiontime", "must be at most ten years, in seconds");
  config.max_execution_time = static_cast<Nanoseconds>(std::min(seconds, kTenYearsInSeconds)) * kSecond;
  if (phases.run && config.operation_count == 0 && config.max_execution_time == 0) {
    reader.refuse("operationcount",
                  "the run would never end: set operationcount above 0, or maxexecutiontime in seconds");
  }
}

}  // namespace

Result<WorkloadConfig> WorkloadConfig::parse(const Properties& properties, Phases phases) {
  WorkloadConfig config;
  Reader reader(properties);
  const std::string workload = properties.text("workload", "site.ycsb.workloads.CoreWorkload");
  if (workload != "CoreWorkload" && !workload.ends_with(".CoreWorkload")) {
    reader.refuse("workload", "is an unknown workload; only site.ycsb.workloads.CoreWorkload is built in");
  }
  read_counts(reader, properties, config, phases);
  read_record(reader, properties, config);
  read_keys(reader, properties, config);
  read_operations(reader, config, phases);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return config;
}

bool WorkloadConfig::updates_by_merge() const {
  return field_update == FieldUpdate::kMerge && !write_all_fields && field_count > 1;
}

uint64_t WorkloadConfig::expected_inserts() const {
  const double sum = read_proportion + update_proportion + insert_proportion + read_modify_write_proportion;
  if (sum <= 0) return 0;
  return static_cast<uint64_t>(static_cast<double>(operation_count) * insert_proportion / sum);
}

}  // namespace skua::ycsb
