#include "common/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "common/base/check.h"

namespace skua {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return fail(StatusCode::kInvalidArgument, std::to_string(value) + " is odd");
  return value / 2;
}
Result<std::string> quarter_text(int value) {
  SKUA_RETURN_IF_ERROR(half(value));
  const auto quarter = half(value / 2);
  SKUA_RETURN_IF_ERROR(quarter);
  return std::to_string(*quarter);
}

TEST(Status, ShowsCodeAndMessage) {
  const Status status(StatusCode::kOutOfMemory, "heap of partition 3 is full");
  EXPECT_EQ(status.to_string(), "kOutOfMemory: heap of partition 3 is full");
}

TEST(StatusCode, EachHasItsOwnNameAndItsFixedNumber) {
  std::set<std::string_view> names;
  for (int code = 1; code <= 14; ++code) names.insert(to_string(static_cast<StatusCode>(code)));
  EXPECT_EQ(names.size(), 14u);
  EXPECT_FALSE(names.contains("kUnknown"));
  EXPECT_EQ(to_string(static_cast<StatusCode>(200)), "kUnknown");
  // Codes cross the control plane as numbers.
  EXPECT_EQ(static_cast<int>(StatusCode::kInDoubt), 5);
  EXPECT_EQ(static_cast<int>(StatusCode::kStaleEpoch), 8);
  EXPECT_EQ(static_cast<int>(StatusCode::kInternal), 14);
}

TEST(ReturnIfError, HandsTheErrorOnOfTemporariesAndOfNamedResults) {
  EXPECT_EQ(quarter_text(8).value(), "2");
  EXPECT_EQ(quarter_text(7).error().message(), "7 is odd");
  EXPECT_EQ(quarter_text(6).error().message(), "3 is odd");
  EXPECT_EQ(quarter_text(6).error().code(), StatusCode::kInvalidArgument);
}

TEST(CheckDeathTest, AbortsWithPlaceConditionAndDetail) {
  const int answer = 41;
  EXPECT_DEATH(SKUA_CHECK(answer == 42, "answer is " + std::to_string(answer)),
               "status_test.cc:.*answer == 42: answer is 41");
  SKUA_CHECK(answer == 41, "holds, so nothing happens");
}

}  // namespace
}  // namespace skua
