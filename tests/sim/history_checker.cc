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
#include "tests/sim/register_model.h"

namespace skua::sim {
namespace {

constexpr size_t kMaxComparedEach = 32;

// How many configurations are looked at before the search gives up. Each may be compared with kMaxComparedEach others.
size_t most_to_look_at(size_t operations) { return kMaxLookedAt + kMaxLookedAtEach * operations; }

// A set of small indices.
class IndexSet {
 public:
  void add(size_t i) { words_[i / 64] |= uint64_t{1} << i % 64; }
  void remove(size_t i) { words_[i / 64] &= ~(uint64_t{1} << i % 64); }
  bool empty() const { return count() == 0; }
  size_t count() const {
    size_t sum = 0;
    for (uint64_t word : words_) sum += static_cast<size_t>(std::popcount(word));
    return sum;
  }
  // The smallest index. Requires: not empty.
  size_t first() const {
    size_t i = 0;
    while (words_[i] == 0) ++i;
    return i * 64 + static_cast<size_t>(std::countr_zero(words_[i]));
  }
  bool covers(const IndexSet& other) const {  // is `other` a part of it?
    uint64_t missing = 0;
    for (size_t i = 0; i < words_.size(); ++i) missing |= other.words_[i] & ~words_[i];
    return missing == 0;
  }
  IndexSet both(const IndexSet& other) const {
    IndexSet result;
    for (size_t i = 0; i < words_.size(); ++i) result.words_[i] = words_[i] & other.words_[i];
    return result;
  }
  IndexSet without(const IndexSet& other) const {
    IndexSet result;
    for (size_t i = 0; i < words_.size(); ++i) result.words_[i] = words_[i] & ~other.words_[i];
    return result;
  }

 private:
  std::array<uint64_t, kMaxUnanswered / 64> words_{};
};

struct Configuration {
  State state;
  uint64_t done = 0;        // open operations that have taken effect, by slot
  IndexSet used;            // unanswered operations that have
  bool postponable = false;  // its last step may as well come later, see Search
};

// Slots of open operations that need not be told apart by whether they have taken effect: one way is always better.
struct Roles {
  uint64_t doubtful = 0;   // change something, and may come to nothing: better still to come
  uint64_t watching = 0;   // answered and change nothing: better done
};

// Keeps, of configurations that are alike, those that used up the least.
class Frontier {
 public:
  // `deltas`: of unanswered increments that raise a number, by index; 0 for other operations.
  Frontier(const Roles& roles, std::span<const uint64_t> deltas) : roles_(roles), deltas_(deltas) {}
  // False when one that is as good is there already.
  bool insert(const Configuration& c) {
    std::vector<Spent>& alike = spent_[Key{c.state, c.done & ~(roles_.doubtful | roles_.watching)}];
    const Spent spent{(c.done & roles_.doubtful) | (~c.done & roles_.watching), c.used};
    compared_ += 2 * alike.size();
    for (const Spent& other : alike) {
      if (at_least_as_good(other, spent)) return false;
    }
    size_ -= std::erase_if(alike, [&](const Spent& other) { return at_least_as_good(spent, other); });
    alike.push_back(spent);
    ++size_;
    return true;
  }
  size_t size() const { return size_; }
  size_t compared() const { return compared_; }  // configurations with each other
  std::vector<Configuration> take() {
    std::vector<Configuration> all;
    all.reserve(size_);
    for (const auto& [key, sets] : spent_) {
      for (const Spent& spent : sets) {
        const uint64_t done = key.done | (spent.open & roles_.doubtful) | (~spent.open & roles_.watching);
        all.push_back(Configuration{key.state, done, spent.used});
      }
    }
    return all;
  }

