// Every verb on every transport: what it does, in which order, and how it fails.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/base/remote_memory.h"
#include "common/transport/region_table.h"
#include "tests/conformance/harness.h"

namespace skua::conformance {
namespace {

constexpr uint64_t kSmall = 1 * kMiB;      // bytes of the first region
constexpr uint64_t kLargeAt = 2 * kMiB;    // where the second begins in the arena
constexpr uint64_t kLarge = 80 * kMiB;
constexpr RegionKey kSmallKey{0x9d3f00aa11ULL};
constexpr RegionKey kLargeKey{0x7744bb2201ULL};

class Verbs : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!fixture_->missing().empty()) GTEST_SKIP() << fixture_->missing();
    auto target = fixture_->make_target({}, arena_.info());
    ASSERT_TRUE(target) << target.error().to_string();
    target_ = std::move(*target);
    connector_ = fixture_->make_connector(system_clock());
    queue_pair_ = connect(1);
    ASSERT_EQ(settle(*queue_pair_), QueuePairState::kReady) << queue_pair_->error().to_string();
  }

  std::unique_ptr<QueuePair> connect(uint64_t id, bool read_only = false) {
    Session session = make_session(id, arena_, {{kSmallKey, 0, kSmall}, {kLargeKey, kLargeAt, kLarge}});
    session.ticket.read_only = read_only;
    session.target.read_only = read_only;
    session.target.address = target_->endpoint();
    target_->admit(session.ticket);
    auto queue_pair = connector_->connect(session.target);
    EXPECT_TRUE(queue_pair) << queue_pair.error().to_string();
    return std::move(*queue_pair);
  }

  // The first request fails with `expected`, what is behind it is flushed, and the queue pair is done.
  void expect_refused(WorkRequest bad, CompletionStatus expected) {
    auto queue_pair = connect(2);
    ASSERT_EQ(settle(*queue_pair), QueuePairState::kReady);
    uint64_t value = 0;
    bad.context = 10;
    WorkRequest good = read_request({kSmallKey, 0}, &value, 8);
    good.context = 11;
    const auto completions = run(*queue_pair, {bad, good});
    ASSERT_EQ(completions.size(), 2U);
    EXPECT_EQ(completions[0].context, 10U);
    EXPECT_EQ(to_string(completions[0].status), to_string(expected));
    EXPECT_EQ(completions[1].context, 11U);
    EXPECT_EQ(to_string(completions[1].status), to_string(CompletionStatus::kFlushed));
    EXPECT_EQ(queue_pair->state(), QueuePairState::kError);
    EXPECT_FALSE(queue_pair->error().message().empty());
    EXPECT_EQ(queue_pair->post(std::span(&good, 1)), 0U);
    EXPECT_EQ(run_one(*queue_pair_, good), CompletionStatus::kSuccess) << "another session must not notice";
  }

  const std::unique_ptr<Fixture> fixture_ = make_fixture(GetParam());
  Arena arena_{96 * kMiB};
  std::unique_ptr<Target> target_;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<QueuePair> queue_pair_;
};

