// skua-verbs-bench: what operations over verbs cost, as ratios to a raw READ of 64 B on the same device and in one run.
//
// One client thread that spins, one server, 16-byte keys, 64-byte values. Raw READs go through the transport's own
// queue pair to a target in this process, whose CPU does nothing for them. Kinds take turns in rounds; medians of
// single latencies are compared, and with what the device takes for the same verbs alone. Slabs that are asked for the
// first time are in the numbers; they move no median. Then each technique is switched off in turn.
// Writes a list of {bar, value, limit, unit, holds} to the file of --json.
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "bench/local_cluster.h"
#include "bench/skua_store.h"
#include "client/client.h"
#include "common/transport/verbs/verbs.h"

namespace skua::bench {
namespace {

constexpr int kExitShort = 1;
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr size_t kValueBytes = 64;
constexpr size_t kLargeBytes = size_t{1} << 20;
constexpr RegionKey kRawKey{0x5ca1ab1e};

std::atomic<bool> interrupted = false;
void on_signal(int) { interrupted.store(true); }

struct Bar {
  std::string name;
  double value = 0;
  double limit = 0;
  std::string unit;
  bool at_least = false;
  bool holds() const { return at_least ? value >= limit : value <= limit; }
};

struct Options {
  uint64_t keys = 1000;
  uint64_t rounds = 15;
  uint64_t per_round = 60;
  uint64_t large_rounds = 15;
  double ib_read_lat_us = 0;  // of `ib_read_lat -s 64` in the same boot; 0: not known
  std::string json;
  std::string server_binary;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One kind of operation: its latencies, and what it asked of the device.
struct Series {
  std::string name;
  std::vector<double> us;
  VerbsCounts counts;
  double median_us() const { return median(us); }
  double each(uint64_t sum) const { return us.empty() ? 0 : static_cast<double>(sum) / static_cast<double>(us.size()); }

  // Times `operation` once. Error: as it says.
  Result<void> measure(const std::function<Result<bool>()>& operation) {
    const VerbsCounts before = verbs_counts();
    const Nanoseconds start = system_clock().now();
    const Result<bool> right = operation();
    us.push_back(static_cast<double>(system_clock().now() - start) / 1000);
    const VerbsCounts after = verbs_counts();
    counts.doorbells += after.doorbells - before.doorbells;
    counts.work_requests += after.work_requests - before.work_requests;
    counts.inlined += after.inlined - before.inlined;
    counts.completions += after.completions - before.completions;
    if (!right) return tl::make_unexpected(right.error());
    if (!*right) return fail(StatusCode::kInternal, name + ": a value was not as it was written");
    return {};
  }
};

// The transport's queue pair to a target in this process.
class RawReader {
 public:
  Result<void> open() {
    memory_.resize(kBytes + 4096);
    auto* const begin = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory_.data()) + 4095) & ~4095UL);
    VerbsTargetOptions options;
    options.atomics = VerbsAtomics::kDeviceIfAble;
    options.slab_bytes = kBytes;
    auto target = make_verbs_target(options, {begin, kBytes, -1});
    if (!target) return tl::make_unexpected(target.error());
    target_ = std::move(*target);
    SessionTicket ticket;
    ticket.session = SessionId{1};
    ticket.secret.assign(16, 's');
    ticket.regions.push_back({kRawKey, begin, kBytes, 0});
    target_->admit(ticket);
    connector_ = make_verbs_connector({}, system_clock());
    ConnectTarget to;
    to.address = target_->endpoint();
    to.session = ticket.session;
    to.secret = ticket.secret;
    to.response_timeout = 5 * kSecond;
    auto connected = connector_->connect(to);
    if (!connected) return tl::make_unexpected(connected.error());
    queue_pair_ = std::move(*connected);
    while (queue_pair_->state() == QueuePairState::kConnecting) queue_pair_->poll({});
    if (queue_pair_->state() != QueuePairState::kReady) return tl::make_unexpected(queue_pair_->error());
    return {};
  }
  Result<bool> read(void* to, uint32_t bytes) {
    const WorkRequest request = make(Verb::kRead, to, bytes);
    return run(std::span(&request, 1));
  }
  // What a cached GET cannot do without: slot and block, in one doorbell.
  Result<bool> read_two(void* to) {
    WorkRequest requests[] = {make(Verb::kRead, to, 8), make(Verb::kRead, to, kBlockBytes)};
    requests[0].signaled = false;
    return run(requests);
  }
  // And a cached UPDATE: a block, then the slot.
  Result<bool> write_and_swap(void* from) {
    WorkRequest requests[] = {make(Verb::kWrite, from, kBlockBytes), make(Verb::kCompareAndSwap, from, 8)};
    requests[0].remote_offset = 4096;
    requests[0].signaled = false;
    return run(requests);
  }

