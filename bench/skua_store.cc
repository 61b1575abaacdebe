#include "bench/skua_store.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace skua::bench {
namespace {

constexpr Nanoseconds kFormingTimeout = 30 * kSecond;
constexpr Nanoseconds kFormingPause = 10 * kMillisecond;
constexpr int kFirstLooks = 64;

ycsb::OperationCost cost_of(const OperationCounters& counters) {
  return {.operations = counters.operations,
          .round_trips = counters.round_trips,
          .verbs = counters.reads + counters.writes + counters.compare_and_swaps,
          .bytes = counters.bytes,
          .cas_lost = counters.cas_lost,
          .cache_hits = counters.cache_hits};
}

class SkuaStore : public ycsb::KvStore {
 public:
  explicit SkuaStore(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  Result<bool> read(std::string_view key, std::string& value, ycsb::KvVersion* version) override {
    const auto found = session_->get(key);
    if (!found) return tl::make_unexpected(found.error());
    if (!*found) return false;
    value.assign((*found)->bytes);
    if (version != nullptr) *version = (*found)->version.write_id;
    return true;
  }

  void read_many(std::span<ycsb::KvReadItem> items) override {
    requests_.resize(std::max(requests_.size(), items.size()));
    const std::span<MultiGetItem> requests(requests_.data(), items.size());
    for (size_t i = 0; i < items.size(); ++i) requests[i].key = items[i].key;
    session_->multi_get(requests);
    for (size_t i = 0; i < items.size(); ++i) {
      std::swap(items[i].value, requests[i].value);
      if (requests[i].result) {
        items[i].found = requests[i].result->has_value();
      } else {
        items[i].found = tl::make_unexpected(requests[i].result.error());
      }
    }
  }

  Result<void> write(std::string_view key, std::string_view value) override {
    const auto stored = session_->put(key, value);
    if (!stored) return tl::make_unexpected(stored.error());
    return {};
  }

  Result<bool> replace(std::string_view key, ycsb::KvVersion expected, std::string_view value) override {
    const VersionToken token{expected};
    const auto outcome = session_->compare_and_swap(key, token, value);
    if (!outcome) return tl::make_unexpected(outcome.error());
    return outcome->swapped;
  }

  ycsb::StoreCosts costs() const override {
    const CounterTable table = session_->counters();
    ycsb::StoreCosts costs;
    for (size_t kind = 0; kind < kOperationKinds; ++kind) {
      const bool reads = kind == static_cast<size_t>(OperationKind::kGet);
      (reads ? costs.reads : costs.writes) += cost_of(table[kind]);
    }
    return costs;
  }

 private:
  std::unique_ptr<Session> session_;
  std::vector<MultiGetItem> requests_;
};

}  // namespace

Result<std::unique_ptr<SkuaStores>> SkuaStores::connect(ClientOptions options, const Clock& clock) {
  auto client = Client::connect(std::move(options));
  if (!client) return tl::make_unexpected(client.error());
  std::unique_ptr<SkuaStores> stores(new SkuaStores(std::move(*client)));
  const Nanoseconds deadline = clock.now() + kFormingTimeout;
  while (true) {
    const auto info = stores->client_->cluster_info();
    if (!info) return tl::make_unexpected(info.error());
    if (!info->forming) break;
    if (clock.now() > deadline) {
      return fail(StatusCode::kUnavailable, "the cluster is still waiting for servers to join: " +
                                                std::to_string(info->servers.size()) + " have; start the others");
    }
    timespec pause{};
    pause.tv_nsec = kFormingPause;
    // tidy: allow(banned): nobody tells a client that the cluster has formed; it has to ask again
    (void)nanosleep(&pause, nullptr);
  }
  return stores;
}

std::string SkuaStores::transport_report() const {
  const std::lock_guard lock(mutex_);
  return transport_report_;
}

Result<std::unique_ptr<ycsb::KvStore>> SkuaStores::open() {
  auto session = client_->open_session();
  if (!session) return tl::make_unexpected(session.error());
  // A session connects to a server at its first operation there: that is not what a benchmark measures.
  for (int i = 0; i < kFirstLooks; ++i) {
    const auto looked = (*session)->exists("skua-bench first look " + std::to_string(i));
    if (!looked) return tl::make_unexpected(looked.error());
  }
  {
    const std::lock_guard lock(mutex_);
    if (transport_report_.empty()) transport_report_ = (*session)->transport_report();
  }
  return std::make_unique<SkuaStore>(std::move(*session));
}

Result<std::vector<ycsb::ServerCpu>> SkuaStores::server_cpu() {
  const auto info = client_->cluster_info();
  if (!info) return tl::make_unexpected(info.error());
  std::vector<ycsb::ServerCpu> used;
  for (const ServerInfo& server : info->servers) {
    const auto statistics = client_->server_statistics(server.id);
    if (!statistics) return tl::make_unexpected(statistics.error());
    used.push_back({server.id, statistics->value_or_zero("cpu_ms")});
  }
  return used;
}

}  // namespace skua::bench
