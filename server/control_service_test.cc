#include "server/control_service.h"

#include <gtest/gtest.h>

#include <map>

#include "common/control/manual_executor.h"
#include "proto/version.h"
#include "server/server_core.h"

namespace skua {
namespace {

using testing::FakeChannel;
using testing::FakeDialer;
using testing::ManualExecutor;

class SeededEntropy final : public Entropy {
 public:
  uint64_t next() override { return random_.next(); }

 private:
  Random random_{1};
};

// Remembers what it was asked; grants and fences wait until the test answers them.
class FakeStore final : public Store {
 public:
  ArenaInfo arena() const override { return {}; }
  void add_target(Target&) override {}
  Result<void> serve(const Assignment& assignment) override {
    served.push_back(assignment);
    if (serve_failure) return Error(*serve_failure);
    return {};
  }
  Result<control::SessionOpened> open_session(const control::OpenSession&, PushFunction push) override {
    control::SessionOpened opened;
    opened.set_session_id(++sessions);
    pushes[sessions] = std::move(push);
    return opened;
  }
  void grant(const control::GrantRequest&, std::function<void(Result<control::Grant>)> done) override {
    grants.push_back(std::move(done));
  }
  Result<void> report(const control::EpochReport& request) override {
    reports.push_back(request);
    return {};
  }
  void grow_table(const control::GrowTable&, std::function<void(const Result<void>&)> done) override { done({}); }
  Result<void> split_table(uint32_t, proto::KeyHash) override { return {}; }
  Result<void> compact(uint32_t) override { return {}; }
  void fence_session(const control::FenceSession&,
                     std::function<void(Result<control::SessionFenced>)> done) override {
    fences.push_back(std::move(done));
  }
  Result<void> resume_session(const control::ResumeSession& request, PushFunction push) override {
    if (request.secret() != "secret") return fail(StatusCode::kUnauthenticated, "wrong secret");
    pushes[request.session_id()] = std::move(push);
    return {};
  }
  void detach_session(SessionId session) override { detached.push_back(static_cast<uint64_t>(session)); }
  void close_session(SessionId session) override { closed.push_back(static_cast<uint64_t>(session)); }
  uint64_t cluster_time_ms() const override { return time_ms; }
  void set_cluster_time_ms(uint64_t now_ms) override { time_ms = now_ms; }
  void statistics(control::ServerStats& out) const override { out.set_live_keys(17); }

  uint64_t sessions = 0;
  uint64_t time_ms = 123;
  std::optional<Status> serve_failure;
  std::vector<Assignment> served;
  std::map<uint64_t, PushFunction> pushes;
  std::vector<std::function<void(Result<control::Grant>)>> grants;
  std::vector<std::function<void(Result<control::SessionFenced>)>> fences;
  std::vector<control::EpochReport> reports;
  std::vector<uint64_t> detached;
  std::vector<uint64_t> closed;
};

class ControlServiceTest : public ::testing::Test {
 protected:
  ControlServiceTest() {
    ControlService::Options options;
    options.terms.token = "open sesame";
    options.instance = 77;
    service_ = std::make_unique<ControlService>(options, store_, executor_);
    control::ClusterMap map;
    map.set_cluster_id(5);
    map.set_epoch(3);
    service_->set_map(map, 1);
    service_->set_serving();
  }
  std::shared_ptr<FakeChannel> connect() {
    auto channel = std::make_shared<FakeChannel>();
    channel->events = service_->accept(channel);
    return channel;
  }
  std::shared_ptr<FakeChannel> greet() {
    auto channel = connect();
    control::Envelope request;
    *request.mutable_hello() = make_hello({"open sesame", 0});
    EXPECT_TRUE(ask(*channel, request).has_hello_reply());
    return channel;
  }
  control::Envelope ask(FakeChannel& channel, control::Envelope request) {
    request.set_id(++id_);
    channel.receive(request);
    executor_.run();
    const control::Envelope answer = channel.take();
    EXPECT_TRUE(answer.body_case() == control::Envelope::BODY_NOT_SET || answer.id() == id_);
    return answer;
  }
  uint64_t open_session(FakeChannel& channel) {
    control::Envelope request;
    request.mutable_open_session();
    return ask(channel, request).session_opened().session_id();
  }
  static control::Envelope report_of(uint64_t session) {
    control::Envelope request;
    request.mutable_epoch_report()->set_session_id(session);
    return request;
  }
  static StatusCode code(const control::Envelope& answer) { return status_of(answer.failure()).code(); }