 private:
  static constexpr uint32_t kBlockBytes = 128;  // of a key of 16 and a value of 64 bytes
  static WorkRequest make(Verb verb, void* local, uint32_t bytes) {
    WorkRequest request;
    request.verb = verb;
    request.key = kRawKey;
    request.local_count = 1;
    request.local[0] = {local, bytes};
    return request;
  }
  Result<bool> run(std::span<const WorkRequest> requests) {
    queue_pair_->post(requests);
    Completion completion{};
    while (queue_pair_->poll(std::span(&completion, 1)) == 0) {
    }
    if (completion.status == CompletionStatus::kSuccess) return true;
    return tl::make_unexpected(queue_pair_->error());
  }
  static constexpr uint64_t kBytes = uint64_t{4} << 20;
  std::vector<std::byte> memory_;
  std::unique_ptr<Target> target_;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<QueuePair> queue_pair_;
};

// A client with its session.
struct Reach {
  std::unique_ptr<Client> client;
  std::unique_ptr<Session> session;
};

class VerbsBench {
 public:
  VerbsBench(Options options, std::vector<Bar>& bars) : options_(std::move(options)), bars_(bars) {}

  Result<void> run() {
    LocalClusterOptions cluster;
    cluster.server_binary = options_.server_binary;
    cluster.memory = "256MiB";
    cluster.expected_keys = 20'000;
    cluster.more_arguments = {"--transports", "verbs", "--partitions", "4"};
    auto started = LocalCluster::start(std::move(cluster), system_clock(), interrupted);
    if (!started) return tl::make_unexpected(started.error());
    seed_ = (*started)->address();
    SKUA_RETURN_IF_ERROR(raw_.open());
    SKUA_RETURN_IF_ERROR(measure_operations());
    SKUA_RETURN_IF_ERROR(measure_large());
    return measure_techniques();
  }

 private:
  Result<Reach> connect(size_t cache_entries, const RdmaOptions& rdma) {
    ClientOptions options;
    options.seeds = {seed_};
    options.transport = "verbs";
    options.rdma = rdma;
    options.wait_mode = WaitMode::kSpin;
    options.cache_entries = cache_entries;
    const auto served = SkuaStores::connect(options, system_clock());
    if (!served) return tl::make_unexpected(served.error());
    auto client = Client::connect(std::move(options));
    if (!client) return tl::make_unexpected(client.error());
    auto session = (*client)->open_session();
    if (!session) return tl::make_unexpected(session.error());
    return Reach{std::move(*client), std::move(*session)};
  }

  static std::string key_of(uint64_t i) {
    std::string key = "key-000000000000";
    const std::string digits = std::to_string(i);
    return key.replace(key.size() - digits.size(), digits.size(), digits);
  }
  Result<bool> put(Session& session, uint64_t key, char fill) {
    value_.assign(kValueBytes, fill);
    const auto stored = session.put(key_of(key), value_);
    if (!stored) return tl::make_unexpected(stored.error());
    return true;
  }
  static Result<bool> get(Session& session, uint64_t key) {
    const auto found = session.get(key_of(key));
    if (!found) return tl::make_unexpected(found.error());
    return found->has_value() && (*found)->bytes.size() == kValueBytes;
  }

  Result<void> load(Session& session) {
    for (uint64_t i = 0; i < options_.keys; ++i) {
      if (const auto stored = put(session, i, 'a'); !stored) return tl::make_unexpected(stored.error());
    }
    for (uint64_t i = 0; i < options_.keys; ++i) {
      if (const auto found = get(session, i); !found) return tl::make_unexpected(found.error());
    }
    return {};
  }

  void print(const Series& series) const {
    std::printf("%-34s %9.1f us %8.2f x %7.2f %9.2f %11.2f %8.2f\n", series.name.c_str(), series.median_us(),
                series.median_us() / raw_us_, series.each(series.counts.work_requests),
                series.each(series.counts.doorbells), series.each(series.counts.completions),
                series.each(series.counts.inlined));
  }
  void bar(const Series& series, double limit) {
    bars_.push_back({series.name + " / raw READ", series.median_us() / raw_us_, limit, "x"});
  }

