#include "bench/ycsb/workload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace skua::ycsb {
namespace {

constexpr size_t kLengthBytes = 4;

void append_length(size_t bytes, std::string& out) {
  for (unsigned shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>((bytes >> shift) & 0xff));
}

size_t read_length(std::string_view at) {
  size_t bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) bytes |= size_t{static_cast<unsigned char>(at[i])} << (8 * i);
  return bytes;
}

// Printable characters, five random bits each, eight of them from one word.
void append_random(size_t bytes, Random& random, std::string& out) {
  const size_t begin = out.size();
  out.resize(begin + bytes);
  char* at = out.data() + begin;
  while (bytes > 0) {
    const uint64_t word = (random.next() & 0x1f1f1f1f1f1f1f1f) + 0x4040404040404040;
    const size_t taken = std::min<size_t>(bytes, sizeof(word));
    std::memcpy(at, &word, taken);
    at += taken;
    bytes -= taken;
  }
}

}  // namespace

RecordMaker::RecordMaker(const WorkloadConfig& config, std::unique_ptr<Generator> lengths)
    : config_(config), lengths_(std::move(lengths)) {
  for (uint64_t i = 0; i < config_.field_count; ++i) {
    field_names_.push_back(config_.field_name_prefix + std::to_string(i));
  }
}

void RecordMaker::make_key(uint64_t number, std::string& key) const {
  uint64_t magnitude = number;
  bool negative = false;
  if (!config_.ordered_keys) {
    const uint64_t hash = fnv_hash64(number);
    magnitude = config_.unsigned_key_hash ? hash : java_abs(hash);
    negative = !config_.unsigned_key_hash && magnitude > static_cast<uint64_t>(INT64_MAX);
  }
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof(digits), magnitude).ptr;
  const size_t count = static_cast<size_t>(end - digits) + (negative ? 1 : 0);
  key.assign(config_.key_prefix);
  if (count < config_.zero_padding) key.append(config_.zero_padding - count, '0');
  if (negative) key.push_back('-');
  key.append(digits, end);
}

// YCSB's deterministic field: the key, ":", the field's name, then again and again ":" and the hash code that Java
// gives the text so far.
void RecordMaker::append_deterministic(std::string_view key, uint64_t field, size_t bytes, std::string& out) const {
  const size_t begin = out.size();
  uint32_t java_hash = 0;
  const auto append = [&](std::string_view text) {
    for (const char c : text) java_hash = java_hash * 31 + static_cast<unsigned char>(c);
    out.append(text);
  };
  append(key);
  append(":");
  append(field_names_[field]);
  while (out.size() - begin < bytes) {
    append(":");
    char digits[12];
    const auto end = std::to_chars(digits, digits + sizeof(digits), static_cast<int32_t>(java_hash)).ptr;
    append(std::string_view(digits, static_cast<size_t>(end - digits)));
  }
  out.resize(begin + bytes);
}

void RecordMaker::append_field(std::string_view key, uint64_t field, Random& random, std::string& out) {
  const size_t bytes = lengths_->next(random);
  if (config_.length_distribution != LengthDistribution::kConstant) append_length(bytes, out);
  if (config_.data_integrity) {
    append_deterministic(key, field, bytes, out);
  } else {
    append_random(bytes, random, out);
  }
}

void RecordMaker::make_record(std::string_view key, Random& random, std::string& record) {
  record.clear();
  for (uint64_t field = 0; field < config_.field_count; ++field) append_field(key, field, random, record);
}

std::optional<std::vector<RecordMaker::Span>> RecordMaker::fields_of(std::string_view record) const {
  std::vector<Span> fields;
  fields.reserve(config_.field_count);
  size_t offset = 0;
  for (uint64_t field = 0; field < config_.field_count; ++field) {
    size_t bytes = config_.field_length;
    if (config_.length_distribution != LengthDistribution::kConstant) {
      if (record.size() - offset < kLengthBytes) return std::nullopt;
      bytes = read_length(record.substr(offset));
      offset += kLengthBytes;
    }
    if (record.size() - offset < bytes) return std::nullopt;
    fields.push_back({offset, bytes});
    offset += bytes;
  }
  if (offset != record.size()) return std::nullopt;
  return fields;
}

bool RecordMaker::change_field(std::string_view key, uint64_t field, Random& random, std::string& record) {
  const auto fields = fields_of(record);
  if (!fields) return false;
  const Span old = (*fields)[field];
  const size_t prefix = config_.length_distribution == LengthDistribution::kConstant ? 0 : kLengthBytes;
  scratch_.clear();
  append_field(key, field, random, scratch_);
  record.replace(old.offset - prefix, old.bytes + prefix, scratch_);
  return true;
}