  ManualExecutor executor_;
  FakeStore store_;
  std::unique_ptr<ControlService> service_;
  uint64_t id_ = 0;
};

TEST_F(ControlServiceTest, AnythingBeforeHelloClosesTheConnection) {
  const auto channel = connect();
  control::Envelope request;
  request.mutable_get_map();

  EXPECT_EQ(code(ask(*channel, request)), StatusCode::kInvalidArgument);
  EXPECT_TRUE(channel->closed);
  EXPECT_EQ(service_->connections(), 0u);
}

TEST_F(ControlServiceTest, HelloThatDoesNotFitIsAnsweredAndClosed) {
  for (const auto& [spoil, expected] :
       std::vector<std::pair<std::function<void(control::Hello&)>, StatusCode>>{
           {[](auto& hello) { hello.set_token("open"); }, StatusCode::kUnauthenticated},
           {[](auto& hello) { hello.set_control_version(99); }, StatusCode::kIncompatible},
           {[](auto& hello) { hello.set_layout_version(0); }, StatusCode::kIncompatible},
           {[](auto& hello) { hello.set_magic(1); }, StatusCode::kIncompatible},
           {[](auto& hello) { hello.set_cluster_id(6); }, StatusCode::kConfiguration}}) {
    const auto channel = connect();
    control::Envelope request;
    *request.mutable_hello() = make_hello({"open sesame", 5});
    spoil(*request.mutable_hello());
    EXPECT_EQ(code(ask(*channel, request)), expected);
    EXPECT_TRUE(channel->closed);
  }
}

TEST_F(ControlServiceTest, HelloTellsWhoAnswers) {
  const auto channel = connect();
  control::Envelope request;
  *request.mutable_hello() = make_hello({"open sesame", 5});
  const control::HelloReply reply = ask(*channel, request).hello_reply();

  EXPECT_EQ(reply.cluster_id(), 5u);
  EXPECT_EQ(reply.server_id(), 1u);
  EXPECT_EQ(reply.instance(), 77u);
  EXPECT_EQ(reply.map_epoch(), 3u);
  EXPECT_EQ(reply.cluster_time_ms(), 123u);
}

TEST_F(ControlServiceTest, MapStatsPingAndUnknownRequestsAreAnswered) {
  const auto channel = greet();
  control::Envelope request;
  request.mutable_get_map();
  EXPECT_EQ(ask(*channel, request).cluster_map().epoch(), 3u);
  request.mutable_get_stats();
  const control::ServerStats stats = ask(*channel, request).server_stats();
  EXPECT_EQ(stats.live_keys(), 17u);
  EXPECT_EQ(stats.server_id(), 1u);
  request.mutable_ping()->set_payload("x");
  EXPECT_EQ(ask(*channel, request).ping().payload(), "x");
  request.clear_body();
  EXPECT_EQ(code(ask(*channel, request)), StatusCode::kInvalidArgument);
  EXPECT_FALSE(channel->closed);
}

TEST_F(ControlServiceTest, RequestWithoutIdClosesTheConnection) {
  const auto channel = greet();
  control::Envelope request;
  request.mutable_ping();
  channel->receive(request);

  EXPECT_TRUE(channel->closed);
}

TEST_F(ControlServiceTest, SessionOfAnotherConnectionIsRefusedUntilResumedHere) {
  const auto first = greet();
  const auto second = greet();
  const uint64_t session = open_session(*first);
  EXPECT_EQ(code(ask(*second, report_of(session))), StatusCode::kPermissionDenied);
  EXPECT_TRUE(store_.reports.empty());

  control::Envelope request;
  request.mutable_resume_session()->set_session_id(session);
  request.mutable_resume_session()->set_secret("guess");
  EXPECT_EQ(code(ask(*second, request)), StatusCode::kUnauthenticated);
  request.mutable_resume_session()->set_secret("secret");
  EXPECT_TRUE(ask(*second, request).has_ack());
  EXPECT_TRUE(ask(*second, report_of(session)).has_ack());
  EXPECT_EQ(code(ask(*first, report_of(session))), StatusCode::kPermissionDenied);

  first->break_off("cut");
  EXPECT_TRUE(store_.detached.empty()) << "it had moved on";
  second->break_off("cut");
  EXPECT_EQ(store_.detached, std::vector<uint64_t>{session});
}

TEST_F(ControlServiceTest, EverySessionRequestNeedsOwnership) {
  const auto channel = greet();
  control::Envelope grant;
  grant.mutable_grant_request()->set_session_id(9);
  control::Envelope fence;
  fence.mutable_fence_session()->set_session_id(9);
  control::Envelope close;
  close.mutable_close_session()->set_session_id(9);
  for (const control::Envelope& request : {grant, fence, close, report_of(9)}) {
    EXPECT_EQ(code(ask(*channel, request)), StatusCode::kStaleEpoch);
  }
  EXPECT_TRUE(store_.grants.empty());
  EXPECT_TRUE(store_.fences.empty());
  EXPECT_TRUE(store_.closed.empty());
}

TEST_F(ControlServiceTest, ClosedConnectionDetachesAllItsSessions) {
  const auto channel = greet();
  const uint64_t one = open_session(*channel);
  const uint64_t two = open_session(*channel);
  channel->break_off("cut");

  std::sort(store_.detached.begin(), store_.detached.end());
  EXPECT_EQ(store_.detached, (std::vector<uint64_t>{one, two}));
}

TEST_F(ControlServiceTest, GrantIsAnsweredWhenTheStoreHasItAndNotAfterTheConnectionEnded) {
  const auto channel = greet();
  control::Envelope request;
  request.mutable_grant_request()->set_session_id(open_session(*channel));
  EXPECT_EQ(ask(*channel, request).body_case(), control::Envelope::BODY_NOT_SET);
  EXPECT_EQ(ask(*channel, request).body_case(), control::Envelope::BODY_NOT_SET);
  control::Grant grant;
  grant.set_grant_id(4);
  store_.grants[1](grant);
  const control::Envelope answer = channel->take();
  EXPECT_EQ(answer.id(), id_);
  EXPECT_EQ(answer.grant().grant_id(), 4u);

  channel->break_off("cut");
  store_.grants[0](fail(StatusCode::kOutOfMemory, "full"));
  EXPECT_TRUE(channel->sent.empty());
}

TEST_F(ControlServiceTest, UnansweredRequestsAreBounded) {
  const auto channel = greet();
  control::Envelope request;
  request.mutable_grant_request()->set_session_id(open_session(*channel));
  for (size_t i = 0; i < ControlService::kMaxWaiting; ++i) ask(*channel, request);
  EXPECT_EQ(code(ask(*channel, request)), StatusCode::kResourceExhausted);

  store_.grants[0](control::Grant());
  channel->take();
  EXPECT_EQ(ask(*channel, request).body_case(), control::Envelope::BODY_NOT_SET);
}

TEST_F(ControlServiceTest, EpochIsPushedOnceATurnToTheOwner) {
  const auto owner = greet();
  const auto other = greet();
  const uint64_t one = open_session(*owner);
  const uint64_t two = open_session(*owner);
  control::EpochAdvance advance;
  advance.set_reclaim_epoch(8);
  store_.pushes[one](advance);
  store_.pushes[two](advance);
  ASSERT_EQ(owner->sent.size(), 1u);
  EXPECT_EQ(owner->sent[0].id(), 0u);
  EXPECT_EQ(owner->sent[0].epoch_advance().reclaim_epoch(), 8u);
  EXPECT_EQ(owner->sent[0].epoch_advance().map_epoch(), 3u);
  EXPECT_TRUE(other->sent.empty());

  executor_.run();
  store_.pushes[one](advance);
  EXPECT_EQ(owner->sent.size(), 2u) << "a reminder in a later turn is sent";
}

TEST_F(ControlServiceTest, NewerMapIsPushedToAllAndAnOlderOneIgnored) {
  const auto channel = greet();
  control::ClusterMap map;
  map.set_epoch(2);
  service_->set_map(map, 1);
  EXPECT_TRUE(channel->sent.empty());
  map.set_epoch(4);
  service_->set_map(map, 1);

  ASSERT_EQ(channel->sent.size(), 1u);
  EXPECT_EQ(channel->sent[0].id(), 0u);
  EXPECT_EQ(channel->sent[0].cluster_map().epoch(), 4u);
}

TEST_F(ControlServiceTest, DrainEndsSessionsAndConnections) {
  const auto channel = greet();
  const uint64_t session = open_session(*channel);
  service_->drain();

  EXPECT_EQ(store_.closed, std::vector<uint64_t>{session});
  EXPECT_TRUE(channel->closed);
  const auto late = greet();
  control::Envelope request;
  request.mutable_open_session();
  EXPECT_EQ(code(ask(*late, request)), StatusCode::kUnavailable);
}

TEST_F(ControlServiceTest, OnlyTheCoordinatorTakesServersIn) {
  const auto channel = greet();
  control::Envelope request;
  request.mutable_join()->set_name("s");

  EXPECT_EQ(code(ask(*channel, request)), StatusCode::kConfiguration);
}

TEST_F(ControlServiceTest, ServicesEndClosesConnectionsAndLateEventsDoNothing) {
  const auto channel = greet();
  service_.reset();

  EXPECT_TRUE(channel->closed);
  channel->events.on_closed(Status(StatusCode::kPeerLost, "late"));
  channel->events.on_envelope(control::Envelope());
}

// A coordinator and a member, their control connection carried by hand.
class ServerCoreTest : public ::testing::Test {
 protected:
  void make_coordinator(uint32_t initial_servers) {
    CoordinatorOptions options;
    options.partitions = 4;
    options.initial_servers = initial_servers;
    coordinator_ = std::move(*Coordinator::open(options, map_store_, executor_.clock(), entropy_));
    core_ = make_core("first", 10, std::nullopt, store_, coordinator_.get(), first_joined_);
    core_->start();
  }
  std::unique_ptr<ServerCore> make_core(const std::string& name, uint64_t instance, std::optional<NetAddress> join,
                                        Store& store, Coordinator* coordinator, std::optional<Result<void>>& joined) {
    ServerCoreOptions options;
    options.self.set_name(name);
    options.self.set_control_address("10.0.0.1:7400");
    options.self.set_instance(instance);
    options.join = join;
    options.join_timeout = 5 * kSecond;
    ServerCoreEvents events;
    events.joined = [&joined](Result<void> result) { joined = std::move(result); };
    events.failed = [this](const Status& why) { failure_ = why; };
    return std::make_unique<ServerCore>(std::move(options), std::move(events),
                                        ServerCore::Parts{store, executor_, dialer_, coordinator});
  }
  void make_member(uint64_t instance = 20) {
    member_ = make_core("second", instance, NetAddress{"10.0.0.1", 7400}, member_store_, nullptr, second_joined_);
    member_->start();
    connect_member();
  }
  void connect_member() {
    client_side_ = dialer_.channels.back();
    server_side_ = std::make_shared<FakeChannel>();
    server_side_->events = core_->accept(server_side_);
    carry();
  }
  void carry() {
    for (int i = 0; i < 20; ++i) {
      executor_.run();
      for (const auto& envelope : std::exchange(client_side_->sent, {})) server_side_->receive(envelope);
      for (const auto& envelope : std::exchange(server_side_->sent, {})) client_side_->receive(envelope);
    }
  }
  void pass(Nanoseconds time) {
    for (Nanoseconds left = time; left > 0; left -= 100 * kMillisecond) {
      executor_.advance(100 * kMillisecond);
      carry();
    }
  }