 private:
  struct Spent {
    uint64_t open;
    IndexSet used;
  };
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
  bool at_least_as_good(const Spent& a, const Spent& b) const {
    if ((a.open & ~b.open) != 0) return false;
    return b.used.covers(a.used) || can_stand_in(b.used.without(a.used), a.used.without(b.used));
  }
  // Can each increment of `needed` be done by some of `left`, one after the other?
  bool can_stand_in(IndexSet left, IndexSet needed) const {
    if (deltas_.empty()) return false;
    std::vector<uint64_t> parts;
    for (; !left.empty(); left.remove(left.first())) parts.push_back(deltas_[left.first()]);
    std::sort(parts.begin(), parts.end());
    for (; !needed.empty(); needed.remove(needed.first())) {
      uint64_t missing = deltas_[needed.first()];
      if (missing == 0) return false;
      for (size_t i = parts.size(); i-- > 0;) {
        if (parts[i] > missing) continue;
        missing -= std::exchange(parts[i], 0);
      }
      if (missing != 0) return false;
    }
    return true;
  }

  Roles roles_;
  std::span<const uint64_t> deltas_;
  std::unordered_map<Key, std::vector<Spent>, Hash> spent_;
  size_t size_ = 0;
  size_t compared_ = 0;
};

// Configurations to be looked at, those first that used up the fewest unanswered operations: what comes later and used
// more is then covered before it is followed any further.
class Agenda {
 public:
  void push(const Configuration& c) {
    const size_t used = c.used.count();
    if (used >= by_used_.size()) by_used_.resize(used + 1);
    first_ = std::min(first_, used);
    by_used_[used].push_back(c);
  }
  // False: there is none.
  bool pop(Configuration& c) {
    while (first_ < by_used_.size() && by_used_[first_].empty()) ++first_;
    if (first_ >= by_used_.size()) return false;
    c = by_used_[first_].back();
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

// Search runs through the events and keeps configurations that fit what has been seen.
//
// Optional operations, unanswered or in doubt, wait until they are needed: such a step is taken only where it lets an
// operation fit, or have an effect, that did not before (opens_a_way). Any other step is absorbed by the one after it,
// which overwrites, or may as well come after it, which leaves the state alone; what is left at the end may come later.
// An end of expiry forbids later steps only from values that have then expired, which do whatever an absent key does.
// Of optional operations that can do the same, the first one is taken; of two with the same effect, the one that can
// take effect in fewer states. A configuration in which a value that is still to be read cannot come back is dropped.
class Search {
 public:
  struct Options {
    bool explaining = false;  // values that nobody names any more, and times that have passed, are told apart as well
    size_t horizon = std::numeric_limits<size_t>::max();  // takes place up to this event; later answers are not known
  };
  Search(std::span<const Operation> operations, const Options& options)
      : operations_(operations.begin(), operations.end()), options_(options), keep_names_(options.explaining) {
    for (uint32_t i = 0; i < operations_.size(); ++i) add_events(i);
    std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return std::tie(a.at, a.kind, a.operation) < std::tie(b.at, b.kind, b.operation);
    });
    options_.horizon = std::min(options_.horizon, events_.size());
    slot_.resize(operations_.size());
    collect_names();
    configurations_.push_back(Configuration{});
  }

