#include "common/transport/sim/world.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace skua::sim {
namespace {

control::Envelope numbered(uint64_t id) {
  control::Envelope envelope;
  envelope.set_id(id);
  return envelope;
}

// One end of a control connection, and what happened to it.
struct Party {
  std::shared_ptr<Channel> channel;
  std::vector<uint64_t> received;
  std::string closed;
  std::string refused;

  ChannelEvents events() {
    ChannelEvents events;
    events.on_envelope = [this](const control::Envelope& envelope) { received.push_back(envelope.id()); };
    events.on_closed = [this](const Status& status) { closed = status.message(); };
    return events;
  }
};

// A server that listens and a client that has dialled it.
class ControlPlane : public ::testing::Test {
 protected:
  explicit ControlPlane(const FaultPlan& plan = FaultPlan::calm()) : world(11, plan) {
    listener = server.listen(NetAddress{"server", 0}, [this](std::shared_ptr<Channel> channel) {
      accepted.channel = std::move(channel);
      return accepted.events();
    });
  }
  void dial() {
    client.dial((*listener)->address(), kSecond, [this](Result<std::shared_ptr<Channel>> channel) {
      if (channel) dialler.channel = std::move(*channel);
      if (!channel) dialler.refused = channel.error().message();
    }, dialler.events());
    world.run_for(10 * kMillisecond);
  }

  SimWorld world;
  SimProcess& server = world.add_process("server");
  SimProcess& client = world.add_process("client");
  Result<std::unique_ptr<Listener>> listener = fail(StatusCode::kUnavailable, "not yet");
  Party accepted;
  Party dialler;
};

TEST(SimProcess, PostedFunctionsRunInOrderAndTimersNotEarly) {
  SimWorld world(1, FaultPlan::calm());
  SimProcess& process = world.add_process("p");
  std::vector<int> order;
  Nanoseconds fired_at = 0;
  const Nanoseconds start = world.now();
  process.after(kMillisecond, [&] { fired_at = world.now(); });
  for (int i = 0; i < 5; ++i) process.post([&order, i] { order.push_back(i); });
  world.run_for(kSecond);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_GE(fired_at, start + kMillisecond);
  EXPECT_EQ(world.now(), start + kSecond);
}

TEST(SimProcess, ClocksDriftApartAndTimersGoByTheirOwn) {
  FaultPlan plan = FaultPlan::calm();
  plan.clock_drift_max = 0.05;
  SimWorld world(3, plan);
  std::vector<Nanoseconds> passed;
  for (int i = 0; i < 20; ++i) {
    SimProcess& process = world.add_process("p");
    const Nanoseconds start = process.clock().now();
    process.after(kSecond, [&passed, &process, start] { passed.push_back(process.clock().now() - start); });
  }
  std::vector<Nanoseconds> fired;
  while (world.step()) fired.push_back(world.now());
  ASSERT_EQ(passed.size(), 20u);
  for (const Nanoseconds own : passed) {
    EXPECT_GE(own, kSecond) << "never early by its own clock";
    EXPECT_LE(own, kSecond + 50'000);
  }
  EXPECT_GT(fired.back() - fired.front(), 50 * kMillisecond) << "of 100 ms that they may be apart";
}

TEST(SimProcess, WallClockJumpsAndDurationsDoNotNotice) {
  SimWorld world(1, FaultPlan::calm());
  SimProcess& process = world.add_process("p");
  const int64_t wall = process.clock().wall_ms();
  const Nanoseconds now = process.clock().now();
  process.jump_wall_clock(-3600 * kSecond);
  EXPECT_EQ(process.clock().wall_ms(), wall - 3'600'000);
  EXPECT_EQ(process.clock().now(), now);
  process.jump_wall_clock(7200 * kSecond);
  EXPECT_EQ(process.clock().wall_ms(), wall + 3'600'000);
}

TEST(SimProcess, CancelledTimerDoesNotFire) {
  SimWorld world(1, FaultPlan::calm());
  SimProcess& process = world.add_process("p");
  bool fired = false;
  process.cancel(process.after(kMillisecond, [&] { fired = true; }));
  world.run_for(kSecond);
  EXPECT_FALSE(fired);
}

TEST(SimProcess, CrashKillsWhatItHadScheduledAndRestartBeginsAfresh) {
  SimWorld world(1, FaultPlan::calm());
  SimProcess& process = world.add_process("p");
  int before = 0;
  int after = 0;
  process.post([&] { ++before; });
  process.after(kMillisecond, [&] { ++before; });
  process.crash();
  process.post([&] { ++before; });
  world.run_for(kSecond);
  process.restart();
  process.post([&] { ++after; });
  world.run_for(kSecond);
  EXPECT_EQ(before, 0);
  EXPECT_EQ(after, 1);
}

TEST(SimProcess, PausedProcessRunsNothingUntilThePauseEnds) {
  SimWorld world(1, FaultPlan::calm());
  SimProcess& process = world.add_process("p");
  std::vector<Nanoseconds> ran_at;
  process.post([&] { ran_at.push_back(world.now()); });
  process.after(kMillisecond, [&] { ran_at.push_back(world.now()); });
  const Nanoseconds until = world.now() + 50 * kMillisecond;
  process.pause(50 * kMillisecond);
  world.run_for(kSecond);
  ASSERT_EQ(ran_at.size(), 2u);
  EXPECT_GE(ran_at[0], until);
  EXPECT_GE(ran_at[1], ran_at[0]);
}

TEST_F(ControlPlane, MessagesArriveOnceAndInOrder) {
  dial();
  ASSERT_NE(dialler.channel, nullptr);
  for (uint64_t i = 1; i <= 50; ++i) {
    dialler.channel->send(numbered(i));
    accepted.channel->send(numbered(100 + i));
  }
  server.pause(3 * kMillisecond);
  world.run_for(100 * kMillisecond);
  ASSERT_EQ(accepted.received.size(), 50u);
  ASSERT_EQ(dialler.received.size(), 50u);
  for (uint64_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(accepted.received[i - 1], i);
    EXPECT_EQ(dialler.received[i - 1], 100 + i);
  }
}

TEST_F(ControlPlane, EveryMessageIsSeenBehindItsSenderAndItsReceiver) {
  dial();
  std::vector<std::pair<std::string, size_t>> seen;  // who, and what had been received by then
  world.observe_messages([&](SimProcess& process) { seen.emplace_back(process.name(), accepted.received.size()); });
  dialler.channel->send(numbered(1));
  world.run_for(kMillisecond);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], std::make_pair(std::string("client"), size_t{0}));
  EXPECT_EQ(seen[1], std::make_pair(std::string("server"), size_t{1}));
}

