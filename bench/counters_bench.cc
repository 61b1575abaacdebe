// skua-counters-bench: what one operation of each kind costs in round trips and verbs, one client, over each transport.
//
// A cold GET is one of a session without a slot cache; a cached operation is one whose key the same session has just
// read. The numbers are averages of the library's own counters, so they do not depend on the machine's speed; what a
// session reads once (directories) is in them, spread over all keys.
// Writes a list of {bar, value, limit, unit, holds} to the file of --json.
#include <signal.h>

#include <atomic>
#include <charconv>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "bench/bars.h"
#include "bench/local_cluster.h"
#include "bench/skua_store.h"
#include "client/client.h"

namespace skua::bench {
namespace {

constexpr int kExitShort = 1;
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr uint32_t kServers = 3;
constexpr size_t kValueBytes = 1024;

std::atomic<bool> interrupted = false;
void on_signal(int) { interrupted.store(true); }

struct Counts {
  OperationCounters cost;
  double per_operation(uint64_t sum) const {
    return cost.operations == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(cost.operations);
  }
};

struct Options {
  uint64_t keys = 50'000;
  std::string json;
  std::string server_binary;
};

class CountersBench {
 public:
  CountersBench(Options options, std::vector<Bar>& bars) : options_(std::move(options)), bars_(bars) {}

  Result<void> run(const std::string& transport) {
    LocalClusterOptions cluster;
    cluster.servers = kServers;
    cluster.server_binary = options_.server_binary;
    cluster.memory = "512MiB";
    cluster.expected_keys = options_.keys;
    auto started = LocalCluster::start(std::move(cluster), system_clock(), interrupted);
    if (!started) return tl::make_unexpected(started.error());
    ClientOptions caching;
    caching.seeds = {(*started)->address()};
    caching.transport = transport;
    caching.cache_entries = 4 * options_.keys;
    ClientOptions cold = caching;
    cold.cache_entries = 0;
    SKUA_RETURN_IF_ERROR(wait_until_served(caching));
    SKUA_RETURN_IF_ERROR(measure_writer(transport, caching));
    return measure_cold(transport, cold);
  }

 private:
  // Of the kind's counters over all keys. `operation` says whether the key was as it should be.
  Result<Counts> over_all_keys(Session& session, OperationKind kind,
                               const std::function<Result<bool>(const std::string& key)>& operation) {
    const OperationCounters before = session.counters()[static_cast<size_t>(kind)];
    for (uint64_t i = 0; i < options_.keys; ++i) {
      const std::string key = "counters" + std::to_string(i);
      const Result<bool> right = operation(key);
      if (!right) return tl::make_unexpected(right.error());
      if (!*right) return fail(StatusCode::kInternal, "key " + key + " was not as it was written");
      if (interrupted.load()) return fail(StatusCode::kUnavailable, "interrupted");
    }
    const OperationCounters after = session.counters()[static_cast<size_t>(kind)];
    Counts counts;
    counts.cost.operations = after.operations - before.operations;
    counts.cost.round_trips = after.round_trips - before.round_trips;
    counts.cost.reads = after.reads - before.reads;
    counts.cost.writes = after.writes - before.writes;
    counts.cost.compare_and_swaps = after.compare_and_swaps - before.compare_and_swaps;
    if (counts.cost.operations != options_.keys) {
      return fail(StatusCode::kInternal, "the counters saw " + std::to_string(counts.cost.operations) +
                                             " operations where " + std::to_string(options_.keys) + " were made");
    }
    return counts;
  }

  void round_trips(const std::string& transport, const std::string& name, const Counts& counts, double limit) {
    bars_.push_back({transport + ": " + name, counts.per_operation(counts.cost.round_trips), limit, "round trips"});
  }

  Result<void> wait_until_served(const ClientOptions& options) {
    const auto stores = SkuaStores::connect(options, system_clock());
    if (!stores) return tl::make_unexpected(stores.error());
    return {};
  }

  static Result<std::unique_ptr<Client>> connect(ClientOptions options) { return Client::connect(std::move(options)); }

  Result<bool> put(Session& session, const std::string& key, char fill) {
    value_.assign(kValueBytes, fill);
    const auto stored = session.put(key, value_);
    if (!stored) return tl::make_unexpected(stored.error());
    return true;
  }

