#pragma once
// LogLimit keeps a peer from filling the log: at most ten lines of its kind in ten seconds.
//
// Threads: any.
#include <mutex>
#include <optional>
#include <string>

#include "common/base/clock.h"

namespace skua {

class LogLimit {
 public:
  // What to put behind the line, which says how many were left out before it. Nothing: leave this one out as well.
  std::optional<std::string> admit(Nanoseconds now) {
    const std::lock_guard lock(mutex_);
    if (now >= window_end_) {
      window_end_ = now + kWindow;
      lines_ = 0;
    }
    if (lines_ == kLines) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    if (left_out_ == 0) return "";
    std::string text = " (" + std::to_string(left_out_) + " such lines before it were left out)";
    left_out_ = 0;
    return text;
  }

 private:
  static constexpr Nanoseconds kWindow = 10 * kSecond;
  static constexpr int kLines = 10;
  std::mutex mutex_;
  Nanoseconds window_end_ = 0;
  int lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace skua
