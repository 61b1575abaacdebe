#include "tests/sim/history_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/random.h"

namespace skua::sim {
namespace {

struct Span {
  int64_t called_at;
  int64_t answered_at;
};

Operation done(OperationKind kind, Span span, uint64_t value = kAbsent) {
  Operation op;
  op.kind = kind;
  op.outcome = Outcome::kDone;
  op.succeeded = true;
  op.called_at = span.called_at;
  op.answered_at = span.answered_at;
  op.value = value;
  return op;
}
Operation get(Span span, uint64_t value) { return done(OperationKind::kGet, span, value); }
Operation put(Span span, uint64_t value) { return done(OperationKind::kPut, span, value); }
Operation put_if_absent(Span span, uint64_t value, bool stored) {
  Operation op = done(OperationKind::kPutIfAbsent, span, value);
  op.succeeded = stored;
  return op;
}
Operation swap(Span span, uint64_t expected, uint64_t value, bool swapped) {
  Operation op = done(OperationKind::kCompareAndSwap, span, value);
  op.expected = expected;
  op.succeeded = swapped;
  return op;
}
Operation remove(Span span, bool was_there) {
  Operation op = done(OperationKind::kRemove, span);
  op.succeeded = was_there;
  return op;
}
Operation increment(Span span, int64_t answer) {
  Operation op = done(OperationKind::kIncrement, span);
  op.delta = 1;
  op.number = answer;
  return op;
}
Operation with(Operation op, Outcome outcome) {
  op.outcome = outcome;
  if (outcome == Outcome::kPending) op.answered_at = kNever;
  return op;
}
Operation expiring(Operation op, int64_t from, int64_t until) {
  op.expires_from = from;
  op.expires_until = until;
  return op;
}

bool accepted(const std::vector<Operation>& operations) {
  const CheckResult result = check_key(operations);
  EXPECT_NE(result.verdict, Verdict::kUndecided) << result.explanation;
  return result.verdict == Verdict::kLinearizable;
}

TEST(HistoryChecker, SequentialHistoryIsAccepted) {
  EXPECT_TRUE(accepted({get({0, 1}, kAbsent), put({2, 3}, 7), get({4, 5}, 7), swap({6, 7}, 7, 8, true),
                        swap({8, 9}, 7, 9, false), put_if_absent({10, 11}, 10, false), remove({12, 13}, true),
                        remove({14, 15}, false), put_if_absent({16, 17}, 11, true), get({18, 19}, 11)}));
}

TEST(HistoryChecker, StaleReadIsAViolation) {
  EXPECT_FALSE(accepted({put({0, 1}, 1), put({2, 3}, 2), get({4, 5}, 1)}));
}

TEST(HistoryChecker, OverlappingReadMayReturnEitherValue) {
  EXPECT_TRUE(accepted({put({0, 1}, 1), put({2, 6}, 2), get({3, 4}, 1), get({7, 8}, 2)}));
  EXPECT_TRUE(accepted({put({0, 1}, 1), put({2, 6}, 2), get({3, 4}, 2), get({7, 8}, 2)}));
}

TEST(HistoryChecker, ReadsThatGoBackAreAViolation) {
  EXPECT_FALSE(accepted({put({0, 1}, 1), put({2, 9}, 2), get({3, 4}, 2), get({5, 6}, 1)}));
}

TEST(HistoryChecker, TwoSwapsOfOneVersionAreAViolation) {
  EXPECT_FALSE(accepted({put({0, 1}, 1), swap({2, 9}, 1, 2, true), swap({2, 9}, 1, 3, true)}));
  EXPECT_TRUE(accepted({put({0, 1}, 1), swap({2, 9}, 1, 2, true), swap({2, 9}, 1, 3, false)}));
}

TEST(HistoryChecker, TwoStoredPutsIfAbsentNeedARemoveBetween) {
  EXPECT_FALSE(accepted({put_if_absent({0, 9}, 1, true), put_if_absent({0, 9}, 2, true)}));
  EXPECT_TRUE(accepted({put_if_absent({0, 9}, 1, true), put_if_absent({0, 9}, 2, true), remove({0, 9}, true)}));
}

TEST(HistoryChecker, UnansweredWriteMayShowLateOrNever) {
  const Operation lost = with(put({2, 3}, 2), Outcome::kPending);
  EXPECT_TRUE(accepted({put({0, 1}, 1), lost, get({4, 5}, 1), get({100, 101}, 2)}));
  EXPECT_TRUE(accepted({put({0, 1}, 1), lost, get({100, 101}, 1)}));
  EXPECT_FALSE(accepted({put({0, 1}, 1), lost, get({4, 5}, 2), get({100, 101}, 1)}));
}

TEST(HistoryChecker, WriteInDoubtMayNotShowAfterItsAnswer) {
  const Operation doubt = with(put({2, 3}, 2), Outcome::kInDoubt);
  EXPECT_TRUE(accepted({put({0, 1}, 1), doubt, get({4, 5}, 2)}));
  EXPECT_TRUE(accepted({put({0, 1}, 1), doubt, get({4, 5}, 1)}));
  EXPECT_FALSE(accepted({put({0, 1}, 1), doubt, get({4, 5}, 1), get({6, 7}, 2)}));
}

TEST(HistoryChecker, UnansweredRemoveExplainsAnAbsentKeyOnce) {
  const Operation lost = with(remove({2, 3}, true), Outcome::kPending);
  EXPECT_TRUE(accepted({put({0, 1}, 1), lost, get({4, 5}, kAbsent), put({6, 7}, 2), get({8, 9}, 2)}));
  EXPECT_FALSE(
      accepted({put({0, 1}, 1), lost, get({4, 5}, kAbsent), put({6, 7}, 2), get({8, 9}, kAbsent)}));
}

TEST(HistoryChecker, LostIncrementIsAViolation) {
  EXPECT_TRUE(accepted({increment({0, 1}, 1), increment({2, 5}, 3), increment({2, 5}, 2), get({6, 7}, 3)}));
  EXPECT_FALSE(accepted({increment({0, 1}, 1), increment({2, 5}, 2), increment({2, 5}, 2)}));
}

TEST(HistoryChecker, ValueIsThereBeforeItsExpiryAndAbsentAfterIt) {
  const Operation short_lived = expiring(put({0, 1}, 1), 10, 20);
  EXPECT_TRUE(
      accepted({short_lived, get({5, 6}, 1), get({12, 13}, 1), get({14, 15}, kAbsent), get({25, 26}, kAbsent)}));
  EXPECT_FALSE(accepted({short_lived, get({5, 6}, kAbsent)}));
  EXPECT_FALSE(accepted({short_lived, get({25, 26}, 1)}));
  EXPECT_TRUE(accepted({short_lived, get({15, 26}, 1)})) << "it may have been read before the end";
}

TEST(HistoryChecker, PutIfAbsentTakesTheExpiredKeyAndSwapMayReviveIt) {
  const Operation short_lived = expiring(put({0, 1}, 1), 10, 10);
  EXPECT_TRUE(accepted({short_lived, put_if_absent({11, 12}, 2, true), get({13, 14}, 2)}));
  EXPECT_FALSE(accepted({short_lived, put_if_absent({11, 12}, 2, false)}));
  EXPECT_TRUE(accepted({short_lived, swap({11, 12}, 1, 2, true), get({13, 14}, 2)}));
  EXPECT_TRUE(accepted({short_lived, swap({11, 12}, 1, 2, false), get({13, 14}, kAbsent)}));
  EXPECT_FALSE(accepted({short_lived, put({13, 14}, 2), swap({15, 16}, 1, 3, true)}));
}

TEST(HistoryChecker, WriteThatLandsAfterItsExpiryIsNeverRead) {
  const Operation late = expiring(put({0, 30}, 2), 10, 10);
  EXPECT_TRUE(accepted({late, get({20, 21}, kAbsent)}));
  EXPECT_TRUE(accepted({late, get({5, 21}, 2)}));
  EXPECT_FALSE(accepted({late, get({20, 21}, 2)}));
}

TEST(HistoryChecker, ExplanationNamesTheAnswerTheStateAndTheWriter) {
  const std::vector<Operation> operations = {put({0, 1}, 11), put({2, 3}, 22), get({4, 5}, 11)};
  const CheckResult result = check_key(operations);
  EXPECT_EQ(result.operation, 2u);
  EXPECT_NE(result.explanation.find("get() -> 11"), std::string::npos) << result.explanation;
  EXPECT_NE(result.explanation.find("the key held 22"), std::string::npos) << result.explanation;
  EXPECT_NE(result.explanation.find("[0, 1] client 0: put(11)"), std::string::npos) << result.explanation;
}

TEST(HistoryChecker, MoreOpenOperationsThanItTracksIsUndecided) {
  std::vector<Operation> operations;
  for (uint64_t i = 1; i <= kMaxOpen + 1; ++i) operations.push_back(put({0, 1}, i));
  EXPECT_EQ(check_key(operations).verdict, Verdict::kUndecided);
}

TEST(History, ReportsTheKeyThatIsWrong) {
  History history;
  const auto record = [&](std::string_view key, const Operation& op) { history.at(history.begin(key, op)) = op; };
  record("good", put({0, 1}, 1));
  record("bad", put({0, 1}, 1));
  record("bad", get({2, 3}, kAbsent));
  const CheckResult result = history.check();
  EXPECT_EQ(result.verdict, Verdict::kViolation);
  EXPECT_NE(result.explanation.find("key \"bad\""), std::string::npos) << result.explanation;
}

// --- Against a register ---------------------------------------------------------------------------------------

struct Shape {
  size_t clients = 8;
  size_t operations = 1000;
  double reads = 0.5;
  double unanswered = 0;
  double in_doubt = 0;
  double expiring = 0;
};

// What a register answers to operations that take effect at random moments between call and answer.
class RandomHistory {
 public:
  RandomHistory(uint64_t seed, const Shape& shape) : random_(seed), shape_(shape) {
    std::vector<int64_t> free_at(shape.clients, 0);
    for (size_t i = 0; i < shape.operations; ++i) {
      const size_t client = random_.below(shape.clients);
      Operation op;
      op.client = static_cast<uint32_t>(client);
      op.called_at = free_at[client] + static_cast<int64_t>(random_.below(20));
      const int64_t effect_at = op.called_at + 1 + static_cast<int64_t>(random_.below(100));
      op.answered_at = free_at[client] = effect_at + 1 + static_cast<int64_t>(random_.below(100));
      choose(op);
      steps_.push_back(Step{effect_at, steps_.size(), op});
    }
    std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
      return std::pair(a.at, a.order) < std::pair(b.at, b.order);
    });
    for (Step& step : steps_) apply(step);
    for (const Step& step : steps_) operations.push_back(step.op);
  }

