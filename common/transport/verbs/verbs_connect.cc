// The set-up half of the verbs queue pair, and the connector.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "common/base/log.h"
#include "common/transport/verbs/explain.h"
#include "common/transport/verbs/ibv_queries.h"
#include "common/transport/verbs/path_mtu.h"
#include "common/transport/verbs/slow_connect.h"
#include "common/transport/verbs/verbs.h"
#include "common/transport/verbs/verbs_queue_pair.h"

namespace skua {
namespace {

class VerbsConnector final : public Connector {
 public:
  VerbsConnector(const VerbsSettings& settings, const Clock& clock) : settings_(settings), clock_(clock) {}
  std::string_view name() const override { return "verbs"; }

  Result<std::unique_ptr<QueuePair>> connect(const ConnectTarget& target) override {
    SKUA_RETURN_IF_ERROR(check_verbs_settings(settings_));
    auto hello = make_hello(target);
    if (!hello) return Error(std::move(hello).error());
    auto address = parse_net_address(target.address);
    if (!address) return Error(std::move(address).error());
    auto peer = resolve_for_verbs(*address);
    if (!peer) return Error(std::move(peer).error());
    auto source = choose_source();
    if (!source) return Error(std::move(source).error());
    VerbsQueuePair::Options options{settings_, *hello, target.address, *peer, *source, target.response_timeout};
    auto queue_pair = std::make_unique<VerbsQueuePair>(std::move(options), clock_);
    SKUA_RETURN_IF_ERROR(queue_pair->dial());
    return queue_pair;
  }

 private:
  // The address to connect from. Without a wish the system's routes decide. What is chosen is logged once.
  Result<std::string> choose_source() {
    const std::lock_guard lock(mutex_);
    if (source_) return *source_;
    make_fork_safe();
    const bool wishes = !settings_.device.empty() || settings_.port != 0 || settings_.gid_index;
    const auto queries = make_ibv_queries();
    auto chosen = choose_device(*queries, {settings_.device, settings_.port, settings_.gid_index, ""});
    if (!chosen) return Error(std::move(chosen).error());
    if (wishes) log_info("verbs: connects from " + chosen->reason);
    source_ = wishes ? chosen->address : std::string();
    return *source_;
  }

  const VerbsSettings settings_;
  const Clock& clock_;
  std::mutex mutex_;
  std::optional<std::string> source_;
};

}  // namespace

bool verbs_built_in() { return true; }

std::unique_ptr<Connector> make_verbs_connector(const VerbsSettings& settings, const Clock& clock) {
  return std::make_unique<VerbsConnector>(settings, clock);
}

VerbsQueuePair::VerbsQueuePair(Options options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      capabilities_{"verbs", kQueueDepth, kMaxMessageBytes, true, (options_.hello.flags & kDataReadOnly) != 0},
      ring_(std::make_unique<std::array<Entry, kQueueDepth>>()),
      parts_(std::make_unique<std::array<Part, kSendDepth>>()) {}

Result<void> VerbsQueuePair::dial() {
  deadline_ = clock_.now() + options_.response_timeout;
  auto channel = make_event_channel();
  if (!channel) return Error(std::move(channel).error());
  events_ = std::move(*channel);
  wake_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  wait_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!wake_ || !wait_) {
    return fail(StatusCode::kResourceExhausted, "verbs " + options_.address + ": " + errno_text(errno));
  }
  for (const int descriptor : {events_->fd, wake_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, descriptor, &event);
  }
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return fail(StatusCode::kResourceExhausted, "verbs " + options_.address + ": rdma_create_id: " +
                                                    errno_text(errno));
  }
  connection_ = VerbsConnection(id);
  apply_settings(id, options_.settings);
  std::optional<VerbsSockAddr> source;
  if (!options_.source.empty()) {
    auto resolved = resolve_for_verbs({options_.source, 0});
    if (!resolved) return Error(std::move(resolved).error());
    source = *resolved;
  }
  VerbsSockAddr peer = options_.peer;
  const auto patience = static_cast<int>(std::max<Nanoseconds>(options_.response_timeout / kMillisecond, 1));
  if (::rdma_resolve_addr(id, source ? source->get() : nullptr, peer.get(), patience) != 0) {
    removed_ = true;  // perhaps
    return fail(StatusCode::kUnavailable, "verbs " + options_.address + ": no RDMA device reaches it: " +
                                              errno_text(errno));
  }
  return {};
}

