#include "bench/ycsb/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

namespace skua::ycsb {
namespace {

using ::testing::HasSubstr;

// Time passes by a microsecond at each look, and by what is slept.
class TickingClock : public Clock {
 public:
  Nanoseconds now() const override { return now_.fetch_add(kMicrosecond) + kMicrosecond; }
  int64_t wall_ms() const override { return 0; }
  void advance_to(Nanoseconds until) {
    Nanoseconds seen = now_.load();
    while (seen < until && !now_.compare_exchange_weak(seen, until)) {
    }
  }

 private:
  mutable std::atomic<Nanoseconds> now_{kSecond};
};

struct FakeData {
  std::mutex mutex;
  std::map<std::string, std::pair<std::string, uint64_t>, std::less<>> records;
  int failing_writes = 0;
  int lost_swaps = 0;
  bool corrupt_reads = false;
  uint64_t opened = 0;
  uint64_t batches = 0;
  std::optional<Status> refuse_open;
};

class FakeStore : public KvStore {
 public:
  explicit FakeStore(FakeData& data) : data_(data) {}

  Result<bool> read(std::string_view key, std::string& value, KvVersion* version) override {
    const std::lock_guard lock(data_.mutex);
    costs_.reads += {.operations = 1, .round_trips = 2, .verbs = 2, .bytes = 100, .cas_lost = 0, .cache_hits = 0};
    const auto found = data_.records.find(key);
    if (found == data_.records.end()) return false;
    value = found->second.first;
    if (data_.corrupt_reads) value.back() = static_cast<char>(value.back() ^ 1);
    if (version != nullptr) *version = found->second.second;
    return true;
  }
  void read_many(std::span<KvReadItem> items) override {
    ++data_.batches;
    for (KvReadItem& item : items) item.found = read(item.key, item.value, nullptr);
  }
  Result<void> write(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(data_.mutex);
    costs_.writes += {.operations = 1, .round_trips = 3, .verbs = 5, .bytes = 200, .cas_lost = 0, .cache_hits = 0};
    if (data_.failing_writes > 0) {
      --data_.failing_writes;
      return fail(StatusCode::kOutOfMemory, "the fake store is full");
    }
    auto& record = data_.records[std::string(key)];
    record = {std::string(value), record.second + 1};
    return {};
  }
  Result<bool> replace(std::string_view key, KvVersion expected, std::string_view value) override {
    const std::lock_guard lock(data_.mutex);
    costs_.writes += {.operations = 1, .round_trips = 1, .verbs = 2, .bytes = 200, .cas_lost = 0, .cache_hits = 1};
    if (data_.lost_swaps > 0) {
      --data_.lost_swaps;
      return false;
    }
    auto& record = data_.records[std::string(key)];
    if (record.second != expected) return false;
    record = {std::string(value), record.second + 1};
    return true;
  }
  StoreCosts costs() const override { return costs_; }

 private:
  FakeData& data_;
  StoreCosts costs_;
};

class FakeStores : public KvStoreFactory {
 public:
  explicit FakeStores(FakeData& data) : data_(data) {}
  Result<std::unique_ptr<KvStore>> open() override {
    const std::lock_guard lock(data_.mutex);
    if (data_.refuse_open) return tl::make_unexpected(*data_.refuse_open);
    ++data_.opened;
    return std::make_unique<FakeStore>(data_);
  }

 private:
  FakeData& data_;
};

class RunnerTest : public ::testing::Test {
 protected:
  void prepare(const std::string& text) {
    Properties properties;
    ASSERT_TRUE(properties.load_text("recordcount=200\noperationcount=1000\nfieldcount=3\nfieldlength=20\n" + text,
                                     "test"));
    const auto config = WorkloadConfig::parse(properties, {.load = true, .run = true});
    ASSERT_TRUE(config) << config.error().to_string();
    workload_ = std::move(*Workload::create(*config));
    options_ = *RunnerOptions::parse(properties);
    options_.seed = 7;
  }
  PhaseResult load() { return finished(Runner(*workload_, stores_, options_, environment_).load()); }
  PhaseResult run() { return finished(Runner(*workload_, stores_, options_, environment_).run()); }
  PhaseResult finished(Result<PhaseResult> result) {
    EXPECT_TRUE(result) << result.error().to_string();
    return result ? std::move(*result) : PhaseResult{};
  }
  static uint64_t outcomes(const PhaseResult& result, Series series, Outcome wanted) {
    for (const auto& line : result.summary.lines()) {
      if (line.series != series) continue;
      for (const auto& [outcome, times] : line.outcomes) {
        if (outcome == wanted) return times;
      }
    }
    return 0;
  }
  static const OperationCost& cost(const PhaseResult& result, Series series) {
    return result.costs[static_cast<size_t>(series)];
  }

