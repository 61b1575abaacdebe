// The part of the verbs target that a device has: it may go and come back.
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "common/base/log.h"
#include "common/transport/verbs/explain.h"
#include "common/transport/verbs/ibv_queries.h"
#include "common/transport/verbs/verbs_target.h"

namespace skua {
namespace {

constexpr int kBacklog = 256;

}  // namespace

void VerbsTarget::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, descriptor, &event);
}

Result<void> VerbsTarget::open_device() {
  const auto queries = make_ibv_queries();
  auto chosen = choose_device(*queries, wish_);
  if (!chosen) return fail(chosen.error().code(), options_.listener_name + ": " + chosen.error().message());
  choice_ = std::move(*chosen);
  if (!std::exchange(decided_, true)) {  // for good: other threads ask, and sessions on other transports rely on it
    atomics_ = options_.atomics;
    if (atomics_ == VerbsAtomics::kDeviceIfAble) {
      atomics_ = choice_.remote_atomics ? VerbsAtomics::kDevice : VerbsAtomics::kCpu;
    }
  }
  if (atomics_ == VerbsAtomics::kDevice && !choice_.remote_atomics) {
    return fail(StatusCode::kConfiguration, options_.listener_name + ": " + choice_.device +
                                                " has no remote atomics: use --rdma-atomics cpu");
  }
  SKUA_RETURN_IF_ERROR(listen());
  if (auto mtu = offered_mtu_of(listener_.get(), options_.settings); !mtu) {
    return fail(mtu.error().code(), options_.listener_name + ": " + mtu.error().message());
  }
  if (atomics_ == VerbsAtomics::kDevice) {
    auto loopback = VerbsLoopback::create(listener_->verbs, choice_, arena_, options_.slab_bytes);
    if (!loopback) return fail(loopback.error().code(), options_.listener_name + ": " + loopback.error().message());
    loopback_.replace(std::move(*loopback));
  }
  completions_.reset(::ibv_create_comp_channel(listener_->verbs));
  if (!completions_) return fail(StatusCode::kResourceExhausted, "ibv_create_comp_channel: " + errno_text(errno));
  SKUA_RETURN_IF_ERROR(make_non_blocking(completions_->fd));
  SKUA_RETURN_IF_ERROR(make_non_blocking(listener_->verbs->async_fd));
  watch(completions_->fd);
  watch(listener_->verbs->async_fd);
  log_info("verbs: " + choice_.reason + "; atomics by the " +
           (atomics_ == VerbsAtomics::kDevice ? "device" : "CPU"));
  return {};
}

Error VerbsTarget::cannot_listen(int error, const char* what) const {
  std::string remedy = "choose an address of the RDMA device's network interface with --rdma-listen";
  if (error == EADDRINUSE) {
    remedy = "stop the process that holds the port, or choose another with --rdma-listen (port 0 takes a free one)";
  } else if (error == EACCES || error == EPERM) {
    remedy = "ports below 1024 need a privilege: choose a higher one with --rdma-listen";
  }
  return fail(StatusCode::kConfiguration, options_.listener_name + " cannot " + what + " " + bound_.to_string() +
                                              ": " + errno_text(error) + "; " + remedy);
}

Result<void> VerbsTarget::listen() {
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return fail(StatusCode::kResourceExhausted, "rdma_create_id: " + errno_text(errno));
  }
  listener_.reset(id);
  if (!choice_.address.empty()) bound_.host = choice_.address;
  auto address = resolve_for_verbs(bound_);
  if (!address) return Error(std::move(address).error());
  if (::rdma_bind_addr(id, address->get()) != 0) return cannot_listen(errno, "bind");
  if (id->verbs == nullptr) return cannot_listen(ENODEV, "find a device for");
  if (::rdma_listen(id, kBacklog) != 0) return cannot_listen(errno, "listen on");
  bound_.port = port_of(::rdma_get_local_addr(id));
  return {};
}

// Nothing that was made on the device is kept.
void VerbsTarget::close_device() {
  sessions_.clear();
  loopback_.replace(nullptr);
  if (completions_) ::epoll_ctl(wait_.get(), EPOLL_CTL_DEL, completions_->fd, nullptr);
  if (listener_ && listener_->verbs != nullptr) {
    ::epoll_ctl(wait_.get(), EPOLL_CTL_DEL, listener_->verbs->async_fd, nullptr);
  }
  completions_.reset();
  listener_.reset();
  forget_removed_devices();
}

// Clients know the endpoint: the address, and the port, are to be the same as before.
void VerbsTarget::look_for_device() {
  wish_.address = choice_.address.empty() ? wish_.address : choice_.address;
  const DeviceChoice before = choice_;
  if (auto opened = open_device(); !opened) {
    choice_ = before;
    close_device();
    return;
  }
  log_info("verbs: device " + choice_.device + " is back, and served");
}

void VerbsTarget::end_queue_pair(const ibv_qp* queue_pair) {
  std::erase_if(sessions_, [&](const auto& item) { return item.second->queue_pair() == queue_pair; });
}

void VerbsTarget::take_device_events() {
  ibv_async_event event{};
  while (listener_ && ::ibv_get_async_event(listener_->verbs, &event) == 0) {
    const ibv_event_type type = event.event_type;
    const ibv_qp* const queue_pair = event.element.qp;
    ::ibv_ack_async_event(&event);
    switch (type) {
      case IBV_EVENT_PORT_ERR:
        log_error("verbs: " + choice_.device + ": " + ::ibv_event_type_str(type) + "; its sessions will break");
        break;
      case IBV_EVENT_PORT_ACTIVE: log_info("verbs: " + choice_.device + ": " + ::ibv_event_type_str(type)); break;
      case IBV_EVENT_DEVICE_FATAL:
        log_error("verbs: " + choice_.device + ": " + ::ibv_event_type_str(type) + "; its sessions are ended");
        sessions_.clear();
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR: end_queue_pair(queue_pair); break;
      default: break;
    }
  }
}

}  // namespace skua
