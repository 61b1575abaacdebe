// Operations that depend on what they replace: put_if_absent, compare_and_swap, increment. Their blocks carry the
// CONDITIONAL bit, and they are never absorbed (rule 5).
#include <charconv>

#include "client/data_path.h"
#include "common/base/hooks.h"

namespace skua {

using proto::SlotWord;

Task<Result<PutIfAbsentOutcome>> put_if_absent_operation(SessionCore& core, std::string_view key,
                                                         std::string_view value, PutOptions options) {
  if (auto valid = check_key(key); !valid) co_return tl::make_unexpected(valid.error());
  if (auto valid = check_value(value); !valid) co_return tl::make_unexpected(valid.error());
  if (auto valid = check_options(options); !valid) co_return tl::make_unexpected(valid.error());
  Operation operation(core, OperationKind::kPutIfAbsent, key);
  if (auto may = operation.check_writable(); !may) co_return operation.failed(may.error());
  uint32_t tries = 0;
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    Found found;
    if (co_await operation.find(found, Want::kIdentity) != Step::kDone) continue;
    if (found.present) {
      const auto lifetime = operation.lifetime(found.header);
      if (lifetime == Operation::Lifetime::kUnclear) continue;
      if (lifetime == Operation::Lifetime::kPresent) co_return PutIfAbsentOutcome{};
    }
    if (found.frozen) continue;
    Draft draft = make_draft(operation, value, options, proto::kBlockConditional);
    const auto stored = co_await store_conditionally(operation, found, draft, ++tries);
    if (!stored) co_return operation.failed(stored.error());
    if (*stored == StoredOutcome::kYes) {
      PutIfAbsentOutcome outcome;
      outcome.stored = true;
      outcome.version = draft.version();
      co_return outcome;
    }
  }
}

Task<Result<CompareAndSwapOutcome>> compare_and_swap_operation(SessionCore& core, std::string_view key,
                                                               VersionToken expected, std::string_view value,
                                                               PutOptions options) {
  if (auto valid = check_key(key); !valid) co_return tl::make_unexpected(valid.error());
  if (auto valid = check_value(value); !valid) co_return tl::make_unexpected(valid.error());
  if (auto valid = check_options(options); !valid) co_return tl::make_unexpected(valid.error());
  Operation operation(core, OperationKind::kCompareAndSwap, key);
  if (auto may = operation.check_writable(); !may) co_return operation.failed(may.error());
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    Found found;
    const SlotCacheEntry* known = operation.cached();
    const bool use_cache = known != nullptr && !known->has_expiry() &&
                           proto::write_id(known->generation) == expected.write_id;
    if (use_cache) {
      found.present = true;
      found.slot_offset = known->slot_offset;
      found.word = known->word;
    } else {
      if (co_await operation.find(found, Want::kIdentity) != Step::kDone) continue;
      if (!found.present) co_return CompareAndSwapOutcome{};
      const auto lifetime = operation.lifetime(found.header);
      if (lifetime == Operation::Lifetime::kUnclear) continue;
      const bool matches = lifetime == Operation::Lifetime::kPresent &&
                           proto::write_id(found.header.generation) == expected.write_id;
      if (!matches) co_return CompareAndSwapOutcome{};
      if (found.frozen) continue;
    }
    Draft draft = make_draft(operation, value, options, proto::kBlockConditional);
    const auto taken = co_await take_draft(operation, draft);
    if (!taken) co_return operation.failed(taken.error());
    if (!*taken) continue;
    const Published published = co_await replace(operation, found.slot_offset, found.word, draft);
    if (published.verdict == Verdict::kInDoubt) co_return operation.failed(operation.doubt());
    if (published.verdict == Verdict::kWon) {
      if (use_cache) LiveCounters::add(operation.counters().cache_hits, 1);
      CompareAndSwapOutcome outcome;
      outcome.swapped = true;
      outcome.version = draft.version();
      co_return outcome;
    }
    operation.forget();
  }
}

