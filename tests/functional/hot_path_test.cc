// After warm-up, a GET or an UPDATE over shm allocates nothing, and its thread makes no system call.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <new>

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

// Counts what the kernel does for this thread: a spinning session over shm gives it nothing to do.
TEST(HotPathSystemCalls, NoneOverSharedMemory) {
  LocalCluster cluster;
  ClientOptions options = cluster.client_options("shm");
  options.wait_mode = WaitMode::kSpin;
  const auto client = cluster.connect(options);
  const auto session = std::move(*client->open_session());
  ASSERT_TRUE(session->put("key", "value"));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(session->get("key"));
  rusage before{};
  getrusage(RUSAGE_THREAD, &before);
  for (int i = 0; i < 1'000'000; ++i) {
    if (!session->get("key")) FAIL();
  }
  rusage after{};
  getrusage(RUSAGE_THREAD, &after);
  // A million system calls of 100 ns or more would be 100 ms of system time; a blocked one would be a voluntary switch.
  const auto system_us = (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1'000'000 + after.ru_stime.tv_usec -
                         before.ru_stime.tv_usec;
  EXPECT_LT(system_us, 50'000);
  EXPECT_EQ(after.ru_nvcsw - before.ru_nvcsw, 0);
}

}  // namespace
}  // namespace skua
