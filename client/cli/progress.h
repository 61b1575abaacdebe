#pragma once
// Progress shows how far a long command is: a bar with rate and time left on a terminal, one line at the end always.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace skua::cli {

// The line at `done` of `total` bytes (0: unknown) and `keys` keys, `elapsed` after the start:
// "load [#####.....]  50%  1.5 MiB/s  12,345 keys  0:12 left".
struct ProgressState {
  std::string_view verb;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t keys = 0;
  Nanoseconds elapsed = 0;
};
std::string progress_line(const ProgressState& state);
// "loaded 12,345 keys, 20.1 MiB in 3.2 s (6.3 MiB/s, 3,858 keys/s)"
std::string summary_line(std::string_view verb_past, const ProgressState& state);

// Threads: one owner thread. Borrows the clock.
class Progress {
 public:
  // `enabled`: draws the bar; otherwise it is silent.
  Progress(const Clock& clock, bool enabled, std::string_view verb, uint64_t total_bytes);
  // Cost: a clock reading; draws ten times a second at most.
  void update(uint64_t done_bytes, uint64_t keys);
  // Wipes the bar.
  void clear();
  ProgressState state() const;

 private:
  const Clock& clock_;
  bool enabled_;
  bool drawn_ = false;
  Nanoseconds started_;
  Nanoseconds next_draw_;
  ProgressState state_;
};

}  // namespace skua::cli
