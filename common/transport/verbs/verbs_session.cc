#include "common/transport/verbs/verbs_session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/log.h"
#include "common/base/remote_memory.h"
#include "common/transport/descriptor.h"
#include "common/transport/verbs/explain.h"

namespace skua {
namespace {

constexpr uint64_t kSent = uint64_t{1} << 63;  // of a work request id: a reply
// A client that keeps to the window has no more replies than these under way, whose sends may not have completed here.
constexpr uint32_t kReplies = 2 * kCallWindow;
constexpr uint64_t kBufferBytes = kCallWindow * sizeof(VerbsCall) + kReplies * sizeof(VerbsReply);

}  // namespace

Result<std::unique_ptr<VerbsSession>> VerbsSession::create(rdma_cm_id* id, const TicketTable::Admitted& admitted,
                                                           bool read_only, const Terms& terms) {
  std::unique_ptr<VerbsSession> session(new VerbsSession(admitted, read_only, terms));
  if (auto made = session->make_queues(id); !made) {
    if (id->qp != nullptr) ::rdma_destroy_qp(id);
    return Error(std::move(made).error());
  }
  std::vector<MappedRegion> regions;
  for (const ExposedRegion& region : admitted.ticket.regions) {
    regions.push_back({region.key, region.data, region.bytes});
    Region& known = session->regions_[static_cast<uint64_t>(region.key)];
    known.data = region.data;
    known.bytes = region.bytes;
  }
  session->table_.assign(regions, read_only);
  return session;
}

Result<void> VerbsSession::make_queues(rdma_cm_id* id) {
  raw_id_ = id;
  const std::string device = ::ibv_get_device_name(id->verbs->device);
  iwarp_ = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
  domain_.reset(::ibv_alloc_pd(id->verbs));
  if (!domain_) return fail(StatusCode::kResourceExhausted, device + ": ibv_alloc_pd: " + errno_text(errno));
  completions_.reset(::ibv_create_cq(id->verbs, kReplies + kCallWindow + 1, this, terms_.completions, 0));
  if (!completions_) return fail(StatusCode::kResourceExhausted, device + ": ibv_create_cq: " + errno_text(errno));
  memory_ = std::make_unique<std::byte[]>(kBufferBytes);
  memory_region_.reset(ibv_reg_mr(domain_.get(), memory_.get(), kBufferBytes, kLocalWrite));
  if (!memory_region_) return Error(explain_registration(registration_facts(errno, device, kBufferBytes)));
  for (const uint32_t wanted : {uint32_t{sizeof(VerbsReply)}, uint32_t{0}}) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {kReplies, kCallWindow, 1, 1, wanted};
    if (::rdma_create_qp(id, domain_.get(), &attributes) == 0) {
      max_inline_ = attributes.cap.max_inline_data;
      break;
    }
  }
  if (id->qp == nullptr) {
    return fail(StatusCode::kResourceExhausted, device + ": no queue pair can be made: " + errno_text(errno));
  }
  for (uint32_t slot = 0; slot < terms_.window; ++slot) {
    if (!post_receive(slot)) return fail(StatusCode::kResourceExhausted, device + ": ibv_post_recv failed");
  }
  if (::ibv_req_notify_cq(completions_.get(), 0) != 0) {
    return fail(StatusCode::kResourceExhausted, device + ": ibv_req_notify_cq: " + errno_text(errno));
  }
  return {};
}

Result<void> VerbsSession::accept(const VerbsEvent& request) {
  connection_ = VerbsConnection(raw_id_);
  apply_settings(raw_id_, terms_.settings);
  ibv_device_attr device{};
  if (::ibv_query_device(raw_id_->verbs, &device) != 0) {
    return fail(StatusCode::kResourceExhausted, "ibv_query_device: " + errno_text(errno));
  }
  struct {
    DataWelcome welcome;
    VerbsTerms terms;
  } answer{make_welcome(), {terms_.atomics == VerbsAtomics::kDevice ? 1U : 0U, terms_.window, terms_.slab_bytes,
                            terms_.path_mtu, 0}};
  answer.welcome.flags = read_only_ ? kDataReadOnly : 0;
  rdma_conn_param parameters = connection_parameters(terms_.settings, device);
  // What the client asked for, as far as this device can.
  parameters.responder_resources = std::min(parameters.responder_resources, request.initiator_depth);
  parameters.initiator_depth = std::min(parameters.initiator_depth, request.responder_resources);
  parameters.private_data = &answer;
  parameters.private_data_len = sizeof(answer);
  if (terms_.path_mtu != 0) {  // librdmacm would take the connection request's
    parameters.qp_num = raw_id_->qp->qp_num;
    SKUA_RETURN_IF_ERROR(make_ready(
        raw_id_, raw_id_->qp, {terms_.path_mtu, parameters.responder_resources, parameters.initiator_depth}));
    connection_.hide_queue_pair();
  }
  const int refused = ::rdma_accept(raw_id_, &parameters);
  const int error = errno;
  connection_.show_queue_pair();
  if (refused != 0) return fail(StatusCode::kUnavailable, "rdma_accept: " + errno_text(error));
  return {};
}