  std::vector<Operation> operations;

 private:
  struct Step {
    int64_t at;
    size_t order;  // of equal times
    Operation op;
  };
  void choose(Operation& op) {
    constexpr OperationKind kWrites[] = {OperationKind::kPut, OperationKind::kPut, OperationKind::kCompareAndSwap,
                                         OperationKind::kPutIfAbsent, OperationKind::kRemove};
    const bool reads = random_.chance(shape_.reads);
    op.kind = reads ? OperationKind::kGet : kWrites[random_.below(std::size(kWrites))];
    op.outcome = Outcome::kDone;
    if (reads || op.kind == OperationKind::kRemove) return;
    op.value = ++last_value_;
    if (op.kind == OperationKind::kCompareAndSwap) {
      op.expected = last_value_ - random_.below(std::min(last_value_, uint64_t{9}));
    }
    if (random_.chance(shape_.expiring)) {
      op.expires_from = op.expires_until = op.called_at + static_cast<int64_t>(random_.below(300));
    }
  }
  void apply(Step& step) {
    Operation& op = step.op;
    if (op.kind != OperationKind::kGet) {
      if (random_.chance(shape_.unanswered)) op = with(op, Outcome::kPending);
      if (op.outcome == Outcome::kDone && random_.chance(shape_.in_doubt)) op.outcome = Outcome::kInDoubt;
      if (op.outcome != Outcome::kDone && random_.chance(0.5)) return;  // it never happened
    }
    const uint64_t now = step.at < until_ ? value_ : kAbsent;
    bool writes = false;
    switch (op.kind) {
      case OperationKind::kGet: op.value = now; return;
      case OperationKind::kPut: writes = true; break;
      case OperationKind::kPutIfAbsent: writes = op.succeeded = now == kAbsent; break;
      case OperationKind::kCompareAndSwap: writes = op.succeeded = now != kAbsent && now == op.expected; break;
      case OperationKind::kRemove:
        op.succeeded = now != kAbsent;
        if (op.succeeded) value_ = kAbsent;
        return;
      default: return;
    }
    if (!writes) return;
    value_ = op.value;
    until_ = op.expires_until;
  }

