#include "client/cli/progress.h"

#include <algorithm>
#include <utility>

#include "common/base/units.h"

namespace skua::cli {
namespace {

constexpr Nanoseconds kDrawEvery = 100 * kMillisecond;
constexpr size_t kBarCells = 20;

double seconds(Nanoseconds duration) { return static_cast<double>(std::max(duration, kMicrosecond)) / kSecond; }

uint64_t per_second(uint64_t amount, Nanoseconds elapsed) {
  return static_cast<uint64_t>(static_cast<double>(amount) / seconds(elapsed));
}

std::string with_commas(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string minutes(uint64_t total_seconds) {
  const std::string rest = std::to_string(total_seconds % 60);
  return std::to_string(total_seconds / 60) + ":" + (rest.size() < 2 ? "0" : "") + rest;
}

}  // namespace

std::string progress_line(const ProgressState& state) {
  std::string line(state.verb);
  const uint64_t done = state.total_bytes == 0 ? state.done_bytes : std::min(state.done_bytes, state.total_bytes);
  if (state.total_bytes != 0) {
    const double share = static_cast<double>(done) / static_cast<double>(state.total_bytes);
    const auto cells = static_cast<size_t>(share * kBarCells);
    const std::string percent = std::to_string(static_cast<int>(share * 100));
    line += " [" + std::string(cells, '#') + std::string(kBarCells - cells, '.') + "] ";
    line += std::string(3 - std::min<size_t>(3, percent.size()), ' ') + percent + "%";
  } else {
    line += " " + format_size(done);
  }
  line += "  " + format_size(per_second(done, state.elapsed)) + "/s  " + with_commas(state.keys) + " keys";
  if (state.total_bytes != 0 && done != 0) {
    const double left = seconds(state.elapsed) * static_cast<double>(state.total_bytes - done) /
                        static_cast<double>(done);
    line += "  " + minutes(static_cast<uint64_t>(left + 0.5)) + " left";
  }
  return line;
}

std::string summary_line(std::string_view verb_past, const ProgressState& state) {
  return std::string(verb_past) + " " + with_commas(state.keys) + " keys, " + format_size(state.done_bytes) + " in " +
         format_duration(state.elapsed) + " (" + format_size(per_second(state.done_bytes, state.elapsed)) + "/s, " +
         with_commas(per_second(state.keys, state.elapsed)) + " keys/s)";
}

Progress::Progress(const Clock& clock, bool enabled, std::string_view verb, uint64_t total_bytes)
    : clock_(clock), enabled_(enabled), started_(clock.now()), next_draw_(started_) {
  state_.verb = verb;
  state_.total_bytes = total_bytes;
}

void Progress::update(uint64_t done_bytes, uint64_t keys) {
  state_.done_bytes = done_bytes;
  state_.keys = keys;
  if (!enabled_) return;
  const Nanoseconds now = clock_.now();
  if (now < next_draw_) return;
  next_draw_ = now + kDrawEvery;
  drawn_ = true;
  std::fprintf(stderr, "\r%s\x1b[K", progress_line(state()).c_str());
  std::fflush(stderr);
}

void Progress::clear() {
  if (!std::exchange(drawn_, false)) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

ProgressState Progress::state() const {
  ProgressState state = state_;
  state.elapsed = clock_.now() - started_;
  return state;
}

}  // namespace skua::cli
