// What the device itself refuses: a client by hand, which keeps to none of the rules. Needs an RDMA device
// (`ctest -L rdma`).
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "common/base/remote_memory.h"
#include "common/transport/handshake.h"
#include "common/transport/verbs/ibv_queries.h"
#include "common/transport/verbs/loopback.h"
#include "common/transport/verbs/verbs.h"
#include "common/transport/verbs/verbs_handles.h"
#include "common/transport/verbs/verbs_wire.h"

namespace skua {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr uint64_t kRegionBytes = 256 << 10;
constexpr RegionKey kKey{0x51c3};
constexpr Nanoseconds kPatience = 20 * kSecond;

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

bool wait_for(const std::function<bool()>& done) {
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
  RawClient(const std::string& endpoint, const SessionTicket& ticket, bool asks_read_only = false) {
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
    expect(RDMA_CM_EVENT_ESTABLISHED);
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

  void expect(rdma_cm_event_type type) {
    VerbsEvent event;
    ASSERT_TRUE(wait_for([&] { return take_event(channel_.get(), event); }));
    EXPECT_EQ(event.type, type) << event_text(event);
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
  alignas(64) std::byte buffer_[8192] = {};
  VerbsHandle<rdma_event_channel> channel_;
  VerbsHandle<ibv_cq> completions_;
  VerbsHandle<ibv_mr> region_;
  VerbsConnection connection_;
};

class Device : public testing::TestWithParam<VerbsAtomics> {
 protected:
  void SetUp() override {
    VerbsTargetOptions options;
    options.atomics = GetParam();
    options.slab_bytes = 64 << 10;
    auto target = make_verbs_target(options, memory_.info());
    if (!target) GTEST_SKIP() << target.error().to_string();
    target_ = std::move(*target);
    bystander_ = std::make_unique<RawClient>(target_->endpoint(), admit(1000));
    const VerbsReply place = bystander_->locate();
    bystander_place_ = {place.value, place.rkey};
  }
  // Whatever was done: the server lives, and another session did not notice.
  void TearDown() override {
    if (!bystander_) return;
    EXPECT_EQ(bystander_->one_sided(IBV_WR_RDMA_READ, bystander_place_), IBV_WC_SUCCESS);
    RawClient late(target_->endpoint(), admit(1001));
    EXPECT_EQ(late.locate().status, 0U);
  }
  SessionTicket admit(uint64_t id, bool read_only = false) {
    SessionTicket ticket;
    ticket.session = SessionId{id};
    ticket.secret.assign(16, static_cast<char>(id));
    ticket.read_only = read_only;
    ticket.regions.push_back({kKey, memory_.at(0), kRegionBytes, 0});
    target_->admit(ticket);
    return ticket;
  }
  static RawClient::Place place(RawClient& client, uint64_t offset = 0) {
    const VerbsReply reply = client.locate(kKey, offset);
    EXPECT_EQ(reply.status, 0U);
    return {reply.value, reply.rkey};
  }

  Memory memory_;
  std::unique_ptr<Target> target_;
  std::unique_ptr<RawClient> bystander_;
  RawClient::Place bystander_place_{};
};

INSTANTIATE_TEST_SUITE_P(Atomics, Device, testing::Values(VerbsAtomics::kCpu, VerbsAtomics::kDevice),
                         [](const auto& test) { return test.param == VerbsAtomics::kCpu ? "cpu" : "device"; });

TEST_P(Device, WrongKeysAreRefused) {
  for (const uint32_t change : {1U, 0x100U, 0x10000U}) {
    RawClient client(target_->endpoint(), admit(1));
    RawClient::Place at = place(client);
    at.rkey ^= change;
    EXPECT_NE(client.one_sided(IBV_WR_RDMA_READ, at), IBV_WC_SUCCESS) << change;
  }
}

TEST_P(Device, AnotherSessionsKeyIsWorthless) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    RawClient client(target_->endpoint(), admit(1));
    EXPECT_NE(client.one_sided(opcode, bystander_place_), IBV_WC_SUCCESS) << opcode;
  }
  EXPECT_EQ(load_word(memory_.at(0)), 0U);
}

TEST_P(Device, RangesOutsideTheSlabAreRefused) {
  for (const uint64_t beyond : {uint64_t{64} << 10, (uint64_t{64} << 10) - 4, uint64_t{1} << 40}) {
    RawClient client(target_->endpoint(), admit(1));
    RawClient::Place at = place(client);
    at.address += beyond;
    EXPECT_NE(client.one_sided(IBV_WR_RDMA_WRITE, at), IBV_WC_SUCCESS) << beyond;
  }
  RawClient client(target_->endpoint(), admit(1));
  RawClient::Place before = place(client);
  before.address -= 8;
  EXPECT_NE(client.one_sided(IBV_WR_RDMA_READ, before), IBV_WC_SUCCESS);
}

TEST_P(Device, ReadOnlySessionCanOnlyRead) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    RawClient client(target_->endpoint(), admit(1, true));
    const RawClient::Place at = place(client);
    EXPECT_EQ(client.one_sided(IBV_WR_RDMA_READ, at), IBV_WC_SUCCESS);
    EXPECT_EQ(client.one_sided(opcode, at), IBV_WC_REM_ACCESS_ERR) << opcode;
  }
  RawClient client(target_->endpoint(), admit(1, true));
  const VerbsCall swap{static_cast<uint32_t>(VerbsCallKind::kCompareAndSwap), 0, static_cast<uint64_t>(kKey), 0, 0, 7};
  EXPECT_NE(client.call(swap).status, 0U);
  EXPECT_EQ(load_word(memory_.at(0)), 0U);
}

