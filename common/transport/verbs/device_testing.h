#pragma once
// For tests on a device: memory to serve, and a client by hand, which keeps to none of the rules.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/transport/handshake.h"
#include "common/transport/target.h"
#include "common/transport/verbs/verbs.h"
#include "common/transport/verbs/verbs_handles.h"
#include "common/transport/verbs/verbs_wire.h"

namespace skua {

inline constexpr uint64_t kBytes = 1 << 20;
inline constexpr uint64_t kRegionBytes = 256 << 10;
inline constexpr RegionKey kKey{0x51c3};
inline constexpr Nanoseconds kPatience = 20 * kSecond;

// Shared memory as a server's arena is.
class Memory {
 public:
  Memory() : data_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~Memory() { ::munmap(data_, kBytes); }
  ArenaInfo info() const { return {static_cast<std::byte*>(data_), kBytes, -1}; }
  std::byte* at(uint64_t offset) const { return static_cast<std::byte*>(data_) + offset; }

 private:
  void* data_;
};

inline bool wait_for(const std::function<bool()>& done) {
  const Nanoseconds end = system_clock().now() + kPatience;
  while (!done()) {
    if (system_clock().now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// Synchronous on purpose: one verb, one completion.
class RawClient {
 public:
  // `expected`: what the server's answer is.
  RawClient(const std::string& endpoint, const SessionTicket& ticket, bool asks_read_only = false,
            rdma_cm_event_type expected = RDMA_CM_EVENT_ESTABLISHED) {
    ConnectTarget target;
    target.session = ticket.session;
    target.secret = ticket.secret;
    target.read_only = asks_read_only;
    hello_ = *make_hello(target);
    channel_ = std::move(*make_event_channel());
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(::rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP), 0);
    connection_ = VerbsConnection(id);
    VerbsSockAddr peer = *resolve_for_verbs(*parse_net_address(endpoint));
    EXPECT_EQ(::rdma_resolve_addr(id, nullptr, peer.get(), 2000), 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(::rdma_resolve_route(id, 2000), 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    completions_.reset(::ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0));
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {8, 8, 1, 1, 0};
    EXPECT_EQ(::rdma_create_qp(id, nullptr, &attributes), 0);
    region_.reset(ibv_reg_mr(id->qp->pd, buffer_, sizeof(buffer_), kLocalWrite));
    receive();
    ibv_device_attr device{};
    EXPECT_EQ(::ibv_query_device(id->verbs, &device), 0);
    rdma_conn_param parameters = connection_parameters(VerbsSettings{}, device);
    parameters.private_data = &hello_;
    parameters.private_data_len = sizeof(hello_);
    EXPECT_EQ(::rdma_connect(id, &parameters), 0);
    answer_ = expect(expected);
  }
  ~RawClient() {
    connection_.end_queue_pair();
    completions_.reset();
    region_.reset();
    connection_.reset();
  }

  VerbsReply call(const VerbsCall& call, uint32_t bytes = sizeof(VerbsCall)) {
    std::memcpy(buffer_, &call, sizeof(call));
    ibv_send_wr work{};
    work.opcode = IBV_WR_SEND;
    EXPECT_EQ(run(work, bytes), IBV_WC_SUCCESS);
    ibv_wc completion{};
    VerbsEvent event;
    bool cut_off = false;
    EXPECT_TRUE(wait_for([&] {
      cut_off = take_event(channel_.get(), event) && event.type == RDMA_CM_EVENT_DISCONNECTED;
      return cut_off || ::ibv_poll_cq(completions_.get(), 1, &completion) == 1;
    }));
    VerbsReply reply{};
    if (cut_off || completion.status != IBV_WC_SUCCESS) {
      reply.status = 99;  // cut off
      return reply;
    }
    std::memcpy(&reply, buffer_ + kReplyAt, sizeof(reply));
    receive();
    return reply;
  }
  VerbsReply locate(RegionKey key = kKey, uint64_t offset = 0) {
    return call({static_cast<uint32_t>(VerbsCallKind::kLocate), 0, static_cast<uint64_t>(key), offset, 0, 0});
  }

  // Calls whose answers find no buffer. True: the connection ended with that.
  bool calls_without_receives(int count) {
    const VerbsCall call{static_cast<uint32_t>(VerbsCallKind::kLocate), 0, static_cast<uint64_t>(kKey), 0, 0, 0};
    std::memcpy(buffer_, &call, sizeof(call));
    for (int i = 0; i < count; ++i) {
      ibv_sge segment{reinterpret_cast<uint64_t>(buffer_), sizeof(call), region_->lkey};
      ibv_send_wr work{};
      work.opcode = IBV_WR_SEND;
      work.sg_list = &segment;
      work.num_sge = 1;
      ibv_send_wr* bad = nullptr;
      if (::ibv_post_send(connection_.queue_pair(), &work, &bad) != 0) break;
    }
    VerbsEvent event;
    return wait_for([&] { return take_event(channel_.get(), event) && event.type == RDMA_CM_EVENT_DISCONNECTED; });
  }

  const std::string& answer() const { return answer_; }

  struct Place {
    uint64_t address;
    uint32_t rkey;
  };
  ibv_wc_status one_sided(ibv_wr_opcode opcode, const Place& place, uint32_t bytes = 8) {
    ibv_send_wr work{};
    work.opcode = opcode;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      work.wr.atomic = {place.address, 0, 77, place.rkey};
    } else {
      work.wr.rdma = {place.address, place.rkey};
    }
    return run(work, bytes);
  }

 private:
  static constexpr size_t kReplyAt = 4096;

  std::string expect(rdma_cm_event_type type) {
    VerbsEvent event;
    EXPECT_TRUE(wait_for([&] { return take_event(channel_.get(), event); }));
    EXPECT_EQ(event.type, type) << event_text(event);
    return event.private_data;
  }
  void receive() {
    ibv_sge segment{reinterpret_cast<uint64_t>(buffer_ + kReplyAt), sizeof(VerbsReply), region_->lkey};
    ibv_recv_wr work{};
    work.sg_list = &segment;
    work.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(::ibv_post_recv(connection_.queue_pair(), &work, &bad), 0);
  }
  ibv_wc_status run(ibv_send_wr& work, uint32_t bytes) {
    ibv_sge segment{reinterpret_cast<uint64_t>(buffer_), bytes, region_->lkey};
    work.sg_list = &segment;
    work.num_sge = 1;
    work.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    if (::ibv_post_send(connection_.queue_pair(), &work, &bad) != 0) return IBV_WC_GENERAL_ERR;
    ibv_wc completion{};
    EXPECT_TRUE(wait_for([&] { return ::ibv_poll_cq(completions_.get(), 1, &completion) == 1; }));
    return completion.status;
  }

  DataHello hello_{};
  std::string answer_;
  alignas(64) std::byte buffer_[8192] = {};
  VerbsHandle<rdma_event_channel> channel_;
  VerbsHandle<ibv_cq> completions_;
  VerbsHandle<ibv_mr> region_;
  VerbsConnection connection_;
};

}  // namespace skua