  Result<void> measure_operations() {
    auto caching = connect(4 * options_.keys, {});
    if (!caching) return tl::make_unexpected(caching.error());
    auto cold = connect(0, {});
    if (!cold) return tl::make_unexpected(cold.error());
    SKUA_RETURN_IF_ERROR(load(*caching->session));
    for (uint64_t i = 0; i < options_.keys; ++i) {
      if (const auto found = get(*cold->session, i); !found) return tl::make_unexpected(found.error());
    }
    Series raw{"raw READ 64 B", {}, {}};
    Series two{"raw READ 8 B + READ 128 B", {}, {}};
    Series swap{"raw WRITE 128 B + CAS", {}, {}};
    Series cached_get{"GET cached", {}, {}};
    Series cold_get{"GET cold", {}, {}};
    Series update{"UPDATE cached", {}, {}};
    Series insert{"INSERT", {}, {}};
    Series* const all[] = {&raw, &two, &swap, &cached_get, &cold_get, &update, &insert};
    alignas(8) std::byte buffer[128];
    uint64_t fresh = options_.keys;
    for (uint64_t round = 0; round <= options_.rounds; ++round) {
      const auto each = [&](Series& series, const std::function<Result<bool>(uint64_t)>& operation) -> Result<void> {
        for (uint64_t i = 0; i < options_.per_round && !interrupted.load(); ++i) {
          const uint64_t key = (round * options_.per_round + i) % options_.keys;
          SKUA_RETURN_IF_ERROR(series.measure([&] { return operation(key); }));
        }
        return {};
      };
      SKUA_RETURN_IF_ERROR(each(raw, [&](uint64_t) { return raw_.read(buffer, 64); }));
      SKUA_RETURN_IF_ERROR(each(two, [&](uint64_t) { return raw_.read_two(buffer); }));
      SKUA_RETURN_IF_ERROR(each(swap, [&](uint64_t) { return raw_.write_and_swap(buffer); }));
      SKUA_RETURN_IF_ERROR(each(cached_get, [&](uint64_t key) { return get(*caching->session, key); }));
      SKUA_RETURN_IF_ERROR(each(cold_get, [&](uint64_t key) { return get(*cold->session, key); }));
      SKUA_RETURN_IF_ERROR(each(update, [&](uint64_t key) { return put(*caching->session, key, 'b'); }));
      SKUA_RETURN_IF_ERROR(each(insert, [&](uint64_t) { return put(*caching->session, fresh++, 'c'); }));
      if (interrupted.load()) return fail(StatusCode::kUnavailable, "interrupted");
      if (round != 0) continue;
      for (Series* const series : all) *series = {series->name, {}, {}};
    }
    raw_us_ = raw.median_us();
    std::printf("%-34s %12s %10s %7s %9s %11s %8s\n", "median of single operations", "", "ratio", "verbs", "doorbells",
                "completions", "inlined");
    for (const Series* series : all) print(*series);
    if (options_.ib_read_lat_us > 0) {
      std::printf("%-34s %9.1f us\n", "ib_read_lat -s 64", options_.ib_read_lat_us);
      bars_.push_back({"raw READ / ib_read_lat", raw_us_ / options_.ib_read_lat_us, 1.10, "x"});
    }
    bar(cached_get, 1.15);
    bar(cold_get, 2.2);
    bar(update, 1.3);
    bar(insert, 3.3);
    return {};
  }

  Result<void> measure_large() {
    auto reach = connect(1024, {});
    if (!reach) return tl::make_unexpected(reach.error());
    value_.assign(kLargeBytes, 'l');
    const auto stored = reach->session->put("large", value_);
    if (!stored) return tl::make_unexpected(stored.error());
    std::vector<std::byte> buffer(kLargeBytes);
    Series raw{"raw READ 1 MiB", {}, {}};
    Series get{"GET cached 1 MiB, get_into", {}, {}};
    for (uint64_t round = 0; round <= options_.large_rounds; ++round) {
      SKUA_RETURN_IF_ERROR(raw.measure([&] { return raw_.read(buffer.data(), kLargeBytes); }));
      SKUA_RETURN_IF_ERROR(get.measure([&]() -> Result<bool> {
        const auto found = reach->session->get_into("large", buffer);
        if (!found) return tl::make_unexpected(found.error());
        return found->has_value() && (*found)->value_bytes == kLargeBytes && buffer[kLargeBytes - 1] == std::byte{'l'};
      }));
      if (round == 0) {
        raw = {raw.name, {}, {}};
        get = {get.name, {}, {}};
      }
    }
    print(raw);
    print(get);
    bars_.push_back({"GET 1 MiB / raw READ, bandwidth", raw.median_us() / get.median_us(), 0.9, "x", true});
    return {};
  }

