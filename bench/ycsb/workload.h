#pragma once
// Workload is YCSB's core workload: which operation comes next, on which key, with which record.
//
// Record:  one value holds all fields, in order. With fieldlengthdistribution=constant they are simply one after the
//          other; otherwise each has its length in front, 4 bytes, lowest first.
// Threads: a Workload is shared; each thread draws from its own WorkloadThread.
// Errors:  kConfiguration from parse, naming the property, its value, where it was set and what would be accepted.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ycsb/generators.h"
#include "bench/ycsb/properties.h"
#include "common/base/clock.h"

namespace skua::ycsb {

enum class RequestDistribution : uint8_t { kUniform, kZipfian, kLatest, kHotspot, kSequential, kExponential };
enum class LengthDistribution : uint8_t { kConstant, kUniform, kZipfian, kHistogram };
enum class FieldUpdate : uint8_t {
  kReplace,  // an UPDATE of one field writes the whole record with new data in every field
  kMerge,    // it reads the record, changes one field and swaps the record if nobody else did
};

struct Phases {
  bool load = false;
  bool run = false;
};

struct WorkloadConfig {
  uint64_t record_count = 0;
  uint64_t operation_count = 0;  // 0: until the time is up
  uint64_t insert_start = 0;
  uint64_t insert_count = 0;
  uint64_t field_count = 10;
  uint64_t field_length = 100;
  uint64_t min_field_length = 1;
  std::string field_name_prefix;
  LengthDistribution length_distribution = LengthDistribution::kConstant;
  std::string length_histogram;
  bool read_all_fields = true;
  bool write_all_fields = false;
  double read_proportion = 0;
  double update_proportion = 0;
  double insert_proportion = 0;
  double read_modify_write_proportion = 0;
  RequestDistribution request_distribution = RequestDistribution::kUniform;
  HotspotGenerator::Fractions hotspot;
  double exponential_percentile = 95;
  double exponential_fraction = 0.8571428571;
  bool ordered_keys = false;
  bool unsigned_key_hash = false;
  uint64_t zero_padding = 1;
  std::string key_prefix;
  bool data_integrity = false;
  FieldUpdate field_update = FieldUpdate::kReplace;
  uint64_t insert_retries = 0;
  Nanoseconds insert_retry_interval = 0;
  Nanoseconds max_execution_time = 0;  // 0: no limit

  static Result<WorkloadConfig> parse(const Properties& properties, Phases phases);
  // Whether an UPDATE of part of a record has to read it first.
  bool updates_by_merge() const;
  // New keys that the run is expected to add.
  uint64_t expected_inserts() const;
};

// Turns key numbers into key names and makes and checks records.
// Threads: one owner thread each.
class RecordMaker {
 public:
  explicit RecordMaker(const WorkloadConfig& config, std::unique_ptr<Generator> lengths);

  void make_key(uint64_t number, std::string& key) const;
  void make_record(std::string_view key, Random& random, std::string& record);
  // Puts new data into one field. False: `record` is not laid out as the workload's records are.
  bool change_field(std::string_view key, uint64_t field, Random& random, std::string& record);
  // Whether `record`, or only that field of it, holds what dataintegrity=true writes under `key`.
  bool verify(std::string_view key, std::string_view record, std::optional<uint64_t> field);

  // The layout of a record with fields of these bytes, and back.
  struct Span {
    size_t offset = 0;
    size_t bytes = 0;
  };
  std::optional<std::vector<Span>> fields_of(std::string_view record) const;

 private:
  void append_field(std::string_view key, uint64_t field, Random& random, std::string& out);
  void append_deterministic(std::string_view key, uint64_t field, size_t bytes, std::string& out) const;

  const WorkloadConfig& config_;
  std::unique_ptr<Generator> lengths_;
  std::vector<std::string> field_names_;
  std::string scratch_;
};

enum class Operation : uint8_t { kRead, kUpdate, kInsert, kReadModifyWrite };

class Workload;

class WorkloadThread {
 public:
  Operation next_operation();
  // The number of a key that is in the store: one past the last acknowledged insert is drawn again.
  uint64_t next_key();
  uint64_t next_field() { return random_.below(field_count_); }
  Random& random() { return random_; }
  RecordMaker& records() { return records_; }

 private:
  friend class Workload;
  WorkloadThread(Workload& workload, uint64_t seed, std::unique_ptr<Generator> keys,
                 std::unique_ptr<Generator> lengths);
  static constexpr int kMaxDraws = 1000;

  Workload& workload_;
  const uint64_t field_count_;
  Random random_;
  std::unique_ptr<Generator> keys_;
  RecordMaker records_;
};

class Workload {
 public:
  // Reads the field length histogram, if any, and prepares the distributions.
  static Result<std::unique_ptr<Workload>> create(WorkloadConfig config);

  const WorkloadConfig& config() const { return config_; }
  WorkloadThread make_thread(uint64_t seed);
  // For the load: the number of the next record. Threads: any.
  uint64_t next_load_key() { return load_keys_.next(); }
  // For the run: numbers of new keys. Threads: any.
  AcknowledgedCounter& inserted() { return inserted_; }

 private:
  explicit Workload(WorkloadConfig config);
  std::unique_ptr<Generator> make_keys();
  std::unique_ptr<Generator> make_lengths() const;

  WorkloadConfig config_;
  AcknowledgedCounter load_keys_;
  AcknowledgedCounter inserted_;
  SharedSequence sequence_;
  std::unique_ptr<ZipfianGenerator> latest_ranks_;
  std::unique_ptr<HistogramLengthGenerator> histogram_lengths_;
};

}  // namespace skua::ycsb