namespace {

Result<int64_t> add_to(std::string_view text, int64_t delta) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return fail(StatusCode::kInvalidArgument, "increment: the value (" + std::to_string(text.size()) +
                                                  " bytes) is not a decimal 64-bit number; nothing was changed");
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(value, delta, &sum)) {
    return fail(StatusCode::kInvalidArgument, "increment: " + std::to_string(value) + " + " + std::to_string(delta) +
                                                  " does not fit in 64 bits; nothing was changed");
  }
  return sum;
}

// The current value, from the cached place when it still holds, in one round trip; else found in two.
Task<Step> read_current(Operation& operation, Found& found) {
  if (const SlotCacheEntry* known = operation.cached()) {
    const SlotCacheEntry entry = *known;
    Batch batch;
    uint64_t slot = 0;
    found.scratch = operation.core().scratch().take(entry.block_bytes);
    operation.add_read(batch, entry.slot_offset, &slot, sizeof slot);
    operation.add_read(batch, entry.word.block_offset(), found.scratch.data(), entry.block_bytes);
    if (co_await operation.post(batch) != Step::kDone) co_return Step::kBroken;
    proto::BlockView view;
    if (SlotWord(slot) == entry.word &&
        proto::BlockView::parse({found.scratch.data(), entry.block_bytes}, entry.word, view) ==
            proto::BlockFault::kNone &&
        view.key() == operation.key()) {
      LiveCounters::add(operation.counters().cache_hits, 1);
      found.present = true;
      found.slot_offset = entry.slot_offset;
      found.word = entry.word;
      found.header = view.header();
      found.value = view.value();
      co_return Step::kDone;
    }
    operation.forget();
  }
  co_return co_await operation.find(found, Want::kValue);
}

}  // namespace

Task<Result<int64_t>> increment_operation(SessionCore& core, std::string_view key, int64_t delta) {
  if (auto valid = check_key(key); !valid) co_return tl::make_unexpected(valid.error());
  Operation operation(core, OperationKind::kIncrement, key);
  if (auto may = operation.check_writable(); !may) co_return operation.failed(may.error());
  uint32_t tries = 0;
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    Found found;
    if (co_await read_current(operation, found) != Step::kDone || found.frozen) continue;
    const auto lifetime = found.present ? operation.lifetime(found.header) : Operation::Lifetime::kExpired;
    if (lifetime == Operation::Lifetime::kUnclear) continue;
    const bool counts = lifetime == Operation::Lifetime::kPresent;
    const Result<int64_t> sum = add_to(counts ? found.value : std::string_view("0"), delta);
    if (!sum) co_return operation.failed(sum.error());
    char text[24];
    const char* const end = std::to_chars(text, text + sizeof text, *sum).ptr;
    const PutOptions none;
    Draft draft = make_draft(operation, {text, static_cast<size_t>(end - text)}, none, proto::kBlockConditional);
    if (counts) draft.content.expiry_ms = found.header.expiry_ms();
    const auto stored = co_await store_conditionally(operation, found, draft, ++tries);
    if (!stored) co_return operation.failed(stored.error());
    if (*stored == StoredOutcome::kYes) co_return *sum;
    operation.forget();
  }
}

Task<Result<StoredOutcome>> store_conditionally(Operation& operation, Found& found, Draft& draft, uint32_t tries) {
  const auto taken = co_await take_draft(operation, draft);
  if (!taken) co_return tl::make_unexpected(taken.error());
  if (!*taken) co_return StoredOutcome::kAgain;
  Verdict verdict = Verdict::kLost;
  if (found.present) {
    const Published published = co_await replace(operation, found.slot_offset, found.word, draft);
    verdict = published.verdict;
  } else {
    const Inserted inserted = co_await insert(operation, found.window, draft, tries);
    if (inserted == Inserted::kFull) {
      if (auto grown = co_await operation.wait_for_growth(); !grown) co_return tl::make_unexpected(grown.error());
    }
    if (inserted == Inserted::kDone) verdict = Verdict::kWon;
    if (inserted == Inserted::kInDoubt) verdict = Verdict::kInDoubt;
  }
  if (verdict == Verdict::kInDoubt) co_return tl::make_unexpected(operation.doubt());
  co_return verdict == Verdict::kWon ? StoredOutcome::kYes : StoredOutcome::kAgain;
}

}  // namespace skua
