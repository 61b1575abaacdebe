#include "tests/sim/history_checker.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/base/check.h"

namespace skua::sim {
namespace {

// Stands for all values that nobody ever names: which of them the key holds makes no difference.
constexpr uint64_t kUnnamed = std::numeric_limits<uint64_t>::max();

struct State {
  uint64_t value = kAbsent;
  int64_t from = kNever;
  int64_t until = kNever;
  friend bool operator==(const State&, const State&) = default;
};

// The latest expires_from and expires_until that have passed.
struct Clock {
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

Effect effect_of(const Operation& op, const State& state, const Clock& clock) {
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

using OperationSet = std::vector<uint32_t>;  // sorted

struct Configuration {
  State state;
  uint64_t done = 0;   // open operations that have taken effect, by slot
  OperationSet used;   // unanswered operations that have
};

// Keeps, of configurations that are alike, those that used up the fewest unanswered operations.
class Frontier {
 public:
  // False when one that is as good is there already.
  bool insert(const Configuration& c) {
    std::vector<OperationSet>& alike = sets_[Key{c.state, c.done}];
    const auto covers = [](const OperationSet& a, const OperationSet& b) {
      return std::includes(b.begin(), b.end(), a.begin(), a.end());
    };
    for (const OperationSet& used : alike) {
      if (covers(used, c.used)) return false;
    }
    size_ -= std::erase_if(alike, [&](const OperationSet& used) { return covers(c.used, used); });
    alike.push_back(c.used);
    ++size_;
    return true;
  }
  size_t size() const { return size_; }
  std::vector<Configuration> take() {
    std::vector<Configuration> all;
    all.reserve(size_);
    for (auto& [key, sets] : sets_) {
      for (OperationSet& used : sets) all.push_back(Configuration{key.state, key.done, std::move(used)});
    }
    sets_.clear();
    size_ = 0;
    return all;
  }

 private:
  struct Key {
    State state;
    uint64_t done;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t h = key.state.value * 0x9e3779b97f4a7c15ULL;
      for (uint64_t part : {static_cast<uint64_t>(key.state.from), static_cast<uint64_t>(key.state.until), key.done}) {
        h = (std::rotl(h, 23) ^ part) * 0xbf58476d1ce4e5b9ULL;
      }
      return static_cast<size_t>(h ^ (h >> 31));
    }
  };
  std::unordered_map<Key, std::vector<OperationSet>, Hash> sets_;
  size_t size_ = 0;
};

// Configurations to be looked at, those first that used up the fewest unanswered operations: what comes later and used
// more is then covered before it is followed any further.
class Agenda {
 public:
  void push(Configuration c) {
    if (c.used.size() >= by_used_.size()) by_used_.resize(c.used.size() + 1);
    first_ = std::min(first_, c.used.size());
    by_used_[c.used.size()].push_back(std::move(c));
  }
  // False: there is none.
  bool pop(Configuration& c) {
    while (first_ < by_used_.size() && by_used_[first_].empty()) ++first_;
    if (first_ >= by_used_.size()) return false;
    c = std::move(by_used_[first_].back());
    by_used_[first_].pop_back();
    return true;
  }

 private:
  std::vector<std::vector<Configuration>> by_used_;
  size_t first_ = 0;
};

// Events of one moment take place in this order, which is the more lenient one.
enum class EventKind : uint8_t { kCall, kMayExpire, kAnswer, kMustExpire };

struct Event {
  int64_t at;
  EventKind kind;
  uint32_t operation;
};

// Search runs through the events and keeps all configurations that fit what has been seen.
class Search {
 public:
  // `keep_names`: values that no answer names any more are told apart all the same, for explanations.
  explicit Search(std::span<const Operation> operations, bool keep_names)
      : operations_(operations.begin(), operations.end()), keep_names_(keep_names) {
    hide_unnamed_values();
    for (uint32_t i = 0; i < operations_.size(); ++i) add_events(i);
    std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return std::tie(a.at, a.kind, a.operation) < std::tie(b.at, b.kind, b.operation);
    });
    slot_.resize(operations_.size());
    configurations_.push_back(Configuration{});
  }

