#include "common/transport/verbs/verbs_handles.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/log.h"
#include "common/transport/descriptor.h"
#include "common/transport/verbs/explain.h"
#include "common/transport/verbs/path_mtu.h"
#include "common/transport/verbs/verbs.h"

namespace skua {

Result<VerbsSockAddr> resolve_for_verbs(const NetAddress& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return fail(StatusCode::kConfiguration, address.to_string() + ": the name does not resolve: " +
                                                ::gai_strerror(error));
  }
  VerbsSockAddr result;
  std::memcpy(&result.bytes, found->ai_addr, std::min<size_t>(found->ai_addrlen, sizeof(result.bytes)));
  ::freeaddrinfo(found);
  return result;
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  }
  return text;
}

uint16_t port_of(const sockaddr* address) {
  return ntohs(address->sa_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(address)->sin_port
                                             : reinterpret_cast<const sockaddr_in6*>(address)->sin6_port);
}

Result<void> make_non_blocking(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != 0) {
    return fail(StatusCode::kResourceExhausted, "fcntl of an RDMA channel: " + errno_text(errno));
  }
  return {};
}

Result<VerbsHandle<rdma_event_channel>> make_event_channel() {
  errno = 0;
  VerbsHandle<rdma_event_channel> channel(::rdma_create_event_channel());
  if (!channel) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      return fail(StatusCode::kResourceExhausted, "rdma_create_event_channel: " + errno_text(errno) +
                                                      "; see ulimit -n");
    }
    return Error(explain_no_device(errno));
  }
  SKUA_RETURN_IF_ERROR(make_non_blocking(channel->fd));
  return channel;
}

void make_fork_safe() {
  if (::ibv_is_fork_initialized() != IBV_FORK_DISABLED) return;
  if (const int error = ::ibv_fork_init(); error != 0) {
    log_warning("verbs: a fork of this process may corrupt its registered memory: ibv_fork_init: " + errno_text(error) +
                "; start with RDMAV_FORK_SAFE=1");
  }
}

void forget_removed_devices() {
  int count = 0;
  if (ibv_context** const devices = ::rdma_get_devices(&count)) ::rdma_free_devices(devices);
}

bool take_event(rdma_event_channel* channel, VerbsEvent& event) {
  pollfd wait{channel->fd, POLLIN, 0};
  if (::poll(&wait, 1, 0) <= 0) return false;
  rdma_cm_event* raw = nullptr;
  if (::rdma_get_cm_event(channel, &raw) != 0) return false;
  event.type = raw->event;
  event.status = raw->status;
  event.id = raw->id;
  event.private_data.clear();
  const rdma_conn_param& given = raw->param.conn;
  if (given.private_data != nullptr) {
    event.private_data.assign(static_cast<const char*>(given.private_data), given.private_data_len);
  }
  event.responder_resources = given.responder_resources;
  event.initiator_depth = given.initiator_depth;
  ::rdma_ack_cm_event(raw);
  return true;
}

std::string event_text(const VerbsEvent& event) {
  std::string text = ::rdma_event_str(event.type);
  if (event.status < 0) text += ": " + errno_text(-event.status);
  if (event.status > 0) text += ", status " + std::to_string(event.status);
  return text;
}

rdma_conn_param connection_parameters(const VerbsSettings& settings, const ibv_device_attr& device) {
  rdma_conn_param parameters{};
  parameters.responder_resources = static_cast<uint8_t>(std::clamp(device.max_qp_rd_atom, 0, 128));
  parameters.initiator_depth = static_cast<uint8_t>(std::clamp(device.max_qp_init_rd_atom, 0, 128));
  parameters.retry_count = static_cast<uint8_t>(std::min<uint32_t>(settings.retry_count, 6));
  parameters.rnr_retry_count = static_cast<uint8_t>(std::min<uint32_t>(settings.rnr_retry_count, 7));
  return parameters;
}

uint32_t mtu_bytes(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0; }

ibv_mtu mtu_of(uint32_t bytes) {
  for (const ibv_mtu mtu : {IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512}) {
    if (mtu_bytes(mtu) <= bytes) return mtu;
  }
  return IBV_MTU_256;
}

Result<uint32_t> offered_mtu_of(rdma_cm_id* id, const VerbsSettings& settings) {
  const std::string device = ::ibv_get_device_name(id->verbs->device);
  if (id->verbs->device->transport_type == IBV_TRANSPORT_IWARP) {
    if (settings.path_mtu == 0) return 0;
    return fail(StatusCode::kConfiguration, "--rdma-mtu " + std::to_string(settings.path_mtu) + ": " + device +
                                                " is iWARP, where TCP cuts its segments itself: leave it out");
  }
  ibv_port_attr port{};
  if (ibv_query_port(id->verbs, id->port_num, &port) != 0) {
    return fail(StatusCode::kUnavailable, device + ": ibv_query_port: " + errno_text(errno));
  }
  return offered_mtu({device, id->port_num, mtu_bytes(port.active_mtu), mtu_bytes(port.max_mtu)}, settings.path_mtu);
}

namespace {

Result<ibv_qp_attr> attributes_for(rdma_cm_id* id, ibv_qp_state state, int& mask) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  if (::rdma_init_qp_attr(id, &attributes, &mask) != 0) {
    return fail(StatusCode::kUnavailable, "rdma_init_qp_attr: " + errno_text(errno));
  }
  return attributes;
}

Result<void> enter(ibv_qp* queue_pair, ibv_qp_attr attributes, int mask) {
  const int error = ::ibv_modify_qp(queue_pair, &attributes, mask);
  if (error == 0) return {};
  return fail(StatusCode::kUnavailable, "the queue pair cannot be connected: ibv_modify_qp: " + errno_text(error));
}

}  // namespace

Result<uint32_t> path_mtu_of(rdma_cm_id* id) {
  int mask = 0;
  const auto attributes = attributes_for(id, IBV_QPS_RTR, mask);
  if (!attributes) return Error(attributes.error());
  return mtu_bytes(attributes->path_mtu);
}

Result<void> make_ready(rdma_cm_id* id, ibv_qp* queue_pair, const ReadyTerms& terms) {
  int mask = 0;
  auto attributes = attributes_for(id, IBV_QPS_INIT, mask);
  if (!attributes) return Error(attributes.error());
  SKUA_RETURN_IF_ERROR(enter(queue_pair, *attributes, mask));
  attributes = attributes_for(id, IBV_QPS_RTR, mask);
  if (!attributes) return Error(attributes.error());
  if (terms.path_mtu != 0) attributes->path_mtu = mtu_of(terms.path_mtu);
  if (terms.responder_resources != RDMA_MAX_RESP_RES) attributes->max_dest_rd_atomic = terms.responder_resources;
  SKUA_RETURN_IF_ERROR(enter(queue_pair, *attributes, mask));
  attributes = attributes_for(id, IBV_QPS_RTS, mask);
  if (!attributes) return Error(attributes.error());
  if (terms.initiator_depth != RDMA_MAX_INIT_DEPTH) attributes->max_rd_atomic = terms.initiator_depth;
  return enter(queue_pair, *attributes, mask);
}

void apply_settings(rdma_cm_id* id, const VerbsSettings& settings) {
  // A provider without these options keeps its defaults; an operation's deadline holds all the same.
  auto timeout = static_cast<uint8_t>(std::min<uint32_t>(settings.ack_timeout, 31));
  (void)::rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
  if (settings.traffic_class) {
    auto traffic_class = static_cast<uint8_t>(*settings.traffic_class);
    (void)::rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class, sizeof(traffic_class));
  }
}

}  // namespace skua
