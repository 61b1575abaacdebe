// What each operation does, over each transport, and what it costs in round trips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "proto/block.h"
#include "proto/limits.h"
#include "proto/size_class.h"
#include "tests/functional/local_cluster.h"

namespace skua {
namespace {

using testing::described_value;
using testing::LocalCluster;
using testing::LocalClusterOptions;
using testing::must;
using ::testing::HasSubstr;

class Operations : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    LocalClusterOptions options;
    options.servers = 3;
    options.memory_bytes = uint64_t{512} << 20;
    cluster_ = std::make_unique<LocalCluster>(options);
  }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override { open(cluster_->client_options(GetParam())); }
  void open(const ClientOptions& options) {
    session_.reset();
    client_.reset();
    client_ = cluster_->connect(options);
    session_ = std::move(*client_->open_session());
  }
  // Keys of one test do not meet those of another.
  std::string key(std::string_view suffix = "") const {
    return std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + std::string(suffix);
  }
  std::string read(const std::string& name) {
    const auto got = session_->get(name);
    if (!got) return "<" + got.error().to_string() + ">";
    return *got ? std::string((*got)->bytes) : "<absent>";
  }
  OperationCounters cost(OperationKind kind) const { return session_->counters()[static_cast<size_t>(kind)]; }

  static std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
};
std::unique_ptr<LocalCluster> Operations::cluster_;

TEST_P(Operations, GetOfAbsentKeyIsNothing) {
  EXPECT_EQ(read(key()), "<absent>");
  EXPECT_FALSE(must(session_->exists(key())));
  EXPECT_FALSE(must(session_->remove(key())));
}

TEST_P(Operations, PutThenGetReturnsTheValue) {
  ASSERT_TRUE(session_->put(key(), "one"));
  EXPECT_EQ(read(key()), "one");
  ASSERT_TRUE(session_->put(key(), "two"));
  EXPECT_EQ(read(key()), "two");
  EXPECT_TRUE(must(session_->exists(key())));
}

TEST_P(Operations, AnotherSessionSeesWhatWasPut) {
  ASSERT_TRUE(session_->put(key(), "shared"));
  auto other = std::move(*client_->open_session());
  EXPECT_EQ((**other->get(key())).bytes, "shared");
  ASSERT_TRUE(other->put(key(), "changed"));
  EXPECT_EQ(read(key()), "changed");
}

TEST_P(Operations, RemoveMakesTheKeyAbsentAndItCanComeBack) {
  ASSERT_TRUE(session_->put(key(), "x"));
  EXPECT_TRUE(must(session_->remove(key())));
  EXPECT_EQ(read(key()), "<absent>");
  EXPECT_FALSE(must(session_->remove(key())));
  ASSERT_TRUE(session_->put(key(), "again"));
  EXPECT_EQ(read(key()), "again");
}

TEST_P(Operations, EmptyValueIsNotAbsence) {
  ASSERT_TRUE(session_->put(key(), ""));
  const auto got = session_->get(key());
  ASSERT_TRUE(got && *got);
  EXPECT_EQ((*got)->bytes.size(), 0U);
  EXPECT_TRUE(must(session_->exists(key())));
  const auto into = session_->get_into(key(), {});
  ASSERT_TRUE(into && *into);
  EXPECT_EQ((*into)->value_bytes, 0U);
  EXPECT_TRUE(must(session_->remove(key())));
}

TEST_P(Operations, KeysOfAnyBytesAreDifferentKeys) {
  using namespace std::string_literals;
  const std::vector<std::string> names = {"a\0b"s, "a\0c"s, "a"s, "\0"s, "\xff\xfe"s, "a b\n"s, "a\0"s};
  for (size_t i = 0; i < names.size(); ++i) ASSERT_TRUE(session_->put(names[i], std::to_string(i)));
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(read(names[i]), std::to_string(i));
  for (const std::string& name : names) EXPECT_TRUE(must(session_->remove(name)));
}