  Random random_;
  Shape shape_;
  std::vector<Step> steps_;
  uint64_t last_value_ = 0;
  uint64_t value_ = kAbsent;
  int64_t until_ = kNever;
};

TEST(HistoryChecker, HistoriesOfARegisterAreAccepted) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Shape shape;
    shape.operations = 300;
    shape.clients = 2 + seed % 7;
    shape.reads = seed % 3 == 0 ? 0.2 : 0.6;
    shape.unanswered = seed % 4 == 1 ? 0.05 : 0;
    shape.in_doubt = seed % 4 == 2 ? 0.1 : 0;
    shape.expiring = seed % 2 == 0 ? 0.4 : 0;
    const CheckResult result = check_key(RandomHistory(seed, shape).operations);
    EXPECT_EQ(result.verdict, Verdict::kLinearizable) << "seed " << seed << ": " << result.explanation;
  }
}

// A read that returns what an answered write had replaced before the read was called.
bool make_stale(std::vector<Operation>& operations, Random& random) {
  const size_t start = random.below(operations.size());
  for (size_t k = 0; k < operations.size(); ++k) {
    Operation& read = operations[(start + k) % operations.size()];
    if (read.kind != OperationKind::kGet) continue;
    for (const Operation& newer : operations) {
      if (newer.kind != OperationKind::kPut || newer.answered_at >= read.called_at) continue;
      for (const Operation& older : operations) {
        if (older.kind != OperationKind::kPut || older.answered_at >= newer.called_at) continue;
        read.value = older.value;
        return true;
      }
    }
  }
  return false;
}