bool RecordMaker::verify(std::string_view key, std::string_view record, std::optional<uint64_t> field) {
  const size_t bytes = config_.field_length;
  if (record.size() != config_.field_count * bytes) return false;
  const uint64_t first = field.value_or(0);
  const uint64_t last = field.value_or(config_.field_count - 1);
  scratch_.clear();
  for (uint64_t i = first; i <= last; ++i) append_deterministic(key, i, bytes, scratch_);
  return record.substr(first * bytes, scratch_.size()) == scratch_;
}

WorkloadThread::WorkloadThread(Workload& workload, uint64_t seed, std::unique_ptr<Generator> keys,
                               std::unique_ptr<Generator> lengths)
    : workload_(workload),
      field_count_(workload.config().field_count),
      random_(seed),
      keys_(std::move(keys)),
      records_(workload.config(), std::move(lengths)) {}

Operation WorkloadThread::next_operation() {
  const WorkloadConfig& config = workload_.config();
  const std::array<double, 4> shares{config.read_proportion, config.update_proportion, config.insert_proportion,
                                     config.read_modify_write_proportion};
  double drawn = random_.unit() * (shares[0] + shares[1] + shares[2] + shares[3]);
  size_t chosen = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0) continue;  // rounding must not choose what the workload does not have
    chosen = i;
    drawn -= shares[i];
    if (drawn < 0) break;
  }
  return static_cast<Operation>(chosen);
}

uint64_t WorkloadThread::next_key() {
  const uint64_t end = workload_.inserted().end();
  for (int draws = 0; draws < kMaxDraws; ++draws) {
    const uint64_t number = keys_->next(random_);
    if (number < end) return number;
  }
  return keys_->next(random_) % end;
}

Workload::Workload(WorkloadConfig config)
    : config_(std::move(config)),
      load_keys_(config_.insert_start),
      inserted_(config_.record_count),
      sequence_({config_.insert_start, config_.insert_start + config_.insert_count - 1}) {}

Result<std::unique_ptr<Workload>> Workload::create(WorkloadConfig config) {
  SKUA_CHECK(config.insert_count > 0 && config.record_count > 0, "a workload has records");
  std::unique_ptr<Workload> workload(new Workload(std::move(config)));
  const WorkloadConfig& own = workload->config_;
  if (own.request_distribution == RequestDistribution::kLatest) {
    workload->latest_ranks_ = std::make_unique<ZipfianGenerator>(Interval{0, own.record_count - 1});
  }
  if (own.length_distribution == LengthDistribution::kHistogram) {
    auto loaded = HistogramLengthGenerator::load(own.length_histogram);
    if (!loaded) return tl::make_unexpected(loaded.error());
    constexpr uint64_t kMaxValueBytes = uint64_t{64} << 20;
    if ((*loaded)->longest() * own.field_count > kMaxValueBytes - own.field_count * kLengthBytes) {
      return fail(StatusCode::kConfiguration, "property fieldlengthhistogram: " + own.length_histogram +
                                                  " makes records that exceed the limit of a value, 64 MiB");
    }
    workload->histogram_lengths_ = std::move(*loaded);
  }
  return workload;
}

WorkloadThread Workload::make_thread(uint64_t seed) {
  return WorkloadThread(*this, seed, make_keys(), make_lengths());
}

std::unique_ptr<Generator> Workload::make_keys() {
  const Interval there{config_.insert_start, config_.insert_start + config_.insert_count - 1};
  switch (config_.request_distribution) {
    case RequestDistribution::kUniform: return std::make_unique<UniformGenerator>(there);
    case RequestDistribution::kZipfian: {
      // Room for twice the expected new keys, so that which keys are frequent stays as it is while they come.
      const uint64_t expected = static_cast<uint64_t>(2.0 * static_cast<double>(config_.expected_inserts()));
      return std::make_unique<ScrambledZipfianGenerator>(Interval{there.first, there.last + 1 + expected});
    }
    case RequestDistribution::kLatest: return std::make_unique<SkewedLatestGenerator>(inserted_, *latest_ranks_);
    case RequestDistribution::kHotspot: return std::make_unique<HotspotGenerator>(there, config_.hotspot);
    case RequestDistribution::kSequential: return std::make_unique<SequentialGenerator>(sequence_);
    case RequestDistribution::kExponential: break;
  }
  return std::make_unique<ExponentialGenerator>(
      inserted_, ExponentialGenerator::Shape{config_.exponential_percentile, static_cast<double>(config_.record_count) *
                                                                                 config_.exponential_fraction});
}

std::unique_ptr<Generator> Workload::make_lengths() const {
  const Interval spread{config_.min_field_length, config_.field_length};
  switch (config_.length_distribution) {
    case LengthDistribution::kConstant: break;
    case LengthDistribution::kUniform: return std::make_unique<UniformGenerator>(spread);
    case LengthDistribution::kZipfian: return std::make_unique<ZipfianGenerator>(spread);
    case LengthDistribution::kHistogram: return histogram_lengths_->clone();
  }
  return std::make_unique<ConstantGenerator>(config_.field_length);
}

}  // namespace skua::ycsb
