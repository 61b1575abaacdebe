#pragma once
// Clock is the only source of time. The real one is made in a `main` and passed down; the simulator has its own.
#include <cstdint>

namespace skua {

using Nanoseconds = int64_t;
inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; its origin means nothing. Threads: any.
  virtual Nanoseconds now() const = 0;
  // Milliseconds since the Unix epoch; may step. Only for what people read and for the origin of a cluster's time.
  virtual int64_t wall_ms() const = 0;
};

// CLOCK_MONOTONIC and CLOCK_REALTIME. Only a main, a test or Client::connect without a clock makes use of it.
const Clock& system_clock();

}  // namespace skua