TEST(HistoryChecker, OneStaleReadAmongManyIsFound) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    std::vector<Operation> operations = RandomHistory(seed, Shape{}).operations;
    ASSERT_TRUE(make_stale(operations, random)) << "seed " << seed;
    EXPECT_EQ(check_key(operations).verdict, Verdict::kViolation) << "seed " << seed;
  }
}

TEST(HistoryChecker, OneAnswerThatNobodyWroteIsFound) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::vector<Operation> operations = RandomHistory(seed, Shape{}).operations;
    const auto read = std::find_if(operations.begin() + static_cast<ptrdiff_t>(seed * 10), operations.end(),
                                   [](const Operation& op) { return op.kind == OperationKind::kGet; });
    ASSERT_NE(read, operations.end());
    read->value = 1'000'000;
    const CheckResult result = check_key(operations);
    EXPECT_EQ(result.verdict, Verdict::kViolation) << "seed " << seed;
    EXPECT_EQ(operations[result.operation].value, 1'000'000u) << "seed " << seed;
  }
}

TEST(HistoryChecker, TenThousandOperationsEightAtATimeStayCheap) {
  Shape shape;
  shape.operations = 10'000;
  for (const double reads : {0.0, 0.5, 0.9}) {
    shape.reads = reads;
    const CheckResult result = check_key(RandomHistory(7, shape).operations);
    EXPECT_EQ(result.verdict, Verdict::kLinearizable) << result.explanation;
    EXPECT_LT(result.configurations, 3'000'000u) << "reads " << reads;
  }
}

TEST(HistoryChecker, ManyUnansweredWritesStayCheap) {
  Shape shape;
  shape.operations = 3'000;
  shape.unanswered = 0.02;
  shape.in_doubt = 0.02;
  const CheckResult result = check_key(RandomHistory(7, shape).operations);
  EXPECT_EQ(result.verdict, Verdict::kLinearizable) << result.explanation;
  EXPECT_LT(result.configurations, 3'000'000u);
}

TEST(HistoryChecker, UnansweredSwapHelpsOnlyWhereItsValueIs) {
  const Operation other = with(swap({2, 3}, 5, 10, true), Outcome::kPending);
  const Operation helps = with(swap({2, 3}, 1, 11, true), Outcome::kPending);
  EXPECT_TRUE(accepted({put({0, 1}, 1), other, helps, swap({4, 5}, 1, 12, false)}));
  EXPECT_FALSE(accepted({put({0, 1}, 1), other, swap({4, 5}, 1, 12, false)}));
}

TEST(HistoryChecker, IncrementInDoubtMayHaveFoundAnUnansweredPut) {
  const Operation base = with(put_if_absent({1, 2}, 1, true), Outcome::kPending);
  const Operation doubt = with(increment({5, 6}, 0), Outcome::kInDoubt);
  EXPECT_TRUE(accepted({base, doubt, increment({8, 9}, 3)}));
  EXPECT_FALSE(accepted({base, doubt, increment({8, 9}, 4)}));
}

