// How a word gets published, and how its fate is learned when the answer is lost (docs/protocol.md, "In doubt").
#include <algorithm>
#include <cstring>
#include <utility>

#include "client/operation.h"
#include "common/base/hooks.h"

namespace skua {

using proto::BlockHeader;
using proto::SlotState;
using proto::SlotWord;

namespace {

constexpr size_t kLongestWalk = 4096;  // blocks of one key that others wrote while this operation was in doubt

SlotWord bare(SlotWord word) { return word.without_frozen().without_dirty(); }

}  // namespace

Task<Published> Operation::publish(Batch& batch, uint64_t slot_offset, SlotWord old, SlotWord neu, SlotWord prev) {
  uint64_t seen = 0;
  add_cas(batch, slot_offset, old.bits(), neu.bits(), seen);
  if (SKUA_PLANTED_BUG("cas-before-write")) std::swap(batch.requests[0], batch.requests[batch.count - 1]);
  if (co_await post(batch) == Step::kDone) {
    if (seen == old.bits() || SKUA_PLANTED_BUG("lost-cas-is-won")) co_return Published{Verdict::kWon, neu};
    LiveCounters::add(counters_.cas_lost, 1);
    co_return Published{Verdict::kLost, SlotWord(seen)};
  }
  if (!batch.posted) co_return Published{Verdict::kLost, old};
  SKUA_PROBE("publish.in-doubt");
  if (SKUA_PLANTED_BUG("doubt-is-retried")) co_return Published{Verdict::kLost, old};
  if (SKUA_PLANTED_BUG("doubt-is-success")) co_return Published{Verdict::kWon, neu};
  for (;;) {
    const bool back = co_await reconnected();
    if (!back) co_return Published{SKUA_PLANTED_BUG("doubt-is-failure") ? Verdict::kLost : Verdict::kInDoubt, {}};
    const std::optional<Published> known = co_await resolve(slot_offset, old, neu, prev);
    if (known) co_return *known;
  }
}

// The server has ended the old connection, so the slot's history is complete: either our word is in the chain of
// replaced words that starts at the slot, or it never was there.
Task<std::optional<Published>> Operation::resolve(uint64_t slot_offset, SlotWord old, SlotWord neu, SlotWord prev) {
  Batch batch;
  uint64_t raw = 0;
  add_read(batch, slot_offset, &raw, sizeof raw);
  if (co_await post(batch) != Step::kDone) co_return std::nullopt;
  const SlotWord current(raw);
  const Published lost{Verdict::kLost, current};
  SlotWord word = bare(current);
  for (size_t walked = 0; walked < kLongestWalk; ++walked) {
    if (word == neu) {
      SKUA_PROBE("resolve.won");
      if (walked > 0) SKUA_PROBE("resolve.won-behind-others");
      // A remover cannot tell its FREED word from another remover's.
      const bool known = neu.state() != SlotState::kFreed || SKUA_PLANTED_BUG("freed-word-is-mine");
      co_return Published{known ? Verdict::kWon : Verdict::kInDoubt, neu};
    }
    const bool origin = (word == bare(old) || word == prev) && !SKUA_PLANTED_BUG("walk-past-the-origin");
    if (origin || word.state() == SlotState::kEmpty) {
      SKUA_PROBE("resolve.lost");
      co_return lost;
    }
    if (SKUA_PLANTED_BUG("no-walk")) co_return lost;
    if (word.state() == SlotState::kFreed) {
      word = word.with_state(SlotState::kLive);
      continue;
    }
    BlockHeader header{};
    batch.clear();
    add_read(batch, word.block_offset(), &header, sizeof header);
    if (co_await post(batch) != Step::kDone) co_return std::nullopt;
    // A block of another life is older than this operation: our word is not behind it.
    if ((header.generation & (proto::kVersionModulus - 1)) != word.version()) co_return lost;
    word = bare(SlotWord(header.prev));
  }
  co_return Published{Verdict::kInDoubt, {}};
}

Task<bool> Operation::reconnected() {
  for (;;) {
    if (link_->serial() != serial_) co_return false;
    if (link_->ready()) {
      const Step step = co_await load_directory();
      if (step == Step::kDone) co_return true;
      continue;
    }
    if (expired_deadline()) co_return false;
    link_->ensure_open();
    Nanoseconds until = deadline();
    if (link_->retry_at() != 0) until = std::min(until, link_->retry_at());
    co_await change(until);
  }
}

Task<std::optional<bool>> Operation::absorbed(SlotWord from, SlotWord current) {
  const SlotWord winner = bare(current);
  if (winner == from && !SKUA_PLANTED_BUG("absorbed-by-the-freeze")) co_return false;  // FROZEN, or never executed
  if (winner.state() != SlotState::kLive && winner.state() != SlotState::kFreed) co_return false;
  Scratch scratch = core_.scratch().take(sizeof(BlockHeader) + key_.size());
  Batch batch;
  add_read(batch, winner.block_offset(), scratch.data(), sizeof(BlockHeader) + key_.size());
  if (co_await post(batch) != Step::kDone) co_return std::nullopt;
  BlockHeader header{};
  std::memcpy(&header, scratch.data(), sizeof header);
  if ((header.generation & (proto::kVersionModulus - 1)) != winner.version()) co_return false;
  const bool same_key = header.key_bytes == key_.size() &&
                        std::memcmp(scratch.data() + sizeof header, key_.data(), key_.size()) == 0;
  // Behind another key's word lies a remove, or the sweep that took an expired block away: nobody can tell which.
  if (!same_key && !SKUA_PLANTED_BUG("absorbed-by-another-key")) co_return false;
  if (winner.state() == SlotState::kFreed) {
    SKUA_PROBE("absorb.remove");
    co_return header.expiry_ms() == 0 || SKUA_PLANTED_BUG("absorbed-by-expiry");
  }
  if ((header.flags & proto::kBlockConditional) != 0) SKUA_PROBE("absorb.conditional-winner");
  co_return (header.flags & proto::kBlockConditional) == 0 || SKUA_PLANTED_BUG("absorbed-by-conditional");
}

}  // namespace skua
