#include "bench/bars.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "bench/ycsb/report.h"

namespace skua::bench {

bool all_hold(const std::vector<Bar>& bars) {
  return std::all_of(bars.begin(), bars.end(), [](const Bar& bar) { return bar.holds(); });
}

void print_bars(const std::vector<Bar>& bars) {
  for (const Bar& bar : bars) {
    std::printf("%-36s %10.4f  limit %8.2f %-12s %s\n", bar.name.c_str(), bar.value, bar.limit, bar.unit.c_str(),
                bar.holds() ? "holds" : "FALLS SHORT");
  }
}

Result<void> write_bars(const std::vector<Bar>& bars, const std::string& file) {
  std::string out = "[";
  for (const Bar& bar : bars) {
    out += &bar == bars.data() ? "\n" : ",\n";
    out += "  {\"bar\": \"" + bar.name + " (" + bar.unit + ")\", \"value\": " + ycsb::format_double(bar.value) +
           ", \"limit\": " + ycsb::format_double(bar.limit) + ", \"unit\": \"" + bar.unit +
           "\", \"holds\": " + (bar.holds() ? "true" : "false") + "}";
  }
  out += "\n]\n";
  std::ofstream stream(file, std::ios::trunc);
  stream << out;
  stream.close();
  if (!stream) return fail(StatusCode::kInvalidArgument, file + " cannot be written");
  return {};
}

}  // namespace skua::bench
