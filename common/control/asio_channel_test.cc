#include "common/control/asio_channel.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <vector>

#include "common/base/clock.h"
#include "common/control/frame.h"
#include "proto/version.h"

namespace skua {
namespace {

using namespace std::chrono_literals;

control::Envelope ping(uint64_t id, const std::string& payload) {
  control::Envelope envelope;
  envelope.set_id(id);
  envelope.mutable_ping()->set_payload(payload);
  return envelope;
}

template <class T>
T wait_for(std::future<T> future) {
  if (future.wait_for(20s) != std::future_status::ready) throw std::runtime_error("nothing happened for 20 s");
  return future.get();
}

// A server whose channels echo, and a plain socket to it.
class AsioChannelTest : public ::testing::Test {
 protected:
  void SetUp() override { executor_.start(); }
  void TearDown() override { executor_.stop(); }

  void listen(ListenOptions options = {}) {
    auto result = listen_asio(executor_, NetAddress{"127.0.0.1", 0}, std::move(options),
                              [this](std::shared_ptr<Channel> channel) {
                                ChannelEvents events;
                                events.on_envelope = [channel](const control::Envelope& e) { channel->send(e); };
                                events.on_closed = [this](const Status& why) { closed(why); };
                                return events;
                              });
    ASSERT_TRUE(result) << result.error().message();
    listener_ = std::move(*result);
  }
  void closed(const Status& why) { closed_.set_value(why.message()); }