TEST(HistoryChecker, UnansweredIncrementsCountOnceEach) {
  const Operation one = with(increment({2, 3}, 0), Outcome::kPending);
  EXPECT_TRUE(accepted({increment({0, 1}, 1), one, one, get({4, 5}, 2), get({6, 7}, 3)}));
  EXPECT_TRUE(accepted({increment({0, 1}, 1), one, one, get({4, 5}, 3)}));
  EXPECT_FALSE(accepted({increment({0, 1}, 1), one, one, get({4, 5}, 3), get({6, 7}, 4)}));
}

// Some 60 writes of clients that died, and 300 operations that were answered.
Shape shape_of_crashes(uint64_t seed) {
  Shape shape;
  shape.operations = 360;
  shape.clients = 3 + seed % 4;
  shape.unanswered = 0.33;
  shape.in_doubt = seed % 2 == 0 ? 0.05 : 0;
  shape.expiring = seed % 3 == 0 ? 0.4 : 0;
  return shape;
}

TEST(HistoryChecker, SixtyWritesOfDeadClientsStayCheap) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::vector<Operation> operations = RandomHistory(seed, shape_of_crashes(seed)).operations;
    ASSERT_GT(std::count_if(operations.begin(), operations.end(),
                            [](const Operation& op) { return op.outcome == Outcome::kPending; }),
              40);
    const CheckResult result = check_key(operations);
    EXPECT_EQ(result.verdict, Verdict::kLinearizable) << "seed " << seed << ": " << result.explanation;
    EXPECT_LT(result.configurations, 10'000u) << "seed " << seed;
  }
}

TEST(HistoryChecker, OneWrongAnswerAmongSixtyWritesOfDeadClientsIsFoundCheaply) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    std::vector<Operation> operations = RandomHistory(seed, shape_of_crashes(seed)).operations;
    ASSERT_TRUE(make_stale(operations, random)) << "seed " << seed;
    const CheckResult result = check_key(operations);
    EXPECT_EQ(result.verdict, Verdict::kViolation) << "seed " << seed << ": " << result.explanation;
    EXPECT_LT(result.configurations, 100'000u) << "seed " << seed;
  }
}

