#include <algorithm>

#include "client/data_path.h"
#include "common/base/hooks.h"
#include "proto/limits.h"

namespace skua {

using proto::SlotState;
using proto::SlotWord;

uint32_t class_for(std::string_view key, std::string_view value) {
  return static_cast<uint32_t>(proto::size_class_for(proto::block_bytes(key.size(), value.size())));
}

Task<Result<bool>> take_draft(Operation& operation, Draft& draft) {
  if (const auto block = operation.take_block(draft.size_class)) {
    draft.block = *block;
    draft.content.generation = block->generation;
    co_return true;
  }
  if (auto waited = co_await operation.wait_for_block(draft.size_class); !waited) {
    co_return tl::make_unexpected(waited.error());
  }
  co_return false;
}

Task<Published> replace(Operation& operation, uint64_t slot_offset, SlotWord from, Draft& draft) {
  const proto::BlockHeader header = make_block_header(draft.content, from);
  const SlotWord neu = draft.word(operation, SlotState::kLive);
  Batch batch;
  operation.add_write(batch, draft.block.block_units * proto::kBlockUnit, header, draft.content.value);
  const Published published = co_await operation.publish(batch, slot_offset, from, neu, from);
  if (published.verdict == Verdict::kWon) operation.remember(slot_offset, neu, header);
  co_return published;
}

Draft make_draft(Operation& operation, std::string_view value, const PutOptions& options, uint8_t flags) {
  Draft draft;
  draft.size_class = class_for(operation.key(), value);
  draft.content.key = operation.key();
  draft.content.value = value;
  draft.content.flags = flags;
  if (options.ttl != 0) {
    const uint64_t ttl_ms = static_cast<uint64_t>(options.ttl / kMillisecond);
    draft.content.expiry_ms = std::min(operation.now_ms() + ttl_ms, proto::kMaxExpiryMs);
  }
  return draft;
}

namespace {

// One attempt of put at the cached place. Nothing: try uncached. A lost CAS from the cache is never absorbed (F6).
Task<std::optional<Published>> put_cached(Operation& operation, SlotCacheEntry entry, Draft& draft) {
  const Published published = co_await replace(operation, entry.slot_offset, entry.word, draft);
  if (published.verdict == Verdict::kLost) {
    SKUA_PROBE("put.cached-place-was-wrong");
    operation.forget();
    if (SKUA_PLANTED_BUG("absorbed-from-the-cache")) {
      const auto absorbed = co_await operation.absorbed(entry.word, published.current);
      if (absorbed && *absorbed) co_return Published{Verdict::kWon, published.current};
    }
    co_return std::nullopt;
  }
  if (published.verdict == Verdict::kWon) LiveCounters::add(operation.counters().cache_hits, 1);
  co_return published;
}

}  // namespace

Task<Result<VersionToken>> put_operation(SessionCore& core, std::string_view key, std::string_view value,
                                         PutOptions options) {
  if (auto valid = check_key(key); !valid) co_return tl::make_unexpected(valid.error());
  if (auto valid = check_value(value); !valid) co_return tl::make_unexpected(valid.error());
  if (auto valid = check_options(options); !valid) co_return tl::make_unexpected(valid.error());
  Operation operation(core, OperationKind::kPut, key);
  if (auto may = operation.check_writable(); !may) co_return operation.failed(may.error());
  uint32_t tries = 0;
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    Draft draft = make_draft(operation, value, options, 0);
    const SlotCacheEntry* known = operation.cached();
    Found found;
    if (known == nullptr) {
      if (co_await operation.find(found, Want::kIdentity) != Step::kDone || found.frozen) continue;
    }
    const SlotCacheEntry entry = known != nullptr ? *known : SlotCacheEntry{};
    const auto taken = co_await take_draft(operation, draft);
    if (!taken) co_return operation.failed(taken.error());
    if (!*taken) continue;
    if (known != nullptr) {
      const auto published = co_await put_cached(operation, entry, draft);
      if (!published) continue;
      if (published->verdict == Verdict::kInDoubt) co_return operation.failed(operation.doubt());
      co_return draft.version();
    }
    if (found.present) {
      const Published published = co_await replace(operation, found.slot_offset, found.word, draft);
      if (published.verdict == Verdict::kInDoubt) co_return operation.failed(operation.doubt());
      if (published.verdict == Verdict::kWon) co_return draft.version();
      const auto absorbed = co_await operation.absorbed(found.word, published.current);
      if (absorbed && *absorbed) {
        SKUA_PROBE("put.absorbed");
        co_return draft.version();
      }
      SKUA_PROBE("put.not-absorbed");
      continue;
    }
    const Inserted inserted = co_await insert(operation, found.window, draft, ++tries);
    if (inserted == Inserted::kDone) co_return draft.version();
    if (inserted == Inserted::kInDoubt) co_return operation.failed(operation.doubt());
    if (inserted == Inserted::kFull) {
      if (auto grown = co_await operation.wait_for_growth(); !grown) co_return operation.failed(grown.error());
    }
  }
}

Task<Result<bool>> remove_operation(SessionCore& core, std::string_view key) {
  if (auto valid = check_key(key); !valid) co_return tl::make_unexpected(valid.error());
  Operation operation(core, OperationKind::kRemove, key);
  if (auto may = operation.check_writable(); !may) co_return operation.failed(may.error());
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    const SlotCacheEntry* known = operation.cached();
    const bool use_cache = known != nullptr && !known->has_expiry();
    uint64_t slot_offset = use_cache ? known->slot_offset : 0;
    SlotWord word = use_cache ? known->word : SlotWord{};
    if (!use_cache) {
      Found found;
      if (co_await operation.find(found, Want::kIdentity) != Step::kDone || found.frozen) continue;
      if (!found.present) co_return false;
      const auto lifetime = operation.lifetime(found.header);
      if (lifetime == Operation::Lifetime::kUnclear) continue;
      if (lifetime == Operation::Lifetime::kExpired) co_return false;
      slot_offset = found.slot_offset;
      word = found.word;
    }
    operation.forget();
    Batch batch;
    const SlotWord freed = word.with_state(SlotState::kFreed);
    const Published published = co_await operation.publish(batch, slot_offset, word, freed, word);
    if (published.verdict == Verdict::kInDoubt) co_return operation.failed(operation.doubt());
    if (published.verdict == Verdict::kWon) {
      if (use_cache) LiveCounters::add(operation.counters().cache_hits, 1);
      co_return true;
    }
  }
}

}  // namespace skua
