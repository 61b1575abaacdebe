// That the simulated data plane is as weak as it says: each test waits for something to go wrong, and nothing worse.
#include <algorithm>
#include <set>

#include "common/transport/sim/sim_fixture.h"

namespace skua::sim {
namespace {

constexpr uint64_t kSeeds = 60;

TEST(SimWeakness, WriteIsSeenInPartLineByLine) {
  size_t torn = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    DataPlane plane(seed);
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> ones(32, 1);
    const WorkRequest write[] = {transfer(Verb::kWrite, 0, ones)};
    ASSERT_EQ(qp->post(write), 1u);
    const auto line = [&](size_t i) { return std::count(&plane.memory[i * 8], &plane.memory[i * 8] + 8, 1u); };
    bool later_first = false;
    while (plane.world.step()) {
      for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(line(i) == 0 || line(i) == 8) << "a line is never torn";
      later_first = later_first || (line(3) == 8 && line(0) == 0);
    }
    torn += later_first ? 1 : 0;
  }
  EXPECT_GT(torn, kSeeds / 10);
}

TEST(SimWeakness, ReadIsTornByAWriterBetweenItsLines) {
  size_t torn = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    DataPlane plane(seed);
    SimProcess& other = plane.world.add_process("other");
    const auto reader = plane.connect(plane.client, 1);
    const auto writer = plane.connect(other, 2);
    std::vector<uint64_t> ones(32, 1);
    std::vector<uint64_t> seen(32);
    const WorkRequest write[] = {transfer(Verb::kWrite, 0, ones)};
    const WorkRequest read[] = {transfer(Verb::kRead, 0, seen)};
    ASSERT_EQ(writer->post(write), 1u);
    plane.run(*reader, read);
    const auto count = std::count(seen.begin(), seen.end(), 1u);
    torn += count != 0 && count != 32 ? 1 : 0;
  }
  EXPECT_GT(torn, kSeeds / 4);
}

TEST(SimWeakness, TwoReadsOfOneQueuePairSwapPlaces) {
  size_t swapped = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    DataPlane plane(seed);
    const auto qp = plane.connect(plane.client, 1);
    // The server stores to word 8 after every event: a later reading is larger.
    std::vector<uint64_t> first(1);
    std::vector<uint64_t> second(1);
    const WorkRequest reads[] = {transfer(Verb::kRead, 8, first), transfer(Verb::kRead, 8, second)};
    ASSERT_EQ(qp->post(reads), 2u);
    for (int i = 0; i < 200; ++i) {
      plane.world.run_for(50);
      ++plane.memory[8];
    }
    plane.world.run_for(kMillisecond);
    swapped += first[0] > second[0] ? 1 : 0;
  }
  EXPECT_GT(swapped, kSeeds / 10);
}

TEST(SimWeakness, ReadOvertakesTheWriteBeforeItButNotTheCas) {
  size_t overtook = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    DataPlane plane(seed);
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> ones(64, 1);
    std::vector<uint64_t> seen(64);
    const WorkRequest chain[] = {transfer(Verb::kWrite, 0, ones), transfer(Verb::kRead, 0, seen)};
    plane.run(*qp, chain);
    overtook += std::count(seen.begin(), seen.end(), 0u) > 0 ? 1 : 0;
  }
  EXPECT_GT(overtook, kSeeds / 4);
}

struct Fates {
  size_t landed = 0;
  size_t lost = 0;
  size_t in_part = 0;
  size_t after_the_error = 0;
};

// One WRITE on a connection that breaks, watched until long after.
Fates fates_of_a_broken_write(bool close_early) {
  Fates fates;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    FaultPlan plan = FaultPlan::calm();
    plan.break_chance = close_early ? 0 : 1;
    plan.late_chance = 0.5;
    DataPlane plane(seed, plan);
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> ones(64, 1);
    const WorkRequest write[] = {transfer(Verb::kWrite, 0, ones)};
    EXPECT_EQ(qp->post(write), 1u);
    if (close_early) qp->close();
    const auto landed = [&] { return std::count(plane.memory.begin(), plane.memory.begin() + 64, 1u); };
    if (!close_early) {
      EXPECT_TRUE(plane.world.run_until([&] { return qp->state() == QueuePairState::kError; }, kSecond));
      Completion completion;
      EXPECT_EQ(qp->poll(std::span(&completion, 1)), 1u);
      EXPECT_EQ(completion.status, CompletionStatus::kPeerLost);
    }
    const auto before = landed();
    plane.world.run_for(10 * kSecond);
    fates.landed += landed() == 64 ? 1 : 0;
    fates.lost += landed() == 0 ? 1 : 0;
    fates.in_part += landed() != 0 && landed() != 64 ? 1 : 0;
    fates.after_the_error += landed() != before ? 1 : 0;
  }
  return fates;
}