// The one that asks for it gets it, whatever its ticket allows.
TEST_P(Device, SessionThatAsksForReadOnlyGetsIt) {
  RawClient client(target_->endpoint(), admit(1), true);
  EXPECT_EQ(client.one_sided(IBV_WR_RDMA_WRITE, place(client)), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Device, AtomicsAreExecutedInOnePlaceAlone) {
  RawClient client(target_->endpoint(), admit(1));
  const RawClient::Place at = place(client);
  const VerbsCall swap{static_cast<uint32_t>(VerbsCallKind::kCompareAndSwap), 0, static_cast<uint64_t>(kKey), 0, 0, 7};
  const bool by_device = GetParam() == VerbsAtomics::kDevice;
  EXPECT_EQ(client.call(swap).status, by_device ? static_cast<uint32_t>(CompletionStatus::kBadRequest) : 0U);
  EXPECT_EQ(client.one_sided(IBV_WR_ATOMIC_CMP_AND_SWP, at), by_device ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Device, FencedSessionsKeyIsRevoked) {
  const SessionTicket ticket = admit(1);
  auto client = std::make_unique<RawClient>(target_->endpoint(), ticket);
  const RawClient::Place at = place(*client);
  std::atomic<bool> fenced{false};
  target_->fence(SessionId{1}, [&] { fenced = true; });
  ASSERT_TRUE(wait_for([&] { return fenced.load(); }));
  EXPECT_NE(client->one_sided(IBV_WR_RDMA_WRITE, at), IBV_WC_SUCCESS);
  RawClient again(target_->endpoint(), admit(1));
  EXPECT_NE(again.one_sided(IBV_WR_RDMA_WRITE, at), IBV_WC_SUCCESS) << "the key of before";
  EXPECT_EQ(load_word(memory_.at(0)), 0U);
}

TEST_P(Device, CallsThatAreNoneAreAnsweredOrCutOff) {
  RawClient unknown(target_->endpoint(), admit(1));
  EXPECT_EQ(unknown.call({77, 0, static_cast<uint64_t>(kKey), 0, 0, 0}).status,
            static_cast<uint32_t>(CompletionStatus::kBadRequest));
  EXPECT_EQ(unknown.locate(RegionKey{1}).status, static_cast<uint32_t>(CompletionStatus::kRemoteAccessError));
  EXPECT_EQ(unknown.locate(kKey, 12).status, static_cast<uint32_t>(CompletionStatus::kRemoteAccessError));
  EXPECT_EQ(unknown.locate(kKey, uint64_t{1} << 63).rkey, 0U);
  RawClient shorter(target_->endpoint(), admit(2));
  EXPECT_EQ(shorter.call({}, 3).status, 99U) << "a message that is no call";
}

TEST(Loopback, ServersOwnSwapIsAtomicAgainstItsClients) {
  const auto queries = make_ibv_queries();
  const auto choice = choose_device(*queries, {});
  if (!choice) GTEST_SKIP() << choice.error().to_string();
  const Memory memory;
  VerbsTargetOptions options;
  options.atomics = VerbsAtomics::kDevice;
  auto target = make_verbs_target(options, memory.info());
  ASSERT_TRUE(target) << target.error().to_string();
  ASSERT_NE((*target)->atomics(), nullptr);
  SessionTicket ticket;
  ticket.session = SessionId{1};
  ticket.secret.assign(16, 's');
  ticket.regions.push_back({kKey, memory.at(0), kRegionBytes, 0});
  (*target)->admit(ticket);
  const auto connector = make_verbs_connector({}, system_clock());
  ConnectTarget to;
  to.address = (*target)->endpoint();
  to.session = ticket.session;
  to.secret = ticket.secret;
  to.response_timeout = kPatience;
  auto queue_pair = connector->connect(to);
  ASSERT_TRUE(queue_pair) << queue_pair.error().to_string();
  ASSERT_TRUE(wait_for([&] {
    (*queue_pair)->poll({});
    return (*queue_pair)->state() != QueuePairState::kConnecting;
  }));
  constexpr uint64_t kRounds = 500;
  std::thread server([&] {
    uint64_t expected = 0;
    for (uint64_t done = 0; done < kRounds;) {
      const auto found = (*target)->atomics()->compare_and_swap(memory.at(64), expected, expected + 1);
      if (!found) return;
      done += *found == expected ? 1 : 0;
      expected = *found == expected ? expected + 1 : *found;
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    uint64_t before = 0;
    WorkRequest add;
    add.verb = Verb::kFetchAndAdd;
    add.key = kKey;
    add.remote_offset = 64;
    add.local_count = 1;
    add.local[0] = {&before, 8};
    add.swap_or_add = 1;
    ASSERT_EQ((*queue_pair)->post(std::span(&add, 1)), 1U);
    Completion completion{};
    ASSERT_TRUE(wait_for([&] { return (*queue_pair)->poll(std::span(&completion, 1)) == 1; }));
    ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
  }
  server.join();
  EXPECT_EQ(load_word(memory.at(64)), 2 * kRounds);
}

}  // namespace
}  // namespace skua
