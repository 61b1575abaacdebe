#pragma once
// Private to transport/verbs: owners of what librdmacm and libibverbs hand out, and an address for them.
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/net_address.h"
#include "common/base/status.h"

namespace skua {

// Not the enumerator: ibv_reg_mr is a macro that would mix it with another enumeration.
inline constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;

struct VerbsDeleter {
  void operator()(rdma_event_channel* channel) const { ::rdma_destroy_event_channel(channel); }
  void operator()(rdma_cm_id* id) const { ::rdma_destroy_id(id); }
  void operator()(ibv_pd* domain) const { ::ibv_dealloc_pd(domain); }
  void operator()(ibv_mr* memory) const { ::ibv_dereg_mr(memory); }
  void operator()(ibv_cq* queue) const { ::ibv_destroy_cq(queue); }
  void operator()(ibv_comp_channel* channel) const { ::ibv_destroy_comp_channel(channel); }
};
template <class T>
using VerbsHandle = std::unique_ptr<T, VerbsDeleter>;

// A queue pair and the connection it belongs to. Ending it tells the peer; when `reset` returns, no verb of the queue
// pair touches memory on this side any more.
class VerbsConnection {
 public:
  VerbsConnection() = default;
  explicit VerbsConnection(rdma_cm_id* id) : id_(id) {}
  VerbsConnection(VerbsConnection&& other) noexcept
      : id_(std::move(other.id_)), hidden_(std::exchange(other.hidden_, nullptr)) {}
  VerbsConnection& operator=(VerbsConnection&& other) noexcept {
    reset();
    id_ = std::move(other.id_);
    hidden_ = std::exchange(other.hidden_, nullptr);
    return *this;
  }
  ~VerbsConnection() { reset(); }
  void reset() {
    if (!id_) return;
    end_queue_pair();
    id_.reset();
  }
  void end_queue_pair() {
    if (!id_) return;
    show_queue_pair();
    if (id_->qp == nullptr) return;
    ::rdma_disconnect(id_.get());
    ::rdma_destroy_qp(id_.get());
  }
  rdma_cm_id* id() const { return id_.get(); }
  ibv_qp* queue_pair() const { return hidden_ != nullptr ? hidden_ : id_->qp; }
  // While it is hidden librdmacm leaves the queue pair's states to its owner (make_ready), and tells a client of the
  // server's answer with RDMA_CM_EVENT_CONNECT_RESPONSE, which rdma_establish goes on from.
  void hide_queue_pair() { hidden_ = std::exchange(id_->qp, nullptr); }
  void show_queue_pair() {
    if (hidden_ != nullptr) id_->qp = std::exchange(hidden_, nullptr);
  }
  ibv_context* context() const { return id_->verbs; }

 private:
  VerbsHandle<rdma_cm_id> id_;
  ibv_qp* hidden_ = nullptr;
};

struct VerbsSockAddr {
  sockaddr_storage bytes{};
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};
// Error: kConfiguration, the name does not resolve. `family`: AF_UNSPEC for either.
Result<VerbsSockAddr> resolve_for_verbs(const NetAddress& address);
std::string text_of(const sockaddr* address);  // without port
uint16_t port_of(const sockaddr* address);

// A channel whose events are read without waiting. Error: as explain_no_device, or kResourceExhausted.
Result<VerbsHandle<rdma_event_channel>> make_event_channel();
Result<void> make_non_blocking(int descriptor);

// A child that this process forks leaves registered pages as they are: by the kernel (5.12 and later), or by the
// library, from its first registration on.
void make_fork_safe();
// librdmacm keeps a device open that was removed, and drivers that cannot take it away from who has it open (soft-RoCE)
// wait for that. It closes those that it sees missing when it looks; it does not see that the last of all is.
void forget_removed_devices();

// One event of `channel`, already given back. False: there is none now.
struct VerbsEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  std::string private_data;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
};
bool take_event(rdma_event_channel* channel, VerbsEvent& event);
std::string event_text(const VerbsEvent& event);

// The attributes of a connection, from settings and what the device can.
rdma_conn_param connection_parameters(const struct VerbsSettings& settings, const ibv_device_attr& device);
// What this end of a connection on `id`'s port and path can carry; of iWARP 0. Error: as offered_mtu.
Result<uint32_t> offered_mtu_of(rdma_cm_id* id, const struct VerbsSettings& settings);
// The MTU that the connection request names. Error: kUnavailable.
Result<uint32_t> path_mtu_of(rdma_cm_id* id);
// RTR, then RTS, as librdmacm does it, but for the path MTU (0: the connection request's) and the depths (255: same).
struct ReadyTerms {
  uint32_t path_mtu = 0;
  uint8_t responder_resources = RDMA_MAX_RESP_RES;
  uint8_t initiator_depth = RDMA_MAX_INIT_DEPTH;
};
Result<void> make_ready(rdma_cm_id* id, ibv_qp* queue_pair, const ReadyTerms& terms);
uint32_t mtu_bytes(ibv_mtu mtu);
ibv_mtu mtu_of(uint32_t bytes);  // the largest that is no more

// Time-outs and traffic class, before a connection is begun or accepted.
void apply_settings(rdma_cm_id* id, const struct VerbsSettings& settings);

}  // namespace skua