TEST(SimWeakness, BrokenWriteLandsOrNotOrInPartOrLongAfterItsError) {
  const Fates fates = fates_of_a_broken_write(false);
  EXPECT_GT(fates.landed, 20u);
  EXPECT_GT(fates.lost, 5u);
  EXPECT_GT(fates.in_part, 5u);
  EXPECT_GT(fates.after_the_error, 10u);
}

TEST(SimWeakness, ClosedQueuePairsWriteStillLands) {
  const Fates fates = fates_of_a_broken_write(true);
  EXPECT_GT(fates.landed, 20u);
  EXPECT_GT(fates.after_the_error, 20u);
  EXPECT_GT(fates.lost + fates.in_part, 5u);
}

TEST(SimWeakness, OrderHoldsForWhatLandsLateOrNotAtAll) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    FaultPlan plan = FaultPlan::calm();
    plan.break_chance = 0.2;
    plan.late_chance = 0.7;
    plan.slow_line_chance = 0.2;
    DataPlane plane(seed, plan);
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> ones(32, 1);
    std::vector<uint64_t> found(8);
    std::vector<WorkRequest> chain;
    for (uint64_t i = 0; i < 8; ++i) {
      chain.push_back(transfer(Verb::kWrite, i * 32, ones));
      chain.push_back(compare_and_swap({1024 + i, 0, 1}, found[i]));
    }
    ASSERT_EQ(qp->post(chain), chain.size());
    plane.world.run_for(plane.world.between(1, 20'000));
    if (seed % 3 == 0) qp->close();
    if (seed % 3 == 1) plane.client.crash();
    while (plane.world.step()) {
      for (uint64_t i = 0; i < 8; ++i) {
        if (plane.memory[1024 + i] == 0) continue;
        EXPECT_EQ(std::count(&plane.memory[0], &plane.memory[i * 32] + 32, 1u), static_cast<ptrdiff_t>(i * 32 + 32))
            << "seed " << seed << " CAS " << i;
        EXPECT_TRUE(i == 0 || plane.memory[1024 + i - 1] == 1) << "seed " << seed;
      }
      if (HasFailure()) return;
    }
  }
}

TEST(SimWeakness, NothingLandsAfterTheFenceIsConfirmed) {
  size_t landed_before = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    FaultPlan plan = FaultPlan::calm();
    plan.late_chance = 1;
    plan.late_max = kMillisecond;
    plan.fence_max = kMillisecond;
    DataPlane plane(seed, plan);
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> ones(256, 1);
    const WorkRequest write[] = {transfer(Verb::kWrite, 0, ones)};
    ASSERT_EQ(qp->post(write), 1u);
    plane.client.crash();
    bool fenced = false;
    plane.target->fence(SessionId{1}, [&] { fenced = true; });
    ASSERT_TRUE(plane.world.run_until([&] { return fenced; }, kSecond));
    const std::vector<uint64_t> then = plane.memory;
    landed_before += then[0] == 1 || then[255] == 1 ? 1 : 0;
    plane.world.run_for(10 * kSecond);
    EXPECT_EQ(plane.memory, then) << "seed " << seed;
  }
  EXPECT_GT(landed_before, 20u) << "until it is confirmed, it lands";
}

