#include "tests/sim/history_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
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

}  // namespace
}  // namespace skua::sim
