#include "client/server_time.h"

#include <gtest/gtest.h>

namespace skua {
namespace {

constexpr Nanoseconds kWindow = 30 * kSecond;

TEST(ServerTime, LatestOfSeveralReadingsIsTheNearest) {
  ServerTime time;
  time.heard(1'000'000, kSecond);                      // took no time
  time.heard(1'000'050, kSecond + 90 * kMillisecond);  // took 40 ms
  EXPECT_EQ(time.now_ms(2 * kSecond), 1'001'000u);
  time.heard(1'000'205, kSecond + 200 * kMillisecond);  // and the first had taken 5
  EXPECT_EQ(time.now_ms(2 * kSecond), 1'001'005u);
}

// A client whose clock runs one in a thousand fast: an hour is 3.6 s.
TEST(ServerTime, FasterClockDoesNotRunAhead) {
  ServerTime time;
  uint64_t worst = 0;
  for (uint64_t server_ms = 0; server_ms < 3'600'000; server_ms += 300) {
    const auto own = static_cast<Nanoseconds>(server_ms * 1001 / 1000) * kMillisecond;
    time.heard(server_ms, own);
    worst = std::max(worst, time.now_ms(own) - server_ms);
  }
  EXPECT_LE(worst, 2 * kWindow / kMillisecond / 1000 + 1) << "the drift over two windows";
  EXPECT_GE(worst, 20u) << "readings of a whole window count";
}

TEST(ServerTime, SlowerClockIsLedBehindTheServer) {
  ServerTime time;
  for (uint64_t server_ms = 0; server_ms < 3'600'000; server_ms += 300) {
    const auto own = static_cast<Nanoseconds>(server_ms * 999 / 1000) * kMillisecond;
    time.heard(server_ms, own);
    EXPECT_NEAR(static_cast<double>(time.now_ms(own)), static_cast<double>(server_ms), 1.0);
  }
}

TEST(ServerTime, ReadingsOfBeforeALongSilenceDoNotCount) {
  ServerTime time;
  time.heard(1'000'000, kSecond);
  time.heard(1'090'000, kSecond + 3 * kWindow + 500 * kMillisecond);  // this clock has gained half a second
  EXPECT_EQ(time.now_ms(kSecond + 3 * kWindow + 500 * kMillisecond), 1'090'000u);
}

TEST(ServerTime, BestReadingOutlivesItsWindowOnce) {
  ServerTime time;
  time.heard(100'000, kSecond);
  const Nanoseconds next = kSecond + kWindow;
  time.heard(100'000 + 29'900, next);  // took 100 ms
  EXPECT_EQ(time.now_ms(next), 130'000u);
  time.heard(100'000 + 59'950, next + kWindow);  // took 50 ms; the first is forgotten
  EXPECT_EQ(time.now_ms(next + kWindow), 159'950u);
}

}  // namespace
}  // namespace skua
