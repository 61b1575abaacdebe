// How two ends find together, and what ends a connection. Needs an RDMA device (`ctest -L rdma`).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "common/transport/verbs/device_testing.h"
#include "common/transport/verbs/ibv_queries.h"
#include "common/transport/verbs/verbs_queue_pair.h"

namespace skua {
namespace {

using testing::HasSubstr;

class Connection : public testing::Test {
 protected:
  void serve(const VerbsSettings& settings) {
    VerbsTargetOptions options;
    options.settings = settings;
    auto target = make_verbs_target(options, memory_.info());
    if (!target) GTEST_SKIP() << target.error().to_string();
    target_ = std::move(*target);
    ticket_.session = SessionId{1};
    ticket_.secret.assign(16, 's');
    ticket_.regions.push_back({kKey, memory_.at(0), kRegionBytes, 0});
    target_->admit(ticket_);
  }
  // Connected, or in kError.
  std::unique_ptr<QueuePair> connect(const VerbsSettings& settings) {
    connector_ = make_verbs_connector(settings, system_clock());
    ConnectTarget to;
    to.address = target_->endpoint();
    to.session = ticket_.session;
    to.secret = ticket_.secret;
    to.response_timeout = kPatience;
    auto made = connector_->connect(to);
    if (!made) ADD_FAILURE() << made.error().to_string();
    if (!made) return nullptr;
    EXPECT_TRUE(wait_for([&] {
      (*made)->poll({});
      return (*made)->state() != QueuePairState::kConnecting;
    }));
    return std::move(*made);
  }
  static uint32_t mtu_of(const QueuePair& queue_pair) {
    return static_cast<const VerbsQueuePair&>(queue_pair).path_mtu();
  }
  static CompletionStatus run(QueuePair& queue_pair, const WorkRequest& request) {
    EXPECT_EQ(queue_pair.post(std::span(&request, 1)), 1U);
    Completion completion{};
    EXPECT_TRUE(wait_for([&] { return queue_pair.poll(std::span(&completion, 1)) == 1; }));
    return completion.status;
  }
  // All of the region, there and back.
  void expect_transfers(QueuePair& queue_pair) {
    std::vector<std::byte> sent(kRegionBytes);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 + i / 251);
    std::vector<std::byte> got(kRegionBytes);
    WorkRequest request;
    request.verb = Verb::kWrite;
    request.key = kKey;
    request.local_count = 1;
    request.local[0] = {sent.data(), static_cast<uint32_t>(sent.size())};
    EXPECT_EQ(run(queue_pair, request), CompletionStatus::kSuccess);
    request.verb = Verb::kRead;
    request.local[0] = {got.data(), static_cast<uint32_t>(got.size())};
    EXPECT_EQ(run(queue_pair, request), CompletionStatus::kSuccess);
    EXPECT_TRUE(sent == got);
  }

