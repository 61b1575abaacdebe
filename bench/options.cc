#include "bench/options.h"

#include <array>
#include <charconv>
#include <functional>
#include <utility>

#include "common/base/net_address.h"
#include "common/base/token_file.h"
#include "common/base/units.h"

namespace skua::bench {
namespace {

constexpr uint32_t kMostLocalServers = 64;
constexpr uint64_t kLargestBatch = 4096;

Error usage(std::string message) {
  return fail(StatusCode::kInvalidArgument, std::move(message) + "; skua-bench --help shows all options");
}

Result<uint64_t> parse_count(const std::string& flag, std::string_view text, uint64_t least, uint64_t most) {
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < least || number > most) {
    return usage(flag + " " + std::string(text) + ": must be a whole number from " + std::to_string(least) + " to " +
                 std::to_string(most));
  }
  return number;
}

class Parser {
 public:
  explicit Parser(std::span<const char* const> arguments) : rest_(arguments) {}

  Result<Options> parse() {
    while (!rest_.empty()) {
      const std::string argument = rest_.front();
      rest_ = rest_.subspan(1);
      SKUA_RETURN_IF_ERROR(take(argument));
    }
    if (options_.help || options_.version) return std::move(options_);
    SKUA_RETURN_IF_ERROR(check());
    options_.properties.merge(from_flags_);
    return std::move(options_);
  }

 private:
  Result<void> take(const std::string& argument) {
    if (argument.size() < 2 || argument[0] != '-') {
      return usage("'" + argument + "' is no option; phases are chosen with -load and -run");
    }
    std::string name = argument.substr(argument[1] == '-' ? 2 : 1);
    std::optional<std::string> attached;
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      attached = name.substr(equals + 1);
      name.resize(equals);
    }
    if (const auto flag = take_flag(name)) {
      if (attached) return usage(argument + ": this option takes no value");
      return {};
    }
    const Setting* const setting = find_setting(name);
    if (setting == nullptr) return usage("unknown option " + argument);
    if (!attached) {
      if (rest_.empty()) return usage(argument + " needs a value: " + std::string(setting->value_name));
      attached = rest_.front();
      rest_ = rest_.subspan(1);
    }
    return (this->*setting->apply)(argument.substr(0, argument.find('=')), *attached);
  }

  // Nothing when there is no such flag.
  std::optional<bool> take_flag(const std::string& name) {
    if (name == "load") return options_.phases.load = true;
    if (name == "run" || name == "t") return options_.phases.run = true;
    if (name == "s") return options_.status = true;
    if (name == "read-only") return options_.read_only = true;
    if (name == "h" || name == "help") return options_.help = true;
    if (name == "version") return options_.version = true;
    return std::nullopt;
  }

  using Apply = Result<void> (Parser::*)(const std::string& flag, const std::string& value);
  struct Setting {
    std::string_view name;
    std::string_view value_name;
    Apply apply;
  };
  static const Setting* find_setting(std::string_view name);

