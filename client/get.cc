#include <cstring>

#include "client/data_path.h"
#include "common/base/hooks.h"

namespace skua {

using proto::BlockFault;
using proto::BlockView;
using proto::SlotWord;

namespace {

GetOutcome outcome_of(Found& found) {
  GetOutcome outcome;
  outcome.present = true;
  outcome.version = {proto::write_id(found.header.generation)};
  outcome.value = found.value;
  outcome.value_bytes = found.header.value_bytes;
  outcome.scratch = std::move(found.scratch);
  return outcome;
}

// Slot and block in one post, in any order: what is accepted was live while both were read (I5, I13).
Task<Step> read_cached(Operation& operation, SlotCacheEntry entry, GetOutcome& outcome) {
  Batch batch;
  uint64_t slot = 0;
  Scratch scratch = operation.core().scratch().take(entry.block_bytes);
  operation.add_read(batch, entry.slot_offset, &slot, sizeof slot);
  operation.add_read(batch, entry.word.block_offset(), scratch.data(), entry.block_bytes);
  if (co_await operation.post(batch) != Step::kDone) co_return Step::kBroken;
  BlockView view;
  const bool same_word = SlotWord(slot) == entry.word || SKUA_PLANTED_BUG("slot-not-compared");
  const bool accepted = same_word &&
                        BlockView::parse({scratch.data(), entry.block_bytes}, entry.word, view) == BlockFault::kNone &&
                        view.key() == operation.key() && view.header().namespace_id == 0 &&
                        operation.lifetime(view.header()) == Operation::Lifetime::kPresent;
  if (!accepted) {
    SKUA_PROBE("get.cached-place-was-wrong");
    operation.forget();
    co_return Step::kRestart;
  }
  operation.remember(entry.slot_offset, entry.word, view.header());
  LiveCounters::add(operation.counters().cache_hits, 1);
  outcome.present = true;
  outcome.version = {proto::write_id(entry.generation)};
  outcome.value = view.value();
  outcome.value_bytes = view.value().size();
  outcome.scratch = std::move(scratch);
  co_return Step::kDone;
}

}  // namespace

Task<Result<GetOutcome>> get_operation(SessionCore& core, std::string_view key, std::span<std::byte> user) {
  if (auto valid = check_key(key); !valid) co_return tl::make_unexpected(valid.error());
  Operation operation(core, OperationKind::kGet, key);
  GetOutcome outcome;
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    if (const SlotCacheEntry* entry = operation.cached()) {
      const Step step = co_await read_cached(operation, *entry, outcome);
      if (step == Step::kDone) co_return std::move(outcome);
      if (step == Step::kBroken) continue;
    }
    Found found;
    const Step step = co_await operation.find(found, Want::kValue, user);
    if (step != Step::kDone) continue;
    if (!found.present) co_return std::move(outcome);
    const auto lifetime = operation.lifetime(found.header);
    if (lifetime == Operation::Lifetime::kUnclear) continue;
    if (lifetime == Operation::Lifetime::kExpired) co_return std::move(outcome);
    if (!found.frozen) operation.remember(found);
    co_return outcome_of(found);
  }
}

Task<Result<bool>> exists_operation(SessionCore& core, std::string_view key) {
  if (auto valid = check_key(key); !valid) co_return tl::make_unexpected(valid.error());
  Operation operation(core, OperationKind::kExists, key);
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    Batch batch;
    if (const SlotCacheEntry* known = operation.cached(); known != nullptr && !known->has_expiry()) {
      // The word alone proves that the key is there.
      const SlotCacheEntry entry = *known;
      uint64_t slot = 0;
      operation.add_read(batch, entry.slot_offset, &slot, sizeof slot);
      if (co_await operation.post(batch) != Step::kDone) continue;
      if (SlotWord(slot) == entry.word) {
        LiveCounters::add(operation.counters().cache_hits, 1);
        co_return true;
      }
      operation.forget();
    }
    Found found;
    if (co_await operation.find(found, Want::kIdentity) != Step::kDone) continue;
    if (!found.present) co_return false;
    const auto lifetime = operation.lifetime(found.header);
    if (lifetime == Operation::Lifetime::kUnclear) continue;
    if (lifetime == Operation::Lifetime::kExpired) co_return false;
    if (!found.frozen) operation.remember(found);
    co_return true;
  }
}

}  // namespace skua
