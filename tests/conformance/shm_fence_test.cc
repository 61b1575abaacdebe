// What only shared memory has: a client that is inside an armed section, and rights that the kernel enforces.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>

#include "common/transport/handshake.h"
#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_pages.h"
#include "tests/conformance/harness.h"

namespace skua::conformance {
namespace {

std::atomic_ref<uint64_t> shared(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

// A client by hand: it has what the welcome passes.
struct RawClient {
  Descriptor socket;
  std::vector<Descriptor> passed;
  MappedFile page;
  ShmSessionPage* session() const { return page.as<ShmSessionPage>(); }
};

class ShmFence : public testing::Test {
 protected:
  void SetUp() override {
    auto target = make_shm_target({}, arena_.info());
    ASSERT_TRUE(target) << target.error().to_string();
    target_ = std::move(*target);
  }
  RawClient connect(uint64_t id, bool read_only) {
    Session session = make_session(id, arena_, {{RegionKey{1}, 0, kMiB}});
    session.target.read_only = read_only;
    target_->admit(session.ticket);
    RawClient client;
    client.socket = fixture_->open_socket(target_->endpoint());
    const auto hello = make_hello(session.target);
    EXPECT_EQ(::send(client.socket.get(), &*hello, sizeof(*hello), 0), static_cast<ssize_t>(sizeof(*hello)));
    char bytes[256];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kShmDescriptors)];
    iovec part{bytes, sizeof(bytes)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    EXPECT_EQ(::recvmsg(client.socket.get(), &message, MSG_CMSG_CLOEXEC),
              static_cast<ssize_t>(sizeof(DataWelcome) + sizeof(ShmRegion)));
    int values[kShmDescriptors] = {-1, -1, -1};
    if (CMSG_FIRSTHDR(&message) != nullptr) std::memcpy(values, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(values));
    for (const int value : values) client.passed.emplace_back(value);
    auto page = MappedFile::map(client.passed[kSessionDescriptor].get(), sizeof(ShmSessionPage),
                                read_only ? MappedFile::Access::kRead : MappedFile::Access::kReadWrite);
    EXPECT_TRUE(page) << page.error().to_string();
    client.page = std::move(*page);
    return client;
  }

  const std::unique_ptr<Fixture> fixture_ = make_fixture("shm");
  Arena arena_{2 * kMiB};
  std::unique_ptr<Target> target_;
};

TEST_F(ShmFence, WaitsForAnArmedSection) {
  RawClient client = connect(1, false);
  shared(client.session()->armed).store(1);
  std::atomic<bool> fenced{false};
  target_->fence(SessionId{1}, [&] { fenced = true; });
  poll_until([&] { return shared(client.session()->fenced).load() == 1; });
  // A fence that does not wait would be confirmed before those that are asked for later.
  std::atomic<int> later{0};
  for (int i = 0; i < 20; ++i) target_->fence(SessionId{100}, [&] { ++later; });
  poll_until([&] { return later == 20; });
  EXPECT_FALSE(fenced);
  shared(client.session()->armed).store(0);
  poll_until([&] { return fenced.load(); });
}

TEST_F(ShmFence, IsConfirmedWhenTheArmedQueuePairIsNoMore) {
  RawClient client = connect(1, false);
  shared(client.session()->armed).store(1);
  std::atomic<bool> fenced{false};
  target_->fence(SessionId{1}, [&] { fenced = true; });
  poll_until([&] { return shared(client.session()->fenced).load() == 1; });
  EXPECT_FALSE(fenced);
  client.socket.reset();
  poll_until([&] { return fenced.load(); });
}

TEST_F(ShmFence, AnotherConnectionWaitsForTheArmedOne) {
  RawClient client = connect(1, false);
  shared(client.session()->armed).store(1);
  Session session = make_session(1, arena_, {{RegionKey{1}, 0, kMiB}});
  session.target.address = target_->endpoint();
  const auto connector = fixture_->make_connector(system_clock());
  auto queue_pair = connector->connect(session.target);
  ASSERT_TRUE(queue_pair);
  poll_until([&] { return shared(client.session()->fenced).load() == 1; });
  (*queue_pair)->poll({});
  EXPECT_EQ((*queue_pair)->state(), QueuePairState::kConnecting);
  shared(client.session()->armed).store(0);
  EXPECT_EQ(settle(**queue_pair), QueuePairState::kReady);
}

TEST_F(ShmFence, ReadOnlyDescriptorsCannotBeMappedWritable) {
  const RawClient client = connect(1, true);
  for (const Descriptor& passed : client.passed) {
    void* range = ::mmap(nullptr, 64, PROT_READ | PROT_WRITE, MAP_SHARED, passed.get(), 0);
    EXPECT_EQ(range, MAP_FAILED);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(::write(passed.get(), "x", 1), -1);
  }
}

TEST_F(ShmFence, NoClientCanShortenWhatItWasPassed) {
  const RawClient client = connect(1, false);
  for (const Descriptor& passed : client.passed) EXPECT_NE(::ftruncate(passed.get(), 0), 0);
}

TEST_F(ShmFence, BytesBehindTheHelloEndTheConnection) {
  RawClient client = connect(1, false);
  ASSERT_EQ(::send(client.socket.get(), "more", 4, 0), 4);
  poll_until([&] { return shared(client.session()->fenced).load() == 1; });
  char byte = 0;
  EXPECT_LE(::recv(client.socket.get(), &byte, 1, 0), 0);
}

TEST(ShmListener, AddressInUseIsNamed) {
  const Arena arena(kMiB);
  const auto first = make_shm_target({}, arena.info());
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->endpoint().rfind("@skua-", 0), 0U);
  ShmTargetOptions options;
  options.address = (*first)->endpoint();
  const auto second = make_shm_target(options, arena.info());
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find("EADDRINUSE"), std::string::npos) << second.error().to_string();
  EXPECT_NE(second.error().message().find((*first)->endpoint()), std::string::npos);
}

TEST(ShmListener, ArenaWithoutAFileIsRefused) {
  std::byte memory[64];
  const auto target = make_shm_target({}, {memory, sizeof(memory), -1});
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code(), StatusCode::kConfiguration);
}

TEST(ShmConnector, AddressOfNobodyIsUnavailableAtOnce) {
  const auto connector = make_shm_connector(system_clock());
  ConnectTarget target;
  target.secret.assign(16, 's');
  target.address = "@skua-nobody-is-here";
  const auto queue_pair = connector->connect(target);
  ASSERT_FALSE(queue_pair);
  EXPECT_EQ(queue_pair.error().code(), StatusCode::kUnavailable) << queue_pair.error().to_string();
  target.address = "127.0.0.1:7400";
  EXPECT_FALSE(connector->connect(target));
}

}  // namespace
}  // namespace skua::conformance