INSTANTIATE_TEST_SUITE_P(Transport, Verbs, testing::Values("shm", "tcp", "verbs", "verbs_nic", "verbs_narrow"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Verbs, CapabilitiesNameTheTransport) {
  const Capabilities& capabilities = queue_pair_->capabilities();
  EXPECT_EQ(capabilities.transport, name_of(GetParam()));
  EXPECT_EQ(connector_->name(), name_of(GetParam()));
  EXPECT_EQ(target_->name(), name_of(GetParam()));
  EXPECT_GE(capabilities.queue_depth, 64U);
  EXPECT_GE(capabilities.max_message_bytes, 64 * kMiB + 4136);
  const bool as_messages = std::string(GetParam()) == "verbs" || std::string(GetParam()) == "verbs_narrow";
  EXPECT_EQ(capabilities.remote_atomics, !as_messages);
  EXPECT_FALSE(capabilities.read_only);
}

TEST_P(Verbs, WriteGathersAndReadScatters) {
  const auto bytes = pattern(300, 1);
  WorkRequest write = write_request({kSmallKey, 77}, bytes.data(), 100);
  write.local_count = 3;
  write.local[1] = {const_cast<std::byte*>(bytes.data()) + 100, 1};
  write.local[2] = {const_cast<std::byte*>(bytes.data()) + 101, 199};
  ASSERT_EQ(run_one(*queue_pair_, write), CompletionStatus::kSuccess);
  EXPECT_EQ(std::memcmp(arena_.at(77), bytes.data(), 300), 0);

  std::vector<std::byte> got(300);
  WorkRequest read = read_request({kSmallKey, 77}, got.data() + 250, 50);
  read.local_count = 3;
  read.local[1] = {got.data() + 7, 243};
  read.local[2] = {got.data(), 7};
  ASSERT_EQ(run_one(*queue_pair_, read), CompletionStatus::kSuccess);
  EXPECT_TRUE(std::equal(got.begin() + 250, got.end(), bytes.begin()));
  EXPECT_TRUE(std::equal(got.begin() + 7, got.begin() + 250, bytes.begin() + 50));
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 7, bytes.begin() + 293));
}

TEST_P(Verbs, CompareAndSwapReturnsWhatItFound) {
  store_word(arena_.at(64), 41);
  uint64_t found = 0;
  ASSERT_EQ(run_one(*queue_pair_, cas_request({kSmallKey, 64}, 41, 42, &found)), CompletionStatus::kSuccess);
  EXPECT_EQ(found, 41U);
  EXPECT_EQ(arena_.word(64), 42U);
  ASSERT_EQ(run_one(*queue_pair_, cas_request({kSmallKey, 64}, 41, 43, &found)), CompletionStatus::kSuccess);
  EXPECT_EQ(found, 42U);
  EXPECT_EQ(arena_.word(64), 42U);
}

TEST_P(Verbs, FetchAndAddReturnsWhatWasBeforeAndWraps) {
  store_word(arena_.at(kLargeAt + 8), UINT64_MAX - 1);
  uint64_t found = 0;
  ASSERT_EQ(run_one(*queue_pair_, add_request({kLargeKey, 8}, 5, &found)), CompletionStatus::kSuccess);
  EXPECT_EQ(found, UINT64_MAX - 1);
  EXPECT_EQ(arena_.word(kLargeAt + 8), 3U);
}

TEST_P(Verbs, OneDoorbellTakesEffectInOrder) {
  const uint64_t block = 0x1122334455667788ULL;
  uint64_t found[3] = {};
  std::vector<WorkRequest> requests = {
      write_request({kSmallKey, 128}, &block, 8), cas_request({kSmallKey, 128}, block, 1, &found[0]),
      add_request({kSmallKey, 128}, 9, &found[1]), read_request({kSmallKey, 128}, &found[2], 8)};
  for (size_t i = 0; i < requests.size(); ++i) requests[i].context = i + 100;
  const auto completions = run(*queue_pair_, requests);
  ASSERT_EQ(completions.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(completions[i].context, i + 100);
    EXPECT_EQ(completions[i].status, CompletionStatus::kSuccess);
  }
  EXPECT_EQ(found[0], block);
  EXPECT_EQ(found[1], 1U);
  EXPECT_EQ(found[2], 10U);
}

TEST_P(Verbs, UnsignaledRequestsAreSettledByTheNextSignaledOne) {
  uint64_t values[4] = {1, 2, 3, 0};
  std::vector<WorkRequest> requests;
  for (size_t i = 0; i < 3; ++i) {
    requests.push_back(write_request({kSmallKey, 256 + i * 8}, &values[i], 8));
    requests.back().signaled = false;
  }
  requests.push_back(read_request({kSmallKey, 272}, &values[3], 8));
  requests.back().context = 5;
  const auto completions = run(*queue_pair_, requests, 1);
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].context, 5U);
  EXPECT_EQ(values[3], 3U);
  EXPECT_EQ(arena_.word(256), 1U);
  EXPECT_EQ(arena_.word(264), 2U);
}

