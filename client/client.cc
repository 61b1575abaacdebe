#include "client/client.h"

#include <future>

#include "client/client_core.h"
#include "client/data_path.h"
#include "client/session_core.h"
#include "common/control/asio_channel.h"
#include "common/transport/shm/shm.h"
#include "common/transport/tcp/tcp.h"
#include "common/transport/verbs/verbs.h"
#include "proto/size_class.h"

namespace skua {

uint64_t ServerStatistics::value_or_zero(std::string_view name) const {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  return 0;
}

// --- Session

namespace {

// Runs `body(i)` for i in [0, count) with up to `depth` of them under way. Frames and list are small and recycled.
template <class Body>
void run_pipelined(SessionCore& core, size_t count, size_t depth, Body body) {
  std::vector<Task<bool>> running;
  running.reserve(depth);
  size_t next = 0;
  const auto start = [&](Task<bool>& slot) {
    slot = body(next++);
    slot.start();
  };
  while (running.size() < depth && next < count) start(running.emplace_back());
  for (;;) {
    bool left = false;
    for (Task<bool>& task : running) {
      while (task.done() && next < count) start(task);
      left |= !task.done();
    }
    if (!left) return;
    core.poll_or_wait();
  }
}

Task<bool> get_item(SessionCore& core, MultiGetItem& item) {
  auto got = co_await get_operation(core, item.key, {});
  if (!got) {
    item.result = tl::make_unexpected(got.error());
  } else if (!got->present) {
    item.result = std::optional<Stored>();
  } else {
    item.value.assign(got->value);
    item.result = std::optional<Stored>(Stored{got->value_bytes, got->version});
  }
  co_return true;
}

Task<bool> put_item(SessionCore& core, MultiPutItem& item) {
  item.result = co_await put_operation(core, item.key, item.value, item.options);
  co_return true;
}

}  // namespace

Session::Session(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}

Session::~Session() {
  core_->client().remove_session(core_);
  borrowed_.reset();
  core_->shut_down();
}

struct Session::Borrowed {
  GetOutcome outcome;
};

void Session::BorrowedDeleter::operator()(Borrowed* borrowed) const { delete borrowed; }

Result<std::optional<ValueView>> Session::get(std::string_view key) {
  if (!borrowed_) borrowed_.reset(new Borrowed);
  borrowed_->outcome.scratch.reset();
  auto got = run(get_operation(*core_, key, {}));
  if (!got) return tl::make_unexpected(std::move(got).error());
  if (!got->present) return std::optional<ValueView>();
  borrowed_->outcome = std::move(*got);
  return std::optional<ValueView>(ValueView{borrowed_->outcome.value, borrowed_->outcome.version});
}

Result<std::optional<Stored>> Session::get_into(std::string_view key, std::span<std::byte> buffer) {
  auto got = run(get_operation(*core_, key, buffer));
  if (!got) return tl::make_unexpected(std::move(got).error());
  if (!got->present) return std::optional<Stored>();
  if (got->value_bytes > buffer.size()) {
    return fail(StatusCode::kInvalidArgument, "get_into: the value has " + std::to_string(got->value_bytes) +
                                                  " bytes, the buffer has room for " + std::to_string(buffer.size()));
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(got->value.data());
  if (bytes != buffer.data()) std::copy_n(bytes, got->value_bytes, buffer.data());
  return std::optional<Stored>(Stored{got->value_bytes, got->version});
}

Result<VersionToken> Session::put(std::string_view key, std::string_view value, PutOptions options) {
  return run(put_operation(*core_, key, value, options));
}

Result<PutIfAbsentOutcome> Session::put_if_absent(std::string_view key, std::string_view value, PutOptions options) {
  return run(put_if_absent_operation(*core_, key, value, options));
}

Result<CompareAndSwapOutcome> Session::compare_and_swap(std::string_view key, VersionToken expected,
                                                        std::string_view value, PutOptions options) {
  return run(compare_and_swap_operation(*core_, key, expected, value, options));
}

Result<bool> Session::remove(std::string_view key) { return run(remove_operation(*core_, key)); }
Result<bool> Session::exists(std::string_view key) { return run(exists_operation(*core_, key)); }
Result<int64_t> Session::increment(std::string_view key, int64_t delta) {
  return run(increment_operation(*core_, key, delta));
}

void Session::multi_get(std::span<MultiGetItem> items) {
  run_pipelined(*core_, items.size(), core_->options().batch_depth,
                [&](size_t i) { return get_item(*core_, items[i]); });
}

void Session::multi_put(std::span<MultiPutItem> items) {
  run_pipelined(*core_, items.size(), core_->options().batch_depth,
                [&](size_t i) { return put_item(*core_, items[i]); });
}

Result<void> Session::scan(const std::function<bool(const ScanItem&)>& visit) {
  for (uint32_t partition = 0; partition < core_->partitions(); ++partition) {
    ScanCursor cursor;
    while (!cursor.finished) {
      cursor.found.clear();
      SKUA_RETURN_IF_ERROR(run(scan_operation(*core_, partition, cursor)));
      for (const ScanCursor::Item& item : cursor.found) {
        const std::string_view bytes = item.bytes;
        const ScanItem shown{bytes.substr(0, item.key_bytes), bytes.substr(item.key_bytes), item.version,
                             item.ttl_left_ms};
        if (!visit(shown)) return {};
      }
    }
  }
  return {};
}

Task<Result<std::optional<Session::Owned>>> Session::async_get(std::string_view key) {
  auto got = co_await get_operation(*core_, key, {});
  if (!got) co_return tl::make_unexpected(std::move(got).error());
  if (!got->present) co_return std::optional<Owned>();
  co_return std::optional<Owned>(Owned{std::string(got->value), got->version});
}
Task<Result<VersionToken>> Session::async_put(std::string_view key, std::string_view value, PutOptions options) {
  return put_operation(*core_, key, value, options);
}
Task<Result<PutIfAbsentOutcome>> Session::async_put_if_absent(std::string_view key, std::string_view value,
                                                              PutOptions options) {
  return put_if_absent_operation(*core_, key, value, options);
}
Task<Result<CompareAndSwapOutcome>> Session::async_compare_and_swap(std::string_view key, VersionToken expected,
                                                                    std::string_view value, PutOptions options) {
  return compare_and_swap_operation(*core_, key, expected, value, options);
}
Task<Result<bool>> Session::async_remove(std::string_view key) { return remove_operation(*core_, key); }
Task<Result<bool>> Session::async_exists(std::string_view key) { return exists_operation(*core_, key); }
Task<Result<int64_t>> Session::async_increment(std::string_view key, int64_t delta) {
  return increment_operation(*core_, key, delta);
}

bool Session::poll() { return core_->poll(); }
void Session::poll_or_wait() { core_->poll_or_wait(); }
CounterTable Session::counters() const { return core_->counter_table(); }
std::string Session::transport_report() const { return core_->transport_report(); }

// --- Client

// What a Client owns beside the core: the control thread and its sockets.
struct Client::Machinery {
  explicit Machinery(const Clock& clock) : executor(clock) {}
  AsioExecutor executor;
  std::unique_ptr<Dialer> dialer;
  std::shared_ptr<ClientCore> core;
};

namespace {

// Runs `start(done)` on the executor and waits for done.
template <class T, class Start>
Result<T> wait_for(Executor& executor, Start start) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto future = promise->get_future();
  executor.post([start = std::move(start), promise]() mutable {
    start([promise](Result<T> result) { promise->set_value(std::move(result)); });
  });
  return future.get();
}

VerbsSettings verbs_settings(const RdmaOptions& options) {
  VerbsSettings settings;
  settings.device = options.device;
  settings.port = options.port;
  settings.gid_index = options.gid_index;
  settings.traffic_class = options.traffic_class;
  settings.path_mtu = options.path_mtu;
  settings.ack_timeout = options.ack_timeout;
  settings.retry_count = options.retry_count;
  settings.inline_sends = options.inline_sends;
  settings.doorbell_batching = options.doorbell_batching;
  settings.selective_signaling = options.selective_signaling;
  return settings;
}

Result<void> check_options(const ClientOptions& options) {
  const std::string& transport = options.transport;
  if (transport != "auto" && transport != "verbs" && transport != "shm" && transport != "tcp") {
    return fail(StatusCode::kConfiguration,
                "transport '" + transport + "' is not known; choose auto, verbs, shm or tcp");
  }
  if (transport == "verbs" && !verbs_built_in()) {
    return fail(StatusCode::kConfiguration, "transport 'verbs': this build has none; install libibverbs-dev and "
                                            "librdmacm-dev and build again, or choose auto, shm or tcp");
  }
  if (options.batch_depth == 0) return fail(StatusCode::kConfiguration, "batch_depth is 0; it is at least 1");
  if (options.operation_timeout <= 0 || options.connect_timeout <= 0 || options.response_timeout <= 0) {
    return fail(StatusCode::kConfiguration, "a time-out is not positive");
  }
  return check_verbs_settings(verbs_settings(options.rdma));
}

}  // namespace

Client::Client(std::unique_ptr<Machinery> machinery) : machinery_(std::move(machinery)) {}

Client::~Client() {
  ClientCore& core = *machinery_->core;
  wait_for<bool>(machinery_->executor, [&core](auto done) {
    core.stop([done] { done(true); });
  });
  machinery_->executor.stop();
}

Result<std::unique_ptr<Client>> Client::connect(ClientOptions options) {
  SKUA_RETURN_IF_ERROR(check_options(options));
  ClientCore::Environment environment;
  environment.clock = options.clock != nullptr ? options.clock : &system_clock();
  environment.entropy = options.entropy != nullptr ? options.entropy : &system_entropy();
  auto machinery = std::make_unique<Machinery>(*environment.clock);
  machinery->dialer = make_asio_dialer(machinery->executor);
  environment.executor = &machinery->executor;
  environment.dialer = machinery->dialer.get();
  environment.connectors = {make_verbs_connector(verbs_settings(options.rdma), *environment.clock),
                            make_shm_connector(*environment.clock), make_tcp_connector(*environment.clock)};
  machinery->core = std::make_shared<ClientCore>(std::move(options), environment);
  machinery->executor.start();
  auto client = std::unique_ptr<Client>(new Client(std::move(machinery)));
  ClientCore& core = *client->machinery_->core;
  auto started = wait_for<bool>(core.executor(), [&core](auto done) {
    core.start([done](Result<void> result) {
      done(result ? Result<bool>(true) : Result<bool>(tl::make_unexpected(result.error())));
    });
  });
  if (!started) return tl::make_unexpected(started.error());
  return client;
}

Result<std::unique_ptr<Session>> Client::open_session() {
  auto core = std::make_shared<SessionCore>(machinery_->core, machinery_->core->options());
  machinery_->core->add_session(core);
  return std::unique_ptr<Session>(new Session(std::move(core)));
}

Result<ClusterInfo> Client::cluster_info() {
  ClientCore& core = *machinery_->core;
  return wait_for<ClusterInfo>(core.executor(), [&core](auto done) {
    core.refresh_map([&core, done](const Result<void>& refreshed) {
      if (!refreshed) return done(Result<ClusterInfo>(tl::make_unexpected(refreshed.error())));
      done(Result<ClusterInfo>(core.cluster_info()));
    });
  });
}

Result<ServerStatistics> Client::server_statistics(uint32_t server) {
  ClientCore& core = *machinery_->core;
  return wait_for<ServerStatistics>(core.executor(), [&core, server](auto done) {
    control::Envelope request;
    request.mutable_get_stats();
    core.call(server, std::move(request), [done](const Result<control::Envelope>& reply) {
      if (!reply) return done(Result<ServerStatistics>(tl::make_unexpected(reply.error())));
      done(Result<ServerStatistics>(statistics_of(reply->server_stats())));
    });
  });
}

Result<Nanoseconds> Client::ping(uint32_t server) {
  ClientCore& core = *machinery_->core;
  return wait_for<Nanoseconds>(core.executor(), [&core, server](auto done) {
    control::Envelope request;
    request.mutable_ping();
    const Nanoseconds start = core.clock().now();
    core.call(server, std::move(request), [&core, start, done](const Result<control::Envelope>& reply) {
      if (!reply) return done(Result<Nanoseconds>(tl::make_unexpected(reply.error())));
      done(Result<Nanoseconds>(core.clock().now() - start));
    });
  });
}

CounterTable Client::counters() const { return machinery_->core->counters(); }

}  // namespace skua
