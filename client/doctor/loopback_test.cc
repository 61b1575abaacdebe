// Over tcp, which every machine has; over verbs it is what tests/rdma runs.
#include "client/doctor/loopback.h"

#include <gmock/gmock.h>

#include <vector>

#include "common/transport/tcp/tcp.h"

namespace skua::doctor {
namespace {

struct Memory {
  std::vector<uint64_t> words = std::vector<uint64_t>(1024);
  ArenaInfo info() { return {reinterpret_cast<std::byte*>(words.data()), words.size() * sizeof(uint64_t), -1}; }
};

std::unique_ptr<Target> make_target(Memory& memory) {
  auto target = make_tcp_target({}, memory.info());
  EXPECT_TRUE(target) << target.error().to_string();
  return target ? std::move(*target) : nullptr;
}

TEST(Loopback, EachVerbIsTimedAndLeavesItsTrace) {
  Memory memory;
  const auto target = make_target(memory);
  const auto connector = make_tcp_connector(system_clock());
  const auto times = time_loopback(*target, *connector, memory.info(), system_clock(), system_entropy());
  ASSERT_TRUE(times) << times.error().to_string();
  for (const Nanoseconds time : {times->connect, times->first_access, times->write, times->read,
                                 times->compare_and_swap}) {
    EXPECT_GT(time, 0);
  }
  EXPECT_EQ(memory.words[1024 / sizeof(uint64_t)], kLoopbackRounds);
  EXPECT_EQ(memory.words[0] & 0xff, kLoopbackRounds);
}

TEST(Loopback, WordThatIsNotAsItWasLeftIsAnError) {
  Memory memory;
  memory.words[1024 / sizeof(uint64_t)] = 5;
  const auto target = make_target(memory);
  const auto connector = make_tcp_connector(system_clock());
  const auto times = time_loopback(*target, *connector, memory.info(), system_clock(), system_entropy());
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().code(), StatusCode::kCorruption);
  EXPECT_THAT(times.error().message(), testing::HasSubstr("CAS: found 5 where 0 was stored"));
}

TEST(Loopback, VerbThatFailsIsNamed) {
  Memory memory;
  const auto target = make_target(memory);
  const auto connector = make_tcp_connector(system_clock());
  ArenaInfo small = memory.info();
  small.bytes = 512;  // the word lies behind it
  const auto times = time_loopback(*target, *connector, small, system_clock(), system_entropy());
  ASSERT_FALSE(times);
  EXPECT_THAT(times.error().message(), testing::HasSubstr("the first READ: "));
}

TEST(Loopback, InfiniBandPortWithoutAnAddressNamesTheOption) {
  DeviceChoice choice;
  choice.device = "mlx5_0";
  choice.link = VerbsLink::kInfiniBand;
  const auto times = time_verbs_loopback(choice, "", {}, system_clock());
  ASSERT_FALSE(times);
  EXPECT_THAT(times.error().message(), testing::HasSubstr("--address"));
}

}  // namespace
}  // namespace skua::doctor