  Result<void> apply_file(const std::string&, const std::string& value) { return options_.properties.load_file(value); }
  Result<void> apply_property(const std::string& flag, const std::string& value) {
    const size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) return usage(flag + " " + value + ": must be name=value");
    from_flags_.set(value.substr(0, equals), value.substr(equals + 1), flag);
    return {};
  }
  Result<void> apply_threads(const std::string& flag, const std::string& value) {
    from_flags_.set("threadcount", value, flag);
    return {};
  }
  Result<void> apply_target(const std::string& flag, const std::string& value) {
    from_flags_.set("target", value, flag);
    return {};
  }
  Result<void> apply_label(const std::string& flag, const std::string& value) {
    from_flags_.set("label", value, flag);
    return {};
  }
  // YCSB's name of the store's Java class: there is one store here.
  Result<void> apply_db(const std::string&, const std::string&) { return {}; }
  Result<void> apply_local(const std::string& flag, const std::string& value) {
    const auto count = parse_count(flag, value, 1, kMostLocalServers);
    if (!count) return tl::make_unexpected(count.error());
    options_.local_servers = static_cast<uint32_t>(*count);
    return {};
  }
  Result<void> apply_cluster(const std::string&, const std::string& value) {
    const auto address = parse_net_address(value);
    if (!address) return fail(StatusCode::kConfiguration, "--cluster: " + address.error().message());
    if (address->port == 0) return fail(StatusCode::kConfiguration, "--cluster: port 0 cannot be reached");
    options_.cluster = value;
    return {};
  }
  Result<void> apply_transport(const std::string& flag, const std::string& value) {
    if (value != "auto" && value != "verbs" && value != "shm" && value != "tcp") {
      return usage(flag + " " + value + ": must be auto, verbs, shm or tcp");
    }
    options_.transport = value;
    return {};
  }
  Result<void> apply_wait(const std::string& flag, const std::string& value) {
    if (value != "busy" && value != "event" && value != "adaptive") {
      return usage(flag + " " + value + ": must be busy, event or adaptive");
    }
    options_.wait = value;
    return {};
  }
  Result<void> apply_rdma_device(const std::string&, const std::string& value) {
    options_.rdma_device = value;
    return {};
  }
  Result<void> apply_rdma_port(const std::string& flag, const std::string& value) {
    const auto port = parse_count(flag, value, 1, 255);
    if (!port) return tl::make_unexpected(port.error());
    options_.rdma_port = static_cast<uint32_t>(*port);
    return {};
  }
  Result<void> apply_rdma_gid_index(const std::string& flag, const std::string& value) {
    const auto index = parse_count(flag, value, 0, 65535);
    if (!index) return tl::make_unexpected(index.error());
    options_.rdma_gid_index = static_cast<uint32_t>(*index);
    return {};
  }
  Result<void> apply_rdma_traffic_class(const std::string& flag, const std::string& value) {
    return small_number(flag, value, {0, 255}, options_.rdma_traffic_class);
  }
  Result<void> apply_rdma_ack_timeout(const std::string& flag, const std::string& value) {
    return small_number(flag, value, {1, 31}, options_.rdma_ack_timeout);
  }
  Result<void> apply_rdma_retry_count(const std::string& flag, const std::string& value) {
    return small_number(flag, value, {0, 6}, options_.rdma_retry_count);
  }
  Result<void> apply_rdma_mtu(const std::string& flag, const std::string& value) {
    constexpr std::pair<const char*, uint32_t> kKinds[] = {{"auto", 0},    {"256", 256},   {"512", 512},
                                                           {"1024", 1024}, {"2048", 2048}, {"4096", 4096}};
    for (const auto& [name, bytes] : kKinds) {
      if (value != name) continue;
      options_.rdma_mtu = bytes;
      return {};
    }
    return usage(flag + " " + value + ": must be auto, 256, 512, 1024, 2048 or 4096");
  }
  struct Range {
    uint64_t least;
    uint64_t most;
  };
  static Result<void> small_number(const std::string& flag, const std::string& value, Range range,
                                   std::optional<uint32_t>& into) {
    const auto number = parse_count(flag, value, range.least, range.most);
    if (!number) return tl::make_unexpected(number.error());
    into = static_cast<uint32_t>(*number);
    return {};
  }
  Result<void> apply_rdma_atomics(const std::string& flag, const std::string& value) {
    if (value != "auto" && value != "device" && value != "cpu") {
      return usage(flag + " " + value + ": must be auto, device or cpu");
    }
    options_.rdma_atomics = value;
    return {};
  }
  Result<void> apply_memory(const std::string& flag, const std::string& value) {
    const auto size = parse_size(value);
    if (!size) return usage(flag + ": " + size.error().message());
    options_.memory = value;
    return {};
  }
  Result<void> apply_server_binary(const std::string&, const std::string& value) {
    options_.server_binary = value;
    return {};
  }
  Result<void> apply_token(const std::string&, const std::string& value) {
    options_.token = value;
    return {};
  }
  Result<void> apply_token_file(const std::string& flag, const std::string& value) {
    auto token = read_token_file(value);
    if (!token) return fail(StatusCode::kConfiguration, flag + ": " + token.error().message());
    options_.token = *std::move(token);
    return {};
  }
  Result<void> apply_seed(const std::string& flag, const std::string& value) {
    const auto seed = parse_count(flag, value, 0, UINT64_MAX);
    if (!seed) return tl::make_unexpected(seed.error());
    options_.seed = *seed;
    return {};
  }
  Result<void> apply_batch(const std::string& flag, const std::string& value) {
    const auto batch = parse_count(flag, value, 1, kLargestBatch);
    if (!batch) return tl::make_unexpected(batch.error());
    options_.batch = *batch;
    return {};
  }

  Result<void> check() const {
    const Options& o = options_;
    if (!o.phases.load && !o.phases.run) return usage("say what to do: -load, -run, or both");
    if (o.local_servers == 0 && o.cluster.empty()) {
      return usage("say which servers: --local N starts N of them for this run, --cluster HOST:PORT uses running ones");
    }
    if (o.local_servers != 0 && !o.cluster.empty()) return usage("--local and --cluster exclude each other");
    if (o.local_servers != 0 && !o.phases.load) {
      return usage("--local servers begin empty: add -load, or use --cluster");
    }
    if (o.local_servers == 0 && !o.memory.empty()) return usage("--memory is for the servers that --local starts");
    if (o.local_servers == 0 && !o.server_binary.empty()) {
      return usage("--server-binary is for the servers that --local starts");
    }
    if (o.local_servers == 0 && !o.rdma_atomics.empty()) {
      return usage("--rdma-atomics is for the servers that --local starts");
    }
    if (o.read_only && o.phases.load) return usage("--read-only cannot -load");
    return {};
  }

  std::span<const char* const> rest_;
  Options options_;
  ycsb::Properties from_flags_;
};

