#pragma once
// The register that a history is compared with: its state, and what each operation may do to it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tests/sim/history_checker.h"

namespace skua::sim {

// Stands for all values that nobody ever names: which of them the key holds makes no difference.
inline constexpr uint64_t kUnnamed = std::numeric_limits<uint64_t>::max();

struct State {
  uint64_t value = kAbsent;
  int64_t from = kNever;
  int64_t until = kNever;
  friend bool operator==(const State&, const State&) = default;
};

// The latest expires_from and expires_until that have passed.
struct ExpiryClock {
  int64_t may = std::numeric_limits<int64_t>::min();
  int64_t must = std::numeric_limits<int64_t>::min();
};

// What an operation may do in a state: up to two next states, and whether it may leave the state as it is.
struct Effect {
  std::array<State, 2> next;
  size_t count = 0;
  bool unchanged = false;
  void change_to(const State& state) { next[count++] = state; }
};

// What `op` does when it takes effect on `state`, and whether its answer allows that.
Effect effect_of(const Operation& op, const State& state, const ExpiryClock& clock);
// Can it change the state at all, given its answer?
bool may_change(const Operation& op);
bool conditional_write(const Operation& op);

}  // namespace skua::sim