TEST_P(Verbs, UnsignaledRequestThatFailsHasACompletion) {
  uint64_t value = 0;
  WorkRequest bad = read_request({kSmallKey, kSmall}, &value, 8);
  bad.signaled = false;
  bad.context = 3;
  WorkRequest silent = read_request({kSmallKey, 0}, &value, 8);
  silent.signaled = false;
  WorkRequest good = read_request({kSmallKey, 0}, &value, 8);
  good.context = 4;
  const auto completions = run(*queue_pair_, {silent, bad, silent, good}, 2);
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].context, 3U);
  EXPECT_EQ(completions[0].status, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(completions[1].context, 4U);
  EXPECT_EQ(completions[1].status, CompletionStatus::kFlushed);
}

TEST_P(Verbs, PostTakesNoMoreThanTheQueueHolds) {
  const size_t depth = queue_pair_->capabilities().queue_depth;
  std::vector<uint64_t> values(depth * 3);
  std::vector<WorkRequest> requests;
  for (size_t i = 0; i < values.size(); ++i) {
    requests.push_back(add_request({kSmallKey, 512}, 1, &values[i]));
    requests.back().context = i;
  }
  EXPECT_EQ(queue_pair_->post(requests), depth);
  EXPECT_EQ(queue_pair_->post(std::span(requests).subspan(depth)), 0U);
  requests.erase(requests.begin(), requests.begin() + static_cast<std::ptrdiff_t>(depth));
  const auto completions = run(*queue_pair_, requests, values.size());
  ASSERT_EQ(completions.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(completions[i].context, i);
    EXPECT_EQ(values[i], i);
  }
}

TEST_P(Verbs, PollReturnsNoMoreThanThereIsRoomFor) {
  uint64_t values[5] = {};
  std::vector<WorkRequest> requests;
  for (uint64_t& value : values) requests.push_back(read_request({kSmallKey, 0}, &value, 8));
  ASSERT_EQ(queue_pair_->post(requests), 5U);
  size_t got = 0;
  poll_until([&] {
    Completion one[1];
    got += queue_pair_->poll(one);
    return got == 5;
  });
  EXPECT_EQ(got, 5U);
}

TEST_P(Verbs, SixtyFourMiBGoOverUnchanged) {
  constexpr uint32_t kBytes = 64 * kMiB + 4136;
  const auto bytes = pattern(kBytes, 2);
  std::vector<std::byte> got(kBytes);
  WorkRequest write = write_request({kLargeKey, 64}, bytes.data(), 40);
  write.local_count = 2;
  write.local[1] = {const_cast<std::byte*>(bytes.data()) + 40, kBytes - 40};
  write.signaled = false;
  WorkRequest read = read_request({kLargeKey, 64}, got.data(), 13);
  read.local_count = 2;
  read.local[1] = {got.data() + 13, kBytes - 13};
  uint64_t last = 0;
  const auto completions =
      run(*queue_pair_, {write, read, read_request({kLargeKey, 64 + kBytes - 8}, &last, 8)}, 2);
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].status, CompletionStatus::kSuccess);
  EXPECT_TRUE(got == bytes);
  EXPECT_EQ(std::memcmp(&last, bytes.data() + kBytes - 8, 8), 0);
}

