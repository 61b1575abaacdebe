#include "client/cli/progress.h"

#include <gtest/gtest.h>

#include "client/cli/exit_code.h"

namespace skua::cli {
namespace {

TEST(ProgressLine, ShowsShareRateKeysAndTimeLeft) {
  const ProgressState half{
      .verb = "load", .done_bytes = 3 << 20, .total_bytes = 6 << 20, .keys = 1234567, .elapsed = 2 * kSecond};
  EXPECT_EQ(progress_line(half), "load [##########..........]  50%  1.5 MiB/s  1,234,567 keys  0:02 left");
}

TEST(ProgressLine, WithoutATotalShowsWhatIsDone) {
  const ProgressState state{.verb = "dump", .done_bytes = 4096, .total_bytes = 0, .keys = 12, .elapsed = kSecond};
  EXPECT_EQ(progress_line(state), "dump 4 KiB  4 KiB/s  12 keys");
}

TEST(ProgressLine, StaysInItsBoundsAtTheEdges) {
  ProgressState state{.verb = "load", .done_bytes = 0, .total_bytes = 100, .keys = 0, .elapsed = 0};
  EXPECT_EQ(progress_line(state), "load [....................]   0%  0 B/s  0 keys");
  state.done_bytes = 250;  // a file that grew, a total that was an estimate
  state.elapsed = kSecond;
  EXPECT_EQ(progress_line(state), "load [####################] 100%  100 B/s  0 keys  0:00 left");
  state.done_bytes = 1;
  state.elapsed = 40 * kSecond;
  EXPECT_NE(progress_line(state).find("66:00 left"), std::string::npos) << progress_line(state);
}

TEST(SummaryLine, NamesKeysBytesTimeAndRates) {
  const ProgressState state{
      .verb = "load", .done_bytes = 4 << 20, .total_bytes = 0, .keys = 12345, .elapsed = 2 * kSecond};
  EXPECT_EQ(summary_line("loaded", state), "loaded 12,345 keys, 4 MiB in 2 s (2 MiB/s, 6,172 keys/s)");
}

TEST(ExitCodeOf, EachStatusHasOneThatIsNeitherSuccessNorNo) {
  for (int code = 1; code <= 14; ++code) {
    EXPECT_GE(exit_code_of(static_cast<StatusCode>(code)), kExitUsage) << code;
  }
  EXPECT_EQ(exit_code_of(StatusCode::kInDoubt), 75);
  EXPECT_EQ(exit_code_of(StatusCode::kUnavailable), 69);
  EXPECT_EQ(exit_code_of(StatusCode::kConfiguration), 78);
  EXPECT_EQ(exit_code_of(StatusCode::kInvalidArgument), 64);
}

}  // namespace
}  // namespace skua::cli
