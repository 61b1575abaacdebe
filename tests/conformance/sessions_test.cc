// Who is let in, how a session's connection ends, and what its client sees of that.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <optional>
#include <thread>

#include "common/base/remote_memory.h"
#include "tests/conformance/harness.h"

namespace skua::conformance {
namespace {

constexpr RegionKey kKey{0x51c3};

class Sessions : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!fixture_->missing().empty()) GTEST_SKIP() << fixture_->missing();
    make_target();
  }

  void make_target() {
    target_.reset();
    auto target = fixture_->make_target({}, arena_.info());
    ASSERT_TRUE(target) << target.error().to_string();
    target_ = std::move(*target);
  }

  Session session(uint64_t id, RegionKey key = kKey) {
    Session made = make_session(id, arena_, {{key, 0, kMiB}});
    made.target.address = target_->endpoint();
    return made;
  }
  std::unique_ptr<QueuePair> connect(const Session& session) {
    auto queue_pair = connector_->connect(session.target);
    EXPECT_TRUE(queue_pair) << queue_pair.error().to_string();
    settle(**queue_pair);
    return std::move(*queue_pair);
  }
  std::unique_ptr<QueuePair> admit_and_connect(const Session& session) {
    target_->admit(session.ticket);
    auto queue_pair = connect(session);
    EXPECT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
    return queue_pair;
  }
  // Until the queue pair has noticed by itself.
  void expect_lost(QueuePair& queue_pair) {
    poll_until([&] {
      Completion none[1];
      EXPECT_EQ(queue_pair.poll(none), 0U);
      return queue_pair.state() == QueuePairState::kError;
    });
    EXPECT_EQ(queue_pair.error().code(), StatusCode::kPeerLost) << queue_pair.error().to_string();
  }
  void fence_and_wait(SessionId id) {
    std::atomic<int> fenced{0};
    target_->fence(id, [&] { ++fenced; });
    poll_until([&] { return fenced == 1; });
  }

  const std::unique_ptr<Fixture> fixture_ = make_fixture(GetParam());
  Arena arena_{2 * kMiB};
  std::unique_ptr<Target> target_;
  const std::unique_ptr<Connector> connector_ = fixture_->make_connector(system_clock());
};