void VerbsSession::end() {
  connection_.end_queue_pair();
  regions_.clear();
  memory_region_.reset();
  completions_.reset();
  domain_.reset();
  connection_.reset();
}

bool VerbsSession::post_receive(uint32_t slot) {
  ibv_sge segment{reinterpret_cast<uint64_t>(calls() + slot * sizeof(VerbsCall)), sizeof(VerbsCall),
                  memory_region_->lkey};
  ibv_recv_wr work{};
  work.wr_id = slot;
  work.sg_list = &segment;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ::ibv_post_recv(raw_id_->qp, &work, &bad) == 0;
}

bool VerbsSession::on_completion_event() {
  if (::ibv_req_notify_cq(completions_.get(), 0) != 0) return false;
  return serve();
}

bool VerbsSession::serve() {
  ibv_wc some[16];
  while (true) {
    const int count = ::ibv_poll_cq(completions_.get(), 16, some);
    if (count < 0) return false;
    if (count == 0) return true;
    for (int i = 0; i < count; ++i) {
      if (some[i].status != IBV_WC_SUCCESS) return false;
      if ((some[i].wr_id & kSent) != 0) {
        --replies_out_;
      } else if (some[i].byte_len != sizeof(VerbsCall) || !answer(static_cast<uint32_t>(some[i].wr_id))) {
        return false;
      }
    }
  }
}

// The call's buffer is posted again before the reply goes out, so that the client's next call always finds one.
bool VerbsSession::answer(uint32_t slot) {
  VerbsCall call{};
  std::memcpy(&call, calls() + slot * sizeof(call), sizeof(call));
  if (!post_receive(slot) || replies_out_ == kReplies) return false;
  const VerbsReply reply = execute(call);
  std::byte* const at = replies() + (next_reply_++ % kReplies) * sizeof(reply);
  std::memcpy(at, &reply, sizeof(reply));
  ++replies_out_;
  ibv_sge segment{reinterpret_cast<uint64_t>(at), sizeof(reply), memory_region_->lkey};
  ibv_send_wr work{};
  work.wr_id = kSent;
  work.sg_list = &segment;
  work.num_sge = 1;
  work.opcode = IBV_WR_SEND;
  work.send_flags = IBV_SEND_SIGNALED;
  if (sizeof(reply) <= max_inline_) work.send_flags |= IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  return ::ibv_post_send(raw_id_->qp, &work, &bad) == 0;
}

VerbsReply VerbsSession::execute(const VerbsCall& call) {
  if (call.kind == static_cast<uint32_t>(VerbsCallKind::kLocate)) return locate(call);
  VerbsReply reply{};
  reply.sequence = call.sequence;
  const bool compares = call.kind == static_cast<uint32_t>(VerbsCallKind::kCompareAndSwap);
  const bool adds = call.kind == static_cast<uint32_t>(VerbsCallKind::kFetchAndAdd);
  // Where the device executes atomics the CPU does not: the two would not be atomic against each other.
  if ((!compares && !adds) || terms_.atomics == VerbsAtomics::kDevice) {
    reply.status = static_cast<uint32_t>(CompletionStatus::kBadRequest);
    return reply;
  }
  const auto access = table_.resolve({compares ? Verb::kCompareAndSwap : Verb::kFetchAndAdd, RegionKey{call.key},
                                      call.offset, 8});
  reply.status = static_cast<uint32_t>(access.status);
  if (access.status != CompletionStatus::kSuccess) return reply;
  reply.value = compares ? compare_and_swap_word(access.address, {call.compare, call.swap_or_add})
                         : fetch_add_word(access.address, call.swap_or_add);
  return reply;
}

int VerbsSession::access() const {
  if (read_only_) return IBV_ACCESS_REMOTE_READ;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (terms_.atomics == VerbsAtomics::kDevice) access |= IBV_ACCESS_REMOTE_ATOMIC;
  return access;
}

VerbsReply VerbsSession::locate(const VerbsCall& call) {
  VerbsReply reply{};
  reply.sequence = call.sequence;
  const auto found = regions_.find(call.key);
  if (found == regions_.end() || call.offset % terms_.slab_bytes != 0) {
    reply.status = static_cast<uint32_t>(CompletionStatus::kRemoteAccessError);
    return reply;
  }
  Region& region = found->second;
  reply.region_bytes = region.bytes;
  if (call.offset >= region.bytes) return reply;
  const uint64_t index = call.offset / terms_.slab_bytes;
  const uint64_t bytes = std::min(terms_.slab_bytes, region.bytes - call.offset);
  if (region.slabs.size() <= index) region.slabs.resize(index + 1);
  VerbsHandle<ibv_mr>& slab = region.slabs[index];
  if (!slab) slab.reset(ibv_reg_mr(domain_.get(), region.data + call.offset, bytes, access()));
  if (!slab) {
    const Status why = explain_registration(
        registration_facts(errno, ::ibv_get_device_name(raw_id_->verbs->device), bytes));
    if (!std::exchange(registration_failed_, true)) log_error("verbs: " + why.message());
    reply.status = static_cast<uint32_t>(CompletionStatus::kPeerLost);
    return reply;
  }
  reply.value = reinterpret_cast<uint64_t>(region.data + call.offset);
  reply.rkey = slab->rkey;
  return reply;
}

}  // namespace skua
