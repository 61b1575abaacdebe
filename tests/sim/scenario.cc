#include "tests/sim/scenario.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "common/base/random.h"

namespace skua::sim {
namespace {

// Every field by name, so that it can be set, shown and compared.
template <class S, class Visit>
void visit_fields(S& s, Visit visit) {
  visit("servers", s.servers);
  visit("partitions", s.partitions);
  visit("memory_kib", s.memory_kib);
  visit("lease", s.lease);
  visit("resume_grace", s.resume_grace);
  visit("sweep_interval", s.sweep_interval);
  visit("clients", s.clients);
  visit("sessions", s.sessions);
  visit("workers", s.workers);
  visit("operations", s.operations);
  visit("cache_entries", s.cache_entries);
  visit("operation_timeout", s.operation_timeout);
  visit("response_timeout", s.response_timeout);
  visit("think_time", s.think_time);
  visit("long_think_chance", s.long_think_chance);
  visit("longest_ttl", s.longest_ttl);
  visit("keys", s.keys);
  visit("counter_keys", s.counter_keys);
  visit("expiring_keys", s.expiring_keys);
  visit("group", s.group);
  visit("filler_keys", s.filler_keys);
  visit("value_bytes", s.value_bytes);
  visit("large_value_chance", s.large_value_chance);
  visit("large_value_bytes", s.large_value_bytes);
  visit("gets", s.gets);
  visit("exists", s.exists);
  visit("puts", s.puts);
  visit("puts_if_absent", s.puts_if_absent);
  visit("compare_and_swaps", s.compare_and_swaps);
  visit("removes", s.removes);
  visit("splits", s.splits);
  visit("most_splits", s.most_splits);
  visit("moves", s.moves);
  visit("most_moves", s.most_moves);
  visit("client_crashes", s.client_crashes);
  visit("server_crashes", s.server_crashes);
  visit("client_pauses", s.client_pauses);
  visit("server_pauses", s.server_pauses);
  visit("cuts", s.cuts);
  visit("control_breaks", s.control_breaks);
  visit("data_breaks", s.data_breaks);
  visit("clock_jumps", s.clock_jumps);
  visit("crash_at_verb_chance", s.crash_at_verb_chance);
  visit("crash_at_message_chance", s.crash_at_message_chance);
  visit("server_crash_at_message_chance", s.server_crash_at_message_chance);
  visit("writes_are_overtaken", s.writes_are_overtaken);
  visit("plan.verb_latency_max", s.plan.verb_latency_max);
  visit("plan.line_spread", s.plan.line_spread);
  visit("plan.slow_line_chance", s.plan.slow_line_chance);
  visit("plan.slow_line_max", s.plan.slow_line_max);
  visit("plan.break_chance", s.plan.break_chance);
  visit("plan.late_chance", s.plan.late_chance);
  visit("plan.late_max", s.plan.late_max);
  visit("plan.resent_read_chance", s.plan.resent_read_chance);
  visit("plan.atomics_by_server", s.plan.atomics_by_server);
  visit("plan.connect_failure_chance", s.plan.connect_failure_chance);
  visit("plan.fence_max", s.plan.fence_max);
  visit("plan.message_latency_max", s.plan.message_latency_max);
  visit("plan.message_break_chance", s.plan.message_break_chance);
  visit("plan.dial_failure_chance", s.plan.dial_failure_chance);
  visit("plan.silent_crash_chance", s.plan.silent_crash_chance);
  visit("plan.timer_lateness_max", s.plan.timer_lateness_max);
  visit("plan.clock_skew_max", s.plan.clock_skew_max);
  visit("plan.clock_drift_max", s.plan.clock_drift_max);
  visit("plan.pause_chance", s.plan.pause_chance);
  visit("plan.pause_max", s.plan.pause_max);
}

template <class T>
std::string text_of(T value) {
  if constexpr (std::is_same_v<T, double>) {
    char text[40];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
  } else {
    return std::to_string(value);
  }
}

struct Kinds {
  bool data = false;
  bool control = false;
  bool crash = false;
  bool pause = false;
  bool restart = false;
  bool clock = false;
};

Result<Kinds> parse_kinds(std::string_view text) {
  Kinds kinds;
  if (text == "none") return kinds;
  if (text == "all") return Kinds{true, true, true, true, true, true};
  while (!text.empty()) {
    const size_t end = std::min(text.find('+'), text.size());
    const std::string_view name = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (name == "data") {
      kinds.data = true;
    } else if (name == "control") {
      kinds.control = true;
    } else if (name == "crash") {
      kinds.crash = true;
    } else if (name == "pause") {
      kinds.pause = true;
    } else if (name == "restart") {
      kinds.restart = true;
    } else if (name == "clock") {
      kinds.clock = true;
    } else {
      return fail(StatusCode::kInvalidArgument, "faults '" + std::string(name) +
                                                    "' are unknown: none, all, or data, control, crash, pause, "
                                                    "restart, clock joined by '+'");
    }
  }
  return kinds;
}

void draw_faults(Scenario& s, const Kinds& kinds, Random& random) {
  const auto often = [&](double how_often, Nanoseconds least, Nanoseconds most) -> Nanoseconds {
    if (!random.chance(how_often)) return 0;
    return least + static_cast<Nanoseconds>(random.below(static_cast<uint64_t>(most - least)));
  };
  const FaultPlan drawn = FaultPlan::from_seed(s.seed);
  s.plan = FaultPlan::calm();
  s.plan.verb_latency_max = drawn.verb_latency_max;
  s.plan.line_spread = drawn.line_spread;
  s.plan.slow_line_chance = drawn.slow_line_chance;
  s.plan.slow_line_max = drawn.slow_line_max;
  s.plan.message_latency_max = drawn.message_latency_max;
  s.plan.timer_lateness_max = drawn.timer_lateness_max;
  s.plan.late_chance = drawn.late_chance;
  s.plan.late_max = std::min<Nanoseconds>(drawn.late_max, 100 * kMillisecond);
  s.plan.resent_read_chance = drawn.resent_read_chance;
  s.plan.atomics_by_server = drawn.atomics_by_server;
  s.plan.fence_max = drawn.fence_max;
  if (kinds.data) {
    s.plan.break_chance = drawn.break_chance;
    s.plan.connect_failure_chance = drawn.connect_failure_chance;
    s.data_breaks = often(0.4, 2 * kMillisecond, 20 * kMillisecond);
  }
  if (kinds.control) {
    s.plan.message_break_chance = drawn.message_break_chance;
    s.plan.dial_failure_chance = drawn.dial_failure_chance;
    s.control_breaks = often(0.4, 2 * kMillisecond, 20 * kMillisecond);
    s.cuts = often(0.3, 5 * kMillisecond, 50 * kMillisecond);
  }
  if (kinds.crash) {
    s.plan.silent_crash_chance = drawn.silent_crash_chance;
    s.client_crashes = often(0.3, 2 * kMillisecond, 30 * kMillisecond);
    s.crash_at_verb_chance = random.chance(0.4) ? 0.02 * random.unit() : 0.0;
    s.crash_at_message_chance = random.chance(0.3) ? 0.05 * random.unit() : 0.0;
  }
  if (kinds.pause) {
    s.plan.pause_chance = drawn.pause_chance;
    s.plan.pause_max = drawn.pause_max;
    s.client_pauses = often(0.3, 5 * kMillisecond, 50 * kMillisecond);
    s.server_pauses = often(0.2, 5 * kMillisecond, 50 * kMillisecond);
  }
  if (random.chance(0.3)) s.plan.fence_max *= 20;
  if (random.chance(0.3)) s.plan.late_max = std::min<Nanoseconds>(s.plan.late_max, 3 * kMillisecond);
  if (kinds.restart) {
    s.server_crashes = often(0.2, 10 * kMillisecond, 100 * kMillisecond);
    s.server_crash_at_message_chance = random.chance(0.1) ? 0.01 * random.unit() : 0.0;
  }
  if (kinds.clock) {
    s.plan.clock_skew_max = drawn.clock_skew_max;
    s.plan.clock_drift_max = drawn.clock_drift_max;
    s.clock_jumps = often(0.3, 5 * kMillisecond, 100 * kMillisecond);
  }
}

void stand_still(Scenario& s, const Kinds& kinds, Random& random) {
  if (!kinds.pause) return;
  s.plan.pause_chance = 0.01 * random.unit();
  s.plan.pause_max = kMillisecond + static_cast<Nanoseconds>(random.below(30 * kMillisecond));
}

// --- Focuses: scenarios that look closely at one thing ---------------------------------------------------------------

void no_faults(Scenario& s) {
  s.client_crashes = s.server_crashes = s.client_pauses = s.server_pauses = 0;
  s.cuts = s.control_breaks = s.data_breaks = s.clock_jumps = 0;
  s.crash_at_verb_chance = s.crash_at_message_chance = s.server_crash_at_message_chance = 0;
  s.plan = FaultPlan::calm();
}

void one_of_each(Scenario& s) {
  s.servers = s.partitions = s.sessions = s.workers = 1;
  s.counter_keys = s.expiring_keys = s.filler_keys = 0;
  s.large_value_chance = 0;
}

// Blocks of one class come round fast, and clients stand still in the middle of what they do.
void focus_reuse(Scenario& s, const Kinds& kinds, Random& random) {
  s.keys = 1 + random.below(2);
  s.counter_keys = s.expiring_keys = s.filler_keys = 0;
  s.value_bytes = 16;
  s.large_value_chance = 0;
  s.sweep_interval = kMillisecond;
  s.compare_and_swaps = 6;
  s.puts = s.removes = 3;
  s.puts_if_absent = 2;
  s.think_time = static_cast<Nanoseconds>(random.below(2 * kMillisecond));
  s.long_think_chance = random.chance(0.5) ? 0.3 : 0.0;
  stand_still(s, kinds, random);
  if (kinds.control && random.chance(0.3)) {
    s.control_breaks = 2 * kMillisecond + static_cast<Nanoseconds>(random.below(8 * kMillisecond));
    s.resume_grace = 200 * kMillisecond;
  }
}

void focus_expiry(Scenario& s, const Kinds& kinds, Random& random) {
  s.expiring_keys = s.group = 2;
  s.keys = s.counter_keys = s.filler_keys = 0;
  s.puts = 6;
  s.sweep_interval = kMillisecond;
  s.think_time = kMillisecond + static_cast<Nanoseconds>(random.below(5 * kMillisecond));
  if (random.chance(0.7)) s.cache_entries = 0;
  stand_still(s, kinds, random);
}

// Values expire, and another key takes their slot, under the eyes of a client that stands still.
void focus_neighbour(Scenario& s, const Kinds& kinds, Random&) {
  one_of_each(s);
  s.expiring_keys = s.group = 2;
  s.keys = 0;
  s.clients = 3;
  s.operations = 60;
  s.value_bytes = 100;
  s.cache_entries = 0;
  s.think_time = 6 * kMillisecond;
  s.sweep_interval = kMillisecond;
  s.puts = 6;
  s.gets = 2;
  s.exists = s.compare_and_swaps = s.removes = s.puts_if_absent = 0;
  no_faults(s);
  s.operation_timeout = kSecond;
  s.lease = 2 * kSecond;
  if (kinds.pause) s.plan.pause_chance = 0.03;
  if (kinds.pause) s.plan.pause_max = 20 * kMillisecond;
}

// A device that lets a CAS overtake the WRITE before it.
void focus_overtaken(Scenario& s, const Kinds&, Random&) {
  s.writes_are_overtaken = 1;
  s.splits = s.moves = 0;  // both read the blocks of LIVE words, and so rely on the order that is broken here
  s.plan.break_chance = s.plan.connect_failure_chance = 0;
  s.data_breaks = s.cuts = s.client_crashes = s.server_crashes = s.client_pauses = s.server_pauses = 0;
  s.crash_at_verb_chance = s.crash_at_message_chance = s.server_crash_at_message_chance = 0;
  s.control_breaks = 0;
  s.plan.message_break_chance = 0;
  s.plan.pause_chance = 0;
  s.response_timeout = s.operation_timeout = kSecond;
  s.lease = 2 * kSecond;
  // No block is used again while the load runs: of a block that is not written yet, the word would show its earlier
  // life, and versions come round so soon here that it looks right.
  s.sweep_interval = 10 * kSecond;
  s.plan.slow_line_chance = 0.2;
}

// Memory runs out, and sessions are given up while they wait for some.
void focus_memory(Scenario& s, const Kinds& kinds, Random& random) {
  s.keys = 5;
  s.splits = 0;
  s.memory_kib = 1024;
  s.large_value_chance = 0.7;
  s.large_value_bytes = 250'000;
  if (!kinds.control || random.chance(0.5)) return;
  s.lease = 40 * kMillisecond;
  s.resume_grace = 20 * kMillisecond;
  s.cuts = kMillisecond + static_cast<Nanoseconds>(random.below(5 * kMillisecond));
}

// One key, so that its blocks come round in its slot while a client sleeps over what it remembers.
void focus_wrap(Scenario& s, const Kinds&, Random&) {
  one_of_each(s);
  s.keys = 1;
  s.clients = 2;
  s.operations = 100;
  s.value_bytes = 16;
  s.cache_entries = 64;
  s.think_time = s.sweep_interval = kMillisecond;
  s.long_think_chance = 0.3;
  s.puts = 6;
  s.gets = s.compare_and_swaps = 3;
  s.removes = s.puts_if_absent = 0;
}

// Connections break all the time, fences take long, and what was under way lands soon after.
void focus_fence(Scenario& s, const Kinds& kinds, Random& random) {
  s.keys = 1;
  s.counter_keys = s.expiring_keys = s.filler_keys = 0;
  s.operation_timeout = 300 * kMillisecond;
  s.response_timeout = kMillisecond;
  s.puts = s.compare_and_swaps = 4;
  s.gets = 4;
  if (!kinds.data) return;
  s.plan.break_chance = 0.03;
  s.plan.late_chance = 0.8;
  s.plan.late_max = kMillisecond + static_cast<Nanoseconds>(random.below(4 * kMillisecond));
  s.plan.fence_max = 10 * kMillisecond;
}

// Nothing happens, and leases are short: nobody may be given up.
void focus_calm(Scenario& s, const Kinds&, Random& random) {
  no_faults(s);
  s.lease = 60 * kMillisecond + static_cast<Nanoseconds>(random.below(100 * kMillisecond));
  s.think_time = 5 * kMillisecond;
}

// Values live for a while, and the clocks that judge them drift apart.
void focus_drift(Scenario& s, const Kinds& kinds, Random&) {
  one_of_each(s);
  no_faults(s);
  s.expiring_keys = s.group = 2;
  s.keys = 0;
  s.clients = 2;
  s.operations = 100;
  s.value_bytes = 16;
  s.cache_entries = 0;
  s.think_time = 20 * kMillisecond;
  s.longest_ttl = 150 * kMillisecond;
  s.puts = 2;
  s.gets = 8;
  s.exists = s.compare_and_swaps = s.removes = s.puts_if_absent = 0;
  s.operation_timeout = kSecond;
  if (kinds.clock) s.plan.clock_drift_max = 0.05;
}

// Tables split all the time under few keys, some of which are always on their way in or out.
void focus_split(Scenario& s, const Kinds& kinds, Random& random) {
  s.servers = 1;
  s.partitions = 1;
  s.keys = 1 + random.below(3);
  s.expiring_keys = random.chance(0.3) ? 1 : 0;
  s.filler_keys = random.chance(0.3) ? 20 : 0;
  s.clients = 2 + random.below(2);
  const uint64_t most = random.chance(0.5) ? kMillisecond : 5 * kMillisecond;
  s.splits = 50 * kMicrosecond + static_cast<Nanoseconds>(random.below(most));
  s.most_splits = 24;
  s.think_time = static_cast<Nanoseconds>(random.below(100 * kMicrosecond)) + 1;
  s.puts = s.removes = s.puts_if_absent = 4;
  s.compare_and_swaps = 2;
  s.sweep_interval = kMillisecond;
  if (random.chance(0.3)) stand_still(s, kinds, random);
}

// Blocks move all the time under few keys: under those who read, replace, compare, remove and are in doubt about them.
void focus_move(Scenario& s, const Kinds& kinds, Random& random) {
  s.servers = 1;
  s.partitions = 1;
  s.keys = 1 + random.below(3);
  s.expiring_keys = random.chance(0.3) ? 1 : 0;
  s.clients = 2 + random.below(2);
  const uint64_t rarest = random.chance(0.5) ? kMillisecond : 3 * kMillisecond;
  s.moves = 20 * kMicrosecond + static_cast<Nanoseconds>(random.below(rarest));
  s.most_moves = 200;
  s.splits = random.chance(0.5) ? 50 * kMicrosecond + static_cast<Nanoseconds>(random.below(kMillisecond)) : 0;
  const uint64_t longest = random.chance(0.5) ? 10 * kMicrosecond : 100 * kMicrosecond;
  s.think_time = static_cast<Nanoseconds>(random.below(longest)) + 1;
  s.puts = s.gets = s.compare_and_swaps = 4;
  s.removes = s.puts_if_absent = 1 + random.below(6);
  s.sweep_interval = kMillisecond;
  if (random.chance(0.3)) stand_still(s, kinds, random);
}

struct Focus {
  std::string_view name;
  void (*draw)(Scenario&, const Kinds&, Random&);
};
// In the order of a draw of ten: half of the scenarios have none.
constexpr Focus kFocuses[] = {{"reuse", focus_reuse},         {"expiry", focus_expiry}, {"overtaken", focus_overtaken},
                              {"memory", focus_memory},       {"wrap", focus_wrap},     {"fence", focus_fence},
                              {"neighbour", focus_neighbour}, {"calm", focus_calm},     {"drift", focus_drift},
                              {"split", focus_split},         {"move", focus_move}};
constexpr uint64_t kDrawnFrom = 20;

}  // namespace

Result<Scenario> Scenario::from_seed(uint64_t seed, std::string_view faults, std::string_view focus) {
  const Focus* wanted = nullptr;
  for (const Focus& known : kFocuses) {
    if (known.name == focus) wanted = &known;
  }
  if (wanted == nullptr && !focus.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "focus '" + std::string(focus) + "' is unknown: reuse, expiry, overtaken, memory, wrap, fence, " +
                    "neighbour, calm, drift, split, move");
  }
  const auto kinds = parse_kinds(faults);
  if (!kinds) return tl::make_unexpected(kinds.error());
  Random random(seed ^ 0x5ce7a710ULL);
  const auto between = [&](uint64_t low, uint64_t high) { return low + random.below(high - low + 1); };
  const auto duration = [&](Nanoseconds low, Nanoseconds high) {
    return low + static_cast<Nanoseconds>(random.below(static_cast<uint64_t>(high - low)));
  };
  Scenario s;
  s.seed = seed;
  s.servers = random.chance(0.6) ? 1 : between(2, 3);
  s.partitions = s.servers == 1 ? uint64_t{1} << random.below(3) : 4;
  s.memory_kib = 1024 + 64 * between(0, 16);
  s.lease = duration(60 * kMillisecond, 600 * kMillisecond);
  s.resume_grace = duration(20 * kMillisecond, 300 * kMillisecond);
  s.sweep_interval = duration(kMillisecond, 8 * kMillisecond);
  s.clients = between(1, 4);
  s.sessions = random.chance(0.8) ? 1 : 2;
  s.workers = between(1, 3);
  s.operations = between(10, 240 / (s.clients * s.sessions * s.workers));
  s.cache_entries = random.chance(0.8) ? 64 : 0;
  s.operation_timeout = duration(10 * kMillisecond, 300 * kMillisecond);
  s.response_timeout = duration(kMillisecond, 20 * kMillisecond);
  s.think_time = duration(1, random.chance(0.7) ? 20 * kMicrosecond : 2 * kMillisecond);
  s.long_think_chance = random.chance(0.3) ? 0.05 : 0.0;
  s.keys = random.chance(0.4) ? 1 : between(2, 5);
  s.group = between(1, 4);
  s.counter_keys = random.chance(0.3) ? 1 : 0;
  s.expiring_keys = random.chance(0.3) ? 1 : 0;
  s.filler_keys = random.chance(0.3) ? between(10, 27) : 0;
  s.value_bytes = random.chance(0.5) ? between(20, 80) : between(100, 1000);
  s.large_value_chance = random.chance(0.2) ? 0.1 : 0.0;
  s.gets = between(1, 6);
  s.exists = between(0, 2);
  s.puts = between(0, 6);
  s.puts_if_absent = between(0, 4);
  s.compare_and_swaps = between(0, 4);
  s.removes = between(0, 4);
  draw_faults(s, *kinds, random);
  Random splits(seed ^ 0x5911575ULL);
  if (splits.chance(0.3)) {
    s.splits = 300 * kMicrosecond + static_cast<Nanoseconds>(splits.below(10 * kMillisecond));
    s.most_splits = 1 + splits.below(24);
  }
  Random moves(seed ^ 0x30ce5ULL);
  if (moves.chance(0.3)) {
    s.moves = 300 * kMicrosecond + static_cast<Nanoseconds>(moves.below(10 * kMillisecond));
    s.most_moves = 1 + moves.below(24);
  }
  const uint64_t drawn = random.below(kDrawnFrom);
  if (wanted == nullptr && drawn < std::size(kFocuses)) wanted = &kFocuses[drawn];
  if (wanted != nullptr) wanted->draw(s, *kinds, random);
  return s;
}

