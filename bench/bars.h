#pragma once
// Bars are what a benchmark has to show: a figure each, what it may be at most, and whether it is.
#include <string>
#include <vector>

#include "common/base/status.h"

namespace skua::bench {

struct Bar {
  std::string name;
  double value = 0;
  double limit = 0;
  std::string unit;
  bool holds() const { return value <= limit; }
};

bool all_hold(const std::vector<Bar>& bars);
// A line for each on standard output.
void print_bars(const std::vector<Bar>& bars);
// A list of {bar, value, limit, unit, holds}. Error: kInvalidArgument, the file cannot be written.
Result<void> write_bars(const std::vector<Bar>& bars, const std::string& file);

}  // namespace skua::bench
