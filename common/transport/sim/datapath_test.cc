// What the simulated data plane promises, as every transport does.
#include <algorithm>

#include "common/transport/sim/sim_fixture.h"

namespace skua::sim {
namespace {

TEST(SimDataPath, ReadWriteAndAtomicsTakeEffect) {
  DataPlane plane(1);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<uint64_t> written = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const WorkRequest write[] = {transfer(Verb::kWrite, 5, written, 77)};
  const auto after_write = plane.run(*qp, write);
  ASSERT_EQ(after_write.size(), 1u);
  EXPECT_EQ(after_write[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(after_write[0].context, 77u);
  EXPECT_TRUE(std::equal(written.begin(), written.end(), plane.memory.begin() + 5));

  std::vector<uint64_t> read(10);
  const WorkRequest reads[] = {transfer(Verb::kRead, 5, read)};
  plane.run(*qp, reads);
  EXPECT_EQ(read, written);

  uint64_t found = 0;
  const WorkRequest swap[] = {compare_and_swap({5, 1, 100}, found)};
  plane.run(*qp, swap);
  EXPECT_EQ(found, 1u);
  EXPECT_EQ(plane.memory[5], 100u);
  WorkRequest add = compare_and_swap({6, 0, 40}, found);
  add.verb = Verb::kFetchAndAdd;
  plane.run(*qp, std::span(&add, 1));
  EXPECT_EQ(found, 2u);
  EXPECT_EQ(plane.memory[6], 42u);
}

TEST(SimDataPath, ScatterAndGatherOverSegments) {
  DataPlane plane(1);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<uint64_t> a = {1, 2};
  std::vector<uint64_t> b = {3, 4, 5};
  WorkRequest request = transfer(Verb::kWrite, 100, a);
  request.local[1] = LocalSegment{b.data(), 24};
  request.local_count = 2;
  plane.run(*qp, std::span(&request, 1));
  EXPECT_EQ(plane.memory[104], 5u);
  request.verb = Verb::kRead;
  a = {0, 0};
  b = {0, 0, 0};
  plane.run(*qp, std::span(&request, 1));
  EXPECT_EQ(a, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(b, (std::vector<uint64_t>{3, 4, 5}));
}

TEST(SimDataPath, ALargeMessageArrivesWhole) {
  FaultPlan plan = FaultPlan::calm();
  plan.lines_apart_max = 16;
  DataPlane plane(1, plan);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<uint64_t> written(4000);
  for (size_t i = 0; i < written.size(); ++i) written[i] = i + 1;
  std::vector<uint64_t> read(written.size());
  const WorkRequest write = transfer(Verb::kWrite, 3, written);
  const WorkRequest back = transfer(Verb::kRead, 3, read);
  plane.run(*qp, std::span(&write, 1));
  plane.run(*qp, std::span(&back, 1));
  EXPECT_EQ(read, written);
}

// Looks after every event whether what was posted later is there before what was posted earlier.
TEST(SimDataPath, WriteBeforeWriteAndWriteBeforeCasStayInOrder) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FaultPlan plan = FaultPlan::calm();
    plan.slow_line_chance = 0.3;
    DataPlane plane(seed, plan);
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> ones(32, 1);
    uint64_t found = 0;
    const WorkRequest chain[] = {transfer(Verb::kWrite, 0, ones), transfer(Verb::kWrite, 64, ones),
                                 compare_and_swap({128, 0, 1}, found)};
    ASSERT_EQ(qp->post(chain), 3u);
    while (plane.world.step()) {
      const auto whole = [&](size_t from) {
        return std::all_of(&plane.memory[from], &plane.memory[from] + 32, [](uint64_t w) { return w == 1; });
      };
      const bool any_second = std::any_of(&plane.memory[64], &plane.memory[96], [](uint64_t w) { return w != 0; });
      EXPECT_TRUE(!any_second || whole(0)) << "seed " << seed;
      EXPECT_TRUE(plane.memory[128] == 0 || (whole(0) && whole(64))) << "seed " << seed;
    }
    EXPECT_EQ(plane.memory[128], 1u);
  }
}

TEST(SimDataPath, CasBeforeCasAndCasBeforeReadStayInOrder) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FaultPlan plan = FaultPlan::calm();
    plan.slow_line_chance = 0.5;
    DataPlane plane(seed, plan);
    const auto qp = plane.connect(plane.client, 1);
    uint64_t first = 9;
    uint64_t second = 9;
    std::vector<uint64_t> read(8);
    const WorkRequest chain[] = {compare_and_swap({0, 0, 1}, first), compare_and_swap({0, 1, 2}, second),
                                 transfer(Verb::kRead, 0, read)};
    plane.run(*qp, chain);
    EXPECT_EQ(first, 0u);
    EXPECT_EQ(second, 1u) << "seed " << seed;
    EXPECT_EQ(read[0], 2u) << "seed " << seed;
  }
}

TEST(SimDataPath, CompletionsComeInOrderAndUnsignaledOnesAreSilent) {
  FaultPlan plan = FaultPlan::calm();
  plan.slow_line_chance = 0.5;
  DataPlane plane(3, plan);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<std::vector<uint64_t>> buffers(20, std::vector<uint64_t>(8));
  std::vector<WorkRequest> requests;
  for (size_t i = 0; i < 20; ++i) {
    requests.push_back(transfer(Verb::kRead, i * 8, buffers[i], i));
    requests.back().signaled = i % 4 == 3;
  }
  const auto completions = plane.run(*qp, requests);
  ASSERT_EQ(completions.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(completions[i].context, i * 4 + 3);
}

TEST(SimDataPath, PostTakesNoMoreThanTheQueueHolds) {
  FaultPlan plan = FaultPlan::calm();
  plan.queue_depth = 4;
  DataPlane plane(3, plan);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<uint64_t> buffer(1);
  const std::vector<WorkRequest> requests(7, transfer(Verb::kRead, 0, buffer));
  EXPECT_EQ(qp->post(requests), 4u);
  EXPECT_EQ(qp->post(requests), 0u);
  plane.world.run_for(kMillisecond);
  Completion completions[8];
  EXPECT_EQ(qp->poll(completions), 4u);
  EXPECT_EQ(qp->post(requests), 4u);
}

TEST(SimDataPath, ForeignKeyWrongRangeAndReadOnlySessionAreRefusedWithoutEffect) {
  for (int what = 0; what < 4; ++what) {
    DataPlane plane(3);
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> ones(8, 1);
    WorkRequest bad = transfer(Verb::kWrite, 0, ones, 1);
    if (what == 0) bad.key = RegionKey{12};
    if (what == 1) bad.remote_offset = DataPlane::kWords * 8 - 56;
    if (what == 2) plane.admit(1, DataPlane::kKey, true);
    if (what == 3) bad.remote_offset = ~uint64_t{0} - 8;
    const WorkRequest chain[] = {bad, transfer(Verb::kWrite, 64, ones, 2)};
    const auto completions = plane.run(*qp, chain);
    ASSERT_EQ(completions.size(), 2u) << what;
    EXPECT_EQ(completions[0].status, CompletionStatus::kRemoteAccessError) << what;
    EXPECT_EQ(completions[1].status, CompletionStatus::kFlushed) << what;
    EXPECT_EQ(qp->state(), QueuePairState::kError);
    EXPECT_EQ(qp->post(chain), 0u);
    EXPECT_EQ(std::count(plane.memory.begin(), plane.memory.end(), 1u), 0) << what;
  }
}

TEST(SimDataPath, UnalignedAtomicIsABadRequest) {
  DataPlane plane(3);
  const auto qp = plane.connect(plane.client, 1);
  uint64_t found = 0;
  WorkRequest request = compare_and_swap({0, 0, 1}, found);
  request.remote_offset = 4;
  const auto completions = plane.run(*qp, std::span(&request, 1));
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, CompletionStatus::kBadRequest);
  EXPECT_EQ(plane.memory[0], 0u);
}

TEST(SimDataPath, RevokedKeyStopsWorking) {
  DataPlane plane(3);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<uint64_t> buffer(1);
  const WorkRequest read[] = {transfer(Verb::kRead, 0, buffer)};
  ASSERT_EQ(plane.run(*qp, read)[0].status, CompletionStatus::kSuccess);
  plane.admit(1, RegionKey{4711});
  EXPECT_EQ(plane.run(*qp, read)[0].status, CompletionStatus::kRemoteAccessError);
}

TEST(SimDataPath, WrongSecretAndUnknownServerDoNotConnect) {
  DataPlane plane(3);
  plane.admit(1);
  ConnectTarget wrong = plane.where(1);
  wrong.secret = "guess";
  const auto connector = plane.client.make_connector();
  auto refused = connector->connect(wrong);
  ConnectTarget nobody = plane.where(1);
  nobody.address = "sim:99";
  auto lost = connector->connect(nobody);
  plane.world.run_for(kSecond);
  ASSERT_EQ((*refused)->state(), QueuePairState::kError);
  EXPECT_EQ((*refused)->error().code(), StatusCode::kUnauthenticated);
  ASSERT_EQ((*lost)->state(), QueuePairState::kError);
  EXPECT_EQ((*lost)->error().code(), StatusCode::kPeerLost);
  nobody.address = "shm:here";
  EXPECT_FALSE(connector->connect(nobody));
}

TEST(SimDataPath, FenceIsConfirmedOnceAndEndsTheSession) {
  DataPlane plane(3);
  const auto qp = plane.connect(plane.client, 1);
  EXPECT_EQ(plane.target->connections(), 1u);
  int confirmed = 0;
  plane.target->fence(SessionId{1}, [&] { ++confirmed; });
  plane.world.run_for(kSecond);
  EXPECT_EQ(confirmed, 1);
  EXPECT_EQ(plane.target->connections(), 0u);
  EXPECT_EQ(qp->state(), QueuePairState::kError);
  auto again = plane.client.make_connector()->connect(plane.where(1));
  plane.world.run_for(kSecond);
  EXPECT_EQ((*again)->state(), QueuePairState::kError) << "the ticket is forgotten";
  plane.target->fence(SessionId{1}, [&] { ++confirmed; });
  plane.world.run_for(kSecond);
  EXPECT_EQ(confirmed, 2);
}

TEST(SimDataPath, SessionAdmittedAgainDuringItsFenceGetsIn) {
  DataPlane plane(3);
  const auto qp = plane.connect(plane.client, 1);
  plane.target->fence(SessionId{1}, [] {});
  const auto next = plane.connect(plane.client, 1);
  plane.world.run_for(kSecond);
  EXPECT_EQ(qp->state(), QueuePairState::kError);
  EXPECT_EQ(next->state(), QueuePairState::kReady);
}

TEST(SimDataPath, ServerCrashShowsAsPeerLostWithinTheTimeOut) {
  DataPlane plane(3);
  const auto qp = plane.connect(plane.client, 1);
  plane.server.crash();
  std::vector<uint64_t> buffer(1, 7);
  const WorkRequest write[] = {transfer(Verb::kWrite, 0, buffer)};
  const auto completions = plane.run(*qp, write);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, CompletionStatus::kPeerLost);
  EXPECT_EQ(plane.memory[0], 0u);
}

