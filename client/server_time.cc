#include "client/server_time.h"

#include <algorithm>

#include "common/base/hooks.h"

namespace skua {
namespace {

constexpr Nanoseconds kWindow = SKUA_KNOB(30 * kSecond, 50 * kMillisecond);

}  // namespace

void ServerTime::heard(uint64_t server_ms, Nanoseconds now) {
  const int64_t offset = static_cast<int64_t>(server_ms) - now / kMillisecond;
  if (now >= window_end_ && !SKUA_PLANTED_BUG("time-never-goes-back")) {
    earlier_ms_ = now < window_end_ + kWindow ? newest_ms_ : INT64_MIN;
    newest_ms_ = INT64_MIN;
    window_end_ = now + kWindow;
  }
  newest_ms_ = std::max(newest_ms_, offset);
  offset_ms_.store(std::max(newest_ms_, earlier_ms_), std::memory_order_relaxed);
}

}  // namespace skua
