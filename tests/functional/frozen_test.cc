// A server that replaces a table freezes it, builds the next one and publishes that. Here a session does by hand what
// the server does, so that each step can be held as long as a test likes; another session must keep the rules.
#include <gtest/gtest.h>

#include <vector>

#include "tests/functional/bare_session.h"
#include "tests/functional/local_cluster.h"

namespace skua {
namespace {

using proto::Bucket;
using proto::DirectoryRoot;
using proto::SlotState;
using proto::SlotWord;
using proto::TableRef;
using testing::BareSession;

constexpr uint64_t kPage = 4096;

// What a server would do with its one partition's one table, through verbs.
class Freezer {
 public:
  // Of `partitions`, the one where `key` lies.
  explicit Freezer(const testing::LocalCluster& cluster, const std::string& key = "k", uint32_t partitions = 1)
      : session_(cluster, "shm"), room_(key_beside(key, partitions, true)) {
    EXPECT_TRUE(session_.put(room_, std::string(64 << 10, 'r')));
  }
  // A key of the same partition as `key`, or of another.
  static std::string key_beside(const std::string& key, uint32_t partitions, bool same) {
    const uint32_t wanted = proto::KeyHash::of(key).partition(partitions);
    for (int i = 0;; ++i) {
      std::string name = "key" + std::to_string(i);
      if ((proto::KeyHash::of(name).partition(partitions) == wanted) == same) return name;
    }
  }

  // Sets FROZEN in every slot of the table; with `but`, that key's word becomes EMPTY before.
  void freeze(const std::string& but = {}) { session_.run(for_each_slot(true, but)); }
  void thaw() { session_.run(for_each_slot(false, {})); }
  // Empties the key's slot, and freezes nothing.
  void empty(const std::string& key) { session_.run(empty_slot(key)); }
  std::vector<Bucket> table() { return session_.run(read_table()); }
  // The table as given, under a new version, becomes the only one.
  void publish(std::vector<Bucket> table) { session_.run(publish_table(std::move(table))); }
  SlotWord word_of(const std::string& key) { return session_.run(find_word(key)); }