  // Up to the call of `stop_before`, if one is given. Afterwards states() says what the key may hold.
  CheckResult run(std::optional<uint32_t> stop_before = {}) {
    CheckResult result;
    for (event_ = 0; event_ < options_.horizon; ++event_) {
      const Event& event = events_[event_];
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

  // Of the last run.
  size_t event() const { return event_; }
  size_t events() const { return events_.size(); }
  uint32_t operation_of(size_t event) const { return events_[event].operation; }
  std::vector<State> states() const {
    std::vector<State> all;
    for (const Configuration& c : configurations_) {
      if (std::find(all.begin(), all.end(), c.state) == all.end()) all.push_back(c.state);
    }
    return all;
  }

 private:
  static constexpr int64_t kMaxRise = int64_t{1} << 48;  // sums of these do not overflow, but for absurd histories

  struct Name {
    int64_t last_named = std::numeric_limits<int64_t>::min();  // last answer of an operation that names the value
    size_t last_read = 0;  // event of the last call, plus one, of those that must find it. 0: none
    size_t writers = 0;
  };
  // Unanswered operations that can do the same.
  struct Class {
    uint32_t operation;          // one of them
    State written;
    IndexSet members;
    std::vector<size_t> weaker;  // classes that write the same, but not everywhere
  };

  void collect_names() {
    for (const Operation& op : operations_) {
      const bool increment = op.kind == OperationKind::kIncrement;
      if (increment) keep_names_ = counts_ = true;  // every number is part of later ones
      if (increment ? op.delta <= 0 || op.delta > kMaxRise : op.value > uint64_t{kMaxRise}) falls_ = true;
      if (op.kind == OperationKind::kCompareAndSwap) swaps_ = true;
      if (op.kind == OperationKind::kPut || conditional_write(op)) ++names_[op.value].writers;
      const bool read = op.kind == OperationKind::kGet;
      if (!read && op.kind != OperationKind::kCompareAndSwap) continue;
      int64_t& last = names_[read ? op.value : op.expected].last_named;
      last = std::max(last, op.answered_at);
    }
    std::vector<size_t> called(operations_.size());
    for (size_t i = 0; i < events_.size(); ++i) {
      const Operation& op = operations_[events_[i].operation];
      if (events_[i].kind == EventKind::kCall) called[events_[i].operation] = i + 1;
      if (events_[i].kind != EventKind::kAnswer || i >= options_.horizon) continue;
      const std::optional<uint64_t> value = must_find(op);
      if (value) names_[*value].last_read = std::max(names_[*value].last_read, called[events_[i].operation]);
    }
    for (Operation& op : operations_) {
      const bool named = names_[op.value].last_named != std::numeric_limits<int64_t>::min();
      if (op.value != kAbsent && !keep_names_ && !named) op.value = kUnnamed;
    }
  }
  static std::optional<uint64_t> must_find(const Operation& op) {
    if (op.outcome != Outcome::kDone) return std::nullopt;
    if (op.kind == OperationKind::kGet && op.value != kAbsent) return op.value;
    if (op.kind == OperationKind::kCompareAndSwap && op.succeeded) return op.expected;
    return std::nullopt;
  }
  // Will no operation that is answered at `now_` or later name it?
  bool forgotten(uint64_t value) const {
    if (value == kAbsent || keep_names_) return false;
    const auto name = names_.find(value);
    return name == names_.end() || name->second.last_named < now_;
  }
  // The key held `value` and no longer does: is something still to find it that nobody can write again?
  bool lost_for_good(uint64_t value, uint64_t done) const {
    if (value == kAbsent || value == kUnnamed || counts_) return false;
    const auto name = names_.find(value);
    if (name == names_.end() || name->second.writers != 1 || name->second.last_read == 0) return false;
    if (name->second.last_read > event_ + 1) return true;
    return std::any_of(open_.begin(), open_.end(), [&](uint32_t index) {
      return (done >> slot_[index] & 1) == 0 && answer_known(index) && must_find(operations_[index]) == value;
    });
  }

  void add_events(uint32_t index) {
    const Operation& op = operations_[index];
    if (op.outcome == Outcome::kPending && !may_change(op)) return;
    SKUA_CHECK(op.called_at <= op.answered_at, op.to_string());
    events_.push_back(Event{op.called_at, EventKind::kCall, index});
    if (op.outcome != Outcome::kPending) events_.push_back(Event{op.answered_at, EventKind::kAnswer, index});
    if (!may_change(op)) return;
    SKUA_CHECK(op.expires_from <= op.expires_until, op.to_string());
    if (op.expires_from != kNever) events_.push_back(Event{op.expires_from, EventKind::kMayExpire, index});
    if (op.expires_until != kNever) events_.push_back(Event{op.expires_until, EventKind::kMustExpire, index});
  }
  // Is the answer within the horizon?
  bool answer_known(uint32_t index) const {
    if (options_.horizon == events_.size()) return true;
    const Event& last = events_[options_.horizon];
    return std::tuple(operations_[index].answered_at, EventKind::kAnswer, index) <
           std::tie(last.at, last.kind, last.operation);
  }

  bool step(const Event& event) {
    switch (event.kind) {
      case EventKind::kCall:
        return open(event.operation);
      case EventKind::kMayExpire:
        clock_.may = event.at;
        classes_hold_until_ = std::numeric_limits<int64_t>::min();
        return true;
      case EventKind::kMustExpire:
        if (expiry_matters(event.at)) expand(std::nullopt);
        clock_.must = event.at;
        classes_hold_until_ = std::numeric_limits<int64_t>::min();
        return !overflowed_;
      case EventKind::kAnswer:
        expand(event.operation);
        std::erase(open_, event.operation);
        free_slots_ |= bit_of(event.operation);
        return !overflowed_ && !configurations_.empty();
    }
    return false;
  }

  uint64_t bit_of(uint32_t index) const { return uint64_t{1} << slot_[index]; }

  bool open(uint32_t index) {
    if (operations_[index].outcome == Outcome::kPending) {
      overflowed_ = unanswered_.size() == kMaxUnanswered;
      if (overflowed_) return false;
      const Operation& op = operations_[index];
      unanswered_.push_back(index);
      if (rises()) deltas_.push_back(op.kind == OperationKind::kIncrement ? static_cast<uint64_t>(op.delta) : 0);
      classes_hold_until_ = std::numeric_limits<int64_t>::min();
      return true;
    }
    overflowed_ = free_slots_ == 0;
    if (overflowed_) return false;
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

  // What cannot be told apart any more becomes equal.
  State simplified(State state) const {
    if (state.value == kAbsent) return State{};
    if (options_.explaining) return state;
    if (forgotten(state.value)) state.value = kUnnamed;
    if (clock_.must >= state.until && (state.value == kUnnamed || !swaps_)) return State{};
    if (clock_.may >= state.from) state.from = std::numeric_limits<int64_t>::min();
    return state;
  }

  void classify_unanswered() {
    if (now_ <= classes_hold_until_) return;
    classes_hold_until_ = kNever;
    classes_.clear();
    for (size_t i = 0; i < unanswered_.size(); ++i) {
      const Operation& op = operations_[unanswered_[i]];
      const bool writes = op.kind == OperationKind::kPut || conditional_write(op);
      const State written = writes ? simplified(State{op.value, op.expires_from, op.expires_until}) : State{};
      if (writes && written.value == op.value && !keep_names_ && op.value != kUnnamed) {
        classes_hold_until_ = std::min(classes_hold_until_, names_.at(op.value).last_named);
      }
      const auto same = std::find_if(classes_.begin(), classes_.end(), [&](const Class& k) {
        const Operation& other = operations_[k.operation];
        return other.kind == op.kind && k.written == written &&
               (op.kind != OperationKind::kCompareAndSwap || other.expected == op.expected) &&
               (op.kind != OperationKind::kIncrement || other.delta == op.delta);
      });
      const auto place = same != classes_.end() ? same : classes_.insert(same, Class{unanswered_[i], written, {}, {}});
      place->members.add(i);
    }
    for (Class& k : classes_) {
      if (operations_[k.operation].kind != OperationKind::kPut) continue;
      for (size_t i = 0; i < classes_.size(); ++i) {
        if (conditional_write(operations_[classes_[i].operation]) && classes_[i].written == k.written) {
          k.weaker.push_back(i);
        }
      }
    }
    for (Configuration& c : configurations_) c.used = first_of_each_class(c.used);
  }
  IndexSet first_of_each_class(const IndexSet& used) const {
    IndexSet result;
    for (const Class& k : classes_) {
      size_t count = k.members.both(used).count();
      for (IndexSet left = k.members; count > 0; --count) {
        result.add(left.first());
        left.remove(left.first());
      }
    }
    return result;
  }

  Roles roles() const {
    Roles roles;
    for (uint32_t index : open_) {
      const bool changes = may_change(operations_[index]);
      if (!changes) roles.watching |= bit_of(index);
      if (changes && operations_[index].outcome == Outcome::kInDoubt) roles.doubtful |= bit_of(index);
    }
    return roles;
  }

  // With `answered`: the ways in which it has taken effect by now (or, in doubt, has not), and its slot is cleared.
  // Without: the ways in which any of the open operations have.
  void expand(std::optional<uint32_t> answered) {
    classify_unanswered();
    answering_ = answered;
    const uint64_t bit = answered ? bit_of(*answered) : 0;
    const Roles all = roles();
    Frontier seen(all, deltas_);
    Frontier result(Roles{all.doubtful & ~bit, all.watching & ~bit}, deltas_);
    Agenda agenda;
    for (Configuration& c : configurations_) {
      c.state = simplified(c.state);
      settle_what_changes_nothing(c);
      agenda.push(c);
      const bool in_doubt = answered && operations_[*answered].outcome == Outcome::kInDoubt;
      if (in_doubt && (c.done & bit) == 0 && !lost_for_good(operations_[*answered].value, c.done)) result.insert(c);
    }
    for (Configuration c; !overflowed_ && agenda.pop(c);) {
      const bool finished = (c.done & bit) != 0;
      if (finished || (!answered && !c.postponable)) {
        Configuration kept = c;
        kept.done &= ~bit;
        result.insert(kept);
      }
      if (finished || !seen.insert(c)) continue;
      ++looked_at_;
      push_open(c, agenda);
      push_unanswered(c, agenda);
      const size_t most = most_to_look_at(operations_.size());
      overflowed_ = seen.size() > kMaxConfigurations || looked_at_ > most ||
                    compared_ + seen.compared() + result.compared() > kMaxComparedEach * most;
    }
    compared_ += seen.compared() + result.compared();
    configurations_ = result.take();
  }

  void push_open(const Configuration& c, Agenda& agenda) const {
    for (uint32_t index : open_) {
      if ((c.done & bit_of(index)) != 0) continue;
      const bool optional = operations_[index].outcome == Outcome::kInDoubt && index != answering_;
      const Effect effect = effect_of(operations_[index], c.state, clock_);
      for (size_t k = 0; k < effect.count; ++k) {
        push(c, Configuration{effect.next[k], c.done | bit_of(index), c.used, optional}, index, agenda);
      }
    }
  }

  void push_unanswered(const Configuration& c, Agenda& agenda) const {
    for (const Class& k : classes_) {
      const IndexSet left = k.members.without(c.used);
      if (left.empty()) continue;
      const bool weaker_does = std::any_of(k.weaker.begin(), k.weaker.end(), [&](size_t i) {
        return !classes_[i].members.without(c.used).empty() &&
               effect_of(operations_[classes_[i].operation], c.state, clock_).count > 0;
      });
      if (weaker_does) continue;
      const Effect effect = effect_of(operations_[k.operation], c.state, clock_);
      for (size_t i = 0; i < effect.count; ++i) {
        Configuration next{effect.next[i], c.done, c.used, true};
        next.used.add(left.first());
        push(c, next, k.operation, agenda);
      }
    }
  }

  // `step` leads from `c` to `next`; `next.postponable` says whether it is optional.
  void push(const Configuration& c, Configuration next, uint32_t step, Agenda& agenda) const {
    next.state = simplified(next.state);
    if (next.postponable && (next.state == c.state || !opens_a_way(c, next, step))) return;
    const uint64_t before = next.done;
    settle_what_changes_nothing(next);
    if (next.done != before) next.postponable = false;
    if (next.state.value != c.state.value && lost_for_good(c.state.value, next.done)) return;
    agenda.push(next);
  }

  // Does any operation fit, or have an effect, that did not before the step?
  bool opens_a_way(const Configuration& c, const Configuration& next, uint32_t step) const {
    const bool rising = rises() && next.state.value != kAbsent && clock_.may < next.state.from;
    const uint64_t sought = rising ? most_sought(next.done) : 0;
    const auto gains = [&](uint32_t index) {
      const Operation& op = operations_[index];
      if (op.kind == OperationKind::kPut) return false;
      if (rising && op.kind == OperationKind::kIncrement && op.outcome != Outcome::kDone &&
          next.state.value + static_cast<uint64_t>(op.delta) > sought) {
        // Nobody looks for the number that it leads to. It may come later or, after an increment, before that one.
        if (index != answering_ || operations_[step].kind == OperationKind::kIncrement) return false;
      }
      const Effect before = effect_of(op, c.state, clock_);
      const Effect after = effect_of(op, next.state, clock_);
      if (after.unchanged && !before.unchanged) return true;
      for (size_t k = 0; k < after.count; ++k) {
        const auto end = before.next.begin() + before.count;
        if (std::find(before.next.begin(), end, after.next[k]) == end) return true;
      }
      return false;
    };
    return std::any_of(open_.begin(), open_.end(),
                       [&](uint32_t index) { return (next.done & bit_of(index)) == 0 && gains(index); }) ||
           std::any_of(classes_.begin(), classes_.end(), [&](const Class& k) {
             return gains(k.operation) && !k.members.without(next.used).empty();
           });
  }

  // Do numbers only rise, as long as the value is there?
  bool rises() const { return counts_ && !falls_ && !swaps_; }
  // The largest number in which an open operation fits, of those that fit in one alone.
  uint64_t most_sought(uint64_t done) const {
    uint64_t most = 0;
    for (uint32_t index : open_) {
      const Operation& op = operations_[index];
      if ((done & bit_of(index)) != 0 || op.outcome != Outcome::kDone) continue;
      if (op.kind == OperationKind::kGet) most = std::max(most, op.value);
      if (op.kind == OperationKind::kIncrement && op.number > op.delta) {
        most = std::max(most, static_cast<uint64_t>(op.number - op.delta));
      }
    }
    return most;
  }

  // An operation that fits the state and leaves it alone may as well take effect now.
  void settle_what_changes_nothing(Configuration& c) const {
    for (uint32_t index : open_) {
      const Operation& op = operations_[index];
      if (op.outcome == Outcome::kInDoubt && may_change(op)) continue;
      if (effect_of(op, c.state, clock_).unchanged) c.done |= bit_of(index);
    }
  }

  std::vector<Operation> operations_;
  Options options_;
  std::vector<Event> events_;
  std::unordered_map<uint64_t, Name> names_;
  bool keep_names_;
  bool counts_ = false;  // there are increments
  bool swaps_ = false;   // there are compare_and_swaps
  bool falls_ = false;   // there are increments by less than 1, or numbers that may overflow
  size_t event_ = 0;
  int64_t now_ = 0;
  std::vector<uint32_t> slot_;        // of an open operation
  uint64_t free_slots_ = ~uint64_t{0};
  std::vector<uint32_t> open_;        // called, will be answered
  std::optional<uint32_t> answering_;  // of these, the one that expand is about
  std::vector<uint32_t> unanswered_;  // called, never answered
  std::vector<uint64_t> deltas_;      // of those that are increments, 0 for others; none unless rises()
  std::vector<Class> classes_;        // of the unanswered ones
  int64_t classes_hold_until_ = std::numeric_limits<int64_t>::min();
  std::vector<Configuration> configurations_;
  ExpiryClock clock_;
  size_t looked_at_ = 0;
  size_t compared_ = 0;
  bool overflowed_ = false;
};

std::string value_name(uint64_t value) {
  if (value == kAbsent) return "absent";
  return value == kUnnamed ? "a value that nobody read" : std::to_string(value);
}

std::string time_name(int64_t at) { return at == kNever ? "..." : std::to_string(at); }

// The number of events up to the first answer that fits nothing: what is answered later no longer counts. Requires:
// the first `fits` events do fit, all of them do not.
size_t first_that_fits_nothing(std::span<const Operation> operations, size_t fits, size_t all, size_t& looked_at) {
  while (all - fits > 1) {
    const size_t middle = fits + (all - fits) / 2;
    const CheckResult result = Search(operations, {.horizon = middle}).run();
    looked_at += result.configurations;
    (result.verdict == Verdict::kViolation ? all : fits) = middle;
  }
  return all;
}

// The operations before and around the one that fits nothing, and the ones that wrote the values it is about.
// `horizon`: the event of its answer.
std::string explain(std::span<const Operation> operations, size_t culprit, size_t horizon) {
  constexpr size_t kShownBefore = 4;
  const Operation& failed = operations[culprit];
  Search search(operations, {.explaining = true, .horizon = horizon});
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
  Search search(operations, {});
  CheckResult result = search.run();
  if (result.verdict == Verdict::kViolation) {
    const size_t events =
        first_that_fits_nothing(operations, search.event(), search.events(), result.configurations);
    result.operation = search.operation_of(events - 1);
    result.explanation = explain(operations, result.operation, events - 1);
  }
  if (result.verdict == Verdict::kUndecided) {
    result.explanation = "undecided: more than " + std::to_string(kMaxOpen) + " operations at a time, " +
                         std::to_string(kMaxUnanswered) + " unanswered, or too many configurations at\n    " +
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