TEST_P(Verbs, EveryLengthAndOffsetAroundAWord) {
  for (uint32_t offset = 0; offset < 9; ++offset) {
    for (uint32_t bytes = 0; bytes < 40; ++bytes) {
      const auto sent = pattern(bytes, offset * 100 + bytes + 1);
      std::memset(arena_.at(1024), 0xee, 64);
      std::vector<std::byte> got(bytes);
      const auto completions = run(*queue_pair_, {write_request({kSmallKey, 1024 + offset}, sent.data(), bytes),
                                                  read_request({kSmallKey, 1024 + offset}, got.data(), bytes)});
      ASSERT_EQ(completions.size(), 2U);
      ASSERT_EQ(completions[1].status, CompletionStatus::kSuccess);
      ASSERT_TRUE(got == sent) << offset << " " << bytes;
      ASSERT_EQ(*arena_.at(1024 + offset + bytes), std::byte{0xee}) << "a byte behind the end was touched";
    }
  }
}

TEST_P(Verbs, ZeroBytesAreReadAndWrittenAnywhereInside) {
  WorkRequest nothing = read_request({kSmallKey, kSmall}, nullptr, 0);
  EXPECT_EQ(run_one(*queue_pair_, nothing), CompletionStatus::kSuccess);
  nothing.local_count = 0;
  EXPECT_EQ(run_one(*queue_pair_, nothing), CompletionStatus::kSuccess);
  nothing.verb = Verb::kWrite;
  EXPECT_EQ(run_one(*queue_pair_, nothing), CompletionStatus::kSuccess);
  nothing.remote_offset = kSmall + 1;
  expect_refused(nothing, CompletionStatus::kRemoteAccessError);
}

TEST_P(Verbs, UnalignedAtomicIsABadRequest) {
  uint64_t found = 0;
  expect_refused(cas_request({kSmallKey, 12}, 0, 1, &found), CompletionStatus::kBadRequest);
  expect_refused(add_request({kSmallKey, 4}, 1, &found), CompletionStatus::kBadRequest);
  WorkRequest narrow = add_request({kSmallKey, 8}, 1, &found);
  narrow.local[0].bytes = 4;
  expect_refused(narrow, CompletionStatus::kBadRequest);
  EXPECT_EQ(arena_.word(0), 0U);
  EXPECT_EQ(arena_.word(8), 0U);
}

TEST_P(Verbs, MoreThanTheLargestMessageIsABadRequest) {
  std::byte never_touched{};
  const auto bytes = static_cast<uint32_t>(queue_pair_->capabilities().max_message_bytes + 1);
  expect_refused(read_request({kLargeKey, 0}, &never_touched, bytes), CompletionStatus::kBadRequest);
  expect_refused(write_request({kLargeKey, 0}, &never_touched, bytes), CompletionStatus::kBadRequest);
}

TEST_P(Verbs, UnknownKeyIsRefused) {
  uint64_t value = 7;
  for (const uint64_t key : {uint64_t{0}, static_cast<uint64_t>(kSmallKey) + 1, UINT64_MAX}) {
    expect_refused(read_request({RegionKey{key}, 0}, &value, 8), CompletionStatus::kRemoteAccessError);
    expect_refused(write_request({RegionKey{key}, 0}, &value, 8), CompletionStatus::kRemoteAccessError);
    expect_refused(cas_request({RegionKey{key}, 0}, 0, 1, &value), CompletionStatus::kRemoteAccessError);
  }
}

TEST_P(Verbs, RangeOutsideTheRegionIsRefused) {
  uint64_t value[4] = {};
  for (const uint64_t offset : {kSmall - 7, kSmall, kSmall + 1, uint64_t{1} << 63, UINT64_MAX - 7, UINT64_MAX}) {
    expect_refused(read_request({kSmallKey, offset}, value, 8), CompletionStatus::kRemoteAccessError);
    expect_refused(write_request({kSmallKey, offset}, value, 8), CompletionStatus::kRemoteAccessError);
  }
  for (const uint64_t offset : {kSmall, uint64_t{1} << 63, UINT64_MAX - 7}) {
    expect_refused(add_request({kSmallKey, offset}, 1, value), CompletionStatus::kRemoteAccessError);
  }
}

