// After warm-up, a GET or an UPDATE over shm allocates nothing, and its thread makes no system call.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <thread>

#include "tests/functional/local_cluster.h"

namespace {

thread_local uint64_t allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 16); }
void* operator new[](std::size_t bytes) { return counted(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
// g++ sees a `new` expression of its own and this free, and not that both are replaced here.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace skua {
namespace {

using testing::LocalCluster;

class HotPath : public ::testing::TestWithParam<const char*> {};

TEST_P(HotPath, CachedAndColdGetAllocateNothing) {
  LocalCluster cluster;
  ClientOptions options = cluster.client_options(GetParam());
  for (const size_t entries : {size_t{0}, size_t{1024}}) {
    options.cache_entries = entries;
    const auto client = cluster.connect(options);
    const auto session = std::move(*client->open_session());
    const std::string key = "key";
    const std::string value(900, 'v');
    ASSERT_TRUE(session->put(key, value));
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(session->get(key));
    const uint64_t before = allocations;
    for (int i = 0; i < 10'000; ++i) {
      const auto got = session->get(key);
      if (!got || !*got || (*got)->bytes.size() != value.size()) FAIL();
    }
    // An epoch may be reported in between, which is not the hot path: far fewer than one in a hundred operations.
    EXPECT_LT(allocations - before, 50U);
  }
}

TEST_P(HotPath, UpdateAllocatesNothingButForGrants) {
  LocalCluster cluster;
  const auto client = cluster.connect(cluster.client_options(GetParam()));
  const auto session = std::move(*client->open_session());
  const std::string key = "key";
  const std::string value(100, 'v');
  for (int i = 0; i < 5'000; ++i) ASSERT_TRUE(session->put(key, value));
  const uint64_t before = allocations;
  for (int i = 0; i < 10'000; ++i) {
    if (!session->put(key, value)) FAIL();
  }
  EXPECT_LT(allocations - before, 10'000U / 10);
}

INSTANTIATE_TEST_SUITE_P(Transports, HotPath, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

// --- System calls: a seccomp filter on the session's thread turns each into a signal, which counts it and fails it.

std::atomic<uint64_t> system_calls{0};

void count_system_call(int, siginfo_t*, void* context) {
  ++system_calls;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
}

bool trap_system_calls_of_this_thread() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  const sock_fprog filter{static_cast<uint16_t>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(HotPathSystemCalls, NoneOverSharedMemory) {
  LocalCluster cluster;
  ClientOptions options = cluster.client_options("shm");
  options.wait_mode = WaitMode::kSpin;
  const auto client = cluster.connect(options);
  const auto session = std::move(*client->open_session());
  ASSERT_TRUE(session->put("key", "value"));
  struct sigaction action{};
  action.sa_sigaction = count_system_call;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSYS, &action, nullptr), 0);
  std::atomic<int> failures{0};
  std::atomic<uint64_t> in_loop{0};
  std::atomic<bool> trapped{false};
  std::atomic<bool> counts{false};
  std::thread thread([&] {
    for (int i = 0; i < 1000; ++i) {
      if (!session->get("key")) ++failures;  // warms up this thread's free lists
    }
    trapped = trap_system_calls_of_this_thread();
    if (!trapped) return;
    // One that is made on purpose: the counter works.
    syscall(SYS_getppid);
    counts = system_calls == 1;
    for (int i = 0; i < 100'000; ++i) {
      if (!session->get("key")) ++failures;
    }
    in_loop = system_calls - 1;
    syscall(SYS_exit, 0);  // the only call that is still allowed
  });
  thread.join();
  ASSERT_TRUE(trapped) << "no seccomp filter can be set here";
  EXPECT_TRUE(counts);
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(in_loop, 0U);
}

}  // namespace
}  // namespace skua
