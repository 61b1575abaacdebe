#include <algorithm>
#include <array>
#include <cstring>

#include "client/data_path.h"
#include "common/base/hooks.h"

namespace skua {

using proto::BlockHeader;
using proto::SlotState;
using proto::SlotWord;

namespace {

constexpr uint32_t kPoliteTries = 4;       // after so many, whoever stands in the way is removed: its owner may be dead
constexpr size_t kFirstHalfSlots = proto::kWindowSlots / 2;
constexpr size_t kNoSlot = proto::kWindowSlots;

// The emptier bucket of the first half that has room, else of the second: windows then overflow later than with the
// first free slot (fill 0.56-0.72 against 0.45-0.70 for tables of 1 Ki buckets, simulated).
size_t choose_free(const Window& window) {
  constexpr size_t kBuckets = proto::kHalfWindowBuckets;
  for (size_t half = 0; half * kFirstHalfSlots < window.slots(); ++half) {
    std::array<size_t, kBuckets> count{};
    std::array<size_t, kBuckets> first{};
    for (size_t slot = (half + 1) * kFirstHalfSlots; slot-- > half * kFirstHalfSlots;) {
      if (!window.slot(slot).is_free()) continue;
      const size_t bucket = slot / proto::kSlotsPerBucket % kBuckets;
      ++count[bucket];
      first[bucket] = slot;
    }
    const size_t emptier = count[1] > count[0] ? 1 : 0;
    if (count[emptier] != 0) return first[emptier];
  }
  return kNoSlot;
}

// Another word of the same key, met while looking again.
struct Rival {
  size_t slot = 0;
  SlotWord word;
  SlotWord prev;
};
struct Rivals {
  bool live = false;
  std::array<Rival, proto::kWindowSlots> tentative;
  size_t count = 0;
};

// Reads the blocks that LIVE and TENTATIVE words with our fingerprint name, and keeps those of our key.
Task<Step> look_for_rivals(Operation& operation, const Window& window, size_t own, Rivals& rivals) {
  rivals.live = false;
  rivals.count = 0;
  const size_t head = sizeof(BlockHeader) + operation.key().size();
  for (size_t i = 0; i < window.slots(); ++i) {
    const SlotWord word = window.slot(i).without_frozen();
    const bool candidate = word.state() == SlotState::kLive || word.state() == SlotState::kTentative;
    if (i == own || !candidate || word.fingerprint() != operation.hash().fingerprint()) continue;
    Scratch scratch = operation.core().scratch().take(head);
    Batch batch;
    operation.add_read(batch, word.block_offset(), scratch.data(), head);
    if (co_await operation.post(batch) != Step::kDone) co_return Step::kBroken;
    BlockHeader header{};
    std::memcpy(&header, scratch.data(), sizeof header);
    if ((header.generation & (proto::kVersionModulus - 1)) != word.version()) co_return Step::kRestart;
    const bool same = header.key_bytes == operation.key().size() && header.namespace_id == 0 &&
                      std::memcmp(scratch.data() + sizeof header, operation.key().data(), operation.key().size()) == 0;
    if (!same) continue;
    if (word.state() == SlotState::kLive) {
      rivals.live = true;
    } else {
      rivals.tentative[rivals.count++] = {i, word, SlotWord(header.prev)};
    }
  }
  co_return Step::kDone;
}

void add_window_read(Operation& operation, Batch& batch, Window& window) {
  const bool whole = window.whole();
  operation.add_read(batch, window.offset(), window.first_half(),
                     whole ? proto::kWindowBytes : proto::kHalfWindowBytes);
}

// Announces the insert: block, overflow bit where needed, TENTATIVE, and the window once more, in one post.
Task<Step> announce(Operation& operation, Window& window, size_t slot, const Draft& draft, BlockHeader& header) {
  const SlotWord empty = window.slot(slot);
  header = make_block_header(draft.content, empty);
  const proto::BucketHeader bucket = window.header();
  const bool set_overflow = slot >= kFirstHalfSlots && !bucket.overflow() && !SKUA_PLANTED_BUG("overflow-not-set");
  if (set_overflow) SKUA_PROBE("insert.sets-overflow");
  uint64_t seen_bucket = bucket.bits();
  uint64_t seen = 0;
  Batch batch;
  operation.add_write(batch, draft.block.block_units * proto::kBlockUnit, header, draft.content.value);
  if (set_overflow) {
    operation.add_cas(batch, window.offset(), bucket.bits(), bucket.with_overflow().bits(), seen_bucket);
  }
  operation.add_cas(batch, window.slot_offset(slot), empty.bits(), draft.word(operation, SlotState::kTentative).bits(),
                    seen);
  add_window_read(operation, batch, window);
  if (co_await operation.post(batch) != Step::kDone) co_return Step::kBroken;
  if (seen != empty.bits()) {
    SKUA_PROBE("insert.slot-was-taken");
    LiveCounters::add(operation.counters().cas_lost, 1);
    co_return Step::kRestart;
  }
  if (set_overflow && seen_bucket != bucket.bits() && !proto::BucketHeader(seen_bucket).overflow()) {
    co_return Step::kRestart;  // the table changes; our TENTATIVE is invisible and will be removed
  }
  co_return Step::kDone;
}

Task<Step> withdraw(Operation& operation, const Window& window, size_t slot, SlotWord tentative, SlotWord empty) {
  uint64_t ignored = 0;
  Batch batch;
  operation.add_cas(batch, window.slot_offset(slot), tentative.bits(), empty.bits(), ignored);
  co_return co_await operation.post(batch);
}

// Takes rivals' words back to what they replaced, and reads the window again behind that.
Task<Step> remove_rivals(Operation& operation, Window& window, const Rivals& rivals) {
  std::array<uint64_t, Batch::kMaxRequests> ignored{};
  Batch batch;
  const size_t count = std::min<size_t>(rivals.count, Batch::kMaxRequests - 1);
  for (size_t i = 0; i < count; ++i) {
    const Rival& rival = rivals.tentative[i];
    operation.add_cas(batch, window.slot_offset(rival.slot), rival.word.bits(), rival.prev.bits(), ignored[i]);
  }
  add_window_read(operation, batch, window);
  co_return co_await operation.post(batch);
}

Task<Step> complete_window(Operation& operation, Window& window) {
  if (window.whole() || !window.header().overflow()) co_return Step::kDone;
  Batch batch;
  operation.add_read(batch, window.offset() + proto::kHalfWindowBytes, window.second_half(), proto::kHalfWindowBytes);
  if (co_await operation.post(batch) != Step::kDone) co_return Step::kBroken;
  window.set_whole(true);
  co_return Step::kDone;
}

// kDone: ours is the only word of this key, and it stands. Anything else: start again.
Task<Step> become_sole(Operation& operation, Window& window, size_t slot, SlotWord tentative, SlotWord empty,
                       uint32_t tries) {
  Rivals rivals;
  for (;;) {
    Step step = co_await complete_window(operation, window);
    if (step != Step::kDone) co_return step;
    if (window.slot(slot) != tentative) {
      SKUA_PROBE("insert.was-killed");
      co_return Step::kRestart;
    }
    if (SKUA_PLANTED_BUG("no-second-look")) co_return Step::kDone;
    // FROZEN elsewhere in the window changes nothing: a table is only replaced once this slot is frozen too, and then
    // ours is gone from it.
    step = co_await look_for_rivals(operation, window, slot, rivals);
    if (step != Step::kDone) co_return step;
    if (SKUA_PLANTED_BUG("live-rival-ignored")) rivals.live = false;
    if (SKUA_PLANTED_BUG("tentative-rivals-ignored")) rivals.count = 0;
    bool lower = false;
    for (size_t i = 0; i < rivals.count; ++i) lower |= rivals.tentative[i].slot < slot;
    if (rivals.live || (lower && tries <= kPoliteTries)) {
      if (rivals.live) SKUA_PROBE("insert.live-rival");
      if (lower) SKUA_PROBE("insert.lower-rival");
      co_await withdraw(operation, window, slot, tentative, empty);
      co_return Step::kRestart;
    }
    if (rivals.count == 0) co_return Step::kDone;
    SKUA_PROBE("insert.kills-rival");
    if (lower) SKUA_PROBE("insert.impolite");
    step = co_await remove_rivals(operation, window, rivals);
    if (step != Step::kDone) co_return step;
  }
}

}  // namespace

Task<Inserted> insert(Operation& operation, Window& window, Draft& draft, uint32_t tries) {
  size_t slot = choose_free(window);
  if (slot == kNoSlot && !window.whole()) {
    Batch batch;
    operation.add_read(batch, window.offset() + proto::kHalfWindowBytes, window.second_half(),
                       proto::kHalfWindowBytes);
    if (co_await operation.post(batch) != Step::kDone) co_return Inserted::kAgain;
    window.set_whole(true);
    slot = choose_free(window);
  }
  // A table that is about to be replaced is not full: the next one is waited for.
  if (slot == kNoSlot) co_return window.has_frozen() ? Inserted::kAgain : Inserted::kFull;
  const SlotWord empty = window.slot(slot);
  const SlotWord tentative = draft.word(operation, SlotState::kTentative);
  BlockHeader header{};
  Step step = co_await announce(operation, window, slot, draft, header);
  if (step == Step::kDone) step = co_await become_sole(operation, window, slot, tentative, empty, tries);
  if (step != Step::kDone) co_return Inserted::kAgain;
  Batch batch;
  const SlotWord live = tentative.with_state(SlotState::kLive);
  const Published published = co_await operation.publish(batch, window.slot_offset(slot), tentative, live, empty);
  if (published.verdict == Verdict::kInDoubt) co_return Inserted::kInDoubt;
  if (published.verdict == Verdict::kLost) co_return Inserted::kAgain;
  operation.remember(window.slot_offset(slot), live, header);
  co_return Inserted::kDone;
}

}  // namespace skua
