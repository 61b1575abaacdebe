// Peers that do not keep to the protocol: they are told why and cut off, and the others notice nothing.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>

#include "common/base/net_address.h"
#include "common/transport/handshake.h"
#include "common/transport/tcp/tcp.h"
#include "common/transport/tcp/wire.h"
#include "proto/version.h"
#include "tests/conformance/harness.h"

namespace skua::conformance {
namespace {

constexpr RegionKey kKey{0x51c3};
constexpr size_t kLimit = 3;  // connections

class Hostile : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { start(5 * kSecond); }
  // Everyone else is still served.
  void TearDown() override {
    if (target_ != nullptr) expect_served();
  }

  void start(Nanoseconds first_message_timeout) {
    target_.reset();
    auto target = fixture_->make_target({64, first_message_timeout}, arena_.info());
    ASSERT_TRUE(target) << target.error().to_string();
    target_ = std::move(*target);
  }
  Session session(uint64_t id) {
    Session made = make_session(id, arena_, {{kKey, 0, 96 * kMiB}});
    made.target.address = target_->endpoint();
    target_->admit(made.ticket);
    return made;
  }
  void expect_served() {
    auto queue_pair = connector_->connect(session(1000).target);
    ASSERT_TRUE(queue_pair);
    ASSERT_EQ(settle(**queue_pair), QueuePairState::kReady) << (*queue_pair)->error().to_string();
    uint64_t value = 0;
    EXPECT_EQ(run_one(**queue_pair, read_request({kKey, 0}, &value, 8)), CompletionStatus::kSuccess);
  }
  Descriptor open() {
    Descriptor socket = fixture_->open_socket(target_->endpoint());
    EXPECT_TRUE(socket);
    return socket;
  }
  static void send_bytes(const Descriptor& socket, const void* data, size_t bytes) {
    ASSERT_EQ(::send(socket.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  // All until the peer closes.
  static std::string receive_all(const Descriptor& socket) {
    std::string all;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = ::recv(socket.get(), buffer, sizeof(buffer), 0)) > 0) all.append(buffer, static_cast<size_t>(got));
    EXPECT_EQ(got, 0) << "closed in order, neither reset nor left open: " << std::strerror(errno);
    return all;
  }
  template <class Message>
  static Message receive(const Descriptor& socket) {
    Message message{};
    EXPECT_EQ(::recv(socket.get(), &message, sizeof(message), MSG_WAITALL), static_cast<ssize_t>(sizeof(message)));
    return message;
  }
  static void expect_refusal(const Descriptor& socket, StatusCode code, std::string_view reason) {
    const std::string answer = receive_all(socket);
    DataWelcome welcome{};
    ASSERT_GE(answer.size(), sizeof(welcome));
    std::memcpy(&welcome, answer.data(), sizeof(welcome));
    EXPECT_EQ(welcome.magic, proto::kDataMagic);
    EXPECT_EQ(welcome.status, static_cast<uint32_t>(code));
    EXPECT_EQ(answer.size(), sizeof(welcome) + welcome.reason_bytes);
    EXPECT_NE(answer.find(reason), std::string::npos) << answer.substr(sizeof(welcome));
  }
  void expect_limit_is_told() {
    target_.reset();
    auto target = fixture_->make_target({kLimit * 2, 5 * kSecond}, arena_.info());
    ASSERT_TRUE(target);
    target_ = std::move(*target);
    std::vector<std::unique_ptr<QueuePair>> open_ones;
    for (uint64_t id = 1; id <= kLimit * 2; ++id) {
      auto queue_pair = connector_->connect(session(id).target);
      ASSERT_TRUE(queue_pair);
      ASSERT_EQ(settle(**queue_pair), QueuePairState::kReady) << (*queue_pair)->error().to_string();
      open_ones.push_back(std::move(*queue_pair));
    }
    auto refused = connector_->connect(session(99).target);
    ASSERT_TRUE(refused);
    ASSERT_EQ(settle(**refused), QueuePairState::kError);
    EXPECT_EQ((*refused)->error().code(), StatusCode::kResourceExhausted) << (*refused)->error().to_string();
    refused->reset();
    open_ones.clear();
    poll_until([&] { return target_->connections() == 0; });
  }
  DataHello hello(uint64_t id) { return *make_hello(session(id).target); }

  const std::unique_ptr<Fixture> fixture_ = make_fixture(GetParam());
  Arena arena_{96 * kMiB};
  std::unique_ptr<Target> target_;
  const std::unique_ptr<Connector> connector_ = fixture_->make_connector(system_clock());
};

INSTANTIATE_TEST_SUITE_P(Transport, Hostile, testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Hostile, OtherVersionIsToldBoth) {
  DataHello message = hello(1);
  message.version = proto::kDataVersion + 1;
  const Descriptor socket = open();
  send_bytes(socket, &message, sizeof(message));
  expect_refusal(socket, StatusCode::kIncompatible,
                 "client speaks data version " + std::to_string(proto::kDataVersion + 1) + ", server " +
                     std::to_string(proto::kDataVersion));
}

TEST_P(Hostile, OtherProtocolIsRefusedByItsFirstBytes) {
  const Descriptor socket = open();
  send_bytes(socket, "GET / HTTP/1.1\r\n", 16);
  expect_refusal(socket, StatusCode::kIncompatible, "magic");
}

TEST_P(Hostile, HalfAHelloAndSilenceIsClosed) {
  start(50 * kMillisecond);
  const DataHello message = hello(1);
  const Descriptor half = open();
  send_bytes(half, &message, 20);
  const Descriptor silent = open();
  EXPECT_EQ(receive_all(half), "");
  EXPECT_EQ(receive_all(silent), "");
}

TEST_P(Hostile, ConnectionsOverTheLimitAreToldSo) { expect_limit_is_told(); }

TEST_P(Hostile, FloodOfConnectionsThatEndAtOnce) {
  for (int i = 0; i < 300; ++i) {
    const Descriptor socket = open();
    if (i % 2 == 0) send_bytes(socket, "x", 1);
  }
}

// --- Where the handshake is no byte stream: limits alone ----------------------------------------------------------

class HostileConnections : public Hostile {
 protected:
  void SetUp() override {
    if (!fixture_->missing().empty()) GTEST_SKIP() << fixture_->missing();
    Hostile::SetUp();
  }
};

INSTANTIATE_TEST_SUITE_P(Transport, HostileConnections, testing::Values("verbs", "verbs_nic"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(HostileConnections, OverTheLimitAreToldSo) { expect_limit_is_told(); }

// --- Only where requests travel -----------------------------------------------------------------------------------

class HostileRequests : public Hostile {
 protected:
  Descriptor open_admitted(uint64_t id) {
    Descriptor socket = open();
    const DataHello message = hello(id);
    send_bytes(socket, &message, sizeof(message));
    EXPECT_EQ(receive<DataWelcome>(socket).status, 0U);
    return socket;
  }
  static WireRequest request(Verb verb, uint64_t bytes) {
    WireRequest made{};
    made.verb = static_cast<uint8_t>(verb);
    made.bytes = bytes;
    made.key = static_cast<uint64_t>(kKey);
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(Transport, HostileRequests, testing::Values("tcp"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(HostileRequests, ClaimOfTwoToThe63BytesIsAnsweredAndClosed) {
  for (const Verb verb : {Verb::kRead, Verb::kWrite, Verb::kCompareAndSwap}) {
    const Descriptor socket = open_admitted(1);
    const WireRequest message = request(verb, uint64_t{1} << 63);
    send_bytes(socket, &message, sizeof(message));
    send_bytes(socket, std::string(1000, 'x').data(), 1000);
    const auto answer = receive<WireResponse>(socket);
    EXPECT_EQ(answer.status, static_cast<uint32_t>(CompletionStatus::kBadRequest));
    EXPECT_EQ(answer.bytes, 0U);
    EXPECT_EQ(receive_all(socket), "") << "nothing behind a failed request is answered";
  }
}

TEST_P(HostileRequests, UnknownVerbIsAnsweredAndClosed) {
  const Descriptor socket = open_admitted(1);
  const std::string garbage(4800, '\xff');
  send_bytes(socket, garbage.data(), garbage.size());
  EXPECT_EQ(receive<WireResponse>(socket).status, static_cast<uint32_t>(CompletionStatus::kBadRequest));
  EXPECT_EQ(receive_all(socket), "");
}

TEST_P(HostileRequests, HalfARequestAndSilenceIsClosed) {
  start(50 * kMillisecond);
  const Descriptor header = open_admitted(1);
  const Descriptor payload = open_admitted(2);
  const Descriptor idle = open_admitted(3);
  const WireRequest message = request(Verb::kWrite, 100);
  send_bytes(header, &message, 30);
  send_bytes(payload, &message, sizeof(message));
  send_bytes(payload, "only some", 9);
  EXPECT_EQ(receive_all(header), "");
  EXPECT_EQ(receive_all(payload), "");
  const WireRequest add = request(Verb::kFetchAndAdd, 8);
  send_bytes(idle, &add, sizeof(add));
  EXPECT_EQ(receive<WireResponse>(idle).status, 0U) << "between requests a connection may be silent";
}

TEST_P(HostileRequests, RequestsArriveByteByByte) {
  const Descriptor socket = open_admitted(1);
  std::string stream;
  const WireRequest write = request(Verb::kWrite, 13);
  stream.append(reinterpret_cast<const char*>(&write), sizeof(write));
  stream += "thirteen byte";
  const WireRequest read = request(Verb::kRead, 13);
  stream.append(reinterpret_cast<const char*>(&read), sizeof(read));
  for (const char& byte : stream) send_bytes(socket, &byte, 1);
  EXPECT_EQ(receive<WireResponse>(socket).status, 0U);
  EXPECT_EQ(receive<WireResponse>(socket).bytes, 13U);
  char got[13];
  ASSERT_EQ(::recv(socket.get(), got, sizeof(got), MSG_WAITALL), 13);
  EXPECT_EQ(std::string(got, 13), "thirteen byte");
}

TEST_P(HostileRequests, PeerThatDoesNotReadHoldsUpNobody) {
  std::vector<Descriptor> sockets;
  for (uint64_t id = 1; id <= 4; ++id) {
    sockets.push_back(open_admitted(id));
    const WireRequest large = request(Verb::kRead, 64 * kMiB);
    const WireRequest small = request(Verb::kRead, 8192);
    for (int i = 0; i < 200; ++i) send_bytes(sockets.back(), id % 2 == 0 ? &large : &small, sizeof(large));
  }
  expect_served();
}

TEST_P(HostileRequests, FencedWhileItDoesNotRead) {
  const Descriptor socket = open_admitted(1);
  const WireRequest large = request(Verb::kRead, 64 * kMiB);
  for (int i = 0; i < 200; ++i) send_bytes(socket, &large, sizeof(large));
  std::atomic<bool> fenced{false};
  target_->fence(SessionId{1}, [&] { fenced = true; });
  poll_until([&] { return fenced.load(); });
}

// --- Listeners ----------------------------------------------------------------------------------------------------

TEST(TcpListener, PortInUseNamesListenerAddressErrnoAndRemedy) {
  const Arena arena(kMiB);
  TcpTargetOptions options;
  const auto first = make_tcp_target(options, arena.info());
  ASSERT_TRUE(first);
  options.listen = *parse_net_address((*first)->endpoint());
  EXPECT_NE(options.listen.port, 0);
  options.listener_name = "data listener";
  const auto second = make_tcp_target(options, arena.info());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), StatusCode::kConfiguration);
  for (const std::string& part : {std::string("data listener"), (*first)->endpoint(), std::string("EADDRINUSE"),
                                  std::string("port 0")}) {
    EXPECT_NE(second.error().message().find(part), std::string::npos) << second.error().to_string();
  }
}

TEST(TcpListener, PortIsFreeAgainAtOnceAfterConnectionsWereCutOff) {
  const Arena arena(kMiB);
  TcpTargetOptions options;
  const auto fixture = make_fixture("tcp");
  for (int i = 0; i < 3; ++i) {
    auto target = make_tcp_target(options, arena.info());
    ASSERT_TRUE(target) << target.error().to_string();
    options.listen = *parse_net_address((*target)->endpoint());
    const Descriptor socket = fixture->open_socket((*target)->endpoint());
    send(socket.get(), "nonsense", 8, MSG_NOSIGNAL);
    char byte = 0;
    EXPECT_EQ(::recv(socket.get(), &byte, 1, 0), 1) << "the server closes first, and keeps TIME_WAIT";
    target->reset();
  }
}

TEST(TcpListener, AddressThatIsNotThisHostsIsNamed) {
  const Arena arena(kMiB);
  TcpTargetOptions options;
  options.listen = {"192.0.2.1", 0};
  const auto target = make_tcp_target(options, arena.info());
  ASSERT_FALSE(target);
  for (const char* part : {"EADDRNOTAVAIL", "errno 99", "an address of this host", "--data-listen"}) {
    EXPECT_NE(target.error().message().find(part), std::string::npos) << target.error().to_string();
  }
}

TEST(TcpListener, AdvertisedHostIsWhatTheEndpointSays) {
  const Arena arena(kMiB);
  TcpTargetOptions options;
  options.listen = {"0.0.0.0", 0};
  options.advertise_host = "127.0.0.1";
  const auto target = make_tcp_target(options, arena.info());
  ASSERT_TRUE(target);
  EXPECT_EQ(parse_net_address((*target)->endpoint())->host, "127.0.0.1");
}

TEST(TcpListener, ThreadThatSpinsServesAndFences) {
  const Arena arena(kMiB);
  TcpTargetOptions options;
  options.spin_time = kMillisecond;
  auto target = make_tcp_target(options, arena.info());
  ASSERT_TRUE(target);
  Session session = make_session(1, arena, {{kKey, 0, kMiB}});
  session.target.address = (*target)->endpoint();
  (*target)->admit(session.ticket);
  const auto connector = make_tcp_connector(system_clock());
  auto queue_pair = connector->connect(session.target);
  ASSERT_TRUE(queue_pair);
  ASSERT_EQ(settle(**queue_pair), QueuePairState::kReady);
  uint64_t found = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(run_one(**queue_pair, add_request({kKey, 0}, 1, &found)), CompletionStatus::kSuccess);
  }
  std::atomic<bool> fenced{false};
  (*target)->fence(SessionId{1}, [&] { fenced = true; });
  poll_until([&] { return fenced.load(); });
  EXPECT_EQ(arena.word(0), 100U);
}

TEST(TcpConnector, UnusableAddressesAreNamed) {
  const auto connector = make_tcp_connector(system_clock());
  ConnectTarget target;
  target.secret.assign(16, 's');
  for (const char* address : {"127.0.0.1", "::1:80", "no-such-host.invalid:7400", ""}) {
    target.address = address;
    const auto queue_pair = connector->connect(target);
    ASSERT_FALSE(queue_pair) << address;
    EXPECT_EQ(queue_pair.error().code(), StatusCode::kConfiguration) << queue_pair.error().to_string();
  }
}

}  // namespace
}  // namespace skua::conformance
