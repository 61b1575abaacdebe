#include "common/transport/verbs/verbs_target.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "common/base/log.h"
#include "common/transport/verbs/path_mtu.h"

namespace skua {
namespace {

constexpr int kLookAgainMs = 200;  // for a device that was removed

Result<uint32_t> agree_on_mtu(rdma_cm_id* id, uint32_t offered, const VerbsSettings& settings) {
  const auto own = offered_mtu_of(id, settings);
  if (!own || *own == 0) return own;
  const auto path = path_mtu_of(id);
  if (!path) return path;
  return agreed_mtu({*own, offered, *path});
}

}  // namespace

VerbsTarget::~VerbsTarget() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

Result<void> VerbsTarget::start() {
  if (!std::has_single_bit(options_.slab_bytes) || options_.slab_bytes < 4096) {
    return fail(StatusCode::kConfiguration, "slabs of " + std::to_string(options_.slab_bytes) +
                                                " bytes: a power of two from 4096 is needed");
  }
  SKUA_RETURN_IF_ERROR(check_verbs_settings(options_.settings));
  make_fork_safe();
  auto channel = make_event_channel();
  if (!channel) return fail(channel.error().code(), options_.listener_name + ": " + channel.error().message());
  events_ = std::move(*channel);
  wake_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  wait_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!wake_ || !wait_) return fail(StatusCode::kResourceExhausted, "verbs target: " + errno_text(errno));
  watch(events_->fd);
  watch(wake_.get());
  const bool wildcard = NetAddress{options_.listen_host, 0}.is_wildcard();
  wish_ = {options_.settings.device, options_.settings.port, options_.settings.gid_index,
           wildcard ? std::string() : options_.listen_host};
  bound_ = {options_.listen_host, options_.listen_port};
  SKUA_RETURN_IF_ERROR(open_device());
  endpoint_ = bound_;
  if (!options_.advertise_host.empty()) endpoint_.host = options_.advertise_host;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(StatusCode::kResourceExhausted, std::string("no thread for the verbs target: ") + error.what());
  }
  return {};
}

void VerbsTarget::wake() { (void)::eventfd_write(wake_.get(), 1); }

void VerbsTarget::admit(SessionTicket ticket) {
  const SessionId session = ticket.session;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t serial = tickets_.admit(std::move(ticket));
    commands_.push_back({session, serial, nullptr});
  }
  wake();
}

void VerbsTarget::fence(SessionId session, std::function<void()> fenced) {
  {
    const std::lock_guard lock(mutex_);
    const uint64_t serial = tickets_.remove(session);
    commands_.push_back({session, serial, std::move(fenced)});
  }
  wake();
}

void VerbsTarget::run() {
  while (true) {
    epoll_event ready[8];
    const int count = ::epoll_wait(wait_.get(), ready, 8, listener_ ? -1 : kLookAgainMs);
    if (count < 0 && errno != EINTR) log_error("verbs: epoll_wait: " + errno_text(errno));
    if (!take_commands()) break;
    if (listener_) take_completions();
    take_events();
    if (listener_) {
      take_device_events();
    } else {
      look_for_device();
    }
    open_.store(sessions_.size(), std::memory_order_relaxed);
  }
  sessions_.clear();
  open_.store(0, std::memory_order_relaxed);
}

// False: it is time to stop.
bool VerbsTarget::take_commands() {
  eventfd_t ignored = 0;
  (void)::eventfd_read(wake_.get(), &ignored);
  std::vector<Ending> commands;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    commands.swap(commands_);
  }
  for (const Ending& ending : commands) {
    end_session(ending.session, ending.serial);
    open_.store(sessions_.size(), std::memory_order_relaxed);
    if (ending.done) ending.done();
  }
  return true;
}

void VerbsTarget::end_session(SessionId session, uint64_t below) {
  std::erase_if(sessions_, [&](const auto& item) {
    return item.second->session() == session && item.second->serial() < below;
  });
}

void VerbsTarget::end(const rdma_cm_id* id) { sessions_.erase(id); }

