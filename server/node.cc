#include "server/node.h"

#include <netdb.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/base/log.h"
#include "common/control/asio_channel.h"
#include "common/transport/shm/shm.h"
#include "common/transport/tcp/tcp.h"
#include "common/transport/verbs/verbs.h"
#include "server/coordinator/coordinator.h"
#include "server/data_directory.h"
#include "server/server_core.h"

namespace skua {
namespace {

// Verbs registers memory in slabs: of so many to all memory, within bounds.
constexpr uint64_t kSlabsOfMemory = 2048;
constexpr uint64_t kLeastSlab = uint64_t{64} << 10;
constexpr uint64_t kMostSlab = uint64_t{64} << 20;

// A value that one thread sets and another waits for.
template <class T>
class Slot {
 public:
  void set(T value) {
    const std::lock_guard lock(mutex_);
    value_.emplace(std::move(value));
    ready_.notify_all();
  }
  T take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return value_.has_value(); });
    return std::move(*value_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<T> value_;
};

uint64_t process_cpu_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) { return static_cast<uint64_t>(time.tv_sec) * 1000 +
                                                   static_cast<uint64_t>(time.tv_usec) / 1000; };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

Error refuse(std::string why) { return fail(StatusCode::kConfiguration, std::move(why)); }

Result<void> check_name(const std::string& name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (name.size() <= 255 && printable) return {};
  return refuse("--name '" + name + "': use up to 255 printable ASCII characters without spaces");
}

// What it says is told to others as it is.
Result<void> check_advertised(const std::string& host) {
  if (std::count(host.begin(), host.end(), ':') == 1) {
    return refuse("--advertise takes a host without a port, not '" + host + "'; the port is that of --listen");
  }
  const bool usable = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
  if (!usable) return refuse("--advertise '" + host + "' is no host's name or address; IPv6 goes without brackets");
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found); error != 0) {
    log_warning("--advertise " + host + ": the name does not resolve here (" + ::gai_strerror(error) +
                "); clients that cannot resolve it will not reach this server");
  } else {
    ::freeaddrinfo(found);
  }
  return {};
}

bool joins_itself(const NodeOptions& options) {
  if (options.listen.port == 0 || options.join->port != options.listen.port) return false;
  return options.join->host == options.listen.host || options.join->host == options.advertise ||
         (options.listen.is_wildcard() && options.join->is_loopback());
}

}  // namespace

struct Node::Impl {
  Impl(const NodeOptions& node_options, const Clock& clock, Entropy& node_entropy, Events node_events)
      : options(node_options), entropy(node_entropy), events(std::move(node_events)), executor(clock) {}
  ~Impl();

  Result<void> start();
  Result<void> check_options();
  Result<void> open_data_directory();
  Result<void> open_memory_and_data_plane();
  Result<void> add_transport(const std::string& transport);
  Result<std::unique_ptr<Target>> make_verbs();
  Result<void> open_coordinator();
  Result<void> listen();
  Result<void> prepare();
  void make_core(std::function<void(Result<void>)> joined);
  void fill_stats(control::ServerStats& out) const;
  // Runs `function` on the control thread and waits for it.
  template <class T>
  T on_control_thread(std::function<T()> function) {
    Slot<T> slot;
    executor.post([&] { slot.set(function()); });
    return slot.take();
  }

  NodeOptions options;
  Entropy& entropy;
  Events events;
  uint64_t instance = 0;
  std::string name;
  NetAddress advertised;
  std::vector<NodeEndpoint> endpoints;
  std::unique_ptr<DataDirectory> data_directory;

  AsioExecutor executor;
  std::unique_ptr<Dialer> dialer;
  // Made and used on the control thread; destroyed when it has ended, targets before the memory that they touch.
  std::unique_ptr<Store> store;
  std::vector<std::unique_ptr<Target>> targets;
  std::unique_ptr<MapStore> map_store;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<ServerCore> core;
  std::unique_ptr<Listener> listener;
};

Node::Impl::~Impl() {
  executor.stop();
  listener.reset();
  targets.clear();
  core.reset();
  coordinator.reset();
  map_store.reset();
  store.reset();
}