  Result<void> measure_techniques() {
    RdmaOptions no_inline;
    no_inline.inline_sends = false;
    RdmaOptions no_batching;
    no_batching.doorbell_batching = false;
    RdmaOptions no_selective;
    no_selective.selective_signaling = false;
    const std::pair<std::string, RdmaOptions> ways[] = {{"all on", {}},
                                                        {"no inline", no_inline},
                                                        {"a doorbell each", no_batching},
                                                        {"every one signaled", no_selective}};
    std::vector<Series> series;
    std::vector<Reach> reaches;
    for (const auto& [name, rdma] : ways) {
      auto reach = connect(4 * options_.keys, rdma);
      if (!reach) return tl::make_unexpected(reach.error());
      reaches.push_back(std::move(*reach));
      SKUA_RETURN_IF_ERROR(load(*reaches.back().session));
      series.push_back({"GET, " + name, {}, {}});
      series.push_back({"UPDATE, " + name, {}, {}});
    }
    for (uint64_t turn = 0; turn < options_.rounds * reaches.size() && !interrupted.load(); ++turn) {
      const size_t way = turn % reaches.size();
      Session& session = *reaches[way].session;
      // A session's own write makes its next operations on the key cached ones.
      for (uint64_t key = 0; key < options_.per_round; ++key) {
        if (const auto stored = put(session, key, 'd'); !stored) return tl::make_unexpected(stored.error());
      }
      for (uint64_t key = 0; key < options_.per_round; ++key) {
        SKUA_RETURN_IF_ERROR(series[2 * way].measure([&] { return get(session, key); }));
      }
      for (uint64_t key = 0; key < options_.per_round; ++key) {
        SKUA_RETURN_IF_ERROR(series[2 * way + 1].measure([&] { return put(session, key, 'e'); }));
      }
    }
    for (const Series& one : series) print(one);
    return {};
  }

  const Options options_;
  std::vector<Bar>& bars_;
  std::string seed_;
  RawReader raw_;
  double raw_us_ = 1;
  std::string value_;
};

std::string to_json(const std::vector<Bar>& bars) {
  std::string text = "[";
  char number[64];
  for (const Bar& bar : bars) {
    text += text.size() == 1 ? "\n" : ",\n";
    std::snprintf(number, sizeof number, "\"value\": %.4f, \"limit\": %.4f", bar.value, bar.limit);
    text += "  {\"bar\": \"" + bar.name + "\", " + number + ", \"unit\": \"" + bar.unit + "\", \"holds\": " +
            (bar.holds() ? "true" : "false") + "}";
  }
  return text + "\n]\n";
}

int usage(const std::string& why) {
  std::cerr << "skua-verbs-bench: " << why
            << "; usage: skua-verbs-bench [--quick] [--json FILE] [--ib-read-lat US] [--server-binary FILE]\n";
  return kExitUsage;
}

int main_of(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag == "--quick") {
      options.keys = 300;
      options.rounds = 5;
      options.large_rounds = 5;
      continue;
    }
    if (flag != "--json" && flag != "--ib-read-lat" && flag != "--server-binary") {
      return usage("unknown option " + flag);
    }
    if (++i == arguments.size()) return usage(flag + " needs a value");
    const std::string& value = arguments[i];
    if (flag == "--json") options.json = value;
    if (flag == "--server-binary") options.server_binary = value;
    if (flag == "--ib-read-lat") {
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), options.ib_read_lat_us);
      if (parsed.ec != std::errc() || options.ib_read_lat_us <= 0) return usage(flag + " " + value + ": no time in us");
    }
  }
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  const auto binary = find_server_binary(options.server_binary);
  if (!binary) return usage(binary.error().message());
  options.server_binary = *binary;
  const std::string json = options.json;

  std::vector<Bar> bars;
  if (const auto measured = VerbsBench(std::move(options), bars).run(); !measured) {
    std::cerr << "skua-verbs-bench: " << measured.error().message() << "\n";
    return kExitUnavailable;
  }
  bool all_hold = true;
  for (const Bar& bar : bars) {
    all_hold = all_hold && bar.holds();
    std::printf("%-34s %8.3f  %s %5.2f %s\n", bar.name.c_str(), bar.value, bar.at_least ? "at least" : "at most ",
                bar.limit, bar.holds() ? "holds" : "FALLS SHORT");
  }
  if (!json.empty()) {
    std::ofstream file(json, std::ios::trunc);
    file << to_json(bars);
    file.close();
    if (!file) return usage("--json " + json + " cannot be written");
  }
  return all_hold ? 0 : kExitShort;
}

}  // namespace
}  // namespace skua::bench

int main(int argc, char** argv) {
  return skua::bench::main_of(std::vector<std::string>(argv + 1, argv + argc));
}
