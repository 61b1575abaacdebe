// skua-growth-bench: what it costs that tables grow with their keys. One client thread over shared memory.
//
// Two servers take the same inserts, a piece here and a piece there: one starts with the smallest tables, the other
// with tables for all keys. At each power of ten, cold GETs of random keys are measured against two dependent loads
// from memory of the size that the server uses, round by round.
// Writes a list of {bar, value, limit, unit, holds} to the file of --json.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bench/bars.h"
#include "bench/local_cluster.h"
#include "client/client.h"
#include "common/base/histogram.h"
#include "common/base/random.h"

namespace skua::bench {
namespace {

constexpr int kExitShort = 1;
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr size_t kKeyBytes = 16;
constexpr size_t kValueBytes = 64;
constexpr uint64_t kPiece = 10'000;     // inserts at one server before the other has its turn
constexpr int kRounds = 15;
constexpr uint64_t kGetsARound = 4'000;
constexpr uint64_t kFirstStep = 10'000;

std::atomic<bool> interrupted = false;
void on_signal(int) { interrupted.store(true); }

struct Options {
  uint64_t keys = 10'000'000;
  std::string memory = "6GiB";
  std::string json;
  std::string server_binary;
};

std::string key_of(uint64_t number) {
  char text[kKeyBytes + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number * 0x9e3779b97f4a7c15ULL));
  return {text, kKeyBytes};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A server of its own, and one client of it.
class Place {
 public:
  static Result<std::unique_ptr<Place>> start(const Options& options, uint64_t expected_keys) {
    auto place = std::make_unique<Place>();
    LocalClusterOptions cluster;
    cluster.server_binary = options.server_binary;
    cluster.memory = options.memory;
    cluster.expected_keys = expected_keys;
    auto started = LocalCluster::start(std::move(cluster), system_clock(), interrupted);
    if (!started) return tl::make_unexpected(started.error());
    place->cluster_ = std::move(*started);
    ClientOptions client;
    client.seeds = {place->cluster_->address()};
    client.transport = "shm";
    client.cache_entries = 0;
    auto connected = Client::connect(client);
    if (!connected) return tl::make_unexpected(connected.error());
    place->client_ = std::move(*connected);
    auto opened = place->client_->open_session();
    if (!opened) return tl::make_unexpected(opened.error());
    place->session_ = std::move(*opened);
    return place;
  }

  // Inserts keys [first, last). Returns nanoseconds; each insert's own into `latencies`.
  Result<double> insert(uint64_t first, uint64_t last, Histogram& latencies) {
    const std::string value(kValueBytes, 'v');
    const Nanoseconds begin = system_clock().now();
    Nanoseconds before = begin;
    for (uint64_t i = first; i < last; ++i) {
      const auto stored = session_->put(key_of(i), value);
      if (!stored) return tl::make_unexpected(stored.error());
      const Nanoseconds now = system_clock().now();
      latencies.record(static_cast<uint64_t>(now - before));
      before = now;
    }
    return static_cast<double>(before - begin);
  }
  // Nanoseconds of one cold GET, on average over a round.
  Result<double> get(uint64_t keys, Random& random) {
    const Nanoseconds begin = system_clock().now();
    for (uint64_t i = 0; i < kGetsARound; ++i) {
      const auto found = session_->get(key_of(random.below(keys)));
      if (!found) return tl::make_unexpected(found.error());
      if (!found->has_value()) return fail(StatusCode::kInternal, "a key that was stored is gone");
    }
    return static_cast<double>(system_clock().now() - begin) / static_cast<double>(kGetsARound);
  }
  OperationCounters get_counters() const { return session_->counters()[static_cast<size_t>(OperationKind::kGet)]; }
  Result<ServerStatistics> statistics() { return client_->server_statistics(1); }

 private:
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
};

// Two loads, the second from where the first says, from so much memory.
class DependentLoads {
 public:
  explicit DependentLoads(uint64_t bytes) : words_(std::max<uint64_t>(bytes / sizeof(uint64_t), 1024)) {
    Random random(1);
    for (uint64_t& word : words_) word = random.below(words_.size());
  }
  double measure(Random& random) {
    uint64_t sum = 0;
    const Nanoseconds begin = system_clock().now();
    for (uint64_t i = 0; i < kGetsARound; ++i) {
      const uint64_t first = words_[(random.below(words_.size()) + (sum & 1)) % words_.size()];
      sum += words_[first];
    }
    const auto time = static_cast<double>(system_clock().now() - begin);
    sum_.store(sum, std::memory_order_relaxed);
    return time / static_cast<double>(kGetsARound);
  }

 private:
  std::vector<uint64_t> words_;
  std::atomic<uint64_t> sum_{0};  // so that the loads are made
};

class GrowthBench {
 public:
  GrowthBench(Options options, std::vector<Bar>& bars) : options_(std::move(options)), bars_(bars) {}