const Parser::Setting* Parser::find_setting(std::string_view name) {
  static constexpr auto kSettings = std::to_array<Setting>({
      {"P", "FILE", &Parser::apply_file},
      {"p", "NAME=VALUE", &Parser::apply_property},
      {"threads", "N", &Parser::apply_threads},
      {"target", "OPERATIONS-PER-SECOND", &Parser::apply_target},
      {"l", "LABEL", &Parser::apply_label},
      {"label", "LABEL", &Parser::apply_label},
      {"db", "CLASS", &Parser::apply_db},
      {"local", "N", &Parser::apply_local},
      {"cluster", "HOST:PORT", &Parser::apply_cluster},
      {"transport", "auto|verbs|shm|tcp", &Parser::apply_transport},
      {"wait", "busy|event|adaptive", &Parser::apply_wait},
      {"rdma-device", "NAME", &Parser::apply_rdma_device},
      {"rdma-port", "N", &Parser::apply_rdma_port},
      {"rdma-gid-index", "N", &Parser::apply_rdma_gid_index},
      {"rdma-traffic-class", "N", &Parser::apply_rdma_traffic_class},
      {"rdma-mtu", "auto|BYTES", &Parser::apply_rdma_mtu},
      {"rdma-ack-timeout", "N", &Parser::apply_rdma_ack_timeout},
      {"rdma-retry-count", "N", &Parser::apply_rdma_retry_count},
      {"rdma-atomics", "auto|device|cpu", &Parser::apply_rdma_atomics},
      {"memory", "SIZE", &Parser::apply_memory},
      {"server-binary", "FILE", &Parser::apply_server_binary},
      {"token", "TOKEN", &Parser::apply_token},
      {"token-file", "FILE", &Parser::apply_token_file},
      {"seed", "N", &Parser::apply_seed},
      {"batch", "N", &Parser::apply_batch},
  });
  for (const Setting& setting : kSettings) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) { return Parser(arguments).parse(); }

std::string_view help_text() {
  return R"(skua-bench: YCSB's workloads against Skua

  skua-bench -load -run -P bench/workloads/workloada -p recordcount=100000 -p operationcount=1000000 --local 3
  skua-bench -load -P workloada --cluster 127.0.0.1:7400
  skua-bench -run -P workloada -threads 4 -target 50000 -s --cluster 127.0.0.1:7400

What to do
  -load                 insert the records
  -run, -t              run the operations; with -load: afterwards, each with its report
  -P FILE               a workload file of YCSB; repeatable, later ones win
  -p NAME=VALUE         a property; wins over every file; repeatable
  -threads N            client threads, each with its own session (-p threadcount=N)
  -target N             operations a second of all threads together; adds Intended- latencies
  -s                    status lines on standard error (-p status.interval=SECONDS)
  -l, --label TEXT      put before each status line
  --batch N             keep N reads in flight with multi_get; each is as slow as its batch
  --seed N              repeat the run with this seed; it is printed when not given
  --read-only           open a read-only session

Against which servers
  --local N             start N servers for this run and stop them at its end
  --memory SIZE         memory of each of them, "512MiB"; without it: enough for the workload
  --server-binary FILE  their program; without it: skua-server beside this one
  --cluster HOST:PORT   use the cluster that this server belongs to
  --token-file FILE     file whose first line is its access token; other users cannot see that, unlike
  --token TOKEN         the token itself
  --transport T         auto, verbs, shm or tcp; --local servers offer verbs, and it alone, when it is asked for
  --wait KIND           for completions: busy polls, event sleeps, adaptive polls for 50 us and sleeps then (adaptive)
  --rdma-device NAME, --rdma-port N, --rdma-gid-index N     what verbs uses, here and in local servers
  --rdma-traffic-class N, --rdma-mtu auto|BYTES, --rdma-ack-timeout N, --rdma-retry-count N    likewise; docs/verbs.md
  --rdma-atomics KIND   of local servers: auto, device or cpu

Exit codes: 0 every operation succeeded and every value was right; 1 some did not; 64 wrong command line;
69 no server; 73 the report cannot be written; 77 not permitted: a wrong token; 78 an address, property or file that
cannot be used. Properties and output: bench/README.md
)";
}

}  // namespace skua::bench
