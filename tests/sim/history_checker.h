#pragma once
// check_key answers whether what clients saw of one key could have come from one register that did one operation at a
// time, each between its call and its answer.
//
// Values:  by identity: a test makes every value that it writes unique and puts its number into the bytes. A version
//          token counts as the value it belongs to. Counter keys use the number itself; no compare_and_swap there.
// Expiry:  a value may read as absent from `expires_from` on and must from `expires_until` on. A compare_and_swap that
//          expects a value which has expired, and which nobody has replaced or removed since, may succeed or not.
// Method:  just-in-time linearization over the events in time order. A configuration is the register's state and
//          which open operations have taken effect; operations that change nothing take effect as soon as they fit;
//          unanswered ones only where they let another one fit; of two configurations that differ only in which
//          unanswered operations they used up, the frugal one stays.
// Cost:    10,000 operations, eight at a time: below a second. More than kMaxOpen answered operations at a time,
//          kMaxUnanswered in all, or one of the bounds on configurations end as kUndecided, soon.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skua::sim {

enum class OperationKind : uint8_t { kGet, kExists, kPut, kPutIfAbsent, kCompareAndSwap, kRemove, kIncrement };

enum class Outcome : uint8_t {
  kDone,     // answered; `succeeded`, `value`, `number` hold
  kInDoubt,  // answered: it took effect before the answer, or never will
  kPending,  // not answered, or answered while its verbs may still land: takes effect any time after the call, or never
};

inline constexpr uint64_t kAbsent = 0;
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Operation {
  OperationKind kind = OperationKind::kGet;
  Outcome outcome = Outcome::kPending;
  bool succeeded = false;   // kExists: was there; kPutIfAbsent: stored; kCompareAndSwap: swapped; kRemove: was there
  uint32_t client = 0;
  int64_t called_at = 0;
  int64_t answered_at = kNever;
  uint64_t value = kAbsent;  // kGet: what was read, or kAbsent; put, put_if_absent, compare_and_swap: what is written
  uint64_t expected = 0;     // kCompareAndSwap
  int64_t number = 0;        // kIncrement: the answer
  int64_t delta = 0;         // kIncrement
  int64_t expires_from = kNever;   // of what is written
  int64_t expires_until = kNever;

  std::string to_string() const;
};

enum class Verdict : uint8_t { kLinearizable, kViolation, kUndecided };

struct CheckResult {
  Verdict verdict = Verdict::kLinearizable;
  size_t operation = 0;     // kViolation: index of the first operation whose answer fits nothing
  std::string explanation;  // kViolation: what the key may have held, what was under way, where the values came from
  size_t configurations = 0;  // looked at in all
};

inline constexpr size_t kMaxOpen = 64;
inline constexpr size_t kMaxUnanswered = 256;                  // that may have changed something
inline constexpr size_t kMaxConfigurations = size_t{1} << 14;  // at one time
inline constexpr size_t kMaxLookedAt = size_t{1} << 15;        // in all, and
inline constexpr size_t kMaxLookedAtEach = 128;                // more for each operation

// The key is absent at first.
// Requires: values that are written are not kAbsent; called_at <= answered_at; expires_from <= expires_until.
CheckResult check_key(std::span<const Operation> operations);

// History collects what clients do, key by key.
// Threads: one.
class History {
 public:
  struct Ticket {
    std::string key;
    size_t index = 0;
  };
  // `operation` has kind, client, called_at and its arguments; it is pending until finish.
  Ticket begin(std::string_view key, const Operation& operation);
  Operation& at(const Ticket& ticket) { return keys_.at(ticket.key)[ticket.index]; }
  const std::map<std::string, std::vector<Operation>, std::less<>>& keys() const { return keys_; }

  // The first key with a violation (or, when there is none, that is undecided) is explained.
  CheckResult check() const;

 private:
  std::map<std::string, std::vector<Operation>, std::less<>> keys_;
};

}  // namespace skua::sim