  int connect_plain() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(listener_->address().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval limit{20, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  // Sends raw bytes and says why the server closed the connection.
  std::string reason_after(const std::string& bytes) {
    const int socket = connect_plain();
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    char byte = 0;
    const ssize_t got = ::recv(socket, &byte, 1, 0);
    EXPECT_LE(got, 0) << "the server answered instead of closing";
    EXPECT_FALSE(got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) << "the server kept the connection";
    ::close(socket);
    auto future = closed_.get_future();
    const std::string reason = wait_for(std::move(future));
    closed_ = std::promise<std::string>();
    return reason;
  }
  Result<std::shared_ptr<Channel>> dial(const NetAddress& address, ChannelEvents events,
                                        Nanoseconds timeout = 10 * kSecond) {
    std::promise<Result<std::shared_ptr<Channel>>> promise;
    executor_.post([&] {
      dialer_->dial(address, timeout, [&](auto result) { promise.set_value(std::move(result)); }, std::move(events));
    });
    return wait_for(promise.get_future());
  }
  bool echoes() {
    std::promise<std::string> answer;
    ChannelEvents events;
    events.on_envelope = [&](const control::Envelope& envelope) { answer.set_value(envelope.ping().payload()); };
    const auto channel = dial(listener_->address(), std::move(events));
    if (!channel) return false;
    executor_.post([channel = *channel] { channel->send(ping(1, "still there")); });
    const bool same = wait_for(answer.get_future()) == "still there";
    run_on_executor([channel = *channel] { channel->close(); });
    return same;
  }
  void run_on_executor(const std::function<void()>& function) {
    std::promise<void> done;
    executor_.post([&] {
      function();
      done.set_value();
    });
    wait_for(done.get_future());
  }

  AsioExecutor executor_{system_clock()};
  std::unique_ptr<Dialer> dialer_ = make_asio_dialer(executor_);
  std::unique_ptr<Listener> listener_;
  std::promise<std::string> closed_;
};

TEST_F(AsioChannelTest, EnvelopesOfAllSizesComeBackInOrder) {
  listen();
  const std::vector<size_t> sizes{0, 1, 1000, 70'000, size_t{5} << 20, 3};
  std::vector<size_t> got;
  std::promise<void> all;
  ChannelEvents events;
  events.on_envelope = [&](const control::Envelope& envelope) {
    got.push_back(envelope.ping().payload().size());
    if (got.size() == sizes.size()) all.set_value();
  };
  const auto channel = dial(listener_->address(), std::move(events));
  ASSERT_TRUE(channel) << channel.error().message();
  executor_.post([channel = *channel, sizes] {
    for (const size_t size : sizes) channel->send(ping(size + 1, std::string(size, 'v')));
  });
  wait_for(all.get_future());

  EXPECT_EQ(got, sizes);
}

TEST_F(AsioChannelTest, CloseStillSendsWhatWasSentBefore) {
  std::promise<std::string> seen;
  std::promise<std::string> ended;
  auto listener = listen_asio(executor_, NetAddress{"127.0.0.1", 0}, {}, [&](std::shared_ptr<Channel> channel) {
    ChannelEvents events;
    events.on_envelope = [channel](const control::Envelope&) {
      channel->send(ping(1, std::string(size_t{3} << 20, 'l')));
      channel->close();
    };
    return events;
  });
  ASSERT_TRUE(listener);
  ChannelEvents events;
  events.on_envelope = [&](const control::Envelope& envelope) { seen.set_value(envelope.ping().payload()); };
  events.on_closed = [&](const Status& why) { ended.set_value(why.message()); };
  const auto channel = dial((*listener)->address(), std::move(events));
  ASSERT_TRUE(channel);
  executor_.post([channel = *channel] { channel->send(ping(1, "")); });

  EXPECT_EQ(wait_for(seen.get_future()).size(), size_t{3} << 20);
  EXPECT_NE(wait_for(ended.get_future()).find("closed by the peer"), std::string::npos);
}

TEST_F(AsioChannelTest, HostileFramesCloseTheirConnectionWithTheReasonAndNoOther) {
  listen();
  const std::string magic = "KTL1";

  EXPECT_NE(reason_after("GET / HTTP/1.1\r\n\r\n").find("magic"), std::string::npos);
  EXPECT_NE(reason_after(magic + "\xff\xff\xff\x7f").find("2147483647"), std::string::npos);
  EXPECT_NE(reason_after(magic + std::string("\0\0\0\0\0\0\0\x80", 8)).find("zero"), std::string::npos);
  EXPECT_NE(reason_after(magic + std::string("\x03\0\0\0\xff\xff\xff", 7)).find("no control message"),
            std::string::npos);
  EXPECT_TRUE(echoes());
}

TEST_F(AsioChannelTest, FirstFrameOverItsOwnLimitIsRefused) {
  ListenOptions options;
  options.max_first_frame_bytes = 1000;
  listen(options);
  std::string frame;
  ASSERT_TRUE(encode_frame(ping(1, std::string(2000, 'x')), frame));

  EXPECT_NE(reason_after(frame.substr(0, kFrameHeaderBytes)).find("at most 1000"), std::string::npos);
}

TEST_F(AsioChannelTest, SilenceAndHalfAFrameAreClosedAtTheDeadline) {
  ListenOptions options;
  options.first_frame_timeout = 50 * kMillisecond;
  listen(options);

  EXPECT_NE(reason_after("").find("not one frame in 50 ms"), std::string::npos);
  EXPECT_NE(reason_after("KTL1\x10").find("half a frame and then silence"), std::string::npos);
  EXPECT_TRUE(echoes());
}

TEST_F(AsioChannelTest, ConnectionsOverTheCapAreClosedAndThereIsRoomAgainLater) {
  ListenOptions options;
  options.max_connections = 1;
  listen(options);
  ChannelEvents events;
  auto first = dial(listener_->address(), ChannelEvents{[](const control::Envelope&) {}, nullptr});
  ASSERT_TRUE(first);
  executor_.post([channel = *first] { channel->send(ping(1, "")); });
  const int second = connect_plain();
  char byte = 0;
  EXPECT_EQ(::recv(second, &byte, 1, 0), 0) << "the second connection was not closed";
  ::close(second);
  run_on_executor([&] { (*first)->close(); });
  wait_for(closed_.get_future());
  closed_ = std::promise<std::string>();

  EXPECT_TRUE(echoes());
}

TEST_F(AsioChannelTest, PeerThatDoesNotReadIsClosedAtTheQueueBound) {
  ListenOptions options;
  options.max_queued_bytes = size_t{8} << 20;
  listen(options);
  const int socket = connect_plain();
  std::string frame;
  ASSERT_TRUE(encode_frame(ping(1, std::string(60'000, 'x')), frame));
  bool refused = false;
  for (int i = 0; i < 20'000 && !refused; ++i) {
    refused = ::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL) < 0;
  }
  ::close(socket);

  EXPECT_TRUE(refused);
  EXPECT_NE(wait_for(closed_.get_future()).find("unread"), std::string::npos);
}

TEST_F(AsioChannelTest, PortInUseNamesListenerAddressErrnoAndRemedy) {
  listen();
  const NetAddress taken = listener_->address();
  const auto second = listen_asio(executor_, taken, {}, [](std::shared_ptr<Channel>) { return ChannelEvents{}; });

  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), StatusCode::kConfiguration);
  for (const std::string& part : {std::string("control listener"), taken.to_string(), std::string("(errno 98)"),
                                  std::string("--listen")}) {
    EXPECT_NE(second.error().message().find(part), std::string::npos) << part << " in " << second.error().message();
  }
}

TEST_F(AsioChannelTest, ListenAddressOfAnotherHostIsAConfigurationError) {
  const auto result = listen_asio(executor_, NetAddress{"192.0.2.1", 0}, {},
                                  [](std::shared_ptr<Channel>) { return ChannelEvents{}; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), StatusCode::kConfiguration);
  EXPECT_NE(result.error().message().find("192.0.2.1:0"), std::string::npos);
}

TEST_F(AsioChannelTest, NameWithSeveralAddressesIsTriedInTurn) {
  listen();  // on 127.0.0.1 alone; "localhost" is ::1 as well where IPv6 is on
  const auto channel = dial(NetAddress{"localhost", listener_->address().port}, {});

  EXPECT_TRUE(channel) << channel.error().message();
}

TEST_F(AsioChannelTest, DialThatFailsNamesAddressAndReason) {
  listen();
  const NetAddress address = listener_->address();
  listener_.reset();
  run_on_executor([] {});
  const auto refused = dial(address, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.error().message().find(address.to_string()), std::string::npos);
  EXPECT_NE(refused.error().message().find("(errno 111)"), std::string::npos) << refused.error().message();

  const auto unknown = dial(NetAddress{"no-such-name.invalid", 7400}, {}, 20 * kSecond);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), StatusCode::kConfiguration);
  EXPECT_NE(unknown.error().message().find("no-such-name.invalid"), std::string::npos);
}

TEST_F(AsioChannelTest, DroppedChannelClosesItsConnectionFromAnyThread) {
  listen();
  auto channel = dial(listener_->address(), {});
  ASSERT_TRUE(channel);
  channel = fail(StatusCode::kInternal, "dropped");

  EXPECT_NE(wait_for(closed_.get_future()).find("closed by the peer"), std::string::npos);
}

TEST_F(AsioChannelTest, TimersRunInOrderAndCancelledOnesNever) {
  std::promise<std::string> done;
  std::string order;
  executor_.post([&] {
    executor_.after(20 * kMillisecond, [&] { done.set_value(order + "c"); });
    const auto cancelled = executor_.after(kMillisecond, [&] { order += "x"; });
    executor_.after(5 * kMillisecond, [&] { order += "b"; });
    executor_.post([&] { order += "a"; });
    executor_.cancel(cancelled);
  });

  EXPECT_EQ(wait_for(done.get_future()), "abc");
}

TEST(AsioExecutorStop, EndsWithChannelsDialsTimersAndFunctionsUnderWay) {
  std::shared_ptr<Channel> survivor;
  {
    AsioExecutor executor(system_clock());
    const auto dialer = make_asio_dialer(executor);
    executor.start();
    std::vector<std::shared_ptr<Channel>> accepted;
    auto listener = listen_asio(executor, NetAddress{"127.0.0.1", 0}, {}, [&](std::shared_ptr<Channel> channel) {
      accepted.push_back(channel);
      return ChannelEvents{[channel](const control::Envelope&) {}, nullptr};
    });
    ASSERT_TRUE(listener);
    std::promise<void> dialled;
    executor.post([&] {
      dialer->dial((*listener)->address(), kSecond, [&](Result<std::shared_ptr<Channel>> channel) {
        survivor = *channel;
        dialled.set_value();
      }, {});
    });
    wait_for(dialled.get_future());
    executor.post([&] {
      executor.after(3600 * kSecond, [survivor] {});
      dialer->dial(NetAddress{"192.0.2.1", 1}, 3600 * kSecond, [survivor](auto) {}, {});
    });
    executor.stop();
    executor.post([survivor] { FAIL() << "ran after stop"; });
  }
  EXPECT_FALSE(survivor->peer().empty());
  survivor.reset();
}

}  // namespace
}  // namespace skua
