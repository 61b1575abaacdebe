#include "common/base/units.h"

#include <gtest/gtest.h>

namespace skua {
namespace {

TEST(Units, SizesOfEverySpellingAreRead) {
  EXPECT_EQ(parse_size("0").value(), 0u);
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_size("17B").value(), 17u);
  EXPECT_EQ(parse_size("64k").value(), 64u << 10);
  EXPECT_EQ(parse_size("256MiB").value(), 256u << 20);
  EXPECT_EQ(parse_size("1 gb").value(), uint64_t{1} << 30);
  EXPECT_EQ(parse_size("1.5g").value(), uint64_t{3} << 29);
  EXPECT_EQ(parse_size("2T").value(), uint64_t{2} << 40);
}

TEST(Units, SizeThatIsNoneIsRefusedWithTextAndRemedy) {
  for (const char* text : {"", "x", "-1", "+1", "1q", "1ki b x", "MiB", "0x10", "inf", "nan", "1e3", "9999999T",
                           "1.0001k", "1ib2"}) {
    const auto result = parse_size(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code(), StatusCode::kConfiguration);
    EXPECT_NE(result.error().message().find("'" + std::string(text) + "'"), std::string::npos);
  }
  EXPECT_NE(parse_size("x").error().message().find("256MiB"), std::string::npos);
}

TEST(Units, DurationsNeedAUnitUnlessZero) {
  EXPECT_EQ(parse_duration("0").value(), 0);
  EXPECT_EQ(parse_duration("17ns").value(), 17);
  EXPECT_EQ(parse_duration("250us").value(), 250 * kMicrosecond);
  EXPECT_EQ(parse_duration("500ms").value(), 500 * kMillisecond);
  EXPECT_EQ(parse_duration("1.5s").value(), 1500 * kMillisecond);
  EXPECT_EQ(parse_duration("2m").value(), 120 * kSecond);
  EXPECT_EQ(parse_duration("1h").value(), 3600 * kSecond);
  for (const char* text : {"", "5", "s", "-1s", "1 day", "9999999h"}) {
    const auto result = parse_duration(text);
    ASSERT_FALSE(result) << text;
    EXPECT_NE(result.error().message().find("'" + std::string(text) + "'"), std::string::npos);
  }
}

TEST(Units, FormattedShortly) {
  EXPECT_EQ(format_size(17), "17 B");
  EXPECT_EQ(format_size(uint64_t{1} << 30), "1 GiB");
  EXPECT_EQ(format_size(3 << 19), "1.5 MiB");
  EXPECT_EQ(format_size(uint64_t{5000} << 40), "5000 TiB");
  EXPECT_EQ(format_duration(2 * kSecond), "2 s");
  EXPECT_EQ(format_duration(1500 * kMicrosecond), "1.5 ms");
  EXPECT_EQ(format_duration(3), "3 ns");
}

}  // namespace
}  // namespace skua
