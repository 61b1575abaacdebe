#include "common/control/rpc.h"

#include <gtest/gtest.h>

#include "common/control/manual_executor.h"
#include "proto/version.h"

namespace skua {
namespace {

using testing::FakeChannel;
using testing::FakeDialer;
using testing::ManualExecutor;

class Rpc : public ::testing::Test {
 protected:
  void open(HelloTerms terms = {}) {
    ControlConnection::OpenOptions options;
    options.address = NetAddress{"10.0.0.7", 7400};
    options.terms = std::move(terms);
    ControlConnection::open(dialer_, executor_, options, [this](auto result) { opened_ = std::move(result); });
    executor_.run();
  }
  FakeChannel& channel() { return *dialer_.channels.back(); }

  void answer_hello(uint32_t control_version = proto::kControlVersion, uint64_t cluster_id = 99) {
    const control::Envelope request = channel().take();
    control::Envelope reply;
    reply.set_id(request.id());
    reply.mutable_hello_reply()->set_control_version(control_version);
    reply.mutable_hello_reply()->set_layout_version(proto::kLayoutVersion);
    reply.mutable_hello_reply()->set_cluster_id(cluster_id);
    channel().receive(reply);
    executor_.run();
  }
  void open_and_greet() {
    open();
    answer_hello();
    ASSERT_TRUE(opened_);
    connection_ = *opened_;
    opened_ = fail(StatusCode::kInternal, "taken");
  }
  void ping(Nanoseconds timeout = kSecond) {
    control::Envelope request;
    request.mutable_ping();
    connection_->call(request, timeout, [this](auto reply) { replies_.push_back(std::move(reply)); });
  }

