// skua-bench: YCSB's workloads against Skua. Wiring only; bench/README.md tells how to use it.
#include <signal.h>
#include <time.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>

#include "bench/local_cluster.h"
#include "bench/options.h"
#include "bench/skua_store.h"
#include "bench/ycsb/known_properties.h"
#include "bench/ycsb/runner.h"
#include "common/base/standard_descriptors.h"
#include "common/base/units.h"
#include "proto/version.h"

namespace skua::bench {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailures = 1;
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr int kExitCannotCreate = 73;
constexpr int kExitPermission = 77;
constexpr int kExitConfiguration = 78;

std::atomic<bool> interrupted = false;
std::mutex standard_error;

// The first signal ends the run with a report; the next one has its usual effect.
void on_signal(int) { interrupted.store(true, std::memory_order_relaxed); }

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void print_error(const std::string& line) {
  const std::lock_guard lock(standard_error);
  std::cerr << line << std::endl;
}

int refuse(const Status& status) {
  print_error("skua-bench: " + status.message());
  switch (status.code()) {
    case StatusCode::kInvalidArgument: return kExitUsage;
    case StatusCode::kConfiguration: return kExitConfiguration;
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied: return kExitPermission;
    default: return kExitUnavailable;
  }
}

void sleep_until(Nanoseconds until) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(until / kSecond);
  time.tv_nsec = until % kSecond;
  (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

// Bytes for all records of the workload, old versions that wait for reclaim, and the tables.
uint64_t memory_for(const ycsb::WorkloadConfig& config, uint32_t servers) {
  constexpr double kBlockOverheadBytes = 128;
  constexpr double kHeadroom = 2.0;
  constexpr double kLeast = double{512 << 20};
  const double record = static_cast<double>(config.field_count * (config.field_length + 4)) + kBlockOverheadBytes;
  const double records = static_cast<double>(config.record_count + 2 * config.expected_inserts());
  const double each = kLeast / 2 + kHeadroom * record * records / static_cast<double>(servers);
  constexpr uint64_t kPage = 2 << 20;
  return (static_cast<uint64_t>(std::max(each, kLeast)) / kPage + 1) * kPage;
}

struct Parsed {
  Options options;
  ycsb::WorkloadConfig workload;
  ycsb::RunnerOptions runner;
  ycsb::ReportOptions report;
};

Result<Parsed> parse(std::span<const char* const> arguments) {
  Parsed parsed;
  auto options = parse_options(arguments);
  if (!options) return tl::make_unexpected(options.error());
  parsed.options = std::move(*options);
  if (parsed.options.help || parsed.options.version) return parsed;
  const ycsb::Properties& properties = parsed.options.properties;
  const auto warnings = ycsb::check_property_names(properties);
  if (!warnings) return tl::make_unexpected(warnings.error());
  for (const std::string& warning : *warnings) print_error("warning: " + warning);
  auto workload = ycsb::WorkloadConfig::parse(properties, parsed.options.phases);
  if (!workload) return tl::make_unexpected(workload.error());
  parsed.workload = std::move(*workload);
  auto runner = ycsb::RunnerOptions::parse(properties);
  if (!runner) return tl::make_unexpected(runner.error());
  parsed.runner = std::move(*runner);
  auto report = ycsb::ReportOptions::parse(properties);
  if (!report) return tl::make_unexpected(report.error());
  parsed.report = std::move(*report);

  const ycsb::WorkloadConfig& config = parsed.workload;
  const bool writes =
      config.update_proportion > 0 || config.insert_proportion > 0 || config.read_modify_write_proportion > 0;
  if (parsed.options.read_only && writes) {
    return fail(StatusCode::kInvalidArgument,
                "--read-only, but the workload writes: use one with reads only, or -p updateproportion=0 and so on");
  }
  parsed.runner.status = parsed.options.status;
  parsed.runner.batch = parsed.options.batch;
  parsed.runner.seed = parsed.options.seed ? *parsed.options.seed : system_entropy().next();
  return parsed;
}

class Bench {
 public:
  explicit Bench(Parsed parsed) : parsed_(std::move(parsed)) {}

  int run() {
    auto workload = ycsb::Workload::create(parsed_.workload);
    if (!workload) return refuse(workload.error());
    if (const auto writable = check_report_files(); !writable) {
      print_error("skua-bench: " + writable.error().message());
      return kExitCannotCreate;
    }
    if (parsed_.options.local_servers > 0) {
      if (const auto started = start_servers(); !started) return refuse(started.error());
    }
    ClientOptions client;
    client.seeds = {cluster_ ? cluster_->address() : parsed_.options.cluster};
    client.transport = parsed_.options.transport;
    client.rdma.device = parsed_.options.rdma_device;
    client.rdma.port = parsed_.options.rdma_port;
    client.rdma.gid_index = parsed_.options.rdma_gid_index;
    client.rdma.traffic_class = parsed_.options.rdma_traffic_class;
    client.rdma.path_mtu = parsed_.options.rdma_mtu;
    client.rdma.ack_timeout = parsed_.options.rdma_ack_timeout.value_or(client.rdma.ack_timeout);
    client.rdma.retry_count = parsed_.options.rdma_retry_count.value_or(client.rdma.retry_count);
    if (parsed_.options.wait == "busy") client.wait_mode = WaitMode::kSpin;
    if (parsed_.options.wait == "event") client.wait_mode = WaitMode::kSleep;
    client.token = parsed_.options.token;
    client.name = "skua-bench";
    client.read_only = parsed_.options.read_only;
    client.batch_depth = std::max<size_t>(client.batch_depth, parsed_.options.batch);
    auto stores = SkuaStores::connect(std::move(client), system_clock());
    if (!stores) return refuse(stores.error());

    int exit_code = kExitDone;
    ycsb::Runner runner(**workload, **stores, parsed_.runner, environment_);
    for (const bool loading : {true, false}) {
      if (loading ? !parsed_.options.phases.load : !parsed_.options.phases.run) continue;
      if (exit_code != kExitDone || interrupted.load()) break;
      exit_code = run_phase(runner, **stores, loading);
    }
    return exit_code;
  }

 private:
  Result<void> start_servers() {
    const auto binary = find_server_binary(parsed_.options.server_binary);
    if (!binary) return tl::make_unexpected(binary.error());
    LocalClusterOptions options;
    options.servers = parsed_.options.local_servers;
    options.server_binary = *binary;
    options.memory = parsed_.options.memory;
    if (options.memory.empty()) options.memory = std::to_string(memory_for(parsed_.workload, options.servers));
    const uint64_t keys = parsed_.workload.record_count + 2 * parsed_.workload.expected_inserts();
    // Keys do not fall evenly on servers.
    options.expected_keys = std::max<uint64_t>(keys / options.servers + keys / options.servers / 8, 10'000);
    const auto add = [&](const char* flag, const std::string& value) {
      if (!value.empty()) options.more_arguments.insert(options.more_arguments.end(), {flag, value});
    };
    if (parsed_.options.transport == "verbs") {
      add("--transports", "verbs");
      add("--rdma-device", parsed_.options.rdma_device);
      add("--rdma-port", parsed_.options.rdma_port == 0 ? "" : std::to_string(parsed_.options.rdma_port));
      const auto number = [](const std::optional<uint32_t>& value) { return value ? std::to_string(*value) : ""; };
      add("--rdma-gid-index", number(parsed_.options.rdma_gid_index));
      add("--rdma-traffic-class", number(parsed_.options.rdma_traffic_class));
      add("--rdma-mtu", parsed_.options.rdma_mtu == 0 ? "" : std::to_string(parsed_.options.rdma_mtu));
      add("--rdma-ack-timeout", number(parsed_.options.rdma_ack_timeout));
      add("--rdma-retry-count", number(parsed_.options.rdma_retry_count));
      add("--rdma-atomics", parsed_.options.rdma_atomics);
    }
    auto started = LocalCluster::start(options, system_clock(), interrupted);
    if (!started) return tl::make_unexpected(started.error());
    cluster_ = std::move(*started);
    return {};
  }

  int run_phase(ycsb::Runner& runner, SkuaStores& stores, bool loading) {
    const auto before = stores.server_cpu();
    if (!before) return refuse(before.error());
    auto result = loading ? runner.load() : runner.run();
    if (!result) return refuse(result.error());
    const auto after = stores.server_cpu();
    if (!after) print_error("warning: the servers' CPU time is unknown: " + after.error().message());
    for (size_t i = 0; after && i < after->size() && i < before->size(); ++i) {
      result->servers.push_back({(*after)[i].server, (*after)[i].cpu_ms - (*before)[i].cpu_ms});
    }
    const std::string header = describe(stores, loading);
    if (const auto written = write_report(header, *result, loading); !written) {
      print_error("skua-bench: " + written.error().message());
      return kExitCannotCreate;
    }
    const uint64_t failures = result->summary.failures();
    if (failures > 0) {
      print_error("skua-bench: " + std::to_string(failures) + " operations failed or read a wrong value");
    }
    return failures == 0 ? kExitDone : kExitFailures;
  }

  std::string describe(const SkuaStores& stores, bool loading) const {
    const Options& options = parsed_.options;
    const ycsb::WorkloadConfig& config = parsed_.workload;
    std::string header = loading ? "# load" : "# run";
    header += ": seed " + std::to_string(parsed_.runner.seed) + ", threads " + std::to_string(parsed_.runner.threads);
    if (options.batch > 1) header += ", batch " + std::to_string(options.batch);
    header += cluster_ ? ", local servers " + std::to_string(options.local_servers) : ", cluster " + options.cluster;
    header += "\n# " + stores.transport_report() + "\n";
    header += "# skua.fieldupdate=";
    header += config.field_update == ycsb::FieldUpdate::kReplace ? "replace" : "merge";
    header += ", skua.keyhash=" + std::string(config.unsigned_key_hash ? "unsigned" : "java") + "\n";
    return header;
  }

  // The run's report goes to `exportfile`, the load's to the same with ".load" behind it when both are asked for.
  std::string report_path(bool loading) const {
    const bool both = parsed_.options.phases.load && parsed_.options.phases.run;
    return parsed_.report.file + (both && loading ? ".load" : "");
  }

  // Before anything runs for long. What is there stays until the report replaces it.
  Result<void> check_report_files() const {
    if (parsed_.report.file.empty()) return {};
    for (const bool loading : {true, false}) {
      if (loading ? !parsed_.options.phases.load : !parsed_.options.phases.run) continue;
      const std::string path = report_path(loading);
      if (!std::ofstream(path, std::ios::app)) {
        return fail(StatusCode::kConfiguration, "property exportfile: " + path + " cannot be written");
      }
    }
    return {};
  }

  Result<void> write_report(const std::string& header, const ycsb::PhaseResult& result, bool loading) const {
    const ycsb::ReportOptions& options = parsed_.report;
    const std::string text = ycsb::format_report(ycsb::make_report(result, options), options.format);
    if (options.format == ycsb::ReportFormat::kText && options.file.empty()) {
      std::cout << header;
    } else {
      print_error(header.substr(0, header.size() - 1));
    }
    if (options.file.empty()) {
      std::cout << text << std::flush;
      if (!std::cout) return fail(StatusCode::kConfiguration, "the report cannot be written to standard output");
      return {};
    }
    const std::string path = report_path(loading);
    std::ofstream file(path, std::ios::trunc);
    file << text;
    file.close();
    if (!file) return fail(StatusCode::kConfiguration, "property exportfile: " + path + " cannot be written");
    return {};
  }

  const Parsed parsed_;
  const ycsb::Environment environment_{system_clock(), sleep_until, print_error, interrupted};
  std::unique_ptr<LocalCluster> cluster_;
};

int main_of(std::span<const char* const> arguments) {
  install_signal_handlers();
  auto parsed = parse(arguments);
  if (!parsed) return refuse(parsed.error());
  if (parsed->options.help) {
    std::cout << help_text();
    return kExitDone;
  }
  if (parsed->options.version) {
    std::cout << "skua-bench " SKUA_VERSION "\n";
    return kExitDone;
  }
  return Bench(std::move(*parsed)).run();
}

}  // namespace
}  // namespace skua::bench

int main(int argc, char** argv) {
  skua::reserve_standard_descriptors();
  const std::span<const char* const> arguments(argv, static_cast<size_t>(argc));
  return skua::bench::main_of(arguments.subspan(1));
}
