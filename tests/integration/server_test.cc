// skua-server as an operator meets it: real processes, ports, signals and exit codes.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include <future>

#include "common/base/clock.h"
#include "common/control/asio_channel.h"
#include "common/control/frame.h"
#include "common/control/rpc.h"
#include "common/placement/partition_map.h"
#include "proto/version.h"
#include "tests/integration/server_process.h"

namespace skua {
namespace {

using testing::ServerProcess;
using testing::TemporaryDirectory;

// To 127.0.0.1; receives for 20 s at most.
int connected_to(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{20, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// What recv says after `bytes` were sent there.
ssize_t answer_to(uint16_t port, const std::string& bytes) {
  const int socket = connected_to(port);
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char byte = 0;
  const ssize_t got = ::recv(socket, &byte, 1, 0);
  const int error = errno;
  ::close(socket);
  errno = error;
  return got;
}

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override { executor_.start(); }
  void TearDown() override {
    executor_.stop();
    opened_.clear();
  }

  std::unique_ptr<ServerProcess> start(const std::string& name, std::vector<std::string> flags) {
    const bool own_memory = std::find(flags.begin(), flags.end(), "--memory") != flags.end();
    if (!own_memory) flags.insert(flags.end(), {"--memory", "64MiB"});
    flags.insert(flags.end(), {"--expected-keys", "10000"});
    return std::make_unique<ServerProcess>(directory_, name, std::move(flags));
  }
  Result<std::shared_ptr<ControlConnection>> connect(const NetAddress& address, HelloTerms terms = {}) {
    std::promise<Result<std::shared_ptr<ControlConnection>>> opened;
    ControlConnection::OpenOptions options;
    options.address = address;
    options.timeout = 20 * kSecond;
    options.terms = std::move(terms);
    executor_.post([&] {
      ControlConnection::open(*dialer_, executor_, options, [&](auto result) { opened.set_value(std::move(result)); });
    });
    auto result = opened.get_future().get();
    if (result) opened_.push_back(*result);
    return result;
  }
  Result<control::Envelope> call(const std::shared_ptr<ControlConnection>& connection, const control::Envelope& request,
                                 Nanoseconds delay = 0) {
    std::promise<Result<control::Envelope>> answer;
    executor_.post([&] {
      executor_.after(delay, [&] {
        connection->call(request, 20 * kSecond, [&](auto reply) { answer.set_value(std::move(reply)); });
      });
    });
    return answer.get_future().get();
  }
  // Asks until the map is not forming any more and `good`.
  std::shared_ptr<const PartitionMap> wait_map(const std::shared_ptr<ControlConnection>& connection,
                                               const std::function<bool(const PartitionMap&)>& good) {
    control::Envelope request;
    request.mutable_get_map();
    for (int tries = 0; tries < 1000; ++tries) {
      const auto reply = call(connection, request, 20 * kMillisecond);
      if (!reply) continue;
      const auto map = PartitionMap::create(reply->cluster_map());
      if (map && !(*map)->forming() && good(**map)) return *map;
    }
    return nullptr;
  }
  static bool any(const PartitionMap&) { return true; }

  TemporaryDirectory directory_;
  AsioExecutor executor_{system_clock()};
  std::unique_ptr<Dialer> dialer_ = make_asio_dialer(executor_);
  // Connections are the executor's thread's; they end when it has ended.
  std::vector<std::shared_ptr<ControlConnection>> opened_;
};

TEST_F(ServerTest, ThreeServersShareThePartitionsAndEachAnswersWithTheMap) {
  const auto first = start("a", {"--initial-servers", "3", "--partitions", "16"});
  ASSERT_TRUE(first->wait_ready()) << first->errors();
  EXPECT_NE(first->ready_json().find("\"state\":\"forming\""), std::string::npos);
  const std::string coordinator = first->control_address().to_string();
  const auto second = start("b", {"--join", coordinator, "--name", "bee"});
  const auto third = start("c", {"--join", coordinator, "--transports", "tcp"});
  ASSERT_TRUE(second->wait_ready()) << second->errors();
  ASSERT_TRUE(third->wait_ready()) << third->errors();

  for (const auto* server : {first.get(), second.get(), third.get()}) {
    const auto connection = connect(server->control_address());
    ASSERT_TRUE(connection) << connection.error().message();
    const auto map = wait_map(*connection, any);
    ASSERT_NE(map, nullptr);
    ASSERT_EQ(map->servers().size(), 3u);
    for (const ServerEntry& entry : map->servers()) {
      EXPECT_TRUE(entry.alive);
      EXPECT_GE(map->partitions_of(entry.id).size(), 5u);
      EXPECT_EQ(entry.memory_bytes, uint64_t{64} << 20);
    }
    EXPECT_EQ(map->server((*connection)->hello_reply().server_id())->control_address,
              server->control_address().to_string());
  }
  EXPECT_NE(second->ready_json().find("\"name\":\"bee\""), std::string::npos);
  EXPECT_FALSE(second->data_address("shm").empty());
  EXPECT_TRUE(third->data_address("shm").empty());
  EXPECT_FALSE(third->data_address("tcp").empty());
}

TEST_F(ServerTest, PortInUseNamesListenerAddressAndErrno) {
  const auto first = start("a", {});
  ASSERT_TRUE(first->wait_ready()) << first->errors();
  const std::string control = first->control_address().to_string();
  const std::string data = first->data_address("tcp");

  const auto second = start("b", {"--listen", control});
  EXPECT_EQ(second->wait_exit(), EX_CONFIG);
  for (const std::string& part : {std::string("control listener"), control, std::string("errno 98")}) {
    EXPECT_NE(second->errors().find(part), std::string::npos) << part << " in " << second->errors();
  }
  const auto third = start("c", {"--data-listen", data});
  EXPECT_EQ(third->wait_exit(), EX_CONFIG);
  for (const std::string& part : {std::string("data listener"), data, std::string("Address already in use")}) {
    EXPECT_NE(third->errors().find(part), std::string::npos) << part << " in " << third->errors();
  }
  EXPECT_EQ(second->output() + third->output(), "") << "half-started";
}

TEST_F(ServerTest, RestartsOnTheSamePortRightAfterBeingKilledAndKeepsItsPlace) {
  auto server = start("a", {});
  ASSERT_TRUE(server->wait_ready()) << server->errors();
  const NetAddress address = server->control_address();
  const auto before = connect(address);
  ASSERT_TRUE(before);
  const auto map_before = wait_map(*before, any);
  std::promise<void> closed;
  executor_.post([&] { (*before)->on_closed([&](const Status&) { closed.set_value(); }); });
  server->signal(SIGKILL);
  EXPECT_EQ(server->wait_exit(), 128 + SIGKILL);
  EXPECT_EQ(closed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);

  server = start("a", {"--listen", address.to_string()});
  ASSERT_TRUE(server->wait_ready()) << server->errors();
  const auto after = connect(address);
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_EQ((*after)->hello_reply().cluster_id(), (*before)->hello_reply().cluster_id());
  EXPECT_EQ((*after)->hello_reply().server_id(), (*before)->hello_reply().server_id());
  EXPECT_NE((*after)->hello_reply().instance(), (*before)->hello_reply().instance());
  EXPECT_GT(wait_map(*after, any)->membership_epoch(), map_before->membership_epoch());
}

TEST_F(ServerTest, MemberThatWasKilledComesBackUnderItsNameAtOnce) {
  const auto first = start("a", {"--initial-servers", "2"});
  ASSERT_TRUE(first->wait_ready()) << first->errors();
  const std::vector<std::string> flags{"--join", first->control_address().to_string(), "--name", "second"};
  auto second = start("b", flags);
  ASSERT_TRUE(second->wait_ready()) << second->errors();
  const auto connection = connect(first->control_address());
  ASSERT_TRUE(connection);
  const auto before = wait_map(*connection, any);
  second->signal(SIGKILL);
  second->wait_exit();
  second = start("b", flags);
  ASSERT_TRUE(second->wait_ready()) << second->errors();

  const auto after = wait_map(*connection, [&](const PartitionMap& map) {
    return map.server(2)->instance != before->server(2)->instance;
  });
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(after->servers().size(), 2u);
  EXPECT_EQ(after->partitions_of(2), before->partitions_of(2));
}

TEST_F(ServerTest, SecondServerOfALivingServersNameIsRefused) {
  const auto first = start("a", {"--name", "one"});
  ASSERT_TRUE(first->wait_ready()) << first->errors();
  const auto second = start("b", {"--join", first->control_address().to_string(), "--name", "one"});

  EXPECT_EQ(second->wait_exit(), EX_CONFIG);
  EXPECT_NE(second->errors().find("'one' belongs to server 1, which is alive"), std::string::npos) << second->errors();
}

TEST_F(ServerTest, TermDrainsTellsClientsAndTheCoordinatorAndExitsWithZero) {
  const auto first = start("a", {"--initial-servers", "2"});
  ASSERT_TRUE(first->wait_ready()) << first->errors();
  const auto second = start("b", {"--join", first->control_address().to_string()});
  ASSERT_TRUE(second->wait_ready()) << second->errors();
  const auto observer = connect(first->control_address());
  const auto client = connect(second->control_address());
  ASSERT_TRUE(observer && client);
  ASSERT_NE(wait_map(*client, any), nullptr);
  std::promise<void> closed;
  executor_.post([&] { (*client)->on_closed([&](const Status&) { closed.set_value(); }); });
  second->signal(SIGTERM);

  EXPECT_EQ(second->wait_exit(), 0) << second->errors();
  EXPECT_EQ(closed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_NE(wait_map(*observer, [](const PartitionMap& map) { return !map.server(2)->alive; }), nullptr);
  first->signal(SIGINT);
  EXPECT_EQ(first->wait_exit(), 0) << first->errors();
}

TEST_F(ServerTest, SecondTermEndsAtOnce) {
  const auto first = start("a", {"--initial-servers", "2"});
  ASSERT_TRUE(first->wait_ready()) << first->errors();
  const auto second = start("b", {"--join", first->control_address().to_string()});
  ASSERT_TRUE(second->wait_ready()) << second->errors();
  first->signal(SIGSTOP);  // the goodbye to the coordinator is not answered
  second->signal(SIGTERM);
  ASSERT_TRUE(second->wait_error_text("drains")) << second->errors();
  second->signal(SIGTERM);

  EXPECT_EQ(second->wait_exit(), 128 + SIGTERM);
}

TEST_F(ServerTest, TermEndsAStartThatWaitsForItsCoordinator) {
  const auto server = start("a", {"--join", "127.0.0.1:1"});
  ASSERT_TRUE(server->wait_error_text("127.0.0.1:1")) << server->errors();
  server->signal(SIGTERM);

  EXPECT_EQ(server->wait_exit(), 128 + SIGTERM);
}

TEST_F(ServerTest, CoordinatorThatIsNotThereIsUnavailable) {
  const auto server = start("a", {"--join", "127.0.0.1:1", "--join-timeout", "100ms"});

  EXPECT_EQ(server->wait_exit(), EX_UNAVAILABLE);
  EXPECT_NE(server->errors().find("127.0.0.1:1"), std::string::npos) << server->errors();
}

TEST_F(ServerTest, MistakesHaveTheirExitCodes) {
  EXPECT_EQ(start("a", {"--memry", "1g"})->wait_exit(), EX_USAGE);
  EXPECT_EQ(start("b", {"--listen", "::1"})->wait_exit(), EX_USAGE);
  EXPECT_EQ(start("c", {"--listen", "0.0.0.0:0"})->wait_exit(), EX_CONFIG);
  EXPECT_EQ(start("d", {"--config", "/no/such"})->wait_exit(), EX_CONFIG);
  EXPECT_EQ(start("e", {"--data-dir", "/proc/none"})->wait_exit(), EX_CONFIG);
  EXPECT_EQ(start("f", {"--transports", "pigeon"})->wait_exit(), EX_CONFIG);
  const auto joins_itself = start("j", {"--listen", "127.0.0.1:7999", "--join", "127.0.0.1:7999"});
  EXPECT_EQ(joins_itself->wait_exit(), EX_CONFIG);
  EXPECT_NE(joins_itself->errors().find("this server's own address"), std::string::npos) << joins_itself->errors();
  const auto elsewhere = start("k", {"--data-listen", "192.0.2.1:0"});
  EXPECT_EQ(elsewhere->wait_exit(), EX_CONFIG);
  EXPECT_NE(elsewhere->errors().find("--data-listen: the tcp data listener"), std::string::npos);
  EXPECT_EQ(start("l", {"--advertise", "a host"})->wait_exit(), EX_CONFIG);
  EXPECT_EQ(start("m", {"--token-file", "/no/such"})->wait_exit(), EX_CONFIG);
  EXPECT_EQ(start("h", {"--config", directory_.path()})->wait_exit(), EX_CONFIG) << "a directory is no file";
  const auto advertises_a_port = start("i", {"--advertise", "127.0.0.1:9"});
  EXPECT_EQ(advertises_a_port->wait_exit(), EX_CONFIG);
  EXPECT_NE(advertises_a_port->errors().find("without a port"), std::string::npos) << advertises_a_port->errors();
  const auto running = start("g", {});
  ASSERT_TRUE(running->wait_ready());
  EXPECT_EQ(start("g", {})->wait_exit(), EX_UNAVAILABLE) << "its data directory is taken";
}

TEST_F(ServerTest, TokenIsAskedOfClientsAndServers) {
  const std::string token_file = directory_.path() + "/token";
  FILE* const file = std::fopen(token_file.c_str(), "w");
  std::fputs("s3cret\n", file);
  std::fclose(file);
  const auto first = start("a", {"--token-file", token_file});
  ASSERT_TRUE(first->wait_ready()) << first->errors();
  const std::string coordinator = first->control_address().to_string();

  EXPECT_EQ(connect(first->control_address()).error().code(), StatusCode::kUnauthenticated);
  EXPECT_TRUE(connect(first->control_address(), {"s3cret", 0}));
  EXPECT_EQ(start("b", {"--join", coordinator})->wait_exit(), EX_NOPERM);
  EXPECT_TRUE(start("c", {"--join", coordinator, "--token-file", token_file})->wait_ready());
}

TEST_F(ServerTest, FirstStartThatFailedLeavesADirectoryThatTheNextOneCanUse) {
  // The tables of so many partitions do not fit.
  EXPECT_EQ(start("a", {"--partitions", "4096"})->wait_exit(), EX_OSERR);

  const auto server = start("a", {"--memory", "1GiB", "--partitions", "4096"});
  ASSERT_TRUE(server->wait_ready()) << server->errors();
  const auto connection = connect(server->control_address());
  ASSERT_TRUE(connection);
  const auto map = wait_map(*connection, any);
  ASSERT_NE(map, nullptr);
  EXPECT_EQ(map->servers().size(), 1u) << "it is the same server as before";
  EXPECT_EQ(map->partitions_of((*connection)->hello_reply().server_id()).size(), map->partitions());
}

TEST_F(ServerTest, RestartAndUnknownNameAreWarnedOf) {
  {
    const auto first = start("a", {});
    ASSERT_TRUE(first->wait_ready()) << first->errors();
    EXPECT_EQ(first->errors().find("starts empty"), std::string::npos) << first->errors();
  }
  const auto again = start("a", {"--advertise", "no-such-host.invalid"});
  EXPECT_TRUE(again->wait_ready()) << again->errors();
  EXPECT_TRUE(again->wait_error_text("starts empty")) << again->errors();
  EXPECT_NE(again->errors().find("no-such-host.invalid: the name does not resolve"), std::string::npos);
}

TEST_F(ServerTest, HostileBytesAndOldVersionsAreRefusedAndTheServerLives) {
  const auto server = start("a", {});
  ASSERT_TRUE(server->wait_ready()) << server->errors();
  const std::string two_to_the_63("KTL1\0\0\0\0\0\0\0\x80", 12);
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), two_to_the_63,
                                   std::string("KTL1\xff\xff\xff\xff"), std::string(1 << 16, '\xff')}) {
    const ssize_t got = answer_to(server->control_address().port, bytes);
    EXPECT_TRUE(got == 0 || (got < 0 && errno == ECONNRESET)) << "the connection was not closed";
  }
  EXPECT_TRUE(server->wait_error_text("connection closed"));
  EXPECT_TRUE(connect(server->control_address()));
}

TEST_F(ServerTest, JunkIsLoggedInHexAndAnOrderlyEndIsNot) {
  const auto server = start("a", {});
  ASSERT_TRUE(server->wait_ready()) << server->errors();
  {
    const int socket = connected_to(server->control_address().port);
    ::shutdown(socket, SHUT_WR);
    char byte = 0;
    EXPECT_EQ(::recv(socket, &byte, 1, 0), 0);
    ::close(socket);
  }
  const auto data = parse_net_address(server->data_address("tcp"));
  ASSERT_TRUE(data);
  answer_to(data->port, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(server->wait_error_text("data: 127.0.0.1:")) << server->errors();
  answer_to(server->control_address().port, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(server->wait_error_text("frame begins with 0x20544547")) << server->errors();
  EXPECT_NE(server->errors().find("what came begins with 0x20544547"), std::string::npos) << server->errors();
  EXPECT_EQ(server->errors().find("closed by the peer"), std::string::npos) << server->errors();
}

}  // namespace
}  // namespace skua