TEST(SimWeakness, FailedCasThatWritesBackUndoesTheServersStore) {
  size_t undone = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FaultPlan plan = FaultPlan::calm();
    plan.failed_cas_writes_back = true;
    DataPlane plane(seed, plan);
    const auto qp = plane.connect(plane.client, 1);
    uint64_t found = 77;
    const WorkRequest cas[] = {compare_and_swap({0, 5, 6}, found)};
    ASSERT_EQ(qp->post(cas), 1u);
    const auto failed = [&] { return plane.world.trace().to_string(1).find("CAS lost") != std::string::npos; };
    ASSERT_TRUE(plane.world.run_until(failed, kSecond));
    plane.memory[0] = 1;
    plane.world.run_for(kSecond);
    undone += plane.memory[0] == 0 ? 1 : 0;
  }
  EXPECT_EQ(undone, kSeeds);
}

// Adds 1 to word 0, fifty times, by CAS.
class Adder {
 public:
  Adder(DataPlane& plane, SimProcess& process, uint64_t session) : qp_(plane.connect(process, session)) {
    process.on_activity([this] { go_on(); });
    go_on();
  }
  size_t added = 0;
  size_t lost = 0;

 private:
  void go_on() {
    Completion completion;
    while (qp_->poll(std::span(&completion, 1)) == 1) {
      ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
      under_way_ = false;
      (found_ == expected_ ? added : lost) += 1;
      expected_ = found_ == expected_ ? expected_ + 1 : found_;
    }
    if (under_way_ || added == 50) return;
    under_way_ = true;
    const WorkRequest cas[] = {compare_and_swap({0, expected_, expected_ + 1}, found_)};
    ASSERT_EQ(qp_->post(cas), 1u);
  }
  std::unique_ptr<QueuePair> qp_;
  uint64_t expected_ = 0;
  uint64_t found_ = 0;
  bool under_way_ = false;
};

TEST(SimWeakness, AtomicsStayAtomicAmongEachOtherThoughFailedOnesWriteBack) {
  FaultPlan plan = FaultPlan::calm();
  plan.failed_cas_writes_back = true;
  DataPlane plane(4, plan);
  SimProcess& other = plane.world.add_process("other");
  const Adder a(plane, plane.client, 1);
  const Adder b(plane, other, 2);
  plane.world.run_for(kSecond);
  EXPECT_EQ(a.added, 50u);
  EXPECT_EQ(b.added, 50u);
  EXPECT_GT(a.lost + b.lost, 10u);
  EXPECT_EQ(plane.memory[0], 100u);
}

TEST(SimWeakness, AnswerThatWasLostIsReadAgainLater) {
  size_t again = 0;
  size_t newer = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FaultPlan plan = FaultPlan::calm();
    plan.resent_read_chance = 0.5;
    DataPlane plane(seed, plan);
    size_t times = 0;
    plane.world.observe([&](const VerbEffect& effect) {
      if (effect.verb == Verb::kRead) plane.memory[0] = ++times;  // what the next one reads
    });
    const auto qp = plane.connect(plane.client, 1);
    std::vector<uint64_t> seen(1);
    const WorkRequest read[] = {transfer(Verb::kRead, 0, seen)};
    const auto completions = plane.run(*qp, read);
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(completions[0].status, CompletionStatus::kSuccess);
    ASSERT_GE(times, 1u);
    EXPECT_EQ(seen[0], times - 1) << "the last answer counts";
    again += times > 1 ? 1 : 0;
    newer += seen[0] > 0 ? 1 : 0;
  }
  EXPECT_GT(again, kSeeds / 4);
  EXPECT_EQ(newer, again);
}

TEST(SimWeakness, AtomicsExecutedByTheServerWaitWhileItStandsStillAndReadsDoNot) {
  FaultPlan plan = FaultPlan::calm();
  plan.atomics_by_server = true;
  DataPlane plane(4, plan);
  const auto qp = plane.connect(plane.client, 1);
  EXPECT_FALSE(qp->capabilities().remote_atomics);
  const auto other = plane.connect(plane.client, 2);
  plane.server.pause(5 * kMillisecond);
  uint64_t found = 77;
  std::vector<uint64_t> ones(8, 1);
  std::vector<uint64_t> behind(8);
  std::vector<uint64_t> seen(1, 55);
  const WorkRequest chain[] = {transfer(Verb::kWrite, 64, ones), compare_and_swap({0, 0, 9}, found),
                               transfer(Verb::kRead, 0, behind)};
  ASSERT_EQ(qp->post(chain), 3u);
  const WorkRequest read[] = {transfer(Verb::kRead, 64, seen)};
  plane.world.run_for(kMillisecond);
  plane.run(*other, read);
  EXPECT_EQ(seen[0], 1u) << "the WRITE before the CAS needs nobody";
  EXPECT_EQ(plane.memory[0], 0u) << "the CAS needs the server's process";
  plane.world.run_for(10 * kMillisecond);
  EXPECT_EQ(plane.memory[0], 9u);
  EXPECT_EQ(found, 0u);
  EXPECT_EQ(behind[0], 9u) << "a READ behind it waits for it";
}

