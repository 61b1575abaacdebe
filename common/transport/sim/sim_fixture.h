#pragma once
// For tests of the simulated data plane: a server with memory, and clients with queue pairs to it.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/transport/sim/world.h"

namespace skua::sim {

class DataPlane {
 public:
  static constexpr size_t kWords = 4096;
  static constexpr RegionKey kKey{0xfeedbeef};

  explicit DataPlane(uint64_t seed, const FaultPlan& plan = FaultPlan::calm()) : world(seed, plan) {
    ArenaInfo arena;
    arena.data = bytes();
    arena.bytes = kWords * 8;
    target = server.make_target(arena);
  }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory.data()); }

  void admit(uint64_t session, RegionKey key = kKey, bool read_only = false) {
    SessionTicket ticket;
    ticket.session = SessionId{session};
    ticket.secret = "secret";
    ticket.read_only = read_only;
    ExposedRegion region;
    region.key = key;
    region.data = bytes();
    region.bytes = kWords * 8;
    ticket.regions.push_back(region);
    target->admit(std::move(ticket));
  }

  ConnectTarget where(uint64_t session) const {
    ConnectTarget connect;
    connect.address = target->endpoint();
    connect.session = SessionId{session};
    connect.secret = "secret";
    connect.response_timeout = 10 * kMillisecond;
    return connect;
  }

  // Admits the session and waits until its queue pair is ready.
  std::unique_ptr<QueuePair> connect(SimProcess& process, uint64_t session) {
    admit(session);
    auto queue_pair = process.make_connector()->connect(where(session));
    EXPECT_TRUE(queue_pair);
    EXPECT_TRUE(world.run_until([&] { return (*queue_pair)->state() != QueuePairState::kConnecting; }, kSecond));
    return std::move(*queue_pair);
  }

  // Posts all, and runs until as many completions have come as are signaled, or the queue pair failed.
  std::vector<Completion> run(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
    EXPECT_EQ(queue_pair.post(requests), requests.size());
    size_t wanted = 0;
    for (const WorkRequest& request : requests) wanted += request.signaled ? 1 : 0;
    std::vector<Completion> all;
    const auto finished = [&] {
      Completion one[16];
      for (size_t n = queue_pair.poll(one); n > 0; n = queue_pair.poll(one)) all.insert(all.end(), one, one + n);
      return all.size() >= wanted || queue_pair.state() == QueuePairState::kError;
    };
    EXPECT_TRUE(world.run_until(finished, 10 * kSecond));
    finished();
    return all;
  }

  std::vector<uint64_t> memory = std::vector<uint64_t>(kWords);
  SimWorld world;
  SimProcess& server = world.add_process("server");
  SimProcess& client = world.add_process("client");
  std::unique_ptr<Target> target;
};

inline WorkRequest transfer(Verb verb, uint64_t word, std::vector<uint64_t>& local, uint64_t context = 0) {
  WorkRequest request;
  request.verb = verb;
  request.key = DataPlane::kKey;
  request.remote_offset = word * 8;
  request.local_count = 1;
  request.local[0] = LocalSegment{local.data(), static_cast<uint32_t>(local.size() * 8)};
  request.context = context;
  return request;
}

struct Swap {
  uint64_t word;
  uint64_t compare;
  uint64_t swap;
};
inline WorkRequest compare_and_swap(const Swap& swap, uint64_t& found, uint64_t context = 0) {
  WorkRequest request;
  request.verb = Verb::kCompareAndSwap;
  request.key = DataPlane::kKey;
  request.remote_offset = swap.word * 8;
  request.local_count = 1;
  request.local[0] = LocalSegment{&found, 8};
  request.compare = swap.compare;
  request.swap_or_add = swap.swap;
  request.context = context;
  return request;
}

}  // namespace skua::sim