TEST_F(ControlPlane, WhatWasSentBeforeAnOrderlyCloseStillArrives) {
  dial();
  dialler.channel->send(numbered(1));
  dialler.channel->close();
  dialler.channel->send(numbered(2));
  world.run_for(100 * kMillisecond);
  EXPECT_EQ(accepted.received, (std::vector<uint64_t>{1}));
  EXPECT_EQ(accepted.closed, "client closed the connection");
  EXPECT_EQ(dialler.closed, "");
}

TEST_F(ControlPlane, CutHoldsMessagesBackUntilItHeals) {
  dial();
  world.cut(client, server);
  dialler.channel->send(numbered(1));
  dialler.channel->send(numbered(2));
  world.run_for(kSecond);
  EXPECT_TRUE(accepted.received.empty());
  world.heal(client, server);
  world.run_for(kSecond);
  EXPECT_EQ(accepted.received, (std::vector<uint64_t>{1, 2}));
}

TEST_F(ControlPlane, DialThroughACutTimesOutAndToNobodyIsRefused) {
  world.cut(client, server);
  dial();
  EXPECT_EQ(dialler.refused, "");
  world.run_for(kSecond);
  EXPECT_NE(dialler.refused.find("timed out"), std::string::npos) << dialler.refused;
  world.heal(client, server);
  const NetAddress address = (*listener)->address();
  (*listener).reset();
  client.dial(address, kSecond, [this](Result<std::shared_ptr<Channel>> channel) {
    dialler.refused = channel ? "accepted" : channel.error().message();
  }, dialler.events());
  world.run_for(kSecond);
  EXPECT_NE(dialler.refused.find("refused"), std::string::npos) << dialler.refused;
}

TEST_F(ControlPlane, BrokenConnectionTellsBothEndsAndLosesWhatWasUnderWay) {
  dial();
  dialler.channel->send(numbered(1));
  world.break_control(client, server);
  world.run_for(kSecond);
  EXPECT_TRUE(accepted.received.empty());
  EXPECT_NE(accepted.closed, "");
  EXPECT_NE(dialler.closed, "");
}

TEST_F(ControlPlane, CrashClosesThePeersEndUnlessItIsSilent) {
  dial();
  client.crash();
  world.run_for(kSecond);
  EXPECT_EQ(accepted.closed, "client is gone");
  EXPECT_EQ(dialler.closed, "");

  client.restart();
  accepted.closed.clear();
  dialler.channel.reset();
  dial();
  world.plan().silent_crash_chance = 1;
  client.crash();
  world.run_for(100 * kSecond);
  EXPECT_EQ(accepted.closed, "");
}

TEST_F(ControlPlane, AddressInUseIsRefusedAndFreeAgainAfterACrash) {
  const NetAddress address = (*listener)->address();
  const auto nobody = [](std::shared_ptr<Channel>) { return ChannelEvents{}; };
  EXPECT_FALSE(client.listen(address, nobody));
  server.crash();
  EXPECT_TRUE(client.listen(address, nobody));
}

TEST(Trace, KeepsTheLastEventsAndHashesAll) {
  Trace small(2);
  Trace large(100);
  for (uint64_t i = 0; i < 10; ++i) {
    TraceEvent event;
    event.offset = i;
    small.add("READ", event);
    large.add("READ", event);
  }
  EXPECT_EQ(small.hash(), large.hash());
  ASSERT_EQ(small.last(100).size(), 2u);
  EXPECT_EQ(small.last(100)[0].offset, 8u);
  EXPECT_EQ(large.last(3)[2].offset, 9u);
  EXPECT_NE(small.to_string(1).find("READ"), std::string::npos);
  TraceEvent event;
  small.add("READ", event, 1);
  large.add("READ", event, 2);
  EXPECT_NE(small.hash(), large.hash());
}

TEST(FaultPlan, SameSeedSamePlan) {
  EXPECT_EQ(FaultPlan::from_seed(5).to_string(), FaultPlan::from_seed(5).to_string());
  EXPECT_NE(FaultPlan::from_seed(5).to_string(), FaultPlan::from_seed(6).to_string());
}

}  // namespace
}  // namespace skua::sim
