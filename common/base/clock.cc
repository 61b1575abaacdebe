#include "common/base/clock.h"

#include <ctime>

namespace skua {
namespace {

class SystemClock final : public Clock {
 public:
  Nanoseconds now() const override { return read(CLOCK_MONOTONIC); }
  int64_t wall_ms() const override { return read(CLOCK_REALTIME) / kMillisecond; }

 private:
  static Nanoseconds read(clockid_t id) {
    timespec time{};
    clock_gettime(id, &time);
    return time.tv_sec * kSecond + time.tv_nsec;
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace skua