  // Up to the call of `stop_before`, if one is given. Afterwards states() says what the key may hold.
  CheckResult run(std::optional<uint32_t> stop_before = {}) {
    CheckResult result;
    for (const Event& event : events_) {
      now_ = event.at;
      if (event.kind == EventKind::kCall && stop_before == event.operation) break;
      if (!step(event)) {
        result.verdict = overflowed_ ? Verdict::kUndecided : Verdict::kViolation;
        result.operation = event.operation;
        break;
      }
    }
    result.configurations = looked_at_;
    return result;
  }

  std::vector<State> states() const {
    std::vector<State> all;
    for (const Configuration& c : configurations_) {
      if (std::find(all.begin(), all.end(), c.state) == all.end()) all.push_back(c.state);
    }
    return all;
  }

 private:
  void hide_unnamed_values() {
    for (const Operation& op : operations_) {
      if (op.kind == OperationKind::kIncrement) keep_names_ = true;  // every number may be part of a later one
      const bool read = op.kind == OperationKind::kGet;
      if (!read && op.kind != OperationKind::kCompareAndSwap) continue;
      int64_t& last = last_named_.try_emplace(read ? op.value : op.expected, op.answered_at).first->second;
      last = std::max(last, op.answered_at);
    }
    for (Operation& op : operations_) {
      if (op.value != kAbsent && !keep_names_ && !last_named_.contains(op.value)) op.value = kUnnamed;
    }
  }
  // Will no operation that is answered at `now_` or later name it?
  bool forgotten(uint64_t value) const {
    if (value == kAbsent || keep_names_) return false;
    const auto last = last_named_.find(value);
    return last == last_named_.end() || last->second < now_;
  }

  void add_events(uint32_t index) {
    const Operation& op = operations_[index];
    if (op.outcome == Outcome::kPending && !may_change(op)) return;
    SKUA_CHECK(op.called_at <= op.answered_at, op.to_string());
    events_.push_back(Event{op.called_at, EventKind::kCall, index});
    if (op.outcome != Outcome::kPending) events_.push_back(Event{op.answered_at, EventKind::kAnswer, index});
    if (!may_change(op)) return;
    if (op.expires_from != kNever) events_.push_back(Event{op.expires_from, EventKind::kMayExpire, index});
    if (op.expires_until != kNever) events_.push_back(Event{op.expires_until, EventKind::kMustExpire, index});
  }

  bool step(const Event& event) {
    switch (event.kind) {
      case EventKind::kCall:
        return open(event.operation);
      case EventKind::kMayExpire:
        clock_.may = event.at;
        return true;
      case EventKind::kMustExpire:
        if (expiry_matters(event.at)) expand(std::nullopt);
        clock_.must = event.at;
        return !overflowed_;
      case EventKind::kAnswer:
        expand(event.operation);
        std::erase(open_, event.operation);
        free_slots_ |= uint64_t{1} << slot_[event.operation];
        return !overflowed_ && !configurations_.empty();
    }
    return false;
  }

  bool open(uint32_t index) {
    if (operations_[index].outcome == Outcome::kPending) {
      unanswered_.push_back(index);
      return true;
    }
    if (free_slots_ == 0) {
      overflowed_ = true;
      return false;
    }
    slot_[index] = static_cast<uint32_t>(std::countr_zero(free_slots_));
    free_slots_ &= free_slots_ - 1;
    open_.push_back(index);
    return true;
  }

  bool expiry_matters(int64_t until) const {
    const auto writes_it = [&](uint32_t i) { return operations_[i].expires_until == until; };
    return std::any_of(open_.begin(), open_.end(), writes_it) ||
           std::any_of(unanswered_.begin(), unanswered_.end(), writes_it) ||
           std::any_of(configurations_.begin(), configurations_.end(),
                       [&](const Configuration& c) { return c.state.until == until; });
  }