TEST_P(Operations, KeyLimitsAreRefusedBeforeAnythingIsSent) {
  const std::string longest(proto::kMaxKeyBytes, 'k');
  ASSERT_TRUE(session_->put(longest, "v"));
  EXPECT_EQ(read(longest), "v");
  EXPECT_TRUE(must(session_->remove(longest)));
  const uint64_t before = cost(OperationKind::kPut).round_trips;
  for (const size_t bytes : {size_t{0}, proto::kMaxKeyBytes + 1, size_t{64} << 10, size_t{1} << 20}) {
    const auto refused = session_->put(std::string(bytes, 'k'), "v");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr("1 to 4096"));
    EXPECT_EQ(session_->get(std::string(bytes, 'k')).error().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(cost(OperationKind::kPut).round_trips, before);
}

TEST_P(Operations, ValuesAroundEverySizeClassComeBackWhole) {
  const std::string name = key();
  for (int c = 0; c < 46; ++c) {  // up to 4 MiB
    const size_t room = proto::size_class_bytes(c) - proto::block_bytes(std::min(name.size(), size_t{20}), 0);
    for (const size_t bytes : {room - 1, room, room + 1}) {
      if (proto::size_class_bytes(c) < 128) continue;
      const std::string value = described_value(name, bytes, bytes);
      const auto stored = session_->put(name, value);
      ASSERT_TRUE(stored) << stored.error().to_string();
      ASSERT_EQ(read(name), value) << bytes;
    }
  }
}

TEST_P(Operations, LargestValueIsStoredAndOneByteMoreIsRefused) {
  const std::string value = described_value(key(), proto::kMaxValueBytes, 7);
  const auto stored = session_->put(key(), value);
  ASSERT_TRUE(stored) << stored.error().to_string();
  EXPECT_EQ(read(key()), value);
  std::vector<std::byte> buffer(value.size());
  const auto into = session_->get_into(key(), buffer);
  ASSERT_TRUE(into && *into) << into.error().to_string();
  EXPECT_EQ(std::memcmp(buffer.data(), value.data(), value.size()), 0);
  const auto refused = session_->put(key(), value + "x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(must(session_->remove(key())));
}

TEST_P(Operations, GetIntoNamesBothSizesWhenItDoesNotFit) {
  ASSERT_TRUE(session_->put(key(), std::string(100, 'v')));
  std::vector<std::byte> small(99);
  const auto refused = session_->get_into(key(), small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("100"));
  EXPECT_THAT(refused.error().message(), HasSubstr("99"));
}

TEST_P(Operations, PutIfAbsentStoresOnce) {
  EXPECT_TRUE(session_->put_if_absent(key(), "first")->stored);
  EXPECT_FALSE(session_->put_if_absent(key(), "second")->stored);
  EXPECT_EQ(read(key()), "first");
}

TEST_P(Operations, CompareAndSwapTakesOnlyTheExpectedVersion) {
  const VersionToken first = must(session_->put(key(), "1"));
  const auto swapped = session_->compare_and_swap(key(), first, "2");
  ASSERT_TRUE(swapped && swapped->swapped);
  EXPECT_FALSE(session_->compare_and_swap(key(), first, "3")->swapped);
  EXPECT_EQ(read(key()), "2");
  const VersionToken read_version = (*must(session_->get(key()))).version;
  EXPECT_EQ(read_version, swapped->version);
  EXPECT_FALSE(session_->compare_and_swap(key("absent"), first, "3")->swapped);
}

TEST_P(Operations, VersionTokenSurvivesItsText) {
  const VersionToken token = must(session_->put(key(), "1"));
  EXPECT_EQ(VersionToken::parse(token.to_string()), token);
  EXPECT_EQ(VersionToken::parse("12"), VersionToken{0x12});
  EXPECT_FALSE(VersionToken::parse("1.2"));
  EXPECT_FALSE(VersionToken::parse("12x"));
  EXPECT_FALSE(VersionToken::parse(""));
  EXPECT_FALSE(VersionToken::parse("11112222333344445"));
}

TEST_P(Operations, IncrementCountsAndRefusesWhatIsNoNumber) {
  EXPECT_EQ(must(session_->increment(key())), 1);
  EXPECT_EQ(must(session_->increment(key(), 41)), 42);
  EXPECT_EQ(must(session_->increment(key(), -50)), -8);
  EXPECT_EQ(read(key()), "-8");
  ASSERT_TRUE(session_->put(key(), "9223372036854775807"));
  EXPECT_EQ(session_->increment(key()).error().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(session_->put(key(), "seven"));
  EXPECT_EQ(session_->increment(key()).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read(key()), "seven");
}

TEST_P(Operations, ExpiredKeyIsAbsentForEveryOperation) {
  PutOptions soon;
  soon.ttl = 60 * kMillisecond;
  ASSERT_TRUE(session_->put(key(), "brief", soon));
  EXPECT_EQ(read(key()), "brief");
  const Nanoseconds end = system_clock().now() + 10 * kSecond;
  while (read(key()) != "<absent>" && system_clock().now() < end) session_->poll_or_wait();
  EXPECT_EQ(read(key()), "<absent>");
  EXPECT_FALSE(must(session_->exists(key())));
  EXPECT_FALSE(must(session_->remove(key())));
  EXPECT_TRUE(session_->put_if_absent(key(), "new")->stored);
  EXPECT_EQ(read(key()), "new");
  PutOptions wrong;
  wrong.ttl = 10;
  EXPECT_EQ(session_->put(key(), "x", wrong).error().code(), StatusCode::kInvalidArgument);
}

TEST_P(Operations, BatchesGiveEachItemItsOwnResult) {
  session_->multi_get({});
  session_->multi_put({});
  const std::string empty_key;
  const std::string too_large(proto::kMaxValueBytes + 1, 'x');
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back(key(std::to_string(i)));
  std::vector<MultiPutItem> puts(102);
  for (size_t i = 0; i < 100; ++i) {
    puts[i].key = names[i];
    puts[i].value = names[i];
  }
  puts[100].key = empty_key;
  puts[101].key = names[0];
  puts[101].value = too_large;
  session_->multi_put(puts);
  for (size_t i = 0; i < 100; ++i) EXPECT_TRUE(puts[i].result) << puts[i].result.error().to_string();
  EXPECT_EQ(puts[100].result.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(puts[101].result.error().code(), StatusCode::kInvalidArgument);
  std::vector<MultiGetItem> reads(101);
  const std::string missing = key("missing");
  for (size_t i = 0; i < 100; ++i) reads[i].key = names[i];
  reads[100].key = missing;
  session_->multi_get(reads);
  for (size_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(reads[i].result && *reads[i].result);
    EXPECT_EQ(reads[i].value, names[i]);
  }
  ASSERT_TRUE(reads[100].result);
  EXPECT_FALSE(*reads[100].result);
}

TEST_P(Operations, ScanShowsEveryKeyOnce) {
  std::set<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    const std::string name = key("#" + std::to_string(i));
    ASSERT_TRUE(session_->put(name, name));
    expected.insert(name);
  }
  std::multiset<std::string> seen;
  const auto scanned = session_->scan([&](const ScanItem& item) {
    if (item.key.starts_with(key("#"))) {
      EXPECT_EQ(item.key, item.value);
      seen.insert(std::string(item.key));
    }
    return true;
  });
  ASSERT_TRUE(scanned) << scanned.error().to_string();
  EXPECT_EQ(std::multiset<std::string>(expected.begin(), expected.end()), seen);
  size_t shown = 0;
  ASSERT_TRUE(session_->scan([&](const ScanItem&) { return ++shown < 3; }));
  EXPECT_EQ(shown, 3U);
}

TEST_P(Operations, ReadOnlySessionReadsAndIsRefusedToWrite) {
  ASSERT_TRUE(session_->put(key(), "fixed"));
  ClientOptions options = cluster_->client_options(GetParam());
  options.read_only = true;
  open(options);
  EXPECT_EQ(read(key()), "fixed");
  EXPECT_EQ(session_->put(key(), "x").error().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(session_->remove(key()).error().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(session_->increment(key()).error().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(read(key()), "fixed");
}

TEST_P(Operations, CoroutinesOverlapInOneSession) {
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) names.push_back(key(std::to_string(i)));
  std::vector<Task<Result<VersionToken>>> tasks;
  for (const std::string& name : names) {
    tasks.push_back(session_->async_put(name, name));
    tasks.back().start();
  }
  for (auto& task : tasks) {
    while (!task.done()) session_->poll_or_wait();
    EXPECT_TRUE(task.take());
  }
  for (const std::string& name : names) {
    const auto got = session_->run(session_->async_get(name));
    ASSERT_TRUE(got && *got);
    EXPECT_EQ((*got)->value, name);
  }
}

// The first operation of a session also reads a directory, and the first PUT waits for blocks: both are done before
// what is counted here.
// What operations cost when nothing comes in between. A reclaim epoch that is announced meanwhile adds a look at the
// directory, so each is done in several rounds, and the cheapest counts.
TEST_P(Operations, RoundTripsAreWhatTheProtocolSays) {
  constexpr int kRounds = 4;
  std::map<std::string, OperationCounters> cheapest;
  const auto count = [&](const std::string& what, OperationKind kind, auto run) {
    const OperationCounters before = cost(kind);
    run();
    OperationCounters after = cost(kind);
    after.round_trips -= before.round_trips;
    after.reads -= before.reads;
    after.writes -= before.writes;
    after.compare_and_swaps -= before.compare_and_swaps;
    const auto [at, first] = cheapest.emplace(what, after);
    if (!first && after.round_trips < at->second.round_trips) at->second = after;
  };
  const std::string name = key();
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(session_->put(name, "warm"));
    ASSERT_TRUE(session_->remove(name));
    count("insert", OperationKind::kPut, [&] { ASSERT_TRUE(session_->put(name, "1")); });
    count("update", OperationKind::kPut, [&] { ASSERT_TRUE(session_->put(name, "2")); });
    count("cached get", OperationKind::kGet, [&] { EXPECT_EQ(read(name), "2"); });
    const VersionToken version = (*must(session_->get(name))).version;
    count("compare_and_swap", OperationKind::kCompareAndSwap,
          [&] { EXPECT_TRUE(session_->compare_and_swap(name, version, "3")->swapped); });
    count("remove", OperationKind::kRemove, [&] { EXPECT_TRUE(must(session_->remove(name))); });
  }
  ASSERT_TRUE(session_->put(name, "4"));
  ClientOptions uncached = cluster_->client_options(GetParam());
  uncached.cache_entries = 0;
  open(uncached);
  EXPECT_EQ(read(name), "4");
  for (int round = 0; round < kRounds; ++round) {
    count("cold get", OperationKind::kGet, [&] { EXPECT_EQ(read(name), "4"); });
  }
  EXPECT_EQ(cheapest["insert"].round_trips, 3U);
  EXPECT_EQ(cheapest["insert"].compare_and_swaps, 2U);
  EXPECT_EQ(cheapest["update"].round_trips, 1U);
  EXPECT_EQ(cheapest["update"].writes, 1U);
  EXPECT_EQ(cheapest["update"].compare_and_swaps, 1U);
  EXPECT_EQ(cheapest["cached get"].round_trips, 1U);
  EXPECT_EQ(cheapest["cached get"].reads, 2U);
  EXPECT_EQ(cheapest["compare_and_swap"].round_trips, 1U);
  EXPECT_EQ(cheapest["remove"].round_trips, 1U);
  EXPECT_EQ(cheapest["cold get"].round_trips, 2U);
  EXPECT_EQ(cheapest["cold get"].reads, 2U);
}

INSTANTIATE_TEST_SUITE_P(Transports, Operations, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

TEST(ClientConnect, ClearErrors) {
  ClientOptions options;
  EXPECT_EQ(Client::connect(options).error().code(), StatusCode::kConfiguration);
  options.seeds = {"127.0.0.1"};
  EXPECT_THAT(Client::connect(options).error().message(), HasSubstr("no port"));
  options.seeds = {"::1:7400"};
  EXPECT_THAT(Client::connect(options).error().message(), HasSubstr("brackets"));
  options.seeds = {"127.0.0.1:1"};
  options.connect_timeout = kSecond;
  const auto refused = Client::connect(options);
  EXPECT_EQ(refused.error().code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.error().message(), HasSubstr("127.0.0.1:1"));
  options.transport = "pigeon";
  EXPECT_THAT(Client::connect(options).error().message(), HasSubstr("auto, verbs, shm or tcp"));
}

}  // namespace
}  // namespace skua