  ManualExecutor executor_;
  FakeDialer dialer_;
  Result<std::shared_ptr<ControlConnection>> opened_ = fail(StatusCode::kInternal, "not called");
  std::shared_ptr<ControlConnection> connection_;
  std::vector<Result<control::Envelope>> replies_;
};

TEST_F(Rpc, OpenSaysHelloAndKeepsTheAnswer) {
  open({"secret", 99});
  ASSERT_EQ(channel().sent.size(), 1u);
  EXPECT_EQ(channel().sent[0].hello().token(), "secret");
  EXPECT_EQ(channel().sent[0].hello().magic(), proto::kControlMagic);
  answer_hello();

  ASSERT_TRUE(opened_);
  EXPECT_EQ((*opened_)->hello_reply().cluster_id(), 99u);
}

TEST_F(Rpc, OpenIsRefusedByAnotherVersionNamingBoth) {
  open();
  answer_hello(4242);

  ASSERT_FALSE(opened_);
  EXPECT_EQ(opened_.error().code(), StatusCode::kIncompatible);
  EXPECT_NE(opened_.error().message().find("4242"), std::string::npos);
  EXPECT_NE(opened_.error().message().find("this side " + std::to_string(proto::kControlVersion)), std::string::npos);
  EXPECT_NE(opened_.error().message().find("10.0.0.7:7400"), std::string::npos);
  EXPECT_TRUE(channel().closed);
}

TEST_F(Rpc, OpenIsRefusedByAnotherCluster) {
  open({"", 98});
  answer_hello();

  ASSERT_FALSE(opened_);
  EXPECT_EQ(opened_.error().code(), StatusCode::kConfiguration);
}

TEST_F(Rpc, OpenReportsTheServersRefusalAndSilence) {
  open();
  control::Envelope failure;
  failure.set_id(channel().take().id());
  set_failure(Status(StatusCode::kUnauthenticated, "no token"), *failure.mutable_failure());
  channel().receive(failure);
  ASSERT_FALSE(opened_);
  EXPECT_EQ(opened_.error().code(), StatusCode::kUnauthenticated);

  open();
  executor_.advance(6 * kSecond);
  ASSERT_FALSE(opened_);
  EXPECT_EQ(opened_.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(channel().closed);
}

TEST_F(Rpc, RepliesFindTheirCallsInAnyOrder) {
  open_and_greet();
  std::string order;
  for (const char* name : {"a", "b"}) {
    control::Envelope request;
    request.mutable_ping()->set_payload(name);
    connection_->call(request, kSecond, [&order](auto reply) { order += reply->ping().payload(); });
  }
  const control::Envelope first = channel().take();
  const control::Envelope second = channel().take();
  channel().receive(second);
  channel().receive(first);

  EXPECT_EQ(order, "ba");
  EXPECT_EQ(executor_.timers(), 0u);
}

TEST_F(Rpc, TimeOutEndsTheCallAndALateReplyIsIgnored) {
  open_and_greet();
  ping();
  executor_.advance(kSecond);

  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(replies_[0].error().message().find("ping"), std::string::npos);
  channel().receive(channel().take());
  EXPECT_EQ(replies_.size(), 1u);
}

TEST_F(Rpc, FailureBecomesItsStatus) {
  open_and_greet();
  ping();
  control::Envelope failure;
  failure.set_id(channel().take().id());
  set_failure(Status(StatusCode::kOutOfMemory, "full"), *failure.mutable_failure());
  channel().receive(failure);

  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].error().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(replies_[0].error().message(), "full");
}

TEST_F(Rpc, BrokenChannelEndsEveryCallThenTellsClosed) {
  open_and_greet();
  bool told = false;
  connection_->on_closed([&](const Status&) {
    told = true;
    EXPECT_EQ(replies_.size(), 2u);
  });
  ping();
  ping();
  channel().break_off("cable cut");

  ASSERT_EQ(replies_.size(), 2u);
  EXPECT_EQ(replies_[0].error().code(), StatusCode::kUnavailable);
  EXPECT_NE(replies_[0].error().message().find("cable cut"), std::string::npos);
  EXPECT_TRUE(told);
  EXPECT_FALSE(connection_->is_open());
  ping();
  EXPECT_EQ(replies_.size(), 2u) << "never from within call";
  executor_.run();
  ASSERT_EQ(replies_.size(), 3u);
  EXPECT_EQ(replies_[2].error().code(), StatusCode::kUnavailable);
}

TEST_F(Rpc, PushesGoToTheirHandlerWhichMayCloseTheConnection) {
  open_and_greet();
  uint64_t epoch = 0;
  connection_->on_push([&](const control::Envelope& push) {
    epoch = push.epoch_advance().reclaim_epoch();
    connection_->close();
  });
  control::Envelope push;
  push.mutable_epoch_advance()->set_reclaim_epoch(7);
  channel().receive(push);

  EXPECT_EQ(epoch, 7u);
  EXPECT_TRUE(channel().closed);
}

TEST_F(Rpc, DestructionCallsNobody) {
  open_and_greet();
  ping();
  connection_.reset();
  executor_.advance(10 * kSecond);

  EXPECT_TRUE(replies_.empty());
  EXPECT_TRUE(channel().closed);
}

TEST(RpcEnd, ConnectionWhoseHelloIsNeverAnsweredEndsWithItsExecutor) {
  FakeDialer dialer;
  auto owner = std::make_shared<int>(1);
  {
    ManualExecutor executor;
    ControlConnection::open(dialer, executor, {}, [owner](const auto&) { FAIL() << "nothing was answered"; });
    EXPECT_EQ(owner.use_count(), 2);
  }

  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_TRUE(dialer.channels.back()->closed);
}

TEST(Hello, VersionIsJudgedBeforeTheToken) {
  const HelloTerms own{"right", 5};
  EXPECT_TRUE(check_hello(make_hello(own), own));

  control::Hello hello = make_hello({"wrong", 5});
  EXPECT_EQ(check_hello(hello, own).error().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(check_hello(hello, own).error().message().find("right"), std::string::npos) << "tells the token";
  hello.set_layout_version(7);
  EXPECT_EQ(check_hello(hello, own).error().code(), StatusCode::kIncompatible);
  EXPECT_NE(check_hello(hello, own).error().message().find("layout 7"), std::string::npos);
  hello.set_magic(1);
  EXPECT_EQ(check_hello(hello, own).error().code(), StatusCode::kIncompatible);
  EXPECT_EQ(check_hello(make_hello({"", 5}), own).error().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(check_hello(make_hello({"right", 6}), own).error().code(), StatusCode::kConfiguration);
  EXPECT_TRUE(check_hello(make_hello({"right", 0}), own));
}

TEST(Hello, EqualInConstantTimeIsEquality) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
  EXPECT_FALSE(equal_in_constant_time("\x01", "\xff"));
}

TEST(Failure, UnknownCodeIsInternalWithItsText) {
  control::Failure failure;
  failure.set_code(4000);
  failure.set_message("from the future");
  EXPECT_EQ(status_of(failure).code(), StatusCode::kInternal);
  EXPECT_NE(status_of(failure).message().find("from the future"), std::string::npos);
}

}  // namespace
}  // namespace skua
