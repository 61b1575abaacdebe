#include "server/session_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/base/log.h"
#include "server/store_testing.h"

namespace skua {
namespace {

using proto::SlotState;
using proto::SlotWord;
using testing::DirectClient;
using testing::World;

StoreOptions small_options() {
  StoreOptions options;
  options.memory_bytes = 4 << 20;
  options.expected_keys = 1000;
  return options;
}

control::FenceSession fence_request(const DirectClient& client) {
  control::FenceSession request;
  request.set_session_id(client.id);
  request.set_secret(client.secret);
  return request;
}

control::EpochReport use_report(const DirectClient& client, uint64_t grant, uint32_t consumed, bool returned = false) {
  control::EpochReport report;
  report.set_session_id(client.id);
  control::GrantUse* use = report.add_grants();
  use->set_grant_id(grant);
  use->set_consumed(consumed);
  use->set_returned(returned);
  return report;
}

void pass_time(World& world, int seconds, std::initializer_list<DirectClient*> alive) {
  for (int i = 0; i < seconds; ++i) {
    world.executor.advance(kSecond);
    for (DirectClient* client : alive) EXPECT_TRUE(client->report());
  }
}

TEST(Sessions, AreAdmittedWithKeysOfTheirOwn) {
  World world(small_options(), 2);
  DirectClient a(world);
  DirectClient b(world, true);
  EXPECT_NE(a.id, b.id);
  EXPECT_EQ(a.secret.size(), 16U);
  EXPECT_NE(a.secret, b.secret);
  ASSERT_EQ(a.opened.keys_size(), 2);
  EXPECT_NE(a.opened.keys(0).region_key(), a.opened.keys(1).region_key());
  EXPECT_NE(a.opened.keys(0).region_key(), b.opened.keys(0).region_key());
  EXPECT_EQ(a.opened.endpoints(0).transport(), "fake");
  EXPECT_EQ(a.opened.lease_ms(), 3000U);
  const SessionTicket& ticket = world.target.tickets.at(a.id);
  EXPECT_EQ(ticket.secret, a.opened.data_secret());
  EXPECT_EQ(ticket.secret.size(), 16U);
  EXPECT_FALSE(ticket.read_only);
  EXPECT_TRUE(world.target.tickets.at(b.id).read_only);
  EXPECT_EQ(static_cast<uint64_t>(ticket.regions[1].key), a.opened.keys(1).region_key());
  EXPECT_EQ(ticket.regions[1].data, world.store->arena().data + ticket.regions[1].arena_offset);
}

TEST(Sessions, ReadOnlyOnesGetNoBlocks) {
  World world(small_options());
  DirectClient client(world, true);
  EXPECT_EQ(client.take(0, 3).error().code(), StatusCode::kPermissionDenied);
}

TEST(Sessions, SilentOneIsFencedThenGivenUpAndItsBlocksComeBack) {
  World world(small_options());
  DirectClient dead(world);
  DirectClient alive(world);
  ASSERT_FALSE(dead.put("kept", "v"));
  ASSERT_TRUE(dead.report());
  ASSERT_GT(world.stats().used_bytes(), 64U * 10);
  world.target.hold = true;
  pass_time(world, 20, {&alive});
  EXPECT_FALSE(world.target.tickets.contains(dead.id));
  EXPECT_EQ(world.stats().sessions(), 2U) << "its verbs may still land: the fence is not confirmed";
  EXPECT_GT(world.stats().used_bytes(), 64U * 10) << "and so nothing is touched";

  world.target.confirm();
  pass_time(world, 10, {&alive});
  EXPECT_EQ(world.stats().sessions(), 1U);
  EXPECT_EQ(world.stats().sessions_expired(), 1U);
  EXPECT_EQ(world.stats().used_bytes(), 64U) << "only what is referenced";
  EXPECT_EQ(alive.get("kept"), "v");
  EXPECT_EQ(dead.report().error().code(), StatusCode::kStaleEpoch);
}

TEST(Sessions, OneThatReportsNoEpochIsGivenUpThoughItKeepsItsLease) {
  World world(small_options());
  DirectClient stuck(world);
  DirectClient writer(world);
  stuck.reports = false;
  ASSERT_FALSE(writer.put("a", "1"));
  ASSERT_FALSE(writer.put("a", "2"));
  control::EpochReport sign_of_life;
  sign_of_life.set_session_id(stuck.id);
  for (int i = 0; i < 60 && world.stats().sessions() == 2; ++i) {
    world.executor.advance(kSecond);
    ASSERT_TRUE(writer.report());
    if (world.stats().sessions() == 2) {
      EXPECT_TRUE(world.store->report(sign_of_life));
    }
  }
  EXPECT_EQ(world.stats().sessions(), 1U);
}

std::vector<std::string>& log_lines() {
  static std::vector<std::string> lines;
  return lines;
}

TEST(Sessions, ExpiryIsLoggedWithTheClientsNameAndNotWithoutEnd) {
  log_lines().clear();
  set_log_sink([](LogLevel, std::string_view text) { log_lines().emplace_back(text); });
  set_log_level(LogLevel::kInfo);
  World world(small_options());
  control::OpenSession request;
  request.set_client_name("loader\n\x01");
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(world.store->open_session(request, [](const control::EpochAdvance&) {}));
  world.executor.advance(kSecond);
  for (int i = 0; i < 60; ++i) world.executor.advance(kSecond);
  set_log_level(LogLevel::kWarning);
  set_log_sink(nullptr);

  EXPECT_EQ(world.stats().sessions_expired(), 50U);
  EXPECT_EQ(world.stats().sessions_fenced(), 0U);
  ASSERT_EQ(log_lines().size(), 10U);
  EXPECT_NE(log_lines()[0].find("client 'loader?\?' is given up: it was silent"), std::string::npos) << log_lines()[0];
}

TEST(Sessions, OrderlyCloseIsNotCountedAsAFence) {
  World world(small_options());
  DirectClient client(world);
  world.store->close_session(SessionId{client.id});
  world.executor.run();
  EXPECT_EQ(world.stats().sessions(), 0U);
  EXPECT_EQ(world.stats().sessions_fenced(), 0U);
}

TEST(Sessions, StallOfTheServerItselfExpiresNobody) {
  World world(small_options());
  DirectClient client(world);
  world.executor.advance(kSecond);
  ASSERT_TRUE(client.report());
  world.executor.stall(20 * kSecond);
  world.executor.advance(kMillisecond);
  EXPECT_TRUE(client.report());
  EXPECT_EQ(world.stats().sessions_expired(), 0U);
}

TEST(Sessions, FenceIsAnsweredWhenAllTargetsConfirmedAndANewSecretIsAdmitted) {
  World world(small_options());
  DirectClient client(world);
  world.target.hold = true;
  std::optional<Result<control::SessionFenced>> answer;
  world.store->fence_session(fence_request(client), [&](auto result) { answer = std::move(result); });
  world.executor.run();
  EXPECT_FALSE(answer);
  EXPECT_FALSE(world.target.tickets.contains(client.id));
  world.target.confirm();
  EXPECT_FALSE(answer) << "only on the executor";
  world.executor.run();
  ASSERT_TRUE(answer && *answer);
  EXPECT_NE((*answer)->data_secret(), client.opened.data_secret());
  EXPECT_EQ(world.target.tickets.at(client.id).secret, (*answer)->data_secret());
  EXPECT_EQ(world.stats().sessions_fenced(), 1U);
  EXPECT_TRUE(client.report());
}

TEST(Sessions, CloseDuringAFenceEndsTheSession) {
  World world(small_options());
  DirectClient client(world);
  world.target.hold = true;
  std::optional<Result<control::SessionFenced>> answer;
  world.store->fence_session(fence_request(client), [&](auto result) { answer = std::move(result); });
  world.store->close_session(SessionId{client.id});
  world.target.confirm();
  world.executor.run();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().code(), StatusCode::kStaleEpoch);
  EXPECT_FALSE(world.target.tickets.contains(client.id));
  EXPECT_EQ(world.stats().sessions(), 0U);
}

TEST(Sessions, FenceConfirmedAfterTheStoreIsGoneIsIgnored) {
  World world(small_options());
  DirectClient client(world);
  world.target.hold = true;
  world.store->close_session(SessionId{client.id});
  world.store.reset();
  world.target.confirm();
  world.executor.run();
  EXPECT_EQ(world.executor.timers(), 0U);
}

TEST(Sessions, WrongSecretNeitherFencesNorResumes) {
  World world(small_options());
  DirectClient client(world);
  client.secret[3] = static_cast<char>(client.secret[3] ^ 1);
  std::optional<StatusCode> code;
  world.store->fence_session(fence_request(client), [&](auto result) { code = result.error().code(); });
  EXPECT_EQ(code, StatusCode::kUnauthenticated);
  control::ResumeSession resume;
  resume.set_session_id(client.id);
  resume.set_secret(client.secret);
  EXPECT_EQ(world.store->resume_session(resume, client.push()).error().code(), StatusCode::kUnauthenticated);
  resume.set_session_id(client.id + 1);
  EXPECT_EQ(world.store->resume_session(resume, client.push()).error().code(), StatusCode::kStaleEpoch);
  EXPECT_TRUE(world.target.tickets.contains(client.id));
}

TEST(Sessions, DetachedOneResumesWithinItsGraceThoughTheAnswersToItsFencesWereLost) {
  World world(small_options());
  DirectClient client(world);
  ASSERT_TRUE(client.take(0, 3));
  for (int i = 0; i < 3; ++i) {
    world.store->fence_session(fence_request(client), [](const auto&) {});  // the answer is lost with the connection
    world.executor.run();
  }
  world.store->detach_session(SessionId{client.id});
  world.executor.advance(kSecond);
  control::ResumeSession resume;
  resume.set_session_id(client.id);
  resume.set_secret(client.secret);
  ASSERT_TRUE(world.store->resume_session(resume, client.push()));
  pass_time(world, 10, {&client});
  EXPECT_EQ(world.stats().sessions(), 1U);
}

TEST(Sessions, DetachedOneIsGivenUpAfterItsGrace) {
  World world(small_options());
  DirectClient client(world);
  ASSERT_TRUE(client.take(0, 3));
  world.store->detach_session(SessionId{client.id});
  world.executor.advance(3 * kSecond);
  EXPECT_EQ(world.stats().sessions(), 0U);
  world.executor.advance(10 * kSecond);
  EXPECT_EQ(world.stats().used_bytes(), 0U);
}

TEST(Sessions, WaitOfAVanishedClientIsDropped) {
  World world(small_options());
  DirectClient hoarder(world);
  hoarder.reports = false;
  hoarder.batch = 1;
  int taken = 0;
  std::optional<Result<control::Grant>> last;
  const auto keep = [&](Result<control::Grant> result) { last = std::move(result); };
  do {
    last.reset();
    hoarder.ask(0, 30, 1, keep);
    ++taken;
  } while (last && *last && taken < 1000);
  ASSERT_FALSE(last) << "the heap is full and the request waits";
  world.store->detach_session(SessionId{hoarder.id});
  ASSERT_TRUE(last);
  EXPECT_EQ(last->error().code(), StatusCode::kUnavailable);
}

TEST(Sessions, HostileReportsAreRefusedAndChangeNothing) {
  World world(small_options());
  DirectClient client(world);
  DirectClient other(world);
  const auto block = client.take(0, 3);
  ASSERT_TRUE(block);
  const auto used = [&] { return world.stats().classes(0).used(); };

  EXPECT_EQ(world.store->report(use_report(client, 0, 1)).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(world.store->report(use_report(client, 99, 1)).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(world.store->report(use_report(client, 1, UINT32_MAX)).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(world.store->report(use_report(other, 1, 1)).error().code(), StatusCode::kInvalidArgument);
  control::EpochReport future = use_report(client, 1, 5);
  future.set_reclaim_epoch(1'000'000);
  EXPECT_EQ(world.store->report(future).error().code(), StatusCode::kInvalidArgument);
  control::EpochReport nobody;
  nobody.set_session_id(12345);
  EXPECT_EQ(world.store->report(nobody).error().code(), StatusCode::kStaleEpoch);
  EXPECT_EQ(used(), 0U);

  EXPECT_TRUE(world.store->report(use_report(client, 1, 5)));
  EXPECT_EQ(used(), 5U);
  EXPECT_TRUE(world.store->report(use_report(client, 1, 5)));
  EXPECT_TRUE(world.store->report(use_report(client, 1, 2))) << "late and repeated reports are no harm";
  EXPECT_EQ(used(), 5U);
  control::EpochReport twice = use_report(client, 1, 6, true);
  *twice.add_grants() = twice.grants(0);
  EXPECT_TRUE(world.store->report(twice));
  EXPECT_EQ(used(), 32U);
  EXPECT_TRUE(world.store->report(use_report(client, 1, 6)));
  EXPECT_EQ(used(), 32U);
}

TEST(Sessions, HostileRequestsAreRefused) {
  World world(small_options());
  DirectClient client(world);
  const auto refused = [&](uint32_t partition, int size_class, uint32_t blocks) {
    std::optional<StatusCode> code;
    client.ask(partition, size_class, blocks, [&](Result<control::Grant> result) {
      code = result ? std::nullopt : std::optional(result.error().code());
    });
    return code;
  };
  EXPECT_EQ(refused(1, 3, 1), StatusCode::kStaleEpoch);
  EXPECT_EQ(refused(0, proto::kSizeClasses, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(0, -1, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(0, 3, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(0, proto::kSizeClasses - 1, 1), StatusCode::kOutOfMemory) << "64 MiB never fit into 4";
  EXPECT_EQ(refused(0, 3, UINT32_MAX), std::nullopt);
}

// Slots full of what no correct peer writes: the sweep goes on, and stays inside the partition.
TEST(Sessions, GarbageInSlotsAndHeadersStopsNoSweep) {
  World world(small_options());
  DirectClient hostile(world);
  DirectClient good(world);
  ASSERT_FALSE(good.put("good", "v"));
  uint64_t* good_slot = good.find("good");
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    for (uint64_t* slot : hostile.window("h" + std::to_string(i))) {
      if (slot != good_slot) std::atomic_ref<uint64_t>(*slot).store(random.next());
    }
  }
  const auto block = hostile.take(0, 0);
  hostile.write("x", "", *block, SlotWord(random.next()));
  std::atomic_ref<uint64_t>(*hostile.window("x")[0]).store(hostile.word_of("x", *block, SlotState::kTentative).bits());
  pass_time(world, 10, {&hostile, &good});
  world.store->close_session(SessionId{hostile.id});
  pass_time(world, 10, {&good});
  EXPECT_GT(world.stats().sweeps(), 2U);
  ASSERT_FALSE(good.put("good", "w"));
  EXPECT_EQ(good.get("good"), "w");
}

// The data path runs on other threads while the sweep does: what it takes must be what nobody can reach any more.
TEST(Sessions, SweepRacesWithWritersOnOtherThreads) {
  StoreOptions options = small_options();
  options.sweep_interval = kMillisecond;
  options.lease = 10'000 * kSecond;  // virtual time races ahead
  World world(options);
  DirectClient client(world);
  client.reports = false;
  client.batch = 64;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<DirectClient::Block> blocks;
    for (int i = 0; i < 64; ++i) {
      const auto block = client.take(0, 3);
      ASSERT_TRUE(block) << round;
      blocks.push_back(*block);
    }
    std::atomic<bool> done{false};
    std::thread writer([&] {
      for (size_t i = 0; i < blocks.size(); ++i) {
        const std::string key = "k" + std::to_string(i % 24);
        uint64_t* slot = client.find(key);
        if (slot != nullptr && i % 3 == 0) {
          const SlotWord word = DirectClient::load(slot);
          DirectClient::swap(slot, word, word.with_state(SlotState::kFreed));
          slot = nullptr;
        }
        if (slot == nullptr) slot = client.free_slot(key);
        const SlotWord old = DirectClient::load(slot);
        client.write(key, "v" + std::to_string(i), blocks[i], old);
        if (old.is_live()) {
          DirectClient::swap(slot, old, client.word_of(key, blocks[i], SlotState::kLive));
          continue;
        }
        const SlotWord tentative = client.word_of(key, blocks[i], SlotState::kTentative);
        if (!DirectClient::swap(slot, old, tentative)) continue;
        DirectClient::swap(slot, tentative, client.word_of(key, blocks[i], SlotState::kLive));
      }
      done = true;
    });
    while (!done) world.executor.advance(kMillisecond);
    writer.join();
    ASSERT_TRUE(client.report());
    for (size_t i = 0; i < 24; ++i) {
      const std::string key = "k" + std::to_string(i);
      uint64_t* slot = client.find(key);
      EXPECT_TRUE(slot == nullptr || client.view(key, DirectClient::load(slot))) << key << " in round " << round;
    }
  }
  EXPECT_GT(world.stats().blocks_reused(), 64U * kRounds / 2);
}

}  // namespace
}  // namespace skua