  Memory memory_;
  SessionTicket ticket_;
  std::unique_ptr<Target> target_;
  std::unique_ptr<Connector> connector_;
};

VerbsSettings with_mtu(uint32_t bytes) {
  VerbsSettings settings;
  settings.path_mtu = bytes;
  return settings;
}

struct MtuCase {
  uint32_t server;
  uint32_t client;
};
class ConnectionMtu : public Connection, public testing::WithParamInterface<MtuCase> {};

INSTANTIATE_TEST_SUITE_P(Wishes, ConnectionMtu,
                         testing::Values(MtuCase{1024, 0}, MtuCase{0, 512}, MtuCase{256, 1024}, MtuCase{1024, 256}),
                         [](const auto& test) {
                           return std::to_string(test.param.server) + "_" + std::to_string(test.param.client);
                         });

TEST_P(ConnectionMtu, SmallerWishIsUsedByBothEnds) {
  const auto [server, client] = GetParam();
  serve(with_mtu(server));
  if (IsSkipped()) return;
  const auto queue_pair = connect(with_mtu(client));
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  const uint32_t expected = server == 0 || (client != 0 && client < server) ? client : server;
  EXPECT_EQ(mtu_of(*queue_pair), expected);
  expect_transfers(*queue_pair);
}

TEST_F(Connection, MtuWithoutAWishIsThePorts) {
  serve({});
  if (IsSkipped()) return;
  const auto queue_pair = connect({});
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  EXPECT_EQ(mtu_of(*queue_pair), 4096U) << "the machine's network interface has an MTU of 4,200";
  expect_transfers(*queue_pair);
}

TEST_F(Connection, ClientThatSaysNoMtuIsRefusedWhereItsPathIsLarger) {
  serve(with_mtu(1024));
  if (IsSkipped()) return;
  RawClient client(target_->endpoint(), ticket_, false, RDMA_CM_EVENT_REJECTED);
  EXPECT_THAT(client.answer(), HasSubstr("client 4096, server 1024"));
}

TEST_F(Connection, QueuePairThatFailsEndsWithinASecondAndAnotherWorks) {
  serve({});
  if (IsSkipped()) return;
  const auto queue_pair = connect({});
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;  // as the device does when it breaks
  ASSERT_EQ(::ibv_modify_qp(static_cast<VerbsQueuePair&>(*queue_pair).of_device(), &attributes, IBV_QP_STATE), 0);
  uint64_t value = 0;
  WorkRequest read;
  read.key = kKey;
  read.local_count = 1;
  read.local[0] = {&value, sizeof(value)};
  const Nanoseconds begin = system_clock().now();
  EXPECT_NE(run(*queue_pair, read), CompletionStatus::kSuccess);
  EXPECT_LT(system_clock().now() - begin, kSecond);
  EXPECT_EQ(queue_pair->state(), QueuePairState::kError);
  const auto another = connect({});
  ASSERT_EQ(another->state(), QueuePairState::kReady) << another->error().to_string();
  expect_transfers(*another);
}

// Messages that found no buffer at the receiver, as the device counts them.
uint64_t receiver_not_ready() {
  const auto queries = make_ibv_queries();
  const auto choice = choose_device(*queries, {});
  uint64_t sum = 0;
  for (const char* const name : {"rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err", "rnr_nak_retry_err"}) {
    uint64_t count = 0;
    if (choice) {
      std::ifstream("/sys/class/infiniband/" + choice->device + "/ports/" + std::to_string(choice->port) +
                    "/hw_counters/" + name) >> count;
    }
    sum += count;
  }
  return sum;
}

struct Window {
  uint32_t server;
  uint32_t client;
};
class ConnectionWindow : public Connection, public testing::WithParamInterface<Window> {};

INSTANTIATE_TEST_SUITE_P(Windows, ConnectionWindow,
                         testing::Values(Window{1, 64}, Window{64, 1}, Window{3, 2}, Window{64, 64}),
                         [](const auto& test) {
                           return std::to_string(test.param.server) + "_" + std::to_string(test.param.client);
                         });

// More calls than the window holds wait here: none is sent to a side without a buffer for it, nor answered to one.
TEST_P(ConnectionWindow, CallsBeyondItWaitAndFindABufferEach) {
  VerbsSettings of_server;
  of_server.message_window = GetParam().server;
  VerbsSettings of_client;
  of_client.message_window = GetParam().client;
  serve(of_server);
  if (IsSkipped()) return;
  const uint64_t before = receiver_not_ready();
  const auto queue_pair = connect(of_client);
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  constexpr size_t kCalls = 500;
  std::vector<uint64_t> found(kCalls);
  std::vector<WorkRequest> requests(kCalls);
  for (size_t i = 0; i < kCalls; ++i) {
    requests[i].verb = Verb::kFetchAndAdd;
    requests[i].key = kKey;
    requests[i].local_count = 1;
    requests[i].local[0] = {&found[i], 8};
    requests[i].swap_or_add = 1;
  }
  size_t posted = 0;
  size_t done = 0;
  EXPECT_TRUE(wait_for([&] {
    posted += queue_pair->post(std::span(requests).subspan(posted));
    Completion completions[16];
    done += queue_pair->poll(completions);
    return done == kCalls || queue_pair->state() == QueuePairState::kError;
  }));
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  for (size_t i = 0; i < kCalls; ++i) ASSERT_EQ(found[i], i);
  EXPECT_EQ(receiver_not_ready(), before);
}

// The server's answers are not taken: its session ends with that, and nobody else's.
TEST_F(Connection, ClientThatTakesNoAnswersEndsAlone) {
  serve({});
  if (IsSkipped()) return;
  SessionTicket deaf = ticket_;
  deaf.session = SessionId{2};
  target_->admit(deaf);
  RawClient client(target_->endpoint(), deaf);
  const auto queue_pair = connect({});
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  EXPECT_TRUE(client.calls_without_receives(8));
  EXPECT_TRUE(wait_for([&] { return target_->connections() == 1; }));
  expect_transfers(*queue_pair);
}

}  // namespace
}  // namespace skua