  ManualExecutor executor_;
  SeededEntropy entropy_;
  FakeDialer dialer_;
  FakeStore store_;
  FakeStore member_store_;
  MemoryMapStore map_store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<Result<void>> first_joined_;
  std::optional<Result<void>> second_joined_;
  std::optional<Status> failure_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<ServerCore> member_;
  std::shared_ptr<FakeChannel> client_side_;
  std::shared_ptr<FakeChannel> server_side_;
};

TEST_F(ServerCoreTest, SingleServerServesAllPartitionsAtOnce) {
  make_coordinator(1);

  ASSERT_TRUE(first_joined_ && first_joined_->has_value());
  ASSERT_EQ(store_.served.size(), 1u);
  EXPECT_EQ(store_.served[0].partitions, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(store_.served[0].instance, 10u);
}

TEST_F(ServerCoreTest, PartitionsThatDoNotFitFailTheStart) {
  store_.serve_failure = Status(StatusCode::kOutOfMemory, "tables do not fit");
  make_coordinator(1);

  ASSERT_TRUE(first_joined_);
  EXPECT_EQ(first_joined_->error().code(), StatusCode::kOutOfMemory);
}

TEST_F(ServerCoreTest, BothServeOnceTheSecondHasJoined) {
  make_coordinator(2);
  ASSERT_TRUE(first_joined_ && first_joined_->has_value());
  EXPECT_TRUE(store_.served.empty());
  store_.time_ms = 555;
  make_member();

  ASSERT_TRUE(second_joined_ && second_joined_->has_value());
  ASSERT_EQ(store_.served.size(), 1u);
  ASSERT_EQ(member_store_.served.size(), 1u);
  EXPECT_EQ(member_store_.served[0].partitions, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(member_store_.time_ms, 555u);
}

TEST_F(ServerCoreTest, HeartbeatsKeepTheMemberAliveAndSilenceIsNoticed) {
  make_coordinator(2);
  make_member();
  pass(10 * kSecond);
  EXPECT_TRUE(coordinator_->map().servers(1).alive());
  executor_.advance(4 * kSecond);  // nothing is carried

  EXPECT_FALSE(coordinator_->map().servers(1).alive());
}

TEST_F(ServerCoreTest, MemberComesBackByItselfAfterItsConnectionBroke) {
  make_coordinator(2);
  make_member();
  client_side_->break_off("cut");
  server_side_->break_off("cut");
  executor_.advance(kSecond);
  ASSERT_EQ(dialer_.channels.size(), 2u);
  connect_member();
  pass(5 * kSecond);

  EXPECT_TRUE(coordinator_->map().servers(1).alive());
  EXPECT_FALSE(failure_);
  EXPECT_EQ(member_store_.served.size(), 1u);
}

TEST_F(ServerCoreTest, MemberWhoseNameWasTakenOverEnds) {
  make_coordinator(2);
  make_member();
  server_side_->break_off("cut");  // the coordinator saw it go, the member did not
  control::Join request;
  request.set_name("second");
  request.set_control_address("10.0.0.2:7400");
  request.set_instance(21);
  ASSERT_TRUE(coordinator_->join(request));
  client_side_->break_off("cut");
  executor_.advance(kSecond);
  connect_member();

  ASSERT_TRUE(failure_);
  EXPECT_NE(failure_->message().find("second"), std::string::npos);
}

TEST_F(ServerCoreTest, JoinGivesUpAfterItsTimeOutNamingTheCoordinator) {
  dialer_.failure = Status(StatusCode::kUnavailable, "connection refused");
  member_ = make_core("second", 20, NetAddress{"10.0.0.1", 7400}, member_store_, nullptr, second_joined_);
  member_->start();
  executor_.advance(4 * kSecond);
  EXPECT_FALSE(second_joined_);
  executor_.advance(3 * kSecond);

  ASSERT_TRUE(second_joined_);
  EXPECT_EQ(second_joined_->error().code(), StatusCode::kUnavailable);
  EXPECT_NE(second_joined_->error().message().find("10.0.0.1:7400"), std::string::npos);
}

TEST_F(ServerCoreTest, DrainedMemberIsMarkedAtOnce) {
  make_coordinator(2);
  make_member();
  bool done = false;
  member_->drain([&] { done = true; });
  carry();

  EXPECT_TRUE(done);
  EXPECT_FALSE(coordinator_->map().servers(1).alive());
}

TEST_F(ServerCoreTest, DrainDoesNotWaitForACoordinatorThatIsGone) {
  make_coordinator(2);
  make_member();
  bool done = false;
  member_->drain([&] { done = true; });
  executor_.advance(ServerCore::kLeaveTimeout);

  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace skua
