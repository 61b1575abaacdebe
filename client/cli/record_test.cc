#include "client/cli/record.h"

#include <gtest/gtest.h>

#include "client/cli/escape.h"
#include "common/base/random.h"

namespace skua::cli {
namespace {

constexpr RecordFormat kFormats[] = {RecordFormat::kTsv, RecordFormat::kJsonLines};

std::string line_of(RecordFormat format, const Record& record) {
  std::string line;
  append_record(line, format, record.key, record.value, record.ttl_ms);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line, and its newline";
  line.pop_back();
  return line;
}

std::string refusal(RecordFormat format, std::string_view line) {
  const auto record = parse_record(format, line);
  EXPECT_FALSE(record) << line;
  return record ? "" : record.error().message();
}

TEST(Record, WritesReadableLines) {
  const Record record{.key = "name", .value = "a\tb", .ttl_ms = 1500};
  EXPECT_EQ(line_of(RecordFormat::kTsv, record), "name\ta\\tb\t1500");
  EXPECT_EQ(line_of(RecordFormat::kJsonLines, record), "{\"key\":\"name\",\"value\":\"a\\tb\",\"ttl_ms\":1500}");
  const Record binary{.key = "\xff", .value = "", .ttl_ms = 0};
  EXPECT_EQ(line_of(RecordFormat::kTsv, binary), "\\xff\t");
  EXPECT_EQ(line_of(RecordFormat::kJsonLines, binary), "{\"key_base64\":\"/w==\",\"value\":\"\"}");
}

TEST(Record, AnyBytesComeBackUnchanged) {
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    Record record;
    record.key.resize(1 + random.below(30));
    record.value.resize(random.below(60));
    const uint64_t alphabet = random.chance(0.5) ? 256 : 128;
    for (char& c : record.key) c = static_cast<char>(random.below(alphabet));
    for (char& c : record.value) c = static_cast<char>(random.below(alphabet));
    record.ttl_ms = random.below(3) * random.below(1'000'000);
    for (const RecordFormat format : kFormats) {
      const std::string line = line_of(format, record);
      const auto read = parse_record(format, line);
      ASSERT_TRUE(read) << line << ": " << read.error().message();
      ASSERT_EQ(*read, record) << line;
    }
  }
}

TEST(Record, KeyOfAllByteValuesAndLargestValueFitTheirLimit) {
  Record record;
  for (int i = 0; i < 256; ++i) record.key.push_back(static_cast<char>(i));
  record.value.assign(1 << 20, '\x01');
  for (const RecordFormat format : kFormats) {
    const std::string line = line_of(format, record);
    EXPECT_LE(line.size(), size_t{6} * (record.key.size() + record.value.size()) + 256);
    EXPECT_EQ(parse_record(format, line).value(), record);
  }
}

TEST(TsvRecord, SaysWhatIsWrong) {
  constexpr auto kTsv = RecordFormat::kTsv;
  EXPECT_EQ(refusal(kTsv, "no separator"), "no tab between key and value");
  EXPECT_EQ(refusal(kTsv, "\tvalue"), "the key is empty");
  EXPECT_NE(refusal(kTsv, "k\\q\tv").find("key, at byte 1"), std::string::npos);
  EXPECT_NE(refusal(kTsv, "k\tv\\x0").find("value, at byte 1"), std::string::npos);
  EXPECT_NE(refusal(kTsv, "k\tv\tsoon").find("time to live 'soon'"), std::string::npos);
  EXPECT_NE(refusal(kTsv, "k\tv\t0").find("time to live '0'"), std::string::npos);
  EXPECT_NE(refusal(kTsv, "k\tv\t1\t2").find("time to live"), std::string::npos);
  EXPECT_NE(refusal(kTsv, std::string(4097, 'k') + "\tv").find("4097 bytes"), std::string::npos);
}

TEST(JsonRecord, ReadsEverySpellingOfJsonStrings) {
  const auto record = parse_record(
      RecordFormat::kJsonLines,
      R"( { "value" : "\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00" , "key" : "é" , "ttl_ms" : 9 } )");
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->value, "\"\\/\b\f\n\r\tAé€😀");
  EXPECT_EQ(record->key, "é");
  EXPECT_EQ(record->ttl_ms, 9u);
}

TEST(JsonRecord, SaysWhatIsWrong) {
  const struct {
    const char* line;
    const char* says;
  } cases[] = {
      {"", "expected '{'"},
      {"[]", "expected '{'"},
      {"{}", "no \"key\""},
      {R"({"key":"k"})", "no \"value\""},
      {R"({"key":"k","value":"v")", "expected ',' or '}'"},
      {R"({"key":"k","value":"v"} x)", "more text"},
      {R"({"key":"k","value":"v",})", "expected a string"},
      {R"({"key":"k","value":"v)", "does not end"},
      {R"({"key":"k","value":"\q"})", "no such escape"},
      {R"({"key":"k","value":"\ud83d"})", "no such escape"},
      {R"({"key":"k","value":"\ude00"})", "no such escape"},
      {R"({"key":"k","value":"\u12"})", "no such escape"},
      {"{\"key\":\"k\",\"value\":\"\xff\"}", "not UTF-8"},
      {"{\"key\":\"k\",\"value\":\"a\x01\"}", "control character"},
      {R"({"key":"k","value":"v","value_base64":""})", "twice"},
      {R"({"key":"k","value_base64":"!!!!"})", "value_base64, at byte 0"},
      {R"({"key":"k","value":5})", "'value' is not"},
      {R"({"key":"k","value":"v","ttl":5})", "'ttl' is not"},
      {R"({"key":"k","value":"v","ttl_ms":"5"})", "'ttl_ms' is not"},
      {R"({"key":"k","value":"v","ttl_ms":0})", "time to live '0'"},
      {R"({"key":"k","value":null})", "expected a string"},
      {R"({"key":"","value":"v"})", "the key is empty"},
  };
  for (const auto& c : cases) {
    const std::string message = refusal(RecordFormat::kJsonLines, c.line);
    EXPECT_NE(message.find(c.says), std::string::npos) << c.line << ": " << message;
  }
}

}  // namespace
}  // namespace skua::cli