// False: the thread that connects is still at it, and what it tells comes after it.
bool VerbsQueuePair::may_take_events() {
  if (!slow_connect_) return true;
  const std::optional<int> result = slow_connect_->result();
  if (!result) return false;
  slow_connect_.reset();
  eventfd_t ignored = 0;
  (void)::eventfd_read(wake_.get(), &ignored);
  if (*result == 0) return true;
  fail_with(Status(StatusCode::kUnavailable, "cannot connect: " + errno_text(*result) +
                                                 "; check that the server runs and offers verbs"));
  return false;
}

void VerbsQueuePair::advance_connect() {
  VerbsEvent event;
  const bool may = may_take_events();
  while (may && state_ == QueuePairState::kConnecting && take_event(events_.get(), event)) {
    removed_ = event.type == RDMA_CM_EVENT_DEVICE_REMOVAL || event.type == RDMA_CM_EVENT_ADDR_ERROR;
    if (auto stepped = on_event(event); !stepped) fail_with(stepped.error());
  }
  if (state_ == QueuePairState::kConnecting && clock_.now() > deadline_) {
    fail_with(Status(StatusCode::kUnavailable, "no answer while connecting for " +
                                                   std::to_string(options_.response_timeout / kMillisecond) + " ms"));
  }
}

Result<void> VerbsQueuePair::on_event(const VerbsEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: return on_address();
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return on_route();
    case RDMA_CM_EVENT_CONNECT_RESPONSE:  // not of iWARP
    case RDMA_CM_EVENT_ESTABLISHED: return accept_terms(event);
    case RDMA_CM_EVENT_REJECTED: return Error(refusal(event));
    case RDMA_CM_EVENT_ADDR_ERROR:
      return fail(StatusCode::kUnavailable, "no RDMA device reaches this address (" + event_text(event) +
                                                "); the server must listen on an address of an RDMA network");
    default: return fail(StatusCode::kUnavailable, "cannot connect: " + event_text(event));
  }
}

Result<void> VerbsQueuePair::on_address() {
  const auto patience = static_cast<int>(std::max<Nanoseconds>(options_.response_timeout / kMillisecond, 1));
  if (::rdma_resolve_route(connection_.id(), patience) != 0) {
    return fail(StatusCode::kUnavailable, "rdma_resolve_route: " + errno_text(errno));
  }
  return {};
}

Result<void> VerbsQueuePair::on_route() {
  SKUA_RETURN_IF_ERROR(make_queues());
  SKUA_RETURN_IF_ERROR(create_queue_pair());
  SKUA_RETURN_IF_ERROR(register_memory());
  call_window_ = options_.settings.message_window;
  for (uint32_t slot = 0; slot < call_window_; ++slot) post_receive(slot);
  ibv_device_attr device{};
  if (::ibv_query_device(connection_.context(), &device) != 0) {
    return fail(StatusCode::kResourceExhausted, "ibv_query_device: " + errno_text(errno));
  }
  rdma_conn_param parameters = connection_parameters(options_.settings, device);
  SKUA_RETURN_IF_ERROR(choose_mtu());
  const struct {
    DataHello hello;
    VerbsOffer offer;
  } said{options_.hello, {path_mtu_, call_window_}};
  parameters.private_data = &said;
  parameters.private_data_len = sizeof(said);
  if (iwarp_) {
    auto call = SlowConnect::start(connection_.id(), parameters, wake_.get());
    if (!call) return Error(std::move(call).error());
    slow_connect_ = std::move(*call);
    return {};
  }
  if (::rdma_connect(connection_.id(), &parameters) != 0) {
    return fail(StatusCode::kUnavailable, "rdma_connect: " + errno_text(errno));
  }
  connection_.hide_queue_pair();
  return {};
}

