#include "common/transport/verbs/loopback.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/transport/descriptor.h"
#include "common/transport/verbs/explain.h"

namespace skua {
namespace {

constexpr Nanoseconds kPatience = 2 * kSecond;  // longer than the device's own retries

}  // namespace

Result<std::unique_ptr<VerbsLoopback>> VerbsLoopback::create(ibv_context* context, const DeviceChoice& choice,
                                                             const ArenaInfo& arena, uint64_t slab_bytes) {
  std::unique_ptr<VerbsLoopback> loopback(new VerbsLoopback(arena, slab_bytes));
  SKUA_RETURN_IF_ERROR(loopback->make_queues(context));
  SKUA_RETURN_IF_ERROR(loopback->connect(choice));
  return loopback;
}

Result<void> VerbsLoopback::make_queues(ibv_context* context) {
  domain_.reset(::ibv_alloc_pd(context));
  completions_.reset(::ibv_create_cq(context, 2, nullptr, nullptr, 0));
  if (!domain_ || !completions_) {
    return fail(StatusCode::kResourceExhausted, "loopback queue pair: " + errno_text(errno));
  }
  found_region_.reset(ibv_reg_mr(domain_.get(), &found_, sizeof(found_), kLocalWrite));
  if (!found_region_) {
    return Error(explain_registration(
        registration_facts(errno, ::ibv_get_device_name(context->device), sizeof(found_))));
  }
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {1, 1, 1, 1, 0};
  queue_pair_.reset(::ibv_create_qp(domain_.get(), &attributes));
  if (!queue_pair_) return fail(StatusCode::kResourceExhausted, "loopback queue pair: " + errno_text(errno));
  return {};
}

Result<void> VerbsLoopback::enter_state(ibv_qp_attr& attributes, int mask, const char* name) {
  const int error = ::ibv_modify_qp(queue_pair_.get(), &attributes, mask | IBV_QP_STATE);
  if (error == 0) return {};
  return fail(StatusCode::kConfiguration, std::string("loopback queue pair cannot become ") + name + ": " +
                                              errno_text(error) + "; use --rdma-atomics cpu");
}

Result<void> VerbsLoopback::connect(const DeviceChoice& choice) {
  ibv_port_attr port{};
  if (ibv_query_port(queue_pair_->context, static_cast<uint8_t>(choice.port), &port) != 0) {
    return fail(StatusCode::kConfiguration, "loopback queue pair: ibv_query_port: " + errno_text(errno));
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<uint8_t>(choice.port);
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_ATOMIC;
  SKUA_RETURN_IF_ERROR(enter_state(attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT"));

  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_of(choice.mtu);
  attributes.dest_qp_num = queue_pair_->qp_num;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.port_num = static_cast<uint8_t>(choice.port);
  attributes.ah_attr.dlid = port.lid;
  attributes.ah_attr.is_global = choice.link == VerbsLink::kInfiniBand ? 0 : 1;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, choice.gid.data(), choice.gid.size());
  attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(choice.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  SKUA_RETURN_IF_ERROR(enter_state(attributes, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                                   "RTR"));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 6;
  attributes.rnr_retry = 6;
  attributes.max_rd_atomic = 1;
  return enter_state(attributes, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                     IBV_QP_MAX_QP_RD_ATOMIC,
                     "RTS");
}

ibv_mr* VerbsLoopback::slab_of(const std::byte* word) {
  const uint64_t index = static_cast<uint64_t>(word - arena_.data) / slab_bytes_;
  VerbsHandle<ibv_mr>& slab = slabs_[index];
  if (!slab) {
    const uint64_t begin = index * slab_bytes_;
    const uint64_t bytes = std::min(slab_bytes_, arena_.bytes - begin);
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    slab.reset(ibv_reg_mr(domain_.get(), arena_.data + begin, bytes, kAccess));
    if (!slab) {
      fail_once(explain_registration(registration_facts(
                    errno, ::ibv_get_device_name(queue_pair_->context->device), bytes)).message());
    }
  }
  return slab.get();
}

// Nothing is executed any more: what the device may have done or not cannot be told from what it did not.
std::optional<uint64_t> VerbsLoopback::fail_once(const std::string& why) {
  if (!failed_) log_error("verbs: the server's own CAS failed, memory is no longer reclaimed: " + why);
  failed_ = true;
  return std::nullopt;
}

std::optional<uint64_t> VerbsLoopback::compare_and_swap(std::byte* word, uint64_t compare, uint64_t swap) {
  if (failed_) return std::nullopt;
  const ibv_mr* const slab = slab_of(word);
  if (slab == nullptr) return std::nullopt;
  ibv_sge segment{reinterpret_cast<uint64_t>(&found_), sizeof(found_), found_region_->lkey};
  ibv_send_wr work{};
  work.sg_list = &segment;
  work.num_sge = 1;
  work.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(word);
  work.wr.atomic.rkey = slab->rkey;
  work.wr.atomic.compare_add = compare;
  work.wr.atomic.swap = swap;
  ibv_send_wr* bad = nullptr;
  if (const int error = ::ibv_post_send(queue_pair_.get(), &work, &bad); error != 0) {
    return fail_once("ibv_post_send: " + errno_text(error > 0 ? error : errno));
  }
  const Nanoseconds end = system_clock().now() + kPatience;
  ibv_wc completion{};
  int count = 0;
  while ((count = ::ibv_poll_cq(completions_.get(), 1, &completion)) == 0) {
    if (system_clock().now() > end) return fail_once("no completion");
  }
  if (count < 0 || completion.status != IBV_WC_SUCCESS) {
    return fail_once(count < 0 ? "ibv_poll_cq" : ::ibv_wc_status_str(completion.status));
  }
  return found_;
}

}  // namespace skua
