#include "tests/functional/local_cluster.h"

#include <cstring>

#include "common/base/check.h"
#include "common/base/random.h"
#include "proto/key_hash.h"

namespace skua::testing {

LocalCluster::LocalCluster(const LocalClusterOptions& options) {
  for (size_t i = 0; i < options.servers; ++i) {
    NodeOptions node;
    node.listen = {"127.0.0.1", 0};
    node.name = "server" + std::to_string(i);
    node.initial_servers = static_cast<uint32_t>(options.servers);
    node.partitions = options.partitions;
    node.store.memory_bytes = options.memory_bytes;
    node.store.expected_keys = options.expected_keys;
    node.store.lease = options.lease;
    if (i > 0) {
      const auto first = parse_net_address(nodes_[0]->control_address());
      SKUA_CHECK(first.has_value(), "the first server's address");
      node.join = *first;
    }
    auto started = Node::start(node, system_clock(), system_entropy(), {});
    SKUA_CHECK(started.has_value(), started ? "" : started.error().to_string());
    nodes_.push_back(std::move(*started));
  }
}

LocalCluster::~LocalCluster() {
  while (!nodes_.empty()) nodes_.pop_back();
}

ClientOptions LocalCluster::client_options(const std::string& transport) const {
  ClientOptions options;
  options.seeds = {nodes_[0]->control_address()};
  options.transport = transport;
  options.operation_timeout = 20 * kSlowness * kSecond;
  options.response_timeout *= kSlowness;
  return options;
}

std::unique_ptr<Client> LocalCluster::connect(const ClientOptions& options) const {
  auto client = Client::connect(options);
  SKUA_CHECK(client.has_value(), client ? "" : client.error().to_string());
  return std::move(*client);
}

namespace {

struct Head {
  uint64_t number;
  uint64_t bytes;
};

void fill(std::string_view key, std::string& value, uint64_t number) {
  Random random(proto::KeyHash::of(key).bits() ^ number * 0x9e3779b97f4a7c15ULL ^ value.size());
  size_t at = sizeof(Head);
  for (; at + 8 <= value.size(); at += 8) {
    const uint64_t word = random.next();
    std::memcpy(value.data() + at, &word, 8);
  }
  for (; at < value.size(); ++at) value[at] = static_cast<char>(random.next());
}

}  // namespace

std::string described_value(std::string_view key, size_t bytes, uint64_t number) {
  std::string value(bytes < sizeof(Head) ? sizeof(Head) : bytes, '\0');
  const Head head{number, value.size()};
  std::memcpy(value.data(), &head, sizeof head);
  fill(key, value, number);
  return value;
}

bool is_described_value(std::string_view key, std::string_view value) {
  if (value.size() < sizeof(Head)) return false;
  Head head{};
  std::memcpy(&head, value.data(), sizeof head);
  return head.bytes == value.size() && described_value(key, value.size(), head.number) == value;
}

}  // namespace skua::testing