  Result<bool> get(Session& session, const std::string& key, char fill) {
    const auto found = session.get(key);
    if (!found) return tl::make_unexpected(found.error());
    return found->has_value() && (*found)->bytes.size() == kValueBytes && (*found)->bytes.front() == fill &&
           (*found)->bytes.back() == fill;
  }

  // Inserts, reads, updates, removes and inserts again, all through one caching session.
  Result<void> measure_writer(const std::string& transport, const ClientOptions& options) {
    auto client = connect(options);
    if (!client) return tl::make_unexpected(client.error());
    auto opened = (*client)->open_session();
    if (!opened) return tl::make_unexpected(opened.error());
    Session& session = **opened;

    const auto insert = over_all_keys(session, OperationKind::kPut, [&](auto& key) { return put(session, key, 'a'); });
    if (!insert) return tl::make_unexpected(insert.error());
    round_trips(transport, "INSERT", *insert, 3.1);

    const auto read = [&](auto& key) { return get(session, key, 'a'); };
    if (const auto warm = over_all_keys(session, OperationKind::kGet, read); !warm) {
      return tl::make_unexpected(warm.error());
    }
    const auto cached_get = over_all_keys(session, OperationKind::kGet, read);
    if (!cached_get) return tl::make_unexpected(cached_get.error());
    round_trips(transport, "GET cached", *cached_get, 1.05);

    const auto update = over_all_keys(session, OperationKind::kPut, [&](auto& key) { return put(session, key, 'b'); });
    if (!update) return tl::make_unexpected(update.error());
    round_trips(transport, "UPDATE cached", *update, 1.05);

    const auto remove =
        over_all_keys(session, OperationKind::kRemove, [&](auto& key) { return session.remove(key); });
    if (!remove) return tl::make_unexpected(remove.error());
    round_trips(transport, "DELETE cached", *remove, 1.05);

    const auto again = over_all_keys(session, OperationKind::kPut, [&](auto& key) { return put(session, key, 'c'); });
    if (!again) return tl::make_unexpected(again.error());
    return {};
  }

  Result<void> measure_cold(const std::string& transport, const ClientOptions& options) {
    auto client = connect(options);
    if (!client) return tl::make_unexpected(client.error());
    auto session = (*client)->open_session();
    if (!session) return tl::make_unexpected(session.error());
    const auto cold =
        over_all_keys(**session, OperationKind::kGet, [&](auto& key) { return get(**session, key, 'c'); });
    if (!cold) return tl::make_unexpected(cold.error());
    round_trips(transport, "GET cold", *cold, 2.05);
    bars_.push_back({transport + ": GET cold", cold->per_operation(cold->cost.reads), 2.1, "READs"});
    return {};
  }

  const Options options_;
  std::vector<Bar>& bars_;
  std::string value_;
};

int usage(const std::string& problem) {
  std::cerr << "skua-counters-bench: " << problem
            << "\nusage: skua-counters-bench [--json FILE] [--quick] [--keys N] [--server-binary FILE]\n";
  return kExitUsage;
}

int main_of(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag == "--quick") {
      options.keys = 12'000;
      continue;
    }
    if (flag != "--json" && flag != "--keys" && flag != "--server-binary") return usage("unknown option " + flag);
    if (++i == arguments.size()) return usage(flag + " needs a value");
    const std::string& value = arguments[i];
    if (flag == "--json") options.json = value;
    if (flag == "--server-binary") options.server_binary = value;
    if (flag == "--keys") {
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), options.keys);
      if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || options.keys == 0) {
        return usage("--keys " + value + ": must be a whole number above 0");
      }
    }
  }
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  const auto binary = find_server_binary(options.server_binary);
  if (!binary) return usage(binary.error().message());
  options.server_binary = *binary;

  std::vector<Bar> bars;
  for (const std::string transport : {"shm", "tcp"}) {
    const auto measured = CountersBench(options, bars).run(transport);
    if (!measured) {
      std::cerr << "skua-counters-bench: " << transport << ": " << measured.error().message() << "\n";
      return kExitUnavailable;
    }
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
