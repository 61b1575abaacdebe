#include "tests/sim/register_model.h"

namespace skua::sim {

Effect effect_of(const Operation& op, const State& state, const ExpiryClock& clock) {
  const bool may_be_there = state.value != kAbsent && clock.must < state.until;
  const bool may_be_absent = state.value == kAbsent || clock.may >= state.from;
  const bool free = op.outcome != Outcome::kDone;  // no answer that must fit
  const State written{op.value, op.expires_from, op.expires_until};
  Effect effect;
  switch (op.kind) {
    case OperationKind::kGet:
      effect.unchanged = free || (op.value == kAbsent ? may_be_absent : may_be_there && state.value == op.value);
      break;
    case OperationKind::kExists:
      effect.unchanged = free || (op.succeeded ? may_be_there : may_be_absent);
      break;
    case OperationKind::kPut:
      effect.change_to(written);
      break;
    case OperationKind::kPutIfAbsent:
      if (may_be_absent && (free || op.succeeded)) effect.change_to(written);
      effect.unchanged = free || (!op.succeeded && may_be_there);
      break;
    case OperationKind::kCompareAndSwap: {
      const bool matches = state.value != kAbsent && state.value == op.expected;
      if (matches && (free || op.succeeded)) effect.change_to(written);
      effect.unchanged = free || (!op.succeeded && (!matches || may_be_absent));
      break;
    }
    case OperationKind::kRemove:
      if (may_be_there && (free || op.succeeded)) effect.change_to(State{});
      effect.unchanged = free || (!op.succeeded && may_be_absent);
      break;
    case OperationKind::kIncrement: {
      const uint64_t delta = static_cast<uint64_t>(op.delta);
      const uint64_t answer = static_cast<uint64_t>(op.number);
      if (may_be_there && (free || state.value + delta == answer)) {
        effect.change_to(State{state.value + delta, state.from, state.until});
      }
      if (may_be_absent && (free || delta == answer)) effect.change_to(State{delta, kNever, kNever});
      effect.unchanged = free;
      break;
    }
  }
  return effect;
}

bool may_change(const Operation& op) {
  if (op.kind == OperationKind::kGet || op.kind == OperationKind::kExists) return false;
  const bool conditional = op.kind == OperationKind::kPutIfAbsent || op.kind == OperationKind::kCompareAndSwap ||
                           op.kind == OperationKind::kRemove;
  return !conditional || op.outcome != Outcome::kDone || op.succeeded;
}

bool conditional_write(const Operation& op) {
  return op.kind == OperationKind::kPutIfAbsent || op.kind == OperationKind::kCompareAndSwap;
}

}  // namespace skua::sim