 private:
  // One attempt of an operation that does `body`; sessions of this test meet no faults.
  struct Place {
    explicit Place(SessionCore& core, const std::string& key) : operation(core, OperationKind::kGet, key) {}
    Operation operation;
    TableRef ref() {
      PartitionState& partition = operation.partition();
      EXPECT_EQ(partition.tables.size(), 1u);
      return partition.tables[0];
    }
  };
  Task<std::vector<Bucket>> read_table() {
    Place place(session_.core(), room_);
    EXPECT_TRUE(co_await place.operation.prepare());
    std::vector<Bucket> buckets(proto::table_buckets(place.ref().log2_buckets()));
    Batch batch;
    place.operation.add_read(batch, place.ref().offset(), buckets.data(), buckets.size() * sizeof(Bucket));
    EXPECT_EQ(co_await place.operation.post(batch), Step::kDone);
    co_return buckets;
  }
  Task<bool> swap(Operation& operation, uint64_t offset, uint64_t from, uint64_t to) {
    uint64_t old = ~from;
    Batch batch;
    operation.add_cas(batch, offset, from, to, old);
    EXPECT_EQ(co_await operation.post(batch), Step::kDone);
    EXPECT_EQ(old, from);
    co_return old == from;
  }
  Task<bool> for_each_slot(bool frozen, std::string but) {
    if (!but.empty()) co_await empty_slot(but);
    const std::vector<Bucket> buckets = co_await read_table();
    Place place(session_.core(), room_);
    EXPECT_TRUE(co_await place.operation.prepare());
    for (size_t b = 0; b < buckets.size(); ++b) {
      for (size_t s = 0; s < proto::kSlotsPerBucket; ++s) {
        const SlotWord word(buckets[b].slots[s]);
        const uint64_t offset = place.ref().offset() + b * sizeof(Bucket) + proto::window_slot_offset(s);
        co_await swap(place.operation, offset, word.bits(),
                      (frozen ? word.with_frozen() : word.without_frozen()).bits());
      }
    }
    co_return true;
  }
  Task<SlotWord> find_word(std::string key) {
    Operation operation(session_.core(), OperationKind::kGet, key);
    EXPECT_TRUE(co_await operation.prepare());
    Found found;
    EXPECT_EQ(co_await operation.find(found, Want::kIdentity), Step::kDone);
    EXPECT_TRUE(found.present);
    co_return found.frozen ? found.word.with_frozen() : found.word;
  }
  Task<bool> empty_slot(std::string key) {
    Operation operation(session_.core(), OperationKind::kGet, key);
    EXPECT_TRUE(co_await operation.prepare());
    Found found;
    EXPECT_EQ(co_await operation.find(found, Want::kIdentity), Step::kDone);
    EXPECT_TRUE(found.present);
    co_return co_await swap(operation, found.slot_offset, found.word.bits(), SlotWord::empty(1).bits());
  }
  Task<bool> publish_table(std::vector<Bucket> table) {
    Operation operation(session_.core(), OperationKind::kGet, room_);
    EXPECT_TRUE(co_await operation.prepare());
    Found found;
    EXPECT_EQ(co_await operation.find(found, Want::kIdentity), Step::kDone);
    EXPECT_TRUE(found.present);
    PartitionState& partition = operation.partition();
    const TableRef old = partition.tables[0];
    const DirectoryRoot root = partition.root;
    const uint64_t version = old.version() + 1;
    for (Bucket& bucket : table) {
      const auto header = proto::BucketHeader::of(0, version);
      bucket.header = (proto::BucketHeader(bucket.header).overflow() ? header.with_overflow() : header).bits();
      for (uint64_t& slot : bucket.slots) slot = SlotWord(slot).without_frozen().bits();
    }
    // Behind the header and key of that large block, on the next page.
    const uint64_t offset = (found.word.block_offset() + kPage) / kPage * kPage + kPage;
    const TableRef next = TableRef::of({offset, old.log2_buckets(), 0, version});
    Batch batch;
    WorkRequest& request = batch.add();
    request.verb = Verb::kWrite;
    request.key = partition.key;
    request.remote_offset = offset;
    request.local[0] = {table.data(), static_cast<uint32_t>(table.size() * sizeof(Bucket))};
    request.local_count = 1;
    EXPECT_EQ(co_await operation.post(batch), Step::kDone);
    co_await swap(operation, root.offset(), old.bits(), next.bits());
    co_return co_await swap(operation, proto::kDirectoryRootOffset, root.bits(),
                            DirectoryRoot::of(root.offset(), root.depth(), root.version() + 1).bits());
  }

  BareSession session_;
  const std::string room_;  // a large value: the next table is built in its block
};

testing::LocalClusterOptions one_table_each(uint32_t partitions = 1) {
  testing::LocalClusterOptions options;
  options.partitions = partitions;
  options.expected_keys = 1;
  options.lease = 60 * kSecond;  // no reclaim epoch in between: that alone would make sessions read the directory
  return options;
}

class Frozen : public ::testing::TestWithParam<const char*> {
 protected:
  ClientOptions impatient() const {
    ClientOptions options = cluster_.client_options(GetParam());
    options.operation_timeout = 150 * kMillisecond * testing::kSlowness;
    return options;
  }
  // CASes that operations of this kind have posted so far.
  uint64_t swaps(OperationKind kind) { return session_.core().counters(kind).compare_and_swaps.load(); }