Result<void> Node::Impl::check_options() {
  if (options.advertise.empty()) {
    if (options.listen.is_wildcard()) {
      return refuse("--listen " + options.listen.to_string() +
                    ": nobody can be told to connect to a wildcard; add --advertise with this host's name or address");
    }
    options.advertise = options.listen.host;
  }
  SKUA_RETURN_IF_ERROR(check_advertised(options.advertise));
  if (NetAddress{options.advertise, 0}.is_wildcard()) {
    return refuse("--advertise " + options.advertise + ": give a name or address that others can connect to");
  }
  if (options.join && joins_itself(options)) {
    return refuse("--join " + options.join->to_string() + " is this server's own address; give its coordinator's, or " +
                  "leave --join out for the first server of a cluster");
  }
  if (options.join && !options.join->is_loopback() && NetAddress{options.advertise, 0}.is_loopback()) {
    log_warning("advertises " + options.advertise + " to the cluster of " + options.join->to_string() +
                ": only this host can reach it; set --advertise");
  }
  if (options.transports.empty()) return refuse("--transports: name at least one of verbs, shm, tcp");
  for (const std::string& transport : options.transports) {
    if (transport != "shm" && transport != "tcp" && transport != "verbs") {
      return refuse("--transports: '" + transport + "' is unknown; choose from verbs, shm and tcp");
    }
    if (std::count(options.transports.begin(), options.transports.end(), transport) > 1) {
      return refuse("--transports: '" + transport + "' is there twice");
    }
  }
  if (options.rdma_atomics == "device" && options.transports != std::vector<std::string>{"verbs"}) {
    return refuse("--rdma-atomics device: the device's atomics are atomic among themselves alone, and shm and tcp "
                  "execute theirs on the CPU; offer --transports verbs and nothing else, or use --rdma-atomics cpu");
  }
  return check_name(options.name);
}

Result<void> Node::Impl::open_data_directory() {
  name = options.name;
  if (options.data_dir.empty()) return {};
  auto opened = DataDirectory::open(options.data_dir);
  if (!opened) return Error(opened.error());
  data_directory = std::move(*opened);
  const auto& identity = data_directory->identity();
  if (!identity) return {};
  if (identity->cluster_id == 0) {
    if (name.empty()) name = identity->name;
    return {};
  }
  if (!name.empty() && name != identity->name) {
    return refuse("--name " + name + ": " + options.data_dir + " belongs to server '" + identity->name +
                  "'; leave --name out or choose another --data-dir");
  }
  if (identity->coordinator && options.join) {
    return refuse("--join " + options.join->to_string() + ": " + options.data_dir +
                  " belongs to a cluster's coordinator; leave --join out or choose another --data-dir");
  }
  if (!identity->coordinator && !options.join) {
    return refuse(options.data_dir + " belongs to server '" + identity->name +
                  "', which had joined a cluster; give --join with its coordinator, or choose another --data-dir");
  }
  name = identity->name;
  log_warning("keys and values live in memory: this server starts empty");
  return {};
}

Result<std::unique_ptr<Target>> Node::Impl::make_verbs() {
  VerbsTargetOptions verbs;
  verbs.settings = options.rdma;
  verbs.listener_name = options.rdma_listen ? "--rdma-listen: the verbs listener" : "the verbs listener";
  if (options.rdma_listen) {
    verbs.listen_host = options.rdma_listen->host;
    verbs.listen_port = options.rdma_listen->port;
  }
  const bool alone = options.transports.size() == 1;
  if (options.rdma_atomics == "device") verbs.atomics = VerbsAtomics::kDevice;
  if (options.rdma_atomics == "auto" && alone) verbs.atomics = VerbsAtomics::kDeviceIfAble;
  verbs.slab_bytes = std::clamp(std::bit_floor(options.store.memory_bytes / kSlabsOfMemory), kLeastSlab, kMostSlab);
  return make_verbs_target(verbs, store->arena());
}

Result<void> Node::Impl::add_transport(const std::string& transport) {
  Result<std::unique_ptr<Target>> target = fail(StatusCode::kInternal, transport);
  if (transport == "shm") {
    target = make_shm_target(ShmTargetOptions{}, store->arena());
  } else if (transport == "verbs") {
    target = make_verbs();
  } else {
    TcpTargetOptions tcp;
    tcp.listener_name = options.data_listen ? "--data-listen: the tcp data listener"
                                            : "the tcp data listener, on the host of --listen,";
    tcp.listen = options.data_listen.value_or(NetAddress{options.listen.host, 0});
    tcp.advertise_host = options.advertise;
    target = make_tcp_target(tcp, store->arena());
  }
  if (!target) return Error(target.error());
  endpoints.push_back({std::string((*target)->name()), (*target)->endpoint()});
  store->add_target(**target);
  targets.push_back(std::move(*target));
  return {};
}

Result<void> Node::Impl::open_memory_and_data_plane() {
  // A session's registrations pin memory that was taken once: nothing of it may go back to the system under them.
  if (std::count(options.transports.begin(), options.transports.end(), "verbs") != 0) {
    options.store.keeps_memory = true;
  }
  auto created = Store::create(options.store, executor, entropy);
  if (!created) return Error(created.error());
  store = std::move(*created);
  for (const std::string& transport : options.transports) SKUA_RETURN_IF_ERROR(add_transport(transport));
  return {};
}

Result<void> Node::Impl::open_coordinator() {
  if (options.join) return {};
  if (data_directory) {
    auto opened = open_embedded_map_store(data_directory->coordinator_path());
    if (!opened) return Error(opened.error());
    map_store = std::move(*opened);
  } else {
    map_store = std::make_unique<MemoryMapStore>();
  }
  CoordinatorOptions coordinator_options;
  coordinator_options.partitions = options.partitions;
  coordinator_options.initial_servers = options.initial_servers;
  auto made = Coordinator::open(coordinator_options, *map_store, executor.clock(), entropy);
  if (!made) return Error(made.error());
  coordinator = std::move(*made);
  if (data_directory && data_directory->identity() &&
      data_directory->identity()->cluster_id != coordinator->map().cluster_id()) {
    return refuse(options.data_dir + ": its coordinator folder is of another cluster than its identity; put them "
                                     "together as they were, or choose another --data-dir");
  }
  return {};
}