Result<void> Scenario::set(std::string_view name, std::string_view value) {
  bool known = false;
  bool parsed = false;
  visit_fields(*this, [&](std::string_view field, auto& place) {
    if (field != name) return;
    known = true;
    const auto parse = [&](auto& number) {
      const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
      parsed = result.ec == std::errc() && result.ptr == value.data() + value.size();
    };
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(place)>, bool>) {
      uint8_t number = 0;
      parse(number);
      place = number != 0;
    } else {
      parse(place);
    }
  });
  if (!known) return fail(StatusCode::kInvalidArgument, "a scenario has no '" + std::string(name) + "'");
  if (!parsed) {
    return fail(StatusCode::kInvalidArgument,
                "'" + std::string(value) + "' is no value for " + std::string(name) + ": a number (times in ns)");
  }
  return {};
}

std::vector<std::string> Scenario::differences(const Scenario& base) const {
  std::vector<std::string> theirs;
  visit_fields(base, [&](std::string_view name, const auto& value) {
    theirs.push_back(std::string(name) + "=" + text_of(value));
  });
  std::vector<std::string> out;
  size_t i = 0;
  visit_fields(*this, [&](std::string_view name, const auto& value) {
    std::string mine = std::string(name) + "=" + text_of(value);
    if (mine != theirs[i++]) out.push_back(std::move(mine));
  });
  return out;
}

bool Scenario::calm() const {
  const bool scheduled = client_crashes + server_crashes + client_pauses + server_pauses + cuts + control_breaks +
                             data_breaks != 0;
  const double chances = crash_at_verb_chance + crash_at_message_chance + server_crash_at_message_chance +
                         plan.break_chance + plan.connect_failure_chance + plan.message_break_chance +
                         plan.dial_failure_chance + plan.pause_chance;
  return !scheduled && chances == 0;
}

std::string Scenario::to_string() const {
  std::string text = "seed=" + std::to_string(seed);
  visit_fields(*this, [&](std::string_view name, const auto& value) {
    text += " " + std::string(name) + "=" + text_of(value);
  });
  return text;
}

}  // namespace skua::sim