  // A mutation meets a frozen slot: it posts no CAS, ends with its deadline, and has changed nothing.
  template <class T>
  void expect_waits(OperationKind kind, const std::string& key, Task<Result<T>> task) {
    const SlotWord before = freezer_.word_of(key);
    ASSERT_TRUE(before.frozen());
    const uint64_t swaps_before = swaps(kind);
    const Result<T> result = session_.run(std::move(task));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), StatusCode::kDeadlineExceeded) << result.error().to_string();
    EXPECT_EQ(swaps(kind), swaps_before);
    EXPECT_EQ(freezer_.word_of(key), before);
  }

  template <class T>
  void expect_no_insert(OperationKind kind, Task<Result<T>> task) {
    const uint64_t swaps_before = swaps(kind);
    const Result<T> result = session_.run(std::move(task));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), StatusCode::kDeadlineExceeded) << result.error().to_string();
    EXPECT_EQ(swaps(kind), swaps_before);
  }

  testing::LocalCluster cluster_{one_table_each()};
  Freezer freezer_{cluster_};
  BareSession session_{GetParam(), impatient()};
  SessionCore& core_ = session_.core();
};

TEST_P(Frozen, MutationsWaitAndReadersGoOn) {
  ASSERT_TRUE(session_.put("k", "7"));
  const VersionToken version = session_.run(get_operation(core_, "k", {}))->version;
  freezer_.freeze();
  EXPECT_EQ(session_.get("k"), "7");  // and the cached place is given up: its word is another
  EXPECT_EQ(session_.get("nothing"), "<absent>");
  expect_waits(OperationKind::kPut, "k", put_operation(core_, "k", "8", {}));
  expect_waits(OperationKind::kCompareAndSwap, "k", compare_and_swap_operation(core_, "k", version, "8", {}));
  expect_waits(OperationKind::kIncrement, "k", increment_operation(core_, "k", 1));
  expect_waits(OperationKind::kRemove, "k", remove_operation(core_, "k"));
  // What needs no change is answered.
  EXPECT_FALSE(session_.run(put_if_absent_operation(core_, "k", "8", {}))->stored);
  EXPECT_TRUE(*session_.run(exists_operation(core_, "k")));
  EXPECT_FALSE(*session_.run(remove_operation(core_, "nothing")));
  EXPECT_EQ(session_.get("k"), "7");
  freezer_.thaw();
  EXPECT_EQ(session_.run(increment_operation(core_, "k", 1)).value_or(0), 8);
  EXPECT_TRUE(session_.run(remove_operation(core_, "k")).value_or(false));
}

TEST_P(Frozen, APlaceInTheCacheIsTriedOnce) {
  ASSERT_TRUE(session_.put("k", "7"));
  freezer_.freeze();
  const uint64_t before = swaps(OperationKind::kPut);
  const auto result = session_.put("k", "8");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(swaps(OperationKind::kPut), before + 1);  // it lost: the word is not the one that was cached
  EXPECT_EQ(session_.get("k"), "7");
}

TEST_P(Frozen, PutIfAbsentOverAnExpiredKeyWaits) {
  PutOptions soon;
  soon.ttl = 200 * kMillisecond;
  ASSERT_TRUE(session_.put("k", "7", soon));
  freezer_.freeze();
  while (session_.get("k") != "<absent>") continue;
  expect_waits(OperationKind::kPutIfAbsent, "k", put_if_absent_operation(core_, "k", "8", {}));
  freezer_.thaw();
  EXPECT_TRUE(session_.run(put_if_absent_operation(core_, "k", "8", {}))->stored);
}

TEST_P(Frozen, InsertsWaitAndDoNotCallTheTableFull) {
  ASSERT_TRUE(session_.put("warm", "x"));
  freezer_.freeze();
  expect_no_insert(OperationKind::kPut, put_operation(core_, "new", "8", {}));
  expect_no_insert(OperationKind::kPutIfAbsent, put_if_absent_operation(core_, "new", "8", {}));
  expect_no_insert(OperationKind::kIncrement, increment_operation(core_, "new", 8));
  freezer_.thaw();
  EXPECT_TRUE(session_.put("new", "8"));
  EXPECT_EQ(session_.get("new"), "8");
}

