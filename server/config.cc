#include "server/config.h"

#include <sysexits.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <sstream>
#include <toml++/toml.h>

#include "common/base/net_address.h"
#include "common/base/token_file.h"
#include "common/base/units.h"
#include "proto/limits.h"
#include "server/settings.h"

namespace skua {
namespace {

Error refuse(std::string why) { return fail(StatusCode::kConfiguration, std::move(why)); }

Result<uint64_t> parse_count(const std::string& text, uint64_t at_most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value == 0 || value > at_most) {
    return refuse("'" + text + "' is not a whole number from 1 to " + std::to_string(at_most));
  }
  return value;
}

template <class T>
Setting::Apply count_into(T& (*field)(ServerConfig&), uint64_t at_most) {
  return [field, at_most](ServerConfig& config, const std::string& text) -> Result<void> {
    const auto value = parse_count(text, at_most);
    if (!value) return Error(value.error());
    field(config) = static_cast<T>(*value);
    return {};
  };
}

template <class Store>
Setting::Apply address_into(Store store) {
  return [store](ServerConfig& config, const std::string& text) -> Result<void> {
    auto address = parse_net_address(text);
    if (!address) return Error(address.error());
    store(config, std::move(*address));
    return {};
  };
}

Result<void> apply_partitions(ServerConfig& config, const std::string& text) {
  const auto value = parse_count(text, proto::kMaxPartitions);
  if (!value || !std::has_single_bit(*value)) {
    return refuse("'" + text + "' is not a power of two from 1 to " + std::to_string(proto::kMaxPartitions));
  }
  config.node.partitions = static_cast<uint32_t>(*value);
  return {};
}

Result<void> apply_memory(ServerConfig& config, const std::string& text) {
  const auto bytes = parse_size(text);
  if (!bytes) return Error(bytes.error());
  if (*bytes == 0) return refuse("'" + text + "': a server needs memory; try 256MiB");
  config.node.store.memory_bytes = *bytes;
  return {};
}

Result<void> apply_pages(ServerConfig& config, const std::string& text) {
  if (text == "auto") {
    config.node.store.pages = PagePolicy::kAuto;
  } else if (text == "huge") {
    config.node.store.pages = PagePolicy::kHugeRequired;
  } else if (text == "small") {
    config.node.store.pages = PagePolicy::kSmall;
  } else {
    return refuse("'" + text + "' is none of auto, huge, small");
  }
  return {};
}

Result<void> apply_transports(ServerConfig& config, const std::string& text) {
  config.node.transports.clear();
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) config.node.transports.push_back(item);
  return {};
}

Result<void> apply_token_file(ServerConfig& config, const std::string& path) {
  auto token = read_token_file(path);
  if (!token) return Error(token.error());
  config.node.token = *std::move(token);
  return {};
}

Result<void> apply_lease(ServerConfig& config, const std::string& text) {
  const auto value = parse_count(text, 3'600'000);
  if (!value) return Error(value.error());
  config.node.store.lease = static_cast<Nanoseconds>(*value) * kMillisecond;
  return {};
}

Result<void> apply_log_level(ServerConfig& config, const std::string& text) {
  const auto level = parse_log_level(text);
  if (!level) return refuse("'" + text + "' is none of debug, info, warning, error, off");
  config.log_level = *level;
  return {};
}

Result<void> apply_join_timeout(ServerConfig& config, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration) return Error(duration.error());
  config.node.join_timeout = *duration;
  return {};
}

std::vector<Setting> network_settings() {
  return {
      {"listen", "HOST:PORT", "address of the control plane; port 0 takes a free one (127.0.0.1:7400)",
       address_into([](ServerConfig& c, NetAddress a) { c.node.listen = std::move(a); })},
      {"data-listen", "HOST:PORT", "address of the tcp data plane (the host of --listen, a free port)",
       address_into([](ServerConfig& c, NetAddress a) { c.node.data_listen = std::move(a); })},
      {"advertise", "HOST", "what others are told to connect to (the host of --listen)",
       [](ServerConfig& c, const std::string& text) -> Result<void> {
         if (text.empty()) return refuse("an empty host");
         c.node.advertise = text;
         return {};
       }},
      {"join", "HOST:PORT", "control address of the coordinator; without it this server is the coordinator",
       address_into([](ServerConfig& c, NetAddress a) { c.node.join = std::move(a); })},
      {"join-timeout", "TIME", "how long to look for the coordinator at start (30s)", apply_join_timeout},
      {"transports", "LIST", "data planes to offer, of verbs, shm and tcp (shm,tcp)", apply_transports},
      {"token-file", "FILE", "file with the token that clients and servers must show (none)", apply_token_file,
       true},
  };
}

