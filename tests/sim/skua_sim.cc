// skua-sim runs the product's client, server and coordinator in simulated worlds, one a seed, and judges them.
// Exit codes: 0 nothing was found; 1 a violation, a planted bug that was not caught or a probe that was never hit;
// 64 usage.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hooks.h"
#include "common/base/log.h"
#include "tests/sim/runner.h"

namespace {

using namespace skua::sim;  // NOLINT: this file is the program

constexpr int kFound = 1;
constexpr int kUsage = 64;
constexpr size_t kShownFailures = 10;
constexpr uint64_t kUndecidedPart = 100;

struct Arguments {
  SeedRange range;
  uint64_t seed = 0;
  bool one_seed = false;
  std::vector<std::string> settings;
  std::vector<std::string> scenarios;
  std::string bug;
  std::string table;
  size_t trace = 200;
  bool list_bugs = false;
  bool check_bugs = false;
  bool shrink = false;
  bool hashes = false;
  bool require_probes = false;
};

std::string command_for(const Scenario& scenario, const Arguments& arguments) {
  const SeedRange& range = arguments.range;
  std::string text = "skua-sim --seed " + std::to_string(scenario.seed) + " --faults " + range.faults;
  if (!range.focus.empty()) text += " --focus " + range.focus;
  if (!arguments.bug.empty()) text += " --bug " + arguments.bug;
  const auto base = Scenario::from_seed(scenario.seed, range.faults, range.focus);
  for (const std::string& difference : scenario.differences(*base)) text += " --set " + difference;
  return text;
}

void print_totals(const Totals& totals, double seconds) {
  const Outcomes& sum = totals.outcomes;
  std::printf("%llu seeds in %.1f s (%.0f/s): %llu operations answered, %llu refused, %llu in doubt; %llu verbs and "
              "messages, %llu faults, %.0f s simulated; %llu histories undecided; %zu violations\n",
              static_cast<unsigned long long>(totals.seeds), seconds, static_cast<double>(totals.seeds) / seconds,
              static_cast<unsigned long long>(sum.done), static_cast<unsigned long long>(sum.refused),
              static_cast<unsigned long long>(sum.in_doubt), static_cast<unsigned long long>(sum.events),
              static_cast<unsigned long long>(sum.faults), static_cast<double>(sum.simulated) / 1e9,
              static_cast<unsigned long long>(totals.undecided), totals.failures.size());
}

// Returns how many were never hit.
size_t print_probes() {
  size_t missed = 0;
  for (const auto& [name, hits] : skua::hooks::probes()) {
    std::printf("  %-42s %12llu\n", std::string(name).c_str(), static_cast<unsigned long long>(hits->load()));
    missed += hits->load() == 0 ? 1 : 0;
  }
  return missed;
}

bool plant(const std::string& bug, bool on) {
  const auto found = skua::hooks::planted_bugs().find(bug);
  if (found == skua::hooks::planted_bugs().end()) return false;
  found->second->store(on);
  return true;
}

double now_seconds() {
  return static_cast<double>(skua::system_clock().now()) / static_cast<double>(skua::kSecond);
}

int show_one(const Arguments& arguments) {
  const auto scenario = scenario_for(arguments.range, arguments.seed);
  if (!scenario) {
    std::fprintf(stderr, "skua-sim: %s\n", scenario.error().message().c_str());
    return kUsage;
  }
  Scenario shown = *scenario;
  SimulationOptions options;
  options.trace_events = arguments.trace;
  Report report = simulate(shown, options);
  if (arguments.shrink && !report.violation.empty()) {
    shown = shrink(shown);
    report = simulate(shown, options);
  }
  std::printf("%s\n%s%s\n", report.trace.c_str(), shown.to_string().c_str(),
              ("\n" + command_for(shown, arguments)).c_str());
  std::printf("hash %016llx, %llu answered, %llu refused, %llu in doubt\n%s\n",
              static_cast<unsigned long long>(report.outcomes.trace_hash),
              static_cast<unsigned long long>(report.outcomes.done),
              static_cast<unsigned long long>(report.outcomes.refused),
              static_cast<unsigned long long>(report.outcomes.in_doubt),
              report.violation.empty() ? "no violation" : ("VIOLATION: " + report.violation).c_str());
  return report.violation.empty() ? 0 : kFound;
}

int run_range(const Arguments& arguments) {
  const double start = now_seconds();
  size_t shown = 0;
  const auto totals = run_seeds(arguments.range, [&](const Failure& failure) {
    if (++shown > kShownFailures) return;
    std::printf("VIOLATION: %s\n  %s\n", failure.violation.c_str(),
                command_for(failure.scenario, arguments).c_str());
    std::fflush(stdout);
  });
  if (!totals) {
    std::fprintf(stderr, "skua-sim: %s\n", totals.error().message().c_str());
    return kUsage;
  }
  print_totals(*totals, now_seconds() - start);
  if (arguments.hashes) {
    std::printf("traces %016llx\n", static_cast<unsigned long long>(totals->outcomes.trace_hash));
    return totals->failures.empty() ? 0 : kFound;
  }
  std::printf("probes:\n");
  const size_t missed = print_probes();
  if (arguments.require_probes && missed != 0) {
    std::printf("%zu probes were never hit\n", missed);
    return kFound;
  }
  if (arguments.require_probes && totals->undecided * kUndecidedPart > totals->seeds) {
    std::printf("more than one in %llu histories could not be judged\n",
                static_cast<unsigned long long>(kUndecidedPart));
    return kFound;
  }
  return totals->failures.empty() ? 0 : kFound;
}

// Where a bug shows soonest; the others show anywhere.
std::string_view focus_for(std::string_view bug) {
  static const std::map<std::string_view, std::string_view> all = {
      {"absorbed-by-another-key", "neighbour"}, {"absorbed-by-expiry", "expiry"}, {"candidates-during-scan", "reuse"},
      {"checksum-skipped", "overtaken"},        {"detached-holds-nothing", "reuse"}, {"doubt-is-failure", "fence"},
      {"doubt-is-retried", "fence"},            {"doubt-is-success", "fence"},    {"expired-is-present", "expiry"},
      {"fence-not-awaited", "fence"},           {"freed-word-is-mine", "fence"},  {"no-fence", "fence"},
      {"no-walk", "fence"},                     {"old-cache-entry", "wrap"},      {"reuse-one-epoch-early", "reuse"},
      {"reuse-without-grace", "reuse"},         {"token-without-generation", "reuse"},
      {"stale-grant-ends-operation", "memory"}, {"first-announcement-lost", "calm"},
      {"first-sign-of-life-is-late", "calm"},   {"time-never-goes-back", "drift"},
      {"walk-past-the-origin", "wrap"},         {"absorbed-by-the-freeze", "split"},
      {"freeze-skips-tentative", "split"},      {"frozen-is-not-checked", "split"},
      {"frozen-is-swapped", "split"},           {"split-without-freeze", "split"},
      {"table-freed-at-once", "split"},         {"window-of-another-table", "split"},
      {"frozen-is-moved", "move"},              {"moved-value-has-another-token", "move"},
      {"moved-without-cas", "move"},            {"moved-word-absorbs", "move"},
      {"moved-word-hides-what-it-replaced", "move"}};
  const auto found = all.find(bug);
  return found == all.end() ? std::string_view{} : found->second;
}

// What a planted bug came to.
struct Catch {
  bool caught = false;
  uint64_t seeds = 0;  // until then
  std::string as;
};

// In a process of its own: a bug may end it by a failed check, and that is a catch as well.
Catch try_bug(const SeedRange& range, std::atomic<bool>& active) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    active.store(true);
    for (uint64_t i = 0; i < range.count; ++i) {
      const Scenario scenario = *scenario_for(range, range.first + i);
      ::dprintf(ends[1], "%llu\n", static_cast<unsigned long long>(i + 1));
      const Report report = simulate(scenario);
      if (report.violation.empty()) continue;
      ::dprintf(ends[1], "!%.90s", report.violation.c_str());
      ::_exit(kFound);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char part[4096];
  for (ssize_t n = ::read(ends[0], part, sizeof part); n > 0; n = ::read(ends[0], part, sizeof part)) {
    said.append(part, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  Catch result;
  result.caught = !WIFEXITED(status) || WEXITSTATUS(status) == kFound;
  if (!result.caught) return result;
  const size_t mark = said.find_first_not_of("0123456789\n");
  const std::string numbers = said.substr(0, mark);
  const size_t last = numbers.find_last_of('\n', numbers.size() - 2);
  result.seeds = std::strtoull(numbers.c_str() + (last == std::string::npos ? 0 : last + 1), nullptr, 10);
  result.as = mark == std::string::npos ? "the process ended" : said.substr(mark + (said[mark] == '!' ? 1 : 0));
  result.as = result.as.substr(0, std::min(result.as.find('\n'), size_t{90}));
  return result;
}

constexpr const char* kTableBegin = "<!-- planted bugs: begin -->\n";
constexpr const char* kTableEnd = "<!-- planted bugs: end -->\n";

// Puts the table between the two marks of the file.
bool write_table(const std::string& path, const std::string& table) {
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  const size_t begin = text.find(kTableBegin);
  const size_t end = text.find(kTableEnd);
  if (begin == std::string::npos || end == std::string::npos) return false;
  const size_t first = begin + std::string_view(kTableBegin).size();
  text.replace(first, end - first, table);
  std::ofstream(path) << text;
  return true;
}

// Each planted bug alone, until a seed shows it.
int check_bugs(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::atomic<bool>*>> bugs;
  for (const auto& [name, active] : skua::hooks::planted_bugs()) {
    if (arguments.bug.empty() || name == arguments.bug) bugs.emplace_back(name, active);
  }
  std::vector<Catch> catches(bugs.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < bugs.size(); i = next++) {
      const double start = now_seconds();
      SeedRange range = arguments.range;
      if (range.focus.empty()) range.focus = focus_for(bugs[i].first);
      catches[i] = try_bug(range, *bugs[i].second);
      const std::lock_guard lock(mutex);
      std::printf("%-28s %-8s %6.1f s  %s\n", bugs[i].first.c_str(),
                  catches[i].caught ? std::to_string(catches[i].seeds).c_str() : "never", now_seconds() - start,
                  catches[i].as.c_str());
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < arguments.range.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::string table = "| planted bug | focus | seeds until caught | as |\n|---|---|---|---|\n";
  size_t missed = 0;
  for (size_t i = 0; i < bugs.size(); ++i) {
    const std::string_view focus = focus_for(bugs[i].first);
    table += "| " + bugs[i].first + " | " + (focus.empty() ? "any" : std::string(focus)) + " | " +
             (catches[i].caught ? std::to_string(catches[i].seeds) : "never") + " | " + catches[i].as + " |\n";
    missed += catches[i].caught ? 0 : 1;
  }
  if (!arguments.table.empty() && !write_table(arguments.table, table)) {
    std::fprintf(stderr, "skua-sim: %s: no file with the lines '%s' and '%s'\n", arguments.table.c_str(), kTableBegin,
                 kTableEnd);
    return kUsage;
  }
  std::printf("%zu planted bugs, %zu not caught within %llu seeds\n", bugs.size(), missed,
              static_cast<unsigned long long>(arguments.range.count));
  return missed == 0 ? 0 : kFound;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  arguments.range.count = 100;
  arguments.range.jobs = std::max(1U, std::thread::hardware_concurrency());
  CLI::App app("Runs Skua's own client, server and coordinator in simulated clusters, one a seed, and judges them.",
               "skua-sim");
  app.add_option("--seeds", arguments.range.count, "Seeds to run (100)");
  app.add_option("--first", arguments.range.first, "The first of them (1)");
  auto* seed = app.add_option("--seed", arguments.seed, "Run this one, and show its last events");
  app.add_option("--faults", arguments.range.faults,
                 "none, all (default), or data, control, crash, pause, restart, clock joined by '+'");
  app.add_option("--focus", arguments.range.focus,
                 "Look closely at one thing: reuse, expiry, overtaken, memory, wrap, fence, neighbour, calm, drift, "
                 "split, move");
  app.add_option("--set", arguments.settings, "NAME=VALUE of the scenario, over what the seed drew");
  app.add_option("--jobs", arguments.range.jobs, "Threads (all cores)");
  app.add_option("--trace", arguments.trace, "Events to show of a single seed (200)");
  app.add_flag("--shrink", arguments.shrink, "With --seed: look for a smaller scenario that fails");
  app.add_flag("--require-probes", arguments.require_probes,
               "Fail when a probe is never hit, or one history in a hundred is undecided");
  app.add_flag("--hashes", arguments.hashes, "Show a hash over all traces instead of probes");
  app.add_option("--bug", arguments.bug, "Plant this bug (--list-bugs)");
  app.add_flag("--list-bugs", arguments.list_bugs, "Names of the bugs that can be planted");
  app.add_flag("--check-bugs", arguments.check_bugs, "Plant each bug (or --bug alone): --seeds must catch it");
  app.add_option("--table", arguments.table, "With --check-bugs: put a table between the marks in this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  skua::set_log_level(skua::LogLevel::kOff);
  arguments.one_seed = seed->count() > 0;
  for (const std::string& setting : arguments.settings) {
    const size_t equals = std::min(setting.find('='), setting.size() - 1);
    arguments.range.settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  if (arguments.list_bugs) {
    for (const auto& [name, active] : skua::hooks::planted_bugs()) std::printf("%s\n", std::string(name).c_str());
    return 0;
  }
  if (!arguments.bug.empty() && !skua::hooks::planted_bugs().contains(arguments.bug)) {
    std::fprintf(stderr, "skua-sim: no bug is called '%s' (--list-bugs names them)\n", arguments.bug.c_str());
    return kUsage;
  }
  if (arguments.check_bugs) return check_bugs(arguments);
  if (!arguments.bug.empty()) plant(arguments.bug, true);
  return arguments.one_seed ? show_one(arguments) : run_range(arguments);
}