  Result<void> run() {
    auto grows = Place::start(options_, 1);
    if (!grows) return tl::make_unexpected(grows.error());
    auto sized = Place::start(options_, options_.keys + options_.keys / 8);
    if (!sized) return tl::make_unexpected(sized.error());
    std::printf("%12s %9s %9s %8s %8s %10s %10s %9s %8s\n", "keys", "GET ns", "loads ns", "ratio", "RTs", "READs",
                "bytes/key", "tables", "insert x");
    for (uint64_t done = 0; done < options_.keys;) {
      const uint64_t step = std::min(std::max(kFirstStep, done * 10), options_.keys);
      SKUA_RETURN_IF_ERROR(fill(**grows, **sized, done, step));
      SKUA_RETURN_IF_ERROR(look(**grows, step));
      done = step;
    }
    const auto [least, most] = std::minmax_element(get_ratios_.begin(), get_ratios_.end());
    bars_.push_back({"GET / two loads, most / least", *most / *least, 1.5, "x"});
    bars_.push_back({"insert time, growing / sized", median(insert_ratios_), 1 / 0.7, "x"});
    const auto slow = static_cast<double>(growing_.value_at_percentile(99.9));
    bars_.push_back({"insert, 99.9th percentile", slow / static_cast<double>(kMillisecond), 20, "ms"});
    double sum = 0;
    for (const double bytes : overheads_) sum += bytes;
    bars_.push_back({"bytes a key beyond key and value", sum / static_cast<double>(overheads_.size()), 48, "bytes"});
    return {};
  }

 private:
  Result<void> fill(Place& grows, Place& sized, uint64_t first, uint64_t last) {
    step_ratios_.clear();
    for (uint64_t at = first; at < last; at += kPiece) {
      if (interrupted.load()) return fail(StatusCode::kUnavailable, "interrupted");
      const uint64_t end = std::min(at + kPiece, last);
      const auto with = grows.insert(at, end, growing_);
      if (!with) return tl::make_unexpected(with.error());
      const auto without = sized.insert(at, end, sized_);
      if (!without) return tl::make_unexpected(without.error());
      step_ratios_.push_back(*with / *without);
      insert_ratios_.push_back(*with / *without);
    }
    return {};
  }

  Result<void> look(Place& place, uint64_t keys) {
    const auto statistics = place.statistics();
    if (!statistics) return tl::make_unexpected(statistics.error());
    const uint64_t used = statistics->value_or_zero("used_bytes") + statistics->value_or_zero("index_bytes");
    DependentLoads loads(used);
    Random random(keys);
    const OperationCounters before = place.get_counters();
    std::vector<double> gets;
    std::vector<double> raw;
    for (int round = 0; round < kRounds; ++round) {
      const auto get = place.get(keys, random);
      if (!get) return tl::make_unexpected(get.error());
      gets.push_back(*get);
      raw.push_back(loads.measure(random));
    }
    const OperationCounters after = place.get_counters();
    const auto operations = static_cast<double>(after.operations - before.operations);
    const double round_trips = static_cast<double>(after.round_trips - before.round_trips) / operations;
    const double reads = static_cast<double>(after.reads - before.reads) / operations;
    const double ratio = median(gets) / median(raw);
    const double overhead =
        static_cast<double>(used) / static_cast<double>(keys) - static_cast<double>(kKeyBytes + kValueBytes);
    std::printf("%12llu %9.0f %9.0f %8.2f %8.3f %10.3f %10.1f %9llu %8.2f\n", static_cast<unsigned long long>(keys),
                median(gets), median(raw), ratio, round_trips, reads, overhead,
                static_cast<unsigned long long>(statistics->value_or_zero("tables")), median(step_ratios_));
    std::fflush(stdout);
    const std::string at = " at " + std::to_string(keys) + " keys";
    bars_.push_back({"GET cold, round trips" + at, round_trips, 2.05, "round trips"});
    bars_.push_back({"GET cold, READs" + at, reads, 2.1, "READs"});
    get_ratios_.push_back(ratio);
    // Grants and tables that hold little yet weigh more than the keys at first.
    if (keys >= 1'000'000) overheads_.push_back(overhead);
    return {};
  }

  const Options options_;
  std::vector<Bar>& bars_;
  Histogram growing_;
  Histogram sized_;
  std::vector<double> step_ratios_;
  std::vector<double> insert_ratios_;
  std::vector<double> get_ratios_;
  std::vector<double> overheads_;
};

int usage(const std::string& problem) {
  std::cerr << "skua-growth-bench: " << problem
            << "\nusage: skua-growth-bench [--json FILE] [--quick] [--keys N] [--memory SIZE] [--server-binary FILE]\n";
  return kExitUsage;
}

int main_of(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag == "--quick") {
      options.keys = 1'000'000;
      options.memory = "1GiB";
      continue;
    }
    if (flag != "--json" && flag != "--keys" && flag != "--memory" && flag != "--server-binary") {
      return usage("unknown option " + flag);
    }
    if (++i == arguments.size()) return usage(flag + " needs a value");
    const std::string& value = arguments[i];
    if (flag == "--json") options.json = value;
    if (flag == "--memory") options.memory = value;
    if (flag == "--server-binary") options.server_binary = value;
    if (flag == "--keys") {
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), options.keys);
      const bool number = parsed.ec == std::errc() && parsed.ptr == value.data() + value.size();
      if (!number || options.keys < 1'000'000) return usage("--keys " + value + ": must be a number from 1000000 on");
    }
  }
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  const auto binary = find_server_binary(options.server_binary);
  if (!binary) return usage(binary.error().message());
  options.server_binary = *binary;

  std::vector<Bar> bars;
  if (const auto measured = GrowthBench(options, bars).run(); !measured) {
    std::cerr << "skua-growth-bench: " << measured.error().message() << "\n";
    return kExitUnavailable;
  }
  print_bars(bars);
  if (!options.json.empty()) {
    if (const auto written = write_bars(bars, options.json); !written) {
      return usage("--json " + written.error().message());
    }
  }
  return all_hold(bars) ? 0 : kExitShort;
}

}  // namespace
}  // namespace skua::bench

int main(int argc, char** argv) {
  return skua::bench::main_of(std::vector<std::string>(argv + 1, argv + argc));
}