TEST(SimDataPath, PausedServersMemoryIsStillReached) {
  DataPlane plane(3);
  const auto qp = plane.connect(plane.client, 1);
  plane.server.pause(100 * kSecond);
  std::vector<uint64_t> buffer(1, 7);
  const WorkRequest write[] = {transfer(Verb::kWrite, 0, buffer)};
  EXPECT_EQ(plane.run(*qp, write)[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(plane.memory[0], 7u);
}

TEST(SimDataPath, ActivityIsSignalledToTheProcess) {
  DataPlane plane(3);
  int woken = 0;
  plane.client.on_activity([&] { ++woken; });
  const auto qp = plane.connect(plane.client, 1);
  plane.world.run_for(kMillisecond);
  EXPECT_EQ(woken, 1) << "ready";
  std::vector<uint64_t> buffer(1);
  const WorkRequest read[] = {transfer(Verb::kRead, 0, buffer)};
  plane.run(*qp, read);
  plane.world.run_for(kMillisecond);
  EXPECT_EQ(woken, 2);
}

TEST(SimDataPathDeathTest, ChangingTheBytesOfAWriteUnderWayIsABug) {
  DataPlane plane(3);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<uint64_t> buffer(1, 7);
  const WorkRequest write[] = {transfer(Verb::kWrite, 0, buffer)};
  ASSERT_EQ(qp->post(write), 1u);
  buffer[0] = 8;
  EXPECT_DEATH(plane.world.run_for(kSecond), "local memory of a WRITE");
}

}  // namespace
}  // namespace skua::sim