TEST_P(Verbs, ReadOnlySessionReadsAndNothingElse) {
  store_word(arena_.at(0), 99);
  uint64_t value = 0;
  const std::vector<WorkRequest> refused = {write_request({kSmallKey, 0}, &value, 8),
                                            cas_request({kSmallKey, 0}, 99, 1, &value),
                                            add_request({kSmallKey, 0}, 1, &value)};
  for (const WorkRequest& request : refused) {
    auto queue_pair = connect(3, true);
    ASSERT_EQ(settle(*queue_pair), QueuePairState::kReady);
    EXPECT_TRUE(queue_pair->capabilities().read_only);
    ASSERT_EQ(run_one(*queue_pair, read_request({kSmallKey, 0}, &value, 8)), CompletionStatus::kSuccess);
    EXPECT_EQ(value, 99U);
    EXPECT_EQ(run_one(*queue_pair, request), CompletionStatus::kRemoteAccessError);
    EXPECT_EQ(arena_.word(0), 99U);
  }
}

TEST_P(Verbs, CountersOfTwoThreadsAddUp) {
  constexpr uint64_t kRounds = 2000;
  const auto count = [&](QueuePair& queue_pair) {
    uint64_t expected = 0;
    for (uint64_t done = 0; done < kRounds;) {
      uint64_t found = 0;
      uint64_t added = 0;
      const auto completions = run(queue_pair, {cas_request({kSmallKey, 2048}, expected, expected + 1, &found),
                                                add_request({kSmallKey, 2056}, 1, &added)});
      if (completions.size() != 2 || completions[1].status != CompletionStatus::kSuccess) return;
      if (found == expected) ++done;
      expected = found == expected ? expected + 1 : found;
    }
  };
  auto other = connect(4);
  ASSERT_EQ(settle(*other), QueuePairState::kReady);
  std::thread thread([&] { count(*other); });
  count(*queue_pair_);
  thread.join();
  EXPECT_EQ(arena_.word(2048), 2 * kRounds);
  EXPECT_GE(arena_.word(2056), 2 * kRounds);
}

TEST_P(Verbs, AlignedWordsAreNeverTorn) {
  std::atomic<bool> stop{false};
  auto other = connect(5);
  ASSERT_EQ(settle(*other), QueuePairState::kReady);
  std::thread writer([&] {
    uint64_t words[9];
    for (uint64_t round = 0; !stop; ++round) {
      std::fill(std::begin(words), std::end(words), (round & 1) != 0 ? UINT64_MAX : 0);
      // 68 bytes: the last half word is another's business
      if (run_one(*other, write_request({kSmallKey, 4096}, words, 68)) != CompletionStatus::kSuccess) return;
    }
  });
  for (int i = 0; i < 3000; ++i) {
    uint64_t words[9] = {};
    if (run_one(*queue_pair_, read_request({kSmallKey, 4096}, words, 68)) != CompletionStatus::kSuccess) break;
    for (int w = 0; w < 8; ++w) {
      if (words[w] != 0 && words[w] != UINT64_MAX) ADD_FAILURE() << "torn word " << std::hex << words[w];
    }
  }
  stop = true;
  writer.join();
  EXPECT_EQ(queue_pair_->state(), QueuePairState::kReady);
}

TEST_P(Verbs, WaitDescriptorWakesForACompletion) {
  uint64_t value = 0;
  const WorkRequest request = read_request({kSmallKey, 0}, &value, 8);
  ASSERT_EQ(queue_pair_->post(std::span(&request, 1)), 1U);
  Completion completion[1];
  while (queue_pair_->poll(completion) == 0) {
    ASSERT_GE(queue_pair_->wait_descriptor(), 0) << "without a descriptor, poll makes all the progress itself";
    pollfd wait{queue_pair_->wait_descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, static_cast<int>(kPatience / kMillisecond)), 1);
  }
  EXPECT_EQ(completion[0].status, CompletionStatus::kSuccess);
}

}  // namespace
}  // namespace skua::conformance