Result<void> Node::Impl::listen() {
  auto made = listen_asio(executor, options.listen, ListenOptions{}, [this](std::shared_ptr<Channel> channel) {
    return core ? core->accept(std::move(channel)) : ChannelEvents{};
  });
  if (!made) return Error(made.error());
  listener = std::move(*made);
  advertised = NetAddress{options.advertise, listener->address().port};
  if (name.empty()) name = advertised.to_string();
  return {};
}

Result<void> Node::Impl::prepare() {
  SKUA_RETURN_IF_ERROR(open_memory_and_data_plane());
  SKUA_RETURN_IF_ERROR(open_coordinator());
  SKUA_RETURN_IF_ERROR(listen());
  if (!data_directory || (data_directory->identity() && data_directory->identity()->cluster_id != 0)) return {};
  // Before the cluster hears of it: should this start fail later, the next one comes back under the same name, and
  // not as another server while this one's place stays empty.
  return data_directory->remember({name, coordinator ? coordinator->map().cluster_id() : 0, !options.join});
}

void Node::Impl::fill_stats(control::ServerStats& out) const {
  if (options.report_process_cpu) out.set_cpu_ms(process_cpu_ms());
  out.clear_endpoints();
  for (const NodeEndpoint& endpoint : endpoints) {
    control::Endpoint& entry = *out.add_endpoints();
    entry.set_transport(endpoint.transport);
    entry.set_address(endpoint.address);
  }
  for (const auto& target : targets) {
    (*out.mutable_sessions_by_transport())[std::string(target->name())] = target->connections();
  }
}

void Node::Impl::make_core(std::function<void(Result<void>)> joined) {
  ServerCoreOptions core_options;
  core_options.terms.token = options.token;
  if (data_directory && data_directory->identity()) {
    core_options.terms.cluster_id = data_directory->identity()->cluster_id;
  }
  core_options.self.set_name(name);
  core_options.self.set_control_address(advertised.to_string());
  core_options.self.set_instance(instance);
  core_options.self.set_memory_bytes(options.store.memory_bytes);
  core_options.join = options.join;
  core_options.join_timeout = options.join_timeout;
  core_options.fill_stats = [this](control::ServerStats& out) { fill_stats(out); };
  ServerCoreEvents core_events{std::move(joined), events.serving, events.failed};
  core = std::make_unique<ServerCore>(std::move(core_options), std::move(core_events),
                                      ServerCore::Parts{*store, executor, *dialer, coordinator.get()});
  core->start();
}

Result<void> Node::Impl::start() {
  SKUA_RETURN_IF_ERROR(check_options());
  SKUA_RETURN_IF_ERROR(open_data_directory());
  instance = entropy.next() | 1;  // never 0, which stands for none
  dialer = make_asio_dialer(executor);
  executor.start();
  Slot<Result<void>> joined;
  executor.post([&] {
    // In one turn: no connection is accepted before the core is there.
    const auto prepared = prepare();
    if (!prepared) {
      joined.set(prepared);
    } else {
      make_core([&joined](Result<void> result) { joined.set(std::move(result)); });
    }
  });
  SKUA_RETURN_IF_ERROR(joined.take());
  if (!data_directory) return {};
  const uint64_t cluster = on_control_thread<uint64_t>([this] { return core->map().cluster_id(); });
  return data_directory->remember({name, cluster, !options.join});
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Node::~Node() = default;

Result<std::unique_ptr<Node>> Node::start(const NodeOptions& options, const Clock& clock, Entropy& entropy,
                                          Events events) {
  auto impl = std::make_unique<Impl>(options, clock, entropy, std::move(events));
  SKUA_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<Node>(new Node(std::move(impl)));
}

void Node::drain(std::function<void()> done) {
  impl_->executor.post([impl = impl_.get(), done = std::move(done)] {
    impl->listener.reset();
    impl->core->drain(done);
  });
}

std::string Node::control_address() const { return impl_->advertised.to_string(); }
const std::vector<NodeEndpoint>& Node::endpoints() const { return impl_->endpoints; }
const std::string& Node::name() const { return impl_->name; }
std::string Node::pages() const {
  return impl_->on_control_thread<std::string>([this] {
    control::ServerStats statistics;
    impl_->store->statistics(statistics);
    return statistics.pages();
  });
}
uint32_t Node::server_id() const {
  return impl_->on_control_thread<uint32_t>([this] { return impl_->core->server_id(); });
}
bool Node::serving() const {
  return impl_->on_control_thread<bool>([this] { return impl_->core->serving(); });
}

}  // namespace skua
