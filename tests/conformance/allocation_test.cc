// After warm-up no transport allocates: neither the queue pair nor the target's threads, which run in this process.
#include <gtest/gtest.h>

#include "tests/conformance/counting_allocator.h"
#include "tests/conformance/harness.h"

namespace skua::conformance {
namespace {

class Allocation : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Transport, Allocation, testing::Values("shm", "tcp", "verbs", "verbs_nic"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Allocation, DataPathAllocatesNothing) {
  const auto fixture = make_fixture(GetParam());
  if (!fixture->missing().empty()) GTEST_SKIP() << fixture->missing();
  const Arena arena(4 * kMiB);
  auto target = fixture->make_target({}, arena.info());
  ASSERT_TRUE(target) << target.error().to_string();
  Session session = make_session(1, arena, {{RegionKey{5}, 0, 4 * kMiB}});
  session.target.address = (*target)->endpoint();
  (*target)->admit(session.ticket);
  const auto connector = fixture->make_connector(system_clock());
  auto queue_pair = connector->connect(session.target);
  ASSERT_TRUE(queue_pair);
  ASSERT_EQ(settle(**queue_pair), QueuePairState::kReady);

  std::vector<std::byte> value(64 << 10);
  std::vector<WorkRequest> requests;
  uint64_t found = 0;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(write_request({RegionKey{5}, 4096}, value.data(), 1000));
    requests.push_back(cas_request({RegionKey{5}, 8}, 0, 1, &found));
    requests.push_back(read_request({RegionKey{5}, 4096}, value.data(), 64 << 10));
  }
  const auto round = [&] {
    size_t posted = 0;
    size_t done = 0;
    while (done < requests.size() && (*queue_pair)->state() == QueuePairState::kReady) {
      posted += (*queue_pair)->post(std::span(requests).subspan(posted));
      Completion completions[32];
      done += (*queue_pair)->poll(completions);
    }
  };
  for (int i = 0; i < 50; ++i) round();
  const uint64_t before = allocations();
  for (int i = 0; i < 200; ++i) round();
  EXPECT_EQ(allocations() - before, 0U);
  EXPECT_EQ((*queue_pair)->state(), QueuePairState::kReady);
}

}  // namespace
}  // namespace skua::conformance
