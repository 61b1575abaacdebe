#include "common/transport/sim/fault_plan.h"

#include "common/base/random.h"

namespace skua::sim {

FaultPlan FaultPlan::from_seed(uint64_t seed) {
  Random random(seed ^ 0x5eedfa17ULL);
  const auto sometimes = [&](double how_often, double chance) {
    return random.chance(how_often) ? chance * random.unit() : 0.0;
  };
  FaultPlan plan;
  plan.verb_latency_max = static_cast<Nanoseconds>(600 + random.below(5'000));
  plan.line_spread = static_cast<Nanoseconds>(200 + random.below(5'000));
  plan.slow_line_chance = sometimes(0.8, 0.1);
  plan.slow_line_max = static_cast<Nanoseconds>(1'000 + random.below(100'000));
  plan.break_chance = sometimes(0.6, 0.01);
  plan.late_chance = random.unit();
  plan.late_max = static_cast<Nanoseconds>(kMillisecond + static_cast<Nanoseconds>(random.below(kSecond)));
  plan.resent_read_chance = sometimes(0.3, 0.05);
  plan.connect_failure_chance = sometimes(0.3, 0.3);
  plan.fence_max = static_cast<Nanoseconds>(1'000 + random.below(kMillisecond));
  plan.message_latency_max = static_cast<Nanoseconds>(6'000 + random.below(kMillisecond));
  plan.message_break_chance = sometimes(0.4, 0.01);
  plan.dial_failure_chance = sometimes(0.3, 0.3);
  plan.silent_crash_chance = random.chance(0.5) ? 0.5 : 0.0;
  plan.timer_lateness_max = static_cast<Nanoseconds>(1'000 + random.below(kMillisecond));
  plan.clock_skew_max = random.chance(0.5) ? static_cast<Nanoseconds>(random.below(50)) * kMillisecond : 0;
  plan.clock_drift_max = sometimes(0.5, 0.05);
  plan.atomics_by_server = random.chance(0.25);
  plan.pause_chance = sometimes(0.4, 0.002);
  plan.pause_max = static_cast<Nanoseconds>(kMillisecond + static_cast<Nanoseconds>(random.below(100 * kMillisecond)));
  return plan;
}

std::string FaultPlan::to_string() const {
  const auto number = [](auto value) { return std::to_string(value); };
  return "verb " + number(verb_latency_min) + ".." + number(verb_latency_max) + " ns, line spread " +
         number(line_spread) + " ns, slow lines " + number(slow_line_chance) + " by " + number(slow_line_max) +
         " ns, breaks " + number(break_chance) + ", late " + number(late_chance) + " by " + number(late_max) +
         " ns, READs sent again " + number(resent_read_chance) + ", connect failures " +
         number(connect_failure_chance) + ", fence " + number(fence_max) + " ns, failed CAS writes back " +
         number(static_cast<int>(failed_cas_writes_back)) + ", atomics by the server " +
         number(static_cast<int>(atomics_by_server)) + ", message " + number(message_latency_min) + ".." +
         number(message_latency_max) + " ns, message breaks " +
         number(message_break_chance) + ", dial failures " + number(dial_failure_chance) + ", silent crashes " +
         number(silent_crash_chance) + ", timers late by " + number(timer_lateness_max) + " ns, clock skew " +
         number(clock_skew_max) + " ns, clock drift " + number(clock_drift_max) + ", pauses " +
         number(pause_chance) + " of " + number(pause_max) + " ns";
}

}  // namespace skua::sim