  // With `answered`: all ways in which it has taken effect by now (or, in doubt, has not), and its slot is cleared.
  // Without: all ways in which any of the open operations have.
  void expand(std::optional<uint32_t> answered) {
    Frontier seen;
    Frontier result;
    Agenda agenda;
    for (Configuration& c : configurations_) {
      if (forgotten(c.state.value)) c.state.value = kUnnamed;
      settle_what_changes_nothing(c);
      agenda.push(std::move(c));
    }
    for (Configuration c; !overflowed_ && agenda.pop(c);) {
      if (!seen.insert(c)) continue;
      ++looked_at_;
      if (!answered) {
        result.insert(c);
      } else if (const uint64_t bit = uint64_t{1} << slot_[*answered]; (c.done & bit) != 0) {
        c.done &= ~bit;
        result.insert(c);
        continue;
      } else if (operations_[*answered].outcome == Outcome::kInDoubt) {
        result.insert(c);
      }
      push_successors(c, agenda);
      overflowed_ = seen.size() > kMaxConfigurations;
    }
    configurations_ = result.take();
  }

  void push_successors(const Configuration& c, Agenda& agenda) const {
    for (uint32_t index : open_) {
      const uint64_t bit = uint64_t{1} << slot_[index];
      if ((c.done & bit) != 0) continue;
      const Effect effect = effect_of(operations_[index], c.state, clock_);
      for (size_t k = 0; k < effect.count; ++k) {
        Configuration next{effect.next[k], c.done | bit, c.used};
        settle_what_changes_nothing(next);
        agenda.push(std::move(next));
      }
    }
    bool tried_put = false;
    bool tried_remove = false;
    std::vector<int64_t> tried_deltas;
    for (uint32_t index : unanswered_) {
      const auto place = std::lower_bound(c.used.begin(), c.used.end(), index);
      if (place != c.used.end() && *place == index) continue;
      const Operation& op = operations_[index];
      // Of those that come to the same, the first will do.
      if (op.kind == OperationKind::kRemove && std::exchange(tried_remove, true)) continue;
      if (op.kind == OperationKind::kIncrement) {
        if (std::find(tried_deltas.begin(), tried_deltas.end(), op.delta) != tried_deltas.end()) continue;
        tried_deltas.push_back(op.delta);
      }
      const bool any_put = op.kind == OperationKind::kPut && op.expires_from == kNever && forgotten(op.value);
      if (any_put && std::exchange(tried_put, true)) continue;
      const Effect effect = effect_of(op, c.state, clock_);
      for (size_t k = 0; k < effect.count; ++k) {
        if (effect.next[k] == c.state) continue;
        Configuration next{effect.next[k], c.done, c.used};
        if (any_put) next.state.value = kUnnamed;
        next.used.insert(next.used.begin() + (place - c.used.begin()), index);
        settle_what_changes_nothing(next);
        agenda.push(std::move(next));
      }
    }
  }

  // An operation that fits the state and leaves it alone may as well take effect now.
  void settle_what_changes_nothing(Configuration& c) const {
    for (uint32_t index : open_) {
      const Operation& op = operations_[index];
      if (op.outcome == Outcome::kInDoubt && may_change(op)) continue;
      if (effect_of(op, c.state, clock_).unchanged) c.done |= uint64_t{1} << slot_[index];
    }
  }