// The word that beat the CAS is the old one, frozen: the put has not happened, and is not absorbed.
TEST_P(Frozen, ACasThatLostToTheFreezeDidNotHappen) {
  ASSERT_TRUE(session_.put("k", "7"));
  BareSession fresh(GetParam(), impatient());
  fresh.faults().before_cas = [&] { freezer_.freeze(); };
  const auto result = fresh.put("k", "8");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), StatusCode::kDeadlineExceeded) << result.error().to_string();
  freezer_.thaw();
  EXPECT_EQ(fresh.get("k"), "7");
}

// The next table has a key that the frozen one has not: an answer from the frozen table would be an old one.
TEST_P(Frozen, WhoMeetsFrozenReadsTheDirectoryAgain) {
  ASSERT_TRUE(session_.put("k", "7"));
  const std::vector<Bucket> next = freezer_.table();
  freezer_.freeze("k");
  freezer_.publish(next);
  EXPECT_EQ(session_.get("k"), "7");
  EXPECT_TRUE(session_.put("k", "8"));
  EXPECT_EQ(session_.get("k"), "8");
}

TEST_P(Frozen, MutationsGoToTheNextTable) {
  ASSERT_TRUE(session_.put("k", "7"));
  ASSERT_TRUE(session_.put("gone", "x"));
  const std::vector<Bucket> next = freezer_.table();
  freezer_.freeze();
  freezer_.publish(next);
  EXPECT_EQ(session_.run(increment_operation(core_, "k", 1)).value_or(0), 8);
  EXPECT_TRUE(session_.run(remove_operation(core_, "gone")).value_or(false));
  EXPECT_TRUE(session_.put("new", "9"));
  EXPECT_EQ(session_.get("k"), "8");
  EXPECT_EQ(session_.get("gone"), "<absent>");
  EXPECT_EQ(session_.get("new"), "9");
}

// Nothing is frozen where a backup's table was replaced: after a lost connection each directory itself is asked, and
// not only by the operation that noticed.
TEST(FrozenDirectory, IsReadAgainByWhoComesBack) {
  const testing::LocalCluster cluster(one_table_each(2));
  Freezer freezer(cluster, "k", 2);
  BareSession session(cluster, "shm");
  const std::string other = Freezer::key_beside("k", 2, false);
  ASSERT_TRUE(session.put("k", "7"));
  ASSERT_TRUE(session.put(other, "x"));
  const std::vector<Bucket> next = freezer.table();
  freezer.empty("k");
  freezer.publish(next);
  session.faults().next_cas = testing::Fault::kLosePost;
  ASSERT_TRUE(session.put(other, "y"));
  ASSERT_EQ(session.faults().met, 1);
  EXPECT_EQ(session.get("k"), "7");
}

// I12: what a session had read of a directory is void once it has reported a later reclaim epoch.
TEST(FrozenDirectory, IsReadAgainAfterAReport) {
  testing::LocalClusterOptions options = one_table_each(2);
  options.lease = testing::LocalClusterOptions().lease;
  const testing::LocalCluster cluster(options);
  Freezer freezer(cluster, "k", 2);
  BareSession session(cluster, "shm");
  const std::string other = Freezer::key_beside("k", 2, false);
  ASSERT_TRUE(session.put("k", "7"));
  const std::vector<Bucket> next = freezer.table();
  freezer.empty("k");
  freezer.publish(next);
  // Replaced blocks make the server want an epoch.
  const Nanoseconds end = system_clock().now() + 20 * kSecond;
  while (session.get("k") != "7" && system_clock().now() < end) ASSERT_TRUE(session.put(other, "y"));
  EXPECT_EQ(session.get("k"), "7");
}

INSTANTIATE_TEST_SUITE_P(Transports, Frozen, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

}  // namespace
}  // namespace skua