// Reads that each need another one of many values that could be there, and overlap: no order is better than another.
TEST(HistoryChecker, HopelessHistoryIsGivenUpSoon) {
  std::vector<Operation> operations;
  constexpr uint64_t kWriters = 40;
  for (uint64_t i = 1; i <= kWriters; ++i) operations.push_back(put({0, 1'000}, i));
  for (uint64_t i = 1; i <= kWriters; ++i) operations.push_back(swap({2'000, 3'000}, i, kWriters + i, false));
  const CheckResult result = check_key(operations);
  EXPECT_EQ(result.verdict, Verdict::kUndecided);
  EXPECT_LE(result.configurations, kMaxLookedAt + kMaxLookedAtEach * operations.size() + 1);
}

// --- Against trying every order ---------------------------------------------------------------------------------

class EveryOrder {
 public:
  explicit EveryOrder(std::vector<Operation> operations) : operations_(std::move(operations)) {}
  bool linearizable() { return go(0, kAbsent); }

 private:
  bool go(uint32_t placed, uint64_t value) {
    int64_t first_answer = kNever;
    bool complete = true;
    for (size_t i = 0; i < operations_.size(); ++i) {
      if ((placed >> i & 1) != 0) continue;
      first_answer = std::min(first_answer, operations_[i].answered_at);
      complete = complete && operations_[i].outcome == Outcome::kPending;
    }
    if (complete) return true;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const Operation& op = operations_[i];
      if ((placed >> i & 1) != 0 || op.called_at > first_answer) continue;
      const uint32_t next = placed | uint32_t{1} << i;
      const std::optional<uint64_t> after = apply(op, value);
      if (after && go(next, *after)) return true;
      if (op.outcome == Outcome::kInDoubt && go(next, value)) return true;
    }
    return false;
  }
  static std::optional<uint64_t> apply(const Operation& op, uint64_t value) {
    const bool free = op.outcome != Outcome::kDone;
    const auto answer = [&](bool is, uint64_t then) -> std::optional<uint64_t> {
      if (!free && op.succeeded != is) return std::nullopt;
      return is ? then : value;
    };
    switch (op.kind) {
      case OperationKind::kGet:
        return free || op.value == value ? std::optional(value) : std::nullopt;
      case OperationKind::kPut: return op.value;
      case OperationKind::kPutIfAbsent: return answer(value == kAbsent, op.value);
      case OperationKind::kCompareAndSwap: return answer(value != kAbsent && value == op.expected, op.value);
      case OperationKind::kRemove: return answer(value != kAbsent, kAbsent);
      default: return std::nullopt;
    }
  }
  std::vector<Operation> operations_;
};

TEST(HistoryChecker, AgreesWithTryingEveryOrderOnSmallRandomHistories) {
  Random random(2024);
  size_t wrong_ones = 0;
  constexpr size_t kHistories = 6000;
  for (size_t round = 0; round < kHistories; ++round) {
    std::vector<Operation> operations;
    uint64_t written = 0;
    const size_t count = 3 + random.below(5);
    for (size_t i = 0; i < count; ++i) {
      constexpr OperationKind kKinds[] = {OperationKind::kGet, OperationKind::kGet, OperationKind::kPut,
                                          OperationKind::kPutIfAbsent, OperationKind::kCompareAndSwap,
                                          OperationKind::kRemove};
      const int64_t called_at = static_cast<int64_t>(random.below(20));
      const int64_t answered_at = called_at + 1 + static_cast<int64_t>(random.below(12));
      Operation op = done(kKinds[random.below(std::size(kKinds))], {2 * called_at, 2 * answered_at + 1});
      op.succeeded = random.chance(0.6);
      op.expected = 1 + random.below(3);
      if (op.kind == OperationKind::kGet) op.value = random.below(4);
      if (op.kind != OperationKind::kGet && op.kind != OperationKind::kRemove) op.value = ++written;
      if (op.kind != OperationKind::kGet && random.chance(0.15)) op = with(op, Outcome::kPending);
      if (op.outcome == Outcome::kDone && op.kind != OperationKind::kGet && random.chance(0.15)) {
        op.outcome = Outcome::kInDoubt;
      }
      operations.push_back(op);
    }
    const bool expected = EveryOrder(operations).linearizable();
    wrong_ones += expected ? 0 : 1;
    ASSERT_EQ(accepted(operations), expected) << "round " << round;
  }
  EXPECT_GT(wrong_ones, kHistories / 10);
  EXPECT_LT(wrong_ones, kHistories * 9 / 10);
}

// --- Against all that may have happened -------------------------------------------------------------------------

// Follows every choice that the register and its clients have, event by event, and forgets nothing.
class EveryChoice {
 public:
  explicit EveryChoice(std::vector<Operation> operations) : operations_(std::move(operations)) {
    for (size_t i = 0; i < operations_.size(); ++i) {
      const Operation& op = operations_[i];
      events_.emplace_back(op.called_at, kCall, i);
      if (op.outcome != Outcome::kPending) events_.emplace_back(op.answered_at, kAnswer, i);
      if (op.expires_from != kNever) events_.emplace_back(op.expires_from, kMayExpire, i);
      if (op.expires_until != kNever) events_.emplace_back(op.expires_until, kMustExpire, i);
    }
    std::sort(events_.begin(), events_.end());
  }
  // The operation whose answer leaves no choice over.
  std::optional<size_t> first_misfit() {
    choices_ = {Choice{}};
    uint32_t open = 0;
    for (const auto& [at, kind, index] : events_) {
      const uint32_t bit = uint32_t{1} << index;
      if (kind == kCall) open |= bit;
      if (kind == kMayExpire) may_ = at;
      if (kind == kMustExpire) {
        let_things_happen(open);  // with what is still there
        must_ = at;
      }
      let_things_happen(open);
      if (kind != kAnswer) continue;
      open &= ~bit;
      if (operations_[index].outcome == Outcome::kInDoubt) continue;
      std::erase_if(choices_, [&](const Choice& c) { return (c.happened & bit) == 0; });
      if (choices_.empty()) return index;
    }
    return std::nullopt;
  }

 private:
  enum Kind { kCall, kMayExpire, kAnswer, kMustExpire };
  struct Choice {
    uint32_t happened = 0;
    uint64_t value = kAbsent;
    int64_t from = kNever;
    int64_t until = kNever;
    friend auto operator<=>(const Choice&, const Choice&) = default;
  };

  void let_things_happen(uint32_t open) {
    std::vector<Choice> work(choices_.begin(), choices_.end());
    while (!work.empty()) {
      const Choice c = work.back();
      work.pop_back();
      for (size_t i = 0; i < operations_.size(); ++i) {
        const uint32_t bit = uint32_t{1} << i;
        if ((open & bit) == 0 || (c.happened & bit) != 0) continue;
        for (const bool there : {false, true}) {
          if (there && (c.value == kAbsent || must_ >= c.until)) continue;
          if (!there && c.value != kAbsent && may_ < c.from) continue;
          for (Choice next : after(operations_[i], c, there)) {
            next.happened |= bit;
            if (choices_.insert(next).second) work.push_back(next);
          }
        }
      }
    }
  }
  // `there`: the operation found a value.
  static std::vector<Choice> after(const Operation& op, const Choice& c, bool there) {
    const Choice written{c.happened, op.value, op.expires_from, op.expires_until};
    const Choice removed{c.happened, kAbsent, kNever, kNever};
    const auto answers = [&](bool answer) { return op.outcome != Outcome::kDone || op.succeeded == answer; };
    const auto one_if = [](bool possible, const Choice& next) {
      return possible ? std::vector<Choice>{next} : std::vector<Choice>{};
    };
    switch (op.kind) {
      case OperationKind::kGet:
        return one_if(op.outcome != Outcome::kDone || op.value == (there ? c.value : kAbsent), c);
      case OperationKind::kExists: return one_if(answers(there), c);
      case OperationKind::kPut: return {written};
      case OperationKind::kPutIfAbsent: return one_if(answers(!there), there ? c : written);
      case OperationKind::kRemove: return one_if(answers(there), there ? removed : c);
      case OperationKind::kCompareAndSwap: {
        const bool matches = c.value != kAbsent && c.value == op.expected;  // expired or not
        std::vector<Choice> all = one_if(matches && answers(true), written);
        if (answers(false) && !(matches && there)) all.push_back(c);
        return all;
      }
      case OperationKind::kIncrement: {
        const uint64_t sum = (there ? c.value : 0) + static_cast<uint64_t>(op.delta);
        const bool fits = op.outcome != Outcome::kDone || sum == static_cast<uint64_t>(op.number);
        return one_if(fits, there ? Choice{c.happened, sum, c.from, c.until}
                                  : Choice{c.happened, sum, kNever, kNever});
      }
    }
    return {};
  }

  std::vector<Operation> operations_;
  std::vector<std::tuple<int64_t, Kind, size_t>> events_;
  std::set<Choice> choices_;
  int64_t may_ = std::numeric_limits<int64_t>::min();
  int64_t must_ = std::numeric_limits<int64_t>::min();
};

enum class KeyKind : uint8_t { kRegister, kCounter };

// A small history whose answers often, but not always, are those of a register.
class SmallHistory {
 public:
  SmallHistory(Random& random, KeyKind key_kind) : random_(random), counter_(key_kind == KeyKind::kCounter) {
    const bool crashes = random_.chance(0.2);
    const size_t count = crashes ? 9 : 2 + random_.below(6);
    const double often_unanswered = crashes ? 0.6 : random_.chance(0.5) ? 0.5 : 0.2;
    expiring_ = random_.chance(0.4) ? 0.6 : 0;
    repeating_ = random_.chance(0.1) ? 0.4 : 0;
    expected_below_ = 2 + random_.below(4);
    const uint64_t length = 6 + random_.below(14);
    for (size_t i = 0; i < count; ++i) add(static_cast<int64_t>(random_.below(length)), often_unanswered);
    std::vector<size_t> order;
    for (size_t i = 0; i < count; ++i) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return at_[a] < at_[b]; });
    for (size_t i : order) answer(operations[i], at_[i]);
    if (random_.chance(0.6)) spoil(operations[random_.below(count)]);
  }
  std::vector<Operation> operations;

 private:
  void add(int64_t called_at, double often_unanswered) {
    constexpr OperationKind kOfRegisters[] = {OperationKind::kGet, OperationKind::kGet, OperationKind::kExists,
                                              OperationKind::kPut, OperationKind::kPutIfAbsent,
                                              OperationKind::kCompareAndSwap, OperationKind::kCompareAndSwap,
                                              OperationKind::kRemove};
    constexpr OperationKind kOfCounters[] = {OperationKind::kGet, OperationKind::kIncrement, OperationKind::kIncrement,
                                             OperationKind::kIncrement, OperationKind::kPutIfAbsent,
                                             OperationKind::kRemove, OperationKind::kExists, OperationKind::kPut};
    const size_t drawn = random_.below(std::size(kOfRegisters));
    Operation op = done(counter_ ? kOfCounters[drawn] : kOfRegisters[drawn], {called_at, 0});
    op.answered_at = called_at + static_cast<int64_t>(random_.below(8));
    op.delta = 1 + static_cast<int64_t>(random_.below(3));
    op.expected = 1 + random_.below(expected_below_);
    const bool writes = op.kind == OperationKind::kPut || op.kind == OperationKind::kPutIfAbsent ||
                        op.kind == OperationKind::kCompareAndSwap;
    if (writes) op.value = counter_ || random_.chance(repeating_) ? 1 + random_.below(4) : ++written_;
    if (writes && random_.chance(expiring_)) {
      op.expires_from = called_at + static_cast<int64_t>(random_.below(8));
      op.expires_until = random_.chance(0.2) ? kNever : op.expires_from + static_cast<int64_t>(random_.below(4));
    }
    const uint64_t duration = static_cast<uint64_t>(op.answered_at - called_at);
    at_.push_back(called_at + static_cast<int64_t>(random_.below(1 + duration)));
    if (random_.chance(often_unanswered) && (op.kind != OperationKind::kGet || random_.chance(0.1))) {
      op = with(op, random_.chance(0.7) ? Outcome::kPending : Outcome::kInDoubt);
      if (op.outcome == Outcome::kPending) at_.back() = called_at + static_cast<int64_t>(random_.below(20));
    }
    operations.push_back(op);
  }
  void answer(Operation& op, int64_t at) {
    if (op.outcome != Outcome::kDone && random_.chance(0.4)) return;
    const bool there = value_ != kAbsent && at < until_ && (at < from_ || random_.chance(0.5));
    bool writes = op.kind == OperationKind::kPut;
    switch (op.kind) {
      case OperationKind::kGet: op.value = there ? value_ : kAbsent; return;
      case OperationKind::kExists: op.succeeded = there; return;
      case OperationKind::kPut: break;
      case OperationKind::kPutIfAbsent: writes = op.succeeded = !there; break;
      case OperationKind::kCompareAndSwap: writes = op.succeeded = there && value_ == op.expected; break;
      case OperationKind::kRemove:
        op.succeeded = there;
        if (there) value_ = kAbsent;
        return;
      case OperationKind::kIncrement:
        value_ = (there ? value_ : 0) + static_cast<uint64_t>(op.delta);
        if (!there) from_ = until_ = kNever;
        op.number = static_cast<int64_t>(value_);
        return;
    }
    if (!writes) return;
    value_ = op.value;
    from_ = op.expires_from;
    until_ = op.expires_until;
  }
  void spoil(Operation& op) {
    if (op.kind == OperationKind::kGet) op.value = random_.below(5);
    op.succeeded = !op.succeeded;
    op.number += random_.chance(0.5) ? 1 : -1;
  }

  Random& random_;
  bool counter_;
  double expiring_ = 0;
  double repeating_ = 0;  // values that are written more than once
  uint64_t expected_below_ = 0;
  uint64_t written_ = 0;
  std::vector<int64_t> at_;  // when they take effect, if nothing is spoilt
  uint64_t value_ = kAbsent;
  int64_t from_ = kNever;
  int64_t until_ = kNever;
};