// The smaller of what the port carries and what the fabric says of the path.
Result<void> VerbsQueuePair::choose_mtu() {
  const auto offered = offered_mtu_of(connection_.id(), options_.settings);
  if (!offered) return Error(offered.error());
  path_mtu_ = *offered;
  const rdma_route& route = connection_.id()->route;
  if (path_mtu_ == 0 || route.num_paths == 0) return {};
  const uint32_t path = mtu_bytes(static_cast<ibv_mtu>(route.path_rec[0].mtu));
  if (path != 0) path_mtu_ = std::min(path_mtu_, path);
  return {};
}

Result<void> VerbsQueuePair::make_queues() {
  ibv_context* const context = connection_.context();
  completion_channel_.reset(::ibv_create_comp_channel(context));
  if (!completion_channel_) {
    return fail(StatusCode::kResourceExhausted, "ibv_create_comp_channel: " + errno_text(errno) + "; see ulimit -n");
  }
  SKUA_RETURN_IF_ERROR(make_non_blocking(completion_channel_->fd));
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, completion_channel_->fd, &event);
  completions_.reset(::ibv_create_cq(context, kSendDepth + kCallWindow + 1, nullptr, completion_channel_.get(), 0));
  if (!completions_) {
    return Error(explain_registration(
        registration_facts(errno, ::ibv_get_device_name(context->device), sizeof(ibv_wc) * kSendDepth)));
  }
  return {};
}

Result<void> VerbsQueuePair::create_queue_pair() {
  // Devices differ in how much travels inside a request, and say so only by refusing.
  uint32_t wanted = options_.settings.inline_sends ? kMostInline : 0;
  while (true) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {kSendDepth, kCallWindow, kSegments, 1, wanted};
    if (::rdma_create_qp(connection_.id(), nullptr, &attributes) == 0) {
      max_inline_ = options_.settings.inline_sends ? std::min(attributes.cap.max_inline_data, kMostInline) : 0;
      return {};
    }
    if (wanted == 0 || (errno != EINVAL && errno != ENOMEM)) break;
    wanted = wanted > 64 ? wanted / 2 : 0;
  }
  return fail(StatusCode::kResourceExhausted, "no queue pair can be made: " + errno_text(errno));
}

Result<void> VerbsQueuePair::register_memory() {
  constexpr uint64_t kBytes = kBounceBytes + kCallWindow * sizeof(VerbsReply);
  ibv_context* const context = connection_.context();
  iwarp_ = context->device->transport_type == IBV_TRANSPORT_IWARP;
  memory_ = std::make_unique<std::byte[]>(kBytes);
  int access = IBV_ACCESS_LOCAL_WRITE;
  if (iwarp_) access |= IBV_ACCESS_REMOTE_WRITE;  // what a READ brings arrives as a remote write there
  memory_region_.reset(ibv_reg_mr(connection_.queue_pair()->pd, memory_.get(), kBytes, access));
  if (!memory_region_) {
    return Error(explain_registration(registration_facts(errno, ::ibv_get_device_name(context->device), kBytes)));
  }
  bounce_ = BounceRing(memory_.get(), kBounceBytes);
  ibv_port_attr port{};
  max_message_ = uint64_t{1} << 20;
  if (ibv_query_port(context, connection_.id()->port_num, &port) == 0 && port.max_msg_sz != 0) {
    max_message_ = port.max_msg_sz;
  }
  return {};
}

// What the server says when it accepts.
Result<void> VerbsQueuePair::accept_terms(const VerbsEvent& event) {
  DataWelcome welcome{};
  VerbsTerms terms{};
  if (event.private_data.size() < sizeof(welcome) + sizeof(terms)) {
    return fail(StatusCode::kIncompatible, "the peer is no verbs port of Skua: its answer is too short");
  }
  std::memcpy(&welcome, event.private_data.data(), sizeof(welcome));
  std::memcpy(&terms, event.private_data.data() + sizeof(welcome), sizeof(terms));
  SKUA_RETURN_IF_ERROR(check_welcome(welcome));
  if (terms.path_mtu > path_mtu_ || (terms.path_mtu != 0 && !is_path_mtu(terms.path_mtu))) {
    return fail(StatusCode::kIncompatible, "path MTU: the server takes " + std::to_string(terms.path_mtu) +
                                               ", more than the " + std::to_string(path_mtu_) + " of this side");
  }
  const bool slabs = std::has_single_bit(terms.slab_bytes) && terms.slab_bytes >= 4096;
  if (!slabs || terms.window == 0 || terms.window > call_window_) {
    return fail(StatusCode::kIncompatible, "the server's terms are none that this release knows");
  }
  capabilities_.read_only = (welcome.flags & kDataReadOnly) != 0;
  capabilities_.remote_atomics = terms.atomics != 0;
  device_atomics_ = terms.atomics != 0;
  slab_bytes_ = terms.slab_bytes;
  call_window_ = terms.window;
  SKUA_RETURN_IF_ERROR(establish(terms.path_mtu));
  state_ = QueuePairState::kReady;
  return {};
}