Result<void> apply_rdma_atomics(ServerConfig& config, const std::string& text) {
  if (text != "auto" && text != "device" && text != "cpu") {
    return refuse("'" + text + "' is none of auto, device, cpu");
  }
  config.node.rdma_atomics = text;
  return {};
}

Result<void> apply_rdma_mtu(ServerConfig& config, const std::string& text) {
  constexpr std::pair<const char*, uint32_t> kKinds[] = {{"auto", 0},    {"256", 256},   {"512", 512},
                                                         {"1024", 1024}, {"2048", 2048}, {"4096", 4096}};
  for (const auto& [name, bytes] : kKinds) {
    if (text != name) continue;
    config.node.rdma.path_mtu = bytes;
    return {};
  }
  return refuse("'" + text + "' is none of auto, 256, 512, 1024, 2048, 4096");
}

Result<void> apply_rdma_ack_timeout(ServerConfig& config, const std::string& text) {
  const auto value = parse_count(text, 31);
  if (!value) return refuse("'" + text + "' is not a whole number from 1 to 31");
  config.node.rdma.ack_timeout = static_cast<uint32_t>(*value);
  return {};
}

// A number that may be 0.
template <class Store>
Setting::Apply number_into(uint32_t at_most, Store store) {
  return [at_most, store](ServerConfig& config, const std::string& text) -> Result<void> {
    if (text == "0") {
      store(config, 0);
      return {};
    }
    const auto value = parse_count(text, at_most);
    if (!value) return refuse("'" + text + "' is not a whole number from 0 to " + std::to_string(at_most));
    store(config, static_cast<uint32_t>(*value));
    return {};
  };
}

std::vector<Setting> rdma_settings() {
  return {
      {"rdma-device", "NAME", "RDMA device of verbs (the one with the best GID)",
       [](ServerConfig& c, const std::string& text) -> Result<void> {
         c.node.rdma.device = text;
         return {};
       }},
      {"rdma-port", "N", "its port (the first that is active)",
       number_into(255, [](ServerConfig& c, uint32_t n) { c.node.rdma.port = n; })},
      {"rdma-gid-index", "N", "its GID (a routable RoCE v2 one)",
       number_into(65535, [](ServerConfig& c, uint32_t n) { c.node.rdma.gid_index = n; })},
      {"rdma-traffic-class", "N", "DSCP * 4 of what verbs sends (the system's)",
       number_into(255, [](ServerConfig& c, uint32_t n) { c.node.rdma.traffic_class = n; })},
      {"rdma-listen", "HOST:PORT", "address of verbs (that of the GID, a free port)",
       address_into([](ServerConfig& c, NetAddress a) { c.node.rdma_listen = std::move(a); })},
      {"rdma-atomics", "KIND", "who executes CAS: device (needs --transports verbs), cpu or auto (auto)",
       apply_rdma_atomics},
      {"rdma-mtu", "BYTES", "path MTU of verbs at most, 256 to 4096, or auto: what both ends carry (auto)",
       apply_rdma_mtu},
      {"rdma-ack-timeout", "N", "verbs waits 4.096 us * 2^N before it sends again (14)", apply_rdma_ack_timeout},
      {"rdma-retry-count", "N", "and so many times, at most 6 (6)",
       number_into(6, [](ServerConfig& c, uint32_t n) { c.node.rdma.retry_count = n; })},
  };
}