INSTANTIATE_TEST_SUITE_P(Transport, Sessions, testing::Values("shm", "tcp", "verbs", "verbs_nic"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Sessions, NothingIsTakenBeforeTheHandshakeIsAnswered) {
  const Session one = session(1);
  target_->admit(one.ticket);
  auto queue_pair = connector_->connect(one.target);
  ASSERT_TRUE(queue_pair);
  ASSERT_EQ((*queue_pair)->state(), QueuePairState::kConnecting);
  uint64_t value = 0;
  const WorkRequest request = read_request({kKey, 0}, &value, 8);
  EXPECT_EQ((*queue_pair)->post(std::span(&request, 1)), 0U);
  EXPECT_GE((*queue_pair)->wait_descriptor(), 0);
  ASSERT_EQ(settle(**queue_pair), QueuePairState::kReady);
  EXPECT_EQ(run_one(**queue_pair, request), CompletionStatus::kSuccess);
  poll_until([&] { return target_->connections() == 1; });
}

TEST_P(Sessions, WrongSecretAndUnknownSessionAreRefusedAlike) {
  Session one = session(1);
  target_->admit(one.ticket);
  one.target.secret[15] = static_cast<char>(one.target.secret[15] ^ 1);
  EXPECT_EQ(connect(one)->error().code(), StatusCode::kUnauthenticated);
  auto unknown = connect(session(2));
  EXPECT_EQ(unknown->error().code(), StatusCode::kUnauthenticated);
  EXPECT_NE(unknown->error().message().find(target_->endpoint()), std::string::npos) << "says where";
  one.target.secret = "short";
  auto refused = connector_->connect(one.target);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
}

TEST_P(Sessions, SilentServerEndsTheHandshakeInTime) {
  const auto [listener, endpoint] = fixture_->make_silent_listener();
  Session one = session(1);
  one.target.address = endpoint;
  one.target.response_timeout = 50 * kMillisecond;
  const Nanoseconds begin = system_clock().now();
  auto queue_pair = connect(one);
  ASSERT_EQ(queue_pair->state(), QueuePairState::kError);
  EXPECT_EQ(queue_pair->error().code(), StatusCode::kUnavailable);
  queue_pair.reset();
  EXPECT_LT(system_clock().now() - begin, 3 * kSecond) << "whatever the system still does for it";
}

TEST_P(Sessions, FenceIsConfirmedAtOnceWhenThereIsNoConnection) {
  fence_and_wait(SessionId{77});
  target_->admit(session(1).ticket);
  fence_and_wait(SessionId{1});
  EXPECT_EQ(connect(session(1))->error().code(), StatusCode::kUnauthenticated);
}

TEST_P(Sessions, NothingOfAFencedSessionTakesEffectAfterTheConfirmation) {
  for (uint64_t id = 1; id <= 20; ++id) {
    const Session one = session(id);
    auto queue_pair = admit_and_connect(one);
    std::atomic<uint64_t> done{0};
    std::thread writer([&] {
      std::vector<uint64_t> found(8);
      while (queue_pair->state() == QueuePairState::kReady) {
        std::vector<WorkRequest> requests;
        for (uint64_t& value : found) requests.push_back(add_request({kKey, 64}, 1, &value));
        run(*queue_pair, requests);
        ++done;
      }
    });
    poll_until([&] { return done >= 3; });
    std::atomic<bool> fenced{false};
    uint64_t at_confirmation = 0;
    target_->fence(SessionId{id}, [&] {
      at_confirmation = arena_.word(64);
      fenced = true;
    });
    poll_until([&] { return fenced.load(); });
    writer.join();
    EXPECT_EQ(arena_.word(64), at_confirmation);
    EXPECT_EQ(queue_pair->error().code(), StatusCode::kPeerLost);
    poll_until([&] { return target_->connections() == 0; });
  }
}

TEST_P(Sessions, FenceEndsALongTransfer) {
  const Session one = session(1);
  auto queue_pair = admit_and_connect(one);
  std::vector<std::byte> large(kMiB);
  std::atomic<uint64_t> done{0};
  std::thread writer([&] {
    while (queue_pair->state() == QueuePairState::kReady) {
      run_one(*queue_pair, write_request({kKey, 0}, large.data(), kMiB));
      ++done;
    }
  });
  poll_until([&] { return done >= 2; });
  fence_and_wait(SessionId{1});
  store_word(arena_.at(512), 0xabcdef);
  writer.join();
  EXPECT_EQ(arena_.word(512), 0xabcdefU);
}

TEST_P(Sessions, FencedIdleQueuePairNoticesByPolling) {
  auto queue_pair = admit_and_connect(session(1));
  fence_and_wait(SessionId{1});
  expect_lost(*queue_pair);
  uint64_t value = 0;
  const WorkRequest request = read_request({kKey, 0}, &value, 8);
  EXPECT_EQ(queue_pair->post(std::span(&request, 1)), 0U);
}

TEST_P(Sessions, FencedSessionComesBackWhenItIsAdmittedAgain) {
  const Session one = session(1);
  auto queue_pair = admit_and_connect(one);
  fence_and_wait(SessionId{1});
  EXPECT_EQ(connect(one)->error().code(), StatusCode::kUnauthenticated);
  auto again = admit_and_connect(one);
  uint64_t value = 0;
  EXPECT_EQ(run_one(*again, read_request({kKey, 0}, &value, 8)), CompletionStatus::kSuccess);
}

TEST_P(Sessions, LaterTicketTakesTheEarliersPlace) {
  auto first = admit_and_connect(session(1));
  Session renewed = session(1, RegionKey{0x9999});
  renewed.ticket.secret[3] = static_cast<char>(renewed.ticket.secret[3] ^ 0x40);
  renewed.target.secret = renewed.ticket.secret;
  auto second = admit_and_connect(renewed);
  expect_lost(*first);
  EXPECT_EQ(connect(session(1))->error().code(), StatusCode::kUnauthenticated) << "the old secret";
  uint64_t value = 0;
  EXPECT_EQ(run_one(*second, read_request({RegionKey{0x9999}, 0}, &value, 8)), CompletionStatus::kSuccess);
  EXPECT_EQ(run_one(*second, read_request({kKey, 0}, &value, 8)), CompletionStatus::kRemoteAccessError)
      << "the old key";
}

TEST_P(Sessions, LaterConnectionOfASessionEndsTheEarlier) {
  const Session one = session(1);
  auto first = admit_and_connect(one);
  auto second = connect(one);
  ASSERT_EQ(second->state(), QueuePairState::kReady) << second->error().to_string();
  expect_lost(*first);
  uint64_t value = 0;
  EXPECT_EQ(run_one(*second, read_request({kKey, 0}, &value, 8)), CompletionStatus::kSuccess);
}

TEST_P(Sessions, ReconnectsAfterClose) {
  const Session one = session(1);
  auto queue_pair = admit_and_connect(one);
  for (int i = 0; i < 20; ++i) {
    uint64_t value = 0;
    const WorkRequest request = add_request({kKey, 8}, 1, &value);
    ASSERT_EQ(run_one(*queue_pair, request), CompletionStatus::kSuccess);
    queue_pair->post(std::span(&request, 1));
    queue_pair->close();
    EXPECT_EQ(queue_pair->state(), QueuePairState::kError);
    Completion none[4];
    EXPECT_EQ(queue_pair->poll(none), 0U) << "no completion comes after close";
    queue_pair = connect(one);
    ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  }
  queue_pair.reset();
  poll_until([&] { return target_->connections() == 0; });
}

TEST_P(Sessions, EndOfTheTargetIsPeerLost) {
  auto idle = admit_and_connect(session(1));
  auto busy = admit_and_connect(session(2));
  target_.reset();
  uint64_t value = 0;
  const WorkRequest request = read_request({kKey, 0}, &value, 8);
  const auto completions = run(*busy, {request, request});
  EXPECT_EQ(busy->state(), QueuePairState::kError);
  ASSERT_EQ(completions.size(), 2U);
  for (const Completion& completion : completions) EXPECT_NE(completion.status, CompletionStatus::kSuccess);
  expect_lost(*idle);
  auto none = connector_->connect(make_session(3, arena_, {}).target);
  EXPECT_FALSE(none) << "an empty address reaches nothing";
}

// --- A server in a process of its own -----------------------------------------------------------------------------

class TargetProcess {
 public:
  TargetProcess(const std::string& transport, uint64_t session) {
    char self[4096];
    const ssize_t size = ::readlink("/proc/self/exe", self, sizeof(self));
    const std::string path(self, static_cast<size_t>(size));
    const std::string program = path.substr(0, path.rfind('/')) + "/skua_conformance_target";
    const std::string id = std::to_string(session);
    int in[2];
    int out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    input_.reset(in[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const char* arguments[] = {program.c_str(), transport.c_str(), id.c_str(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, const_cast<char**>(arguments), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    const Descriptor output(out[0]);
    char byte = 0;
    while (::read(output.get(), &byte, 1) == 1 && byte != '\n') endpoint_ += byte;
    EXPECT_FALSE(endpoint_.empty());
  }
  ~TargetProcess() { kill(); }
  TargetProcess(const TargetProcess&) = delete;
  TargetProcess& operator=(const TargetProcess&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  void stop() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  Descriptor input_;
  std::string endpoint_;
};

TEST_P(Sessions, KilledServerIsPeerLost) {
  TargetProcess process(GetParam(), 1);
  Session one = session(1);
  one.target.address = process.endpoint();
  auto queue_pair = connect(one);
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  uint64_t value = 0;
  const WorkRequest request = add_request({RegionKey{1}, 0}, 1, &value);
  ASSERT_EQ(run_one(*queue_pair, request), CompletionStatus::kSuccess);
  process.kill();
  // The process is reaped: what is posted from now on must not seem to succeed.
  const auto completions = run(*queue_pair, {request});
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].status, CompletionStatus::kPeerLost);
  EXPECT_EQ(queue_pair->error().code(), StatusCode::kPeerLost);
  auto again = connector_->connect(one.target);
  if (again) {
    EXPECT_EQ(settle(**again), QueuePairState::kError);
  }
  const Status& why = again ? (*again)->error() : again.error();
  EXPECT_EQ(why.code(), StatusCode::kUnavailable) << why.to_string();
  EXPECT_NE(why.message().find("ECONNREFUSED"), std::string::npos) << why.to_string();
}

TEST_P(Sessions, StoppedServerCostsATimeOutOrNothing) {
  TargetProcess process(GetParam(), 1);
  Session one = session(1);
  one.target.address = process.endpoint();
  one.target.response_timeout = 2 * kSecond;
  auto queue_pair = connect(one);
  ASSERT_EQ(queue_pair->state(), QueuePairState::kReady) << queue_pair->error().to_string();
  uint64_t value = 0;
  const WorkRequest request = read_request({RegionKey{1}, 0}, &value, 8);
  ASSERT_EQ(run_one(*queue_pair, request), CompletionStatus::kSuccess);
  process.stop();
  const Nanoseconds start = system_clock().now();
  const auto completions = run(*queue_pair, {request, request});
  ASSERT_EQ(completions.size(), 2U);
  if (fixture_->server_executes()) {
    EXPECT_EQ(completions[0].status, CompletionStatus::kPeerLost);
    EXPECT_EQ(completions[1].status, CompletionStatus::kFlushed);
    EXPECT_GE(system_clock().now() - start, 2 * kSecond);
    EXPECT_NE(queue_pair->error().message().find("2000 ms"), std::string::npos) << queue_pair->error().to_string();
  } else {
    EXPECT_EQ(completions[1].status, CompletionStatus::kSuccess) << "one-sided: no server is needed";
  }
}

}  // namespace
}  // namespace skua::conformance