Result<void> VerbsQueuePair::establish(uint32_t path_mtu) {
  if (iwarp_) return {};  // TCP carries it: it is established
  path_mtu_ = path_mtu;
  SKUA_RETURN_IF_ERROR(make_ready(connection_.id(), connection_.queue_pair(), {path_mtu}));
  if (::rdma_establish(connection_.id()) != 0) {
    return fail(StatusCode::kUnavailable, "rdma_establish: " + errno_text(errno));
  }
  connection_.show_queue_pair();
  return {};
}

// From what a rejection carries, or from its number.
Status VerbsQueuePair::refusal(const VerbsEvent& event) const {
  DataWelcome welcome{};
  if (event.private_data.size() > sizeof(welcome)) {
    std::memcpy(&welcome, event.private_data.data(), sizeof(welcome));
    if (check_welcome(welcome) && welcome.status != 0) {
      const size_t there = event.private_data.size() - sizeof(welcome);
      return status_of_refusal(welcome, std::string_view(event.private_data)
                                            .substr(sizeof(welcome), std::min<size_t>(welcome.reason_bytes, there)));
    }
  }
  constexpr int kInvalidServiceId = 8;  // InfiniBand Architecture Specification 1.4, volume 1, 12.6.7.2
  if (event.status == kInvalidServiceId || event.status == -ECONNREFUSED) {
    return Status(StatusCode::kUnavailable, "cannot connect: " + errno_text(ECONNREFUSED) +
                                                "; check that the server runs and offers verbs");
  }
  return Status(StatusCode::kUnavailable, "cannot connect: " + event_text(event));
}

// What the connection manager has to say of a connection that is up.
void VerbsQueuePair::check_connection() {
  VerbsEvent event;
  while (state_ == QueuePairState::kReady && take_event(events_.get(), event)) {
    if (event.type == RDMA_CM_EVENT_TIMEWAIT_EXIT || event.type == RDMA_CM_EVENT_ADDR_CHANGE) continue;
    removed_ = event.type == RDMA_CM_EVENT_DEVICE_REMOVAL;
    const bool orderly = event.type == RDMA_CM_EVENT_DISCONNECTED;
    break_off(CompletionStatus::kPeerLost, head_,
              orderly ? "the server closed the connection" : "the connection broke: " + event_text(event));
  }
}

void VerbsQueuePair::fail_with(Status status) {
  if (state_ == QueuePairState::kError) return;
  state_ = QueuePairState::kError;
  error_ = Status(status.code(), "verbs " + options_.address + ": " + status.message());
  release_device();
}

void VerbsQueuePair::release_device() {
  if (slow_connect_) {
    SlowConnect::Parts parts{std::move(events_), std::move(completion_channel_), std::move(completions_),
                             std::move(memory_), std::move(memory_region_), std::move(connection_)};
    if (!slow_connect_->leave_behind(parts)) parts.end();
    slow_connect_.reset();
    return;
  }
  VerbsEvent event;
  while (events_ && take_event(events_.get(), event)) removed_ = removed_ || event.type == RDMA_CM_EVENT_DEVICE_REMOVAL;
  connection_.end_queue_pair();
  completions_.reset();
  completion_channel_.reset();
  memory_region_.reset();
  connection_.reset();  // and with the last of a device its protection domain
  events_.reset();
  if (std::exchange(removed_, false)) forget_removed_devices();
}

void VerbsQueuePair::close() {
  fail_with(Status(StatusCode::kPeerLost, "closed by this side"));
  head_ = next_ = tail_;
}

}  // namespace skua
