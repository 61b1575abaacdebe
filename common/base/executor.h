#pragma once
// Executor runs functions one after another and after a delay. Control-plane logic of server and client lives on one;
// Asio runs the real one, the simulator its own in virtual time.
#include <cstdint>
#include <functional>

#include "common/base/clock.h"

namespace skua {

class Executor {
 public:
  using TimerId = uint64_t;
  virtual ~Executor() = default;
  // Threads: any. Functions posted from one thread run in order.
  virtual void post(std::function<void()> function) = 0;
  // Runs `function` no earlier than `delay` from now. Returns an id for cancel. Threads: the executor's own.
  virtual TimerId after(Nanoseconds delay, std::function<void()> function) = 0;
  virtual void cancel(TimerId timer) = 0;
  virtual const Clock& clock() const = 0;
};

}  // namespace skua
