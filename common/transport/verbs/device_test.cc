// What the device itself refuses. Needs an RDMA device (`ctest -L rdma`).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/base/remote_memory.h"
#include "common/transport/verbs/device_testing.h"
#include "common/transport/verbs/ibv_queries.h"

namespace skua {
namespace {

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
