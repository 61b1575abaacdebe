#include "bench/ycsb/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace skua::ycsb {
namespace {

using ::testing::HasSubstr;

constexpr Phases kBoth{.load = true, .run = true};

Properties properties_of(std::string_view text) {
  Properties properties;
  EXPECT_TRUE(properties.load_text(text, "test"));
  return properties;
}

std::unique_ptr<Workload> make_workload(std::string_view text) {
  auto config = WorkloadConfig::parse(properties_of(text), kBoth);
  EXPECT_TRUE(config) << config.error().to_string();
  auto workload = Workload::create(*config);
  EXPECT_TRUE(workload) << workload.error().to_string();
  return std::move(*workload);
}

std::string refusal(std::string_view text, Phases phases = kBoth) {
  const auto config = WorkloadConfig::parse(properties_of(text), phases);
  return config ? "accepted" : config.error().message();
}

constexpr std::string_view kSmall = "recordcount=100\noperationcount=1000\n";

std::string key_of(std::string_view text, uint64_t number) {
  const auto workload = make_workload(std::string(kSmall) + std::string(text));
  std::string key;
  workload->make_thread(1).records().make_key(number, key);
  return key;
}

TEST(WorkloadConfig, DefaultsAreYcsbs) {
  const auto config = WorkloadConfig::parse(properties_of(kSmall), kBoth);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->insert_count, 100u);
  EXPECT_EQ(config->field_count, 10u);
  EXPECT_EQ(config->field_length, 100u);
  EXPECT_EQ(config->read_proportion, 0.95);
  EXPECT_EQ(config->update_proportion, 0.05);
  EXPECT_EQ(config->request_distribution, RequestDistribution::kUniform);
  EXPECT_TRUE(config->read_all_fields);
  EXPECT_FALSE(config->write_all_fields);
  EXPECT_FALSE(config->ordered_keys);
}

TEST(WorkloadConfig, RefusalsNameThePropertyAndTheRemedy) {
  EXPECT_THAT(refusal("operationcount=1\n"), HasSubstr("recordcount: is missing"));
  EXPECT_THAT(refusal("recordcount=10\n"), HasSubstr("the run would never end"));
  EXPECT_THAT(refusal("recordcount=10\noperationcount=1\nscanproportion=0.95\n"), HasSubstr("scans are not supported"));
  EXPECT_THAT(refusal("recordcount=10\noperationcount=1\nrequestdistribution=zipf\n"),
              HasSubstr("must be one of uniform, zipfian, latest, hotspot, sequential, exponential"));
  EXPECT_THAT(refusal("recordcount=10\noperationcount=1\nworkload=site.ycsb.workloads.TimeSeriesWorkload\n"),
              HasSubstr("unknown workload"));
  EXPECT_THAT(refusal("recordcount=10\noperationcount=1\ninsertstart=5\ninsertcount=6\n"),
              HasSubstr("must not exceed recordcount, 10"));
  EXPECT_THAT(refusal("recordcount=10\noperationcount=1\nreadproportion=0\nupdateproportion=0\n"),
              HasSubstr("nothing to run"));
  EXPECT_THAT(refusal("recordcount=10\noperationcount=1\ndataintegrity=true\nfieldlengthdistribution=uniform\n"),
              HasSubstr("needs fieldlengthdistribution=constant"));
  EXPECT_THAT(refusal("recordcount=10\noperationcount=1\nfieldlength=99999999999\n"), HasSubstr("64 MiB"));
}

TEST(WorkloadConfig, ScansDoNotHinderALoad) {
  EXPECT_EQ(refusal("recordcount=10\nscanproportion=0.95\n", {.load = true, .run = false}), "accepted");
}

TEST(WorkloadConfig, MaximumTimeAloneEndsARun) {
  EXPECT_EQ(refusal("recordcount=10\nmaxexecutiontime=5\n"), "accepted");
}

TEST(RecordMaker, KeysAreYcsbs) {
  EXPECT_EQ(key_of("", 0), "user6284781860667377211");
  EXPECT_EQ(key_of("", 1), "user8517097267634966620");
  EXPECT_EQ(key_of("insertorder=ordered\n", 42), "user42");
  EXPECT_EQ(key_of("insertorder=ordered\nzeropadding=8\n", 42), "user00000042");
  EXPECT_EQ(key_of("insertorder=ordered\nkeyprefix=item\n", 42), "item42");
}

TEST(RecordMaker, UnsignedKeyHashIsNotNegated) {
  std::set<std::string> lengths;
  for (uint64_t number = 0; number < 50; ++number) {
    const uint64_t hash = fnv_hash64(number);
    EXPECT_EQ(key_of("skua.keyhash=unsigned\n", number), "user" + std::to_string(hash));
    const std::string signed_key = key_of("", number);
    EXPECT_EQ(signed_key, "user" + std::to_string(hash >> 63 ? ~hash + 1 : hash));
  }
}