  FakeData data_;
  FakeStores stores_{data_};
  TickingClock clock_;
  std::atomic<bool> interrupted_ = false;
  std::mutex errors_mutex_;
  std::vector<std::string> errors_;
  const Environment environment_{clock_, [this](Nanoseconds until) { clock_.advance_to(until); },
                                 [this](const std::string& line) {
                                   const std::lock_guard lock(errors_mutex_);
                                   errors_.push_back(line);
                                 },
                                 interrupted_};
  std::unique_ptr<Workload> workload_;
  RunnerOptions options_;
};

TEST_F(RunnerTest, LoadInsertsEveryRecordOnceOverAllThreads) {
  prepare("threadcount=3\n");
  const PhaseResult result = load();
  EXPECT_EQ(result.operations, 200u);
  EXPECT_EQ(data_.records.size(), 200u);
  EXPECT_EQ(data_.opened, 3u);
  EXPECT_EQ(outcomes(result, Series::kInsert, Outcome::kOk), 200u);
  EXPECT_EQ(cost(result, Series::kInsert).operations, 200u);
  EXPECT_EQ(cost(result, Series::kInsert).round_trips, 600u);
  EXPECT_EQ(result.summary.failures(), 0u);
}

TEST_F(RunnerTest, PartialLoadInsertsItsPart) {
  prepare("insertstart=50\ninsertcount=20\n");
  EXPECT_EQ(load().operations, 20u);
  EXPECT_EQ(data_.records.size(), 20u);
}

TEST_F(RunnerTest, LoadEndsAtARecordThatCannotBeInserted) {
  prepare("");
  data_.failing_writes = 1;
  const PhaseResult result = load();
  EXPECT_EQ(result.operations, 1u);
  EXPECT_EQ(outcomes(result, Series::kInsert, Outcome::kOutOfMemory), 1u);
  ASSERT_EQ(errors_.size(), 2u);
  EXPECT_THAT(errors_[0], HasSubstr("the fake store is full"));
}

TEST_F(RunnerTest, LoadRetriesAsOftenAsAllowed) {
  prepare("core_workload_insertion_retry_limit=2\n");
  data_.failing_writes = 2;
  const PhaseResult result = load();
  EXPECT_EQ(result.operations, 200u);
  EXPECT_EQ(data_.records.size(), 200u);
  EXPECT_EQ(outcomes(result, Series::kInsert, Outcome::kOutOfMemory), 2u);
  EXPECT_GT(result.run_time, 4 * kSecond);
}

TEST_F(RunnerTest, EveryOperationKindIsMeasuredAndVerified) {
  prepare("dataintegrity=true\nreadproportion=0.4\nupdateproportion=0.2\ninsertproportion=0.2\n"
          "readmodifywriteproportion=0.2\nrequestdistribution=zipfian\n");
  load();
  const PhaseResult result = run();
  EXPECT_EQ(result.operations, 1000u);
  EXPECT_EQ(result.summary.failures(), 0u);
  const uint64_t inserts = outcomes(result, Series::kInsert, Outcome::kOk);
  const uint64_t updates = outcomes(result, Series::kUpdate, Outcome::kOk);
  const uint64_t reads = outcomes(result, Series::kRead, Outcome::kOk);
  const uint64_t both = outcomes(result, Series::kReadModifyWrite, Outcome::kOk);
  EXPECT_GT(both, 100u);
  EXPECT_EQ(inserts + updates + reads - both, 1000u);
  EXPECT_EQ(outcomes(result, Series::kVerify, Outcome::kOk), reads);
  EXPECT_EQ(data_.records.size(), 200 + inserts);
  EXPECT_EQ(cost(result, Series::kInsert).operations, inserts);
  EXPECT_EQ(cost(result, Series::kUpdate).operations, updates);
  EXPECT_EQ(cost(result, Series::kRead).operations, reads);
  EXPECT_EQ(cost(result, Series::kRead).round_trips, 2 * reads);
}

TEST_F(RunnerTest, WrongValueIsAFailure) {
  prepare("dataintegrity=true\nreadproportion=1\nupdateproportion=0\n");
  load();
  data_.corrupt_reads = true;
  const PhaseResult result = run();
  EXPECT_EQ(outcomes(result, Series::kVerify, Outcome::kUnexpectedState), 1000u);
  EXPECT_EQ(result.summary.failures(), 1000u);
  EXPECT_THAT(errors_.front(), HasSubstr("60 bytes that are not this record's"));
  EXPECT_EQ(errors_.size(), PhaseState::kMaxErrorsShown + 1);
}

TEST_F(RunnerTest, AbsentRecordIsAFailure) {
  prepare("readproportion=1\nupdateproportion=0\n");
  const PhaseResult result = run();
  EXPECT_EQ(outcomes(result, Series::kRead, Outcome::kNotFound), 1000u);
  EXPECT_EQ(result.summary.failures(), 1000u);
}

TEST_F(RunnerTest, MergedUpdateChangesOneFieldAndRetriesLostSwaps) {
  prepare("skua.fieldupdate=merge\nreadproportion=0\nupdateproportion=1\noperationcount=1\n");
  load();
  const auto before = data_.records;
  data_.lost_swaps = 3;
  const PhaseResult result = run();
  EXPECT_EQ(outcomes(result, Series::kUpdate, Outcome::kOk), 1u);
  EXPECT_EQ(cost(result, Series::kUpdate).operations, 1u);
  EXPECT_EQ(cost(result, Series::kUpdate).round_trips, 4 * 3u);
  EXPECT_EQ(cost(result, Series::kRead).operations, 0u);
  size_t changed_fields = 0;
  for (const auto& [key, record] : before) {
    for (size_t field = 0; field < 3; ++field) {
      changed_fields += record.first.substr(20 * field, 20) != data_.records[key].first.substr(20 * field, 20);
    }
  }
  EXPECT_EQ(changed_fields, 1u);
}

TEST_F(RunnerTest, ReadsAreBatched) {
  prepare("dataintegrity=true\nreadproportion=1\nupdateproportion=0\n");
  options_.batch = 32;
  load();
  const PhaseResult result = run();
  EXPECT_EQ(result.operations, 1000u);
  EXPECT_EQ(data_.batches, 32u);
  EXPECT_EQ(outcomes(result, Series::kVerify, Outcome::kOk), 1000u);
}

TEST_F(RunnerTest, TargetPacesAndMeasuresFromTheIntendedBegin) {
  prepare("target=100\nreadproportion=1\nupdateproportion=0\noperationcount=50\n");
  load();
  const PhaseResult result = run();
  EXPECT_GE(result.run_time, 490 * kMillisecond);
  EXPECT_LE(result.run_time, 520 * kMillisecond);
  std::vector<std::string> names;
  for (const auto& line : result.summary.lines()) names.push_back(line.name);
  EXPECT_THAT(names, ::testing::ElementsAre("READ", "Intended-READ"));
}

TEST_F(RunnerTest, MaximumTimeEndsARunWithoutACount) {
  prepare("readproportion=1\nupdateproportion=0\noperationcount=0\nmaxexecutiontime=1\n");
  load();
  const PhaseResult result = run();
  EXPECT_GE(result.run_time, kSecond);
  EXPECT_LE(result.run_time, kSecond + 100 * kMicrosecond);
  EXPECT_GT(result.operations, 1000u);
}

TEST_F(RunnerTest, InterruptEndsThePhaseAndKeepsWhatWasMeasured) {
  prepare("");
  interrupted_ = true;
  const PhaseResult result = load();
  EXPECT_EQ(result.operations, 0u);
}

TEST_F(RunnerTest, ConnectionThatCannotBeOpenedIsTheError) {
  prepare("threadcount=2\n");
  data_.refuse_open = Status(StatusCode::kUnavailable, "nobody answers");
  const auto result = Runner(*workload_, stores_, options_, environment_).load();
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message(), HasSubstr("nobody answers"));
}

TEST_F(RunnerTest, StatusEndsWithALineOfAllOperations) {
  prepare("label=here:\n");
  options_.status = true;
  load();
  ASSERT_FALSE(errors_.empty());
  EXPECT_THAT(errors_.back(), HasSubstr("here:"));
  EXPECT_THAT(errors_.back(), HasSubstr("sec: 200 operations; "));
  EXPECT_THAT(errors_.back(), HasSubstr("[INSERT: Count=200, "));
}

}  // namespace
}  // namespace skua::ycsb