  std::vector<Operation> operations_;
  std::vector<Event> events_;
  std::unordered_map<uint64_t, int64_t> last_named_;  // value -> last answer of an operation that names it
  bool keep_names_;
  int64_t now_ = 0;
  std::vector<uint32_t> slot_;        // of an open operation
  uint64_t free_slots_ = ~uint64_t{0};
  std::vector<uint32_t> open_;        // called, will be answered
  std::vector<uint32_t> unanswered_;  // called, never answered
  std::vector<Configuration> configurations_;
  Clock clock_;
  size_t looked_at_ = 0;
  bool overflowed_ = false;
};

std::string value_name(uint64_t value) {
  if (value == kAbsent) return "absent";
  return value == kUnnamed ? "a value that nobody read" : std::to_string(value);
}

std::string time_name(int64_t at) { return at == kNever ? "..." : std::to_string(at); }

// The operations before and around the one that fits nothing, and the ones that wrote the values it is about.
std::string explain(std::span<const Operation> operations, size_t culprit) {
  constexpr size_t kShownBefore = 4;
  const Operation& failed = operations[culprit];
  Search search(operations, true);
  search.run(static_cast<uint32_t>(culprit));

  std::string text = "no order explains the answer of\n    " + failed.to_string() + "\nwhen it was called the key held";
  std::set<uint64_t> values{failed.value, failed.expected};
  const char* separator = " ";
  for (const State& state : search.states()) {
    text += std::exchange(separator, " or ") + value_name(state.value);
    if (state.from != kNever) text += " (expires at " + time_name(state.from) + ".." + time_name(state.until) + ")";
    values.insert(state.value);
  }
  text += "\n";

  std::vector<size_t> before;
  std::vector<size_t> around;
  std::vector<size_t> sources;
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& op = operations[i];
    if (i == culprit || op.called_at > failed.answered_at) continue;
    if (op.outcome == Outcome::kPending && !may_change(op)) continue;
    const bool open = op.outcome == Outcome::kPending || op.answered_at >= failed.called_at;
    (open ? around : before).push_back(i);
    if (!open && op.kind != OperationKind::kGet && op.value != kAbsent && values.contains(op.value)) {
      sources.push_back(i);
    }
  }
  const auto by_answer = [&](size_t a, size_t b) { return operations[a].answered_at < operations[b].answered_at; };
  std::sort(before.begin(), before.end(), by_answer);
  if (before.size() > kShownBefore) before.erase(before.begin(), before.end() - kShownBefore);
  const auto list = [&](std::string_view title, const std::vector<size_t>& indices) {
    if (!indices.empty()) text += title;
    for (size_t i : indices) text += "    " + operations[i].to_string() + "\n";
  };
  list("the last ones answered before:\n", before);
  list("under way at the same time, or never answered:\n", around);
  list("where the values come from:\n", sources);
  return text;
}

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kGet: return "get";
    case OperationKind::kExists: return "exists";
    case OperationKind::kPut: return "put";
    case OperationKind::kPutIfAbsent: return "put_if_absent";
    case OperationKind::kCompareAndSwap: return "compare_and_swap";
    case OperationKind::kRemove: return "remove";
    case OperationKind::kIncrement: return "increment";
  }
  return "?";
}

}  // namespace

std::string Operation::to_string() const {
  std::string text = "[" + time_name(called_at) + ", " + time_name(answered_at) + "] client " + std::to_string(client) +
                     ": " + std::string(name_of(kind)) + "(";
  if (kind == OperationKind::kCompareAndSwap) text += "expected " + std::to_string(expected) + ", ";
  if (kind == OperationKind::kIncrement) text += std::to_string(delta);
  const bool writes = kind == OperationKind::kPut || kind == OperationKind::kPutIfAbsent ||
                      kind == OperationKind::kCompareAndSwap;
  if (writes) text += std::to_string(value);
  if (writes && expires_from != kNever) {
    text += ", expires " + time_name(expires_from) + ".." + time_name(expires_until);
  }
  text += ")";
  if (outcome == Outcome::kPending) return text + " unanswered";
  if (outcome == Outcome::kInDoubt) return text + " in doubt";
  if (kind == OperationKind::kGet) return text + " -> " + value_name(value);
  if (kind == OperationKind::kIncrement) return text + " -> " + std::to_string(number);
  if (kind == OperationKind::kPut) return text;
  return text + (succeeded ? " -> true" : " -> false");
}

CheckResult check_key(std::span<const Operation> operations) {
  CheckResult result = Search(operations, false).run();
  if (result.verdict == Verdict::kViolation) result.explanation = explain(operations, result.operation);
  if (result.verdict == Verdict::kUndecided) {
    result.explanation = "undecided: more than " + std::to_string(kMaxOpen) + " operations at a time or more than " +
                         std::to_string(kMaxConfigurations) + " configurations at\n    " +
                         operations[result.operation].to_string() + "\n";
  }
  return result;
}

History::Ticket History::begin(std::string_view key, const Operation& operation) {
  const auto place = keys_.try_emplace(std::string(key)).first;
  place->second.push_back(operation);
  return Ticket{place->first, place->second.size() - 1};
}

CheckResult History::check() const {
  CheckResult worst;
  for (const auto& [key, operations] : keys_) {
    CheckResult result = check_key(operations);
    result.configurations += worst.configurations;
    if (result.verdict == Verdict::kLinearizable) {
      worst.configurations = result.configurations;
      continue;
    }
    result.explanation = "key \"" + key + "\": " + result.explanation;
    if (result.verdict == Verdict::kViolation) return result;
    worst = std::move(result);
  }
  return worst;
}

}  // namespace skua::sim