void VerbsTarget::take_completions() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (completions_ && ::ibv_get_cq_event(completions_.get(), &queue, &context) == 0) {
    ::ibv_ack_cq_events(queue, 1);
    auto* const session = static_cast<VerbsSession*>(context);
    const rdma_cm_id* const id = session->id();
    if (!session->on_completion_event()) end(id);
  }
}

void VerbsTarget::take_events() {
  VerbsEvent event;
  while (take_event(events_.get(), event)) {
    switch (event.type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: on_request(event); break;
      case RDMA_CM_EVENT_ESTABLISHED:
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      case RDMA_CM_EVENT_ADDR_CHANGE: break;
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        if (event.id == listener_.get()) {
          log_error("verbs: device " + choice_.device + " was removed; its sessions are ended until it is back");
          close_device();
        } else {
          end(event.id);
        }
        break;
      default: end(event.id);
    }
  }
}

void VerbsTarget::refuse(const VerbsEvent& event, const Status& why) {
  if (log_enabled(LogLevel::kInfo)) {
    if (const auto more = refusals_.admit(system_clock().now())) {
      log_info("verbs: " + text_of(::rdma_get_peer_addr(event.id)) + ": refused: " + why.message() + *more);
    }
  }
  const std::string shown(std::string_view(why.message()).substr(0, kMaxRefusalBytes - sizeof(DataWelcome)));
  const std::string answer = make_refusal(Status(why.code(), shown));
  ::rdma_reject(event.id, answer.data(), static_cast<uint8_t>(answer.size()));
  ::rdma_destroy_id(event.id);
}

Result<std::unique_ptr<VerbsSession>> VerbsTarget::admit_request(const VerbsEvent& event) {
  DataHello hello{};
  if (event.private_data.size() < sizeof(hello)) {
    return fail(StatusCode::kIncompatible, "this is a data port of Skua; what came is too short for its hello");
  }
  std::memcpy(&hello, event.private_data.data(), sizeof(hello));
  SKUA_RETURN_IF_ERROR(check_hello_prefix(hello));
  Result<TicketTable::Admitted> admitted = fail(StatusCode::kInternal, "");
  {
    const std::lock_guard lock(mutex_);
    admitted = tickets_.check(hello);
  }
  if (!admitted) return Error(std::move(admitted).error());
  end_session(admitted->ticket.session, UINT64_MAX);  // the earlier connection of the session
  if (sessions_.size() >= options_.max_connections) {
    return fail(StatusCode::kResourceExhausted, "all " + std::to_string(options_.max_connections) +
                                                    " verbs connections of the server are in use; close some");
  }
  const bool read_only = admitted->ticket.read_only || (hello.flags & kDataReadOnly) != 0;
  VerbsOffer offer{};
  if (event.private_data.size() >= sizeof(hello) + sizeof(offer)) {
    std::memcpy(&offer, event.private_data.data() + sizeof(hello), sizeof(offer));
  }
  const auto path_mtu = agree_on_mtu(event.id, offer.path_mtu, options_.settings);
  if (!path_mtu) return Error(path_mtu.error());
  const uint32_t asked = offer.window == 0 ? kCallWindow : offer.window;
  const VerbsSession::Terms terms{options_.settings, atomics_,           options_.slab_bytes,
                                  *path_mtu,         std::min(asked, options_.settings.message_window),
                                  completions_.get()};
  return VerbsSession::create(event.id, *admitted, read_only, terms);
}

void VerbsTarget::on_request(const VerbsEvent& event) {
  auto session = admit_request(event);
  if (!session) return refuse(event, session.error());
  if (auto accepted = (*session)->accept(event); !accepted) {
    log_warning("verbs: " + accepted.error().message());
    return;  // the session's end closes the connection
  }
  sessions_.emplace(event.id, std::move(*session));
}

Result<std::unique_ptr<Target>> make_verbs_target(const VerbsTargetOptions& options, const ArenaInfo& arena) {
  auto target = std::make_unique<VerbsTarget>(options, arena);
  SKUA_RETURN_IF_ERROR(target->start());
  return target;
}

}  // namespace skua