TEST(RecordMaker, DeterministicFieldsFollowJavasHashCodes) {
  const auto workload = make_workload(std::string(kSmall) + "fieldcount=2\nfieldlength=30\ndataintegrity=true\n");
  WorkloadThread thread = workload->make_thread(1);
  std::string record;
  thread.records().make_record("user1", thread.random(), record);
  // "user1:field0:".hashCode() in Java is computed here from its definition.
  const auto java_hash = [](const std::string& text) {
    uint32_t hash = 0;
    for (const char c : text) hash = hash * 31 + static_cast<unsigned char>(c);
    return std::to_string(static_cast<int32_t>(hash));
  };
  std::string expected = "user1:field0";
  while (expected.size() < 30) {
    expected += ":";
    expected += java_hash(expected);
  }
  EXPECT_EQ(record.substr(0, 30), expected.substr(0, 30));
  EXPECT_EQ(record.size(), 60u);
  EXPECT_EQ(record.substr(30, 12), "user1:field1");
}

TEST(RecordMaker, VerifyFindsOneChangedByteAndOnlyInTheFieldsRead) {
  const auto workload = make_workload(std::string(kSmall) + "fieldcount=3\nfieldlength=20\ndataintegrity=true\n");
  WorkloadThread thread = workload->make_thread(1);
  std::string record;
  thread.records().make_record("user1", thread.random(), record);
  EXPECT_TRUE(thread.records().verify("user1", record, std::nullopt));
  EXPECT_FALSE(thread.records().verify("user2", record, std::nullopt));
  EXPECT_FALSE(thread.records().verify("user1", record.substr(1), std::nullopt));
  record[45] = static_cast<char>(record[45] ^ 1);
  EXPECT_FALSE(thread.records().verify("user1", record, std::nullopt));
  EXPECT_FALSE(thread.records().verify("user1", record, 2));
  EXPECT_TRUE(thread.records().verify("user1", record, 0));
}

TEST(RecordMaker, OneFieldChangesAndTheOthersStay) {
  for (const std::string_view lengths : {"constant", "uniform", "zipfian"}) {
    const auto workload = make_workload(std::string(kSmall) + "fieldcount=4\nfieldlength=50\nminfieldlength=5\n" +
                                        "fieldlengthdistribution=" + std::string(lengths) + "\n");
    WorkloadThread thread = workload->make_thread(3);
    std::string before;
    thread.records().make_record("k", thread.random(), before);
    std::string after = before;
    ASSERT_TRUE(thread.records().change_field("k", 2, thread.random(), after));

    const auto old_fields = thread.records().fields_of(before);
    const auto new_fields = thread.records().fields_of(after);
    ASSERT_TRUE(old_fields && new_fields) << lengths;
    for (size_t field = 0; field < 4; ++field) {
      const auto text = [&](const std::string& record, const RecordMaker::Span& span) {
        return record.substr(span.offset, span.bytes);
      };
      const bool same = text(before, (*old_fields)[field]) == text(after, (*new_fields)[field]);
      EXPECT_EQ(same, field != 2) << lengths << " " << field;
    }
    std::string short_record = before.substr(0, before.size() - 1);
    EXPECT_FALSE(thread.records().change_field("k", 2, thread.random(), short_record));
  }
}

TEST(WorkloadThread, OperationsFollowTheirProportions) {
  const auto workload = make_workload(std::string(kSmall) +
                                      "readproportion=0.5\nupdateproportion=0.2\ninsertproportion=0.1\n"
                                      "readmodifywriteproportion=0.2\n");
  WorkloadThread thread = workload->make_thread(1);
  std::map<Operation, double> shares;
  for (int i = 0; i < 100'000; ++i) shares[thread.next_operation()] += 1e-5;
  EXPECT_NEAR(shares[Operation::kRead], 0.5, 0.01);
  EXPECT_NEAR(shares[Operation::kUpdate], 0.2, 0.01);
  EXPECT_NEAR(shares[Operation::kInsert], 0.1, 0.01);
  EXPECT_NEAR(shares[Operation::kReadModifyWrite], 0.2, 0.01);
}

TEST(WorkloadThread, KeysPastTheLastAcknowledgedInsertAreDrawnAgain) {
  // The zipfian key space has room for 2 x 500 expected inserts of which none has happened.
  const auto workload = make_workload(std::string(kSmall) + "requestdistribution=zipfian\nreadproportion=0.5\n"
                                                            "updateproportion=0\ninsertproportion=0.5\n");
  WorkloadThread thread = workload->make_thread(1);
  for (int i = 0; i < 10'000; ++i) ASSERT_LT(thread.next_key(), 100u);
  for (int i = 0; i < 50; ++i) workload->inserted().acknowledge(workload->inserted().next());
  bool any_new = false;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t key = thread.next_key();
    ASSERT_LT(key, 150u);
    any_new = any_new || key >= 100;
  }
  EXPECT_TRUE(any_new);
}

TEST(WorkloadThread, SameSeedRepeatsEveryDistribution) {
  for (const std::string_view distribution : {"uniform", "zipfian", "latest", "hotspot", "sequential", "exponential"}) {
    const std::string text = std::string(kSmall) + "requestdistribution=" + std::string(distribution) + "\n";
    const auto one = make_workload(text), other = make_workload(text);
    WorkloadThread a = one->make_thread(5), b = other->make_thread(5);
    for (int i = 0; i < 1000; ++i) {
      const uint64_t key = a.next_key();
      ASSERT_EQ(key, b.next_key()) << distribution;
      ASSERT_LT(key, 100u) << distribution;
    }
  }
}

}  // namespace
}  // namespace skua::ycsb