std::vector<Setting> cluster_and_memory_settings() {
  return {
      {"initial-servers", "N", "servers that must have joined before partitions are assigned (1)",
       count_into<uint32_t>([](ServerConfig& c) -> uint32_t& { return c.node.initial_servers; }, 4096)},
      {"partitions", "N", "partitions of a new cluster, a power of two (64)", apply_partitions},
      {"name", "NAME", "stays this server's through restarts (the advertised address)",
       [](ServerConfig& c, const std::string& text) -> Result<void> {
         c.node.name = text;
         return {};
       }},
      {"data-dir", "DIR", "who the server is and the cluster map, never keys or values; created (./skua-data)",
       [](ServerConfig& c, const std::string& text) -> Result<void> {
         if (text.empty()) return refuse("an empty path");
         c.node.data_dir = text;
         return {};
       }},
      {"memory", "SIZE", "limit of the memory that is served (1GiB)", apply_memory},
      {"expected-keys", "N", "keys for which this server has tables from the start (1000000); more come with more keys",
       count_into<uint64_t>([](ServerConfig& c) -> uint64_t& { return c.node.store.expected_keys; },
                            uint64_t{1} << 40)},
      {"pages", "KIND", "auto, huge (2 MiB or fail) or small (auto)", apply_pages},
      {"lease-ms", "N", "a session silent for so long is given up (3000)", apply_lease},
  };
}

std::vector<Setting> process_settings() {
  return {
      {"log-level", "LEVEL", "debug, info, warning, error or off (info)", apply_log_level},
      {"ready-fd", "N", "descriptor that gets one line of JSON when the server is ready, then is closed",
       count_into<int>([](ServerConfig& c) -> int& { return c.ready_fd; }, 1 << 20)},
      {"ready-file", "FILE", "file that gets the same line; it appears whole",
       [](ServerConfig& c, const std::string& text) -> Result<void> {
         c.ready_file = text;
         return {};
       }},
  };
}

constexpr size_t kTypos = 2;  // that a name is still recognized with; in long ones a third of the letters

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Numbers and lists of a file as they would stand behind a flag.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto text = node.value<std::string>(); text && node.is_string()) return *text;
  if (node.is_integer()) return std::to_string(*node.value<int64_t>());
  const toml::array* const list = node.as_array();
  if (list == nullptr) return std::nullopt;
  std::string joined;
  for (const toml::node& item : *list) {
    if (!item.is_string()) return std::nullopt;
    joined += (joined.empty() ? "" : ",") + *item.value<std::string>();
  }
  return joined;
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> list = network_settings();
    for (const auto& more : {rdma_settings(), cluster_and_memory_settings(), process_settings()}) {
      list.insert(list.end(), more.begin(), more.end());
    }
    return list;
  }();
  return all;
}

std::optional<std::string> near_name(const std::string& name, bool with_command_line) {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) names.push_back(setting.name);
  if (with_command_line) names.insert(names.end(), {"config", "help", "version"});
  const auto nearest = std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  if (edit_distance(name, *nearest) > std::max<size_t>(kTypos, name.size() / 3)) return std::nullopt;
  return *nearest;
}

Result<void> apply_named(const Setting& setting, const std::string& shown, const std::string& text,
                         ServerConfig& config) {
  if (const auto applied = setting.apply(config, text); !applied) {
    return fail(applied.error().code(), shown + ": " + applied.error().message());
  }
  return {};
}

Result<void> load_config_file(const std::string& path, ServerConfig& config) {
  if (std::filesystem::is_directory(path)) {
    return refuse("configuration " + path + ": is a directory; name a file");
  }
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    std::ostringstream place;
    if (error.source().begin.line > 0) place << " line " << error.source().begin.line;
    return refuse("configuration " + path + place.str() + ": " + std::string(error.description()));
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto setting = std::find_if(settings().begin(), settings().end(),
                                      [&](const Setting& known) { return known.name == name; });
    const std::string shown = "configuration " + path + ": " + name;
    if (setting == settings().end()) {
      const auto near = near_name(name, false);
      return refuse(shown + ": no such key; " +
                    (near ? "did you mean '" + *near + "'?" : "skua-server --help lists them"));
    }
    const auto text = text_of(node);
    if (!text) return refuse(shown + ": write a string, a whole number or a list of strings");
    SKUA_RETURN_IF_ERROR(apply_named(*setting, shown, *text, config));
  }
  return {};
}

int exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kConfiguration:
    case StatusCode::kInvalidArgument:
    case StatusCode::kIncompatible:
      return EX_CONFIG;
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied:
      return EX_NOPERM;
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kPeerLost:
    case StatusCode::kStaleEpoch:
      return EX_UNAVAILABLE;
    case StatusCode::kResourceExhausted:
    case StatusCode::kOutOfMemory:
      return EX_OSERR;
    default:
      return EX_SOFTWARE;
  }
}

}  // namespace skua