void expect_agreement(KeyKind kind, uint64_t seed) {
  Random random(seed);
  size_t wrong_ones = 0;
  constexpr size_t kHistories = 10'000;
  for (size_t round = 0; round < kHistories; ++round) {
    const std::vector<Operation> operations = SmallHistory(random, kind).operations;
    const std::optional<size_t> misfit = EveryChoice(operations).first_misfit();
    const CheckResult result = check_key(operations);
    std::string all;
    for (const Operation& op : operations) all += op.to_string() + "\n";
    ASSERT_EQ(result.verdict, misfit ? Verdict::kViolation : Verdict::kLinearizable)
        << "seed " << seed << ", round " << round << "\n" << all << result.explanation;
    ASSERT_EQ(result.operation, misfit.value_or(0)) << "seed " << seed << ", round " << round << "\n" << all;
    wrong_ones += misfit ? 1 : 0;
  }
  EXPECT_GT(wrong_ones, kHistories / 10);
  EXPECT_LT(wrong_ones, kHistories * 9 / 10);
}

TEST(HistoryChecker, AgreesWithEveryChoiceOnSmallHistoriesOfRegisters) { expect_agreement(KeyKind::kRegister, 1); }
TEST(HistoryChecker, AgreesWithEveryChoiceOnSmallHistoriesOfCounters) { expect_agreement(KeyKind::kCounter, 2); }

}  // namespace
}  // namespace skua::sim
