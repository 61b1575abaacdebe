#pragma once
// ServerTime is what a client believes a server's time to be: it decides what has expired.
//
// A message says a time of before it arrived, so every reading is too early by the message's way, and of several the
// latest is the nearest. The two clocks drift apart, though (crystals by some 50 ppm), so that only readings of the
// last one or two windows count: with a maximum over all, a client whose clock is the faster one would run ahead of
// the server without bound, and values would expire before their time.
// Error:   behind by the best message's way; ahead by at most the drift over two windows, or over the longest silence.
// Threads: heard: one. now_ms: any.
#include <atomic>
#include <cstdint>

#include "common/base/clock.h"

namespace skua {

class ServerTime {
 public:
  // A message that has arrived at `now` said `server_ms`.
  void heard(uint64_t server_ms, Nanoseconds now);
  // Requires: heard before. May go back a little: whoever must not see that keeps what it was told.
  uint64_t now_ms(Nanoseconds now) const {
    return static_cast<uint64_t>(now / kMillisecond + offset_ms_.load(std::memory_order_relaxed));
  }

 private:
  Nanoseconds window_end_ = 0;
  int64_t newest_ms_ = INT64_MIN;   // largest offset heard in this window,
  int64_t earlier_ms_ = INT64_MIN;  // and in the one before
  std::atomic<int64_t> offset_ms_{0};
};

}  // namespace skua