TEST(SimWeakness, AtomicsExecutedByTheServerAreAtomic) {
  FaultPlan plan = FaultPlan::calm();
  plan.atomics_by_server = true;
  DataPlane plane(4, plan);
  SimProcess& other = plane.world.add_process("other");
  const Adder a(plane, plane.client, 1);
  const Adder b(plane, other, 2);
  plane.world.run_for(kSecond);
  EXPECT_EQ(a.added + b.added, 100u);
  EXPECT_EQ(plane.memory[0], 100u);
}

TEST(SimWeakness, CutConnectionLosesItsVerbsAndThenItself) {
  DataPlane plane(4);
  const auto qp = plane.connect(plane.client, 1);
  plane.world.cut(plane.client, plane.server);
  std::vector<uint64_t> ones(8, 1);
  const WorkRequest write[] = {transfer(Verb::kWrite, 0, ones)};
  const auto completions = plane.run(*qp, write);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, CompletionStatus::kPeerLost);
}

TEST(SimWeakness, BreakingFailsTheOldestRequestAndFlushesTheRest) {
  DataPlane plane(4);
  const auto qp = plane.connect(plane.client, 1);
  std::vector<uint64_t> ones(8, 1);
  std::vector<WorkRequest> requests(6, transfer(Verb::kWrite, 0, ones));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].context = i;
  requests[0].signaled = requests[2].signaled = false;
  ASSERT_EQ(qp->post(requests), 6u);
  plane.world.break_data(plane.client, plane.server);
  plane.world.run_for(kSecond);
  Completion completions[8];
  ASSERT_EQ(qp->poll(completions), 5u) << "the failed one, though unsignaled, and the signaled ones behind it";
  EXPECT_EQ(completions[0].status, CompletionStatus::kPeerLost);
  EXPECT_EQ(completions[0].context, 0u);
  EXPECT_EQ(completions[1].context, 1u);
  EXPECT_EQ(completions[2].context, 3u);
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(completions[i].status, CompletionStatus::kFlushed);
}

uint64_t hash_of_a_busy_run(uint64_t seed) {
  FaultPlan plan = FaultPlan::from_seed(seed);
  plan.connect_failure_chance = 0;
  plan.break_chance = 0.002;
  DataPlane plane(seed, plan);
  SimProcess& other = plane.world.add_process("other");
  std::vector<std::unique_ptr<QueuePair>> qps;
  qps.push_back(plane.connect(plane.client, 1));
  qps.push_back(plane.connect(other, 2));
  std::vector<std::vector<uint64_t>> buffers(64, std::vector<uint64_t>(40, 3));
  for (int round = 0; round < 100; ++round) {
    std::vector<uint64_t>& buffer = buffers[plane.world.random().below(buffers.size())];
    const Verb verb = plane.world.random().chance(0.5) ? Verb::kRead : Verb::kWrite;
    const WorkRequest request[] = {transfer(verb, plane.world.random().below(4000), buffer)};
    qps[plane.world.random().below(2)]->post(request);
    plane.world.run_for(kMillisecond);
  }
  return plane.world.trace().hash();
}

TEST(SimWorld, SameSeedSameTraceAndAnotherSeedAnother) {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const uint64_t hash = hash_of_a_busy_run(seed);
    EXPECT_EQ(hash, hash_of_a_busy_run(seed)) << "seed " << seed;
    hashes.insert(hash);
  }
  EXPECT_EQ(hashes.size(), 10u);
}

}  // namespace
}  // namespace skua::sim
