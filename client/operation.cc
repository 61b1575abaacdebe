#include "client/operation.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/hooks.h"
#include "proto/limits.h"

namespace skua {

using proto::BlockFault;
using proto::BlockView;
using proto::SlotState;
using proto::SlotWord;

namespace {

constexpr uint32_t kPromptRetries = 3;          // starts over without waiting
constexpr Nanoseconds kLongestBackOff = 2 * kMillisecond;
constexpr size_t kWholeReadBytes = 1024;        // blocks up to this are read whole even for their identity
constexpr size_t kCandidatesAtOnce = 4;

}  // namespace

Result<void> check_key(std::string_view key) {
  if (key.empty()) return fail(StatusCode::kInvalidArgument, "the key is empty; a key has 1 to 4096 bytes");
  if (key.size() > proto::kMaxKeyBytes) {
    return fail(StatusCode::kInvalidArgument, "the key has " + std::to_string(key.size()) +
                                                  " bytes; a key has 1 to " + std::to_string(proto::kMaxKeyBytes));
  }
  return {};
}

Result<void> check_value(std::string_view value) {
  if (value.size() <= proto::kMaxValueBytes) return {};
  return fail(StatusCode::kInvalidArgument, "the value has " + std::to_string(value.size()) +
                                                " bytes; a value has at most " +
                                                std::to_string(proto::kMaxValueBytes) + " (64 MiB): split it");
}

Result<void> check_options(const PutOptions& options) {
  if (options.ttl == 0) return {};
  if (options.ttl < kMillisecond) {
    return fail(StatusCode::kInvalidArgument, "the time to live is " + std::to_string(options.ttl) +
                                                  " ns; it is at least 1 ms, or 0 for none");
  }
  return {};
}

Operation::Operation(SessionCore& core, OperationKind kind, std::string_view key)
    : core_(core), kind_(kind), key_(key), hash_(proto::KeyHash::of(key)),
      tag_(static_cast<uint32_t>(proto::keyed_hash(key, core.cache_secret()))), counters_(core.counters(kind)) {
  core_.begin_operation();
  LiveCounters::add(counters_.operations, 1);
}

Operation::~Operation() {
  leave();
  core_.end_operation();
}

void Operation::leave() {
  if (link_ == nullptr) return;
  Link& link = *std::exchange(link_, nullptr);
  partition_ = nullptr;
  link.leave();
  core_.left(link);
}

Nanoseconds Operation::deadline() {
  if (deadline_ == 0) deadline_ = core_.clock().now() + core_.options().operation_timeout;
  return deadline_;
}

Error Operation::failed(Status status) {
  LiveCounters::add(counters_.failed, 1);
  if (status.code() == StatusCode::kInDoubt) LiveCounters::add(counters_.in_doubt, 1);
  return Error(std::move(status));
}

Status Operation::doubt() const {
  return Status(StatusCode::kInDoubt, std::string(to_string(kind_)) + " was sent, and its connection to server " +
                                          std::to_string(link_ != nullptr ? link_->server() : 0) +
                                          " was lost before the answer: it may have happened");
}

Result<void> Operation::check_writable() const {
  if (!core_.options().read_only) return {};
  return fail(StatusCode::kPermissionDenied, std::string(to_string(kind_)) +
                                                 ": the session is read-only; open one without read_only");
}

Status Operation::unavailable() const {
  const StatusCode code = why_ ? why_->code() : StatusCode::kUnavailable;
  const bool telling = code == StatusCode::kUnauthenticated || code == StatusCode::kPermissionDenied ||
                       code == StatusCode::kIncompatible;
  return Status(telling ? code : StatusCode::kUnavailable,
                "gave up after " + std::to_string(core_.options().operation_timeout / kMillisecond) +
                    " ms, nothing was changed: " + (why_ ? why_->message() : "no server was reached"));
}

// --- Place

bool Operation::prepared() {
  if (link_ != nullptr) {
    return link_->ready() && link_->serial() == serial_ && !partition_->stale;
  }
  const uint32_t partitions = core_.partitions();
  if (partitions == 0) return false;
  partition_index_ = hash_.partition(partitions);
  const auto link = core_.link_for(partition_index_);
  if (!link || !(*link)->ready() || core_.must_wait_for_report(**link)) return false;
  PartitionState* state = (*link)->partition(partition_index_);
  if (state == nullptr || !state->loaded || state->stale) return false;
  link_ = *link;
  serial_ = link_->serial();
  partition_ = state;
  link_->enter();
  return true;
}

Task<Result<void>> Operation::prepare() {
  leave();
  while (!prepared()) {
    leave();
    const auto found = core_.link_for(partition_index_);
    Nanoseconds until = deadline();
    if (!found) {
      why_ = found.error();
      core_.refresh_map();
    } else if (Link& link = **found; !link.ready()) {
      why_ = link.last_error();
      if (why_->code() == StatusCode::kUnauthenticated || why_->code() == StatusCode::kIncompatible) {
        co_return tl::make_unexpected(*why_);
      }
      link.ensure_open();
      if (link.without_transport()) co_return tl::make_unexpected(*why_);
      if (link.retry_at() != 0) until = std::min(until, link.retry_at());
    } else if (core_.must_wait_for_report(link)) {
      co_await Admission{link};
      continue;
    } else if (PartitionState* state = link.partition(partition_index_); state == nullptr) {
      why_ = Status(StatusCode::kStaleEpoch, "server " + std::to_string(link.server()) + " does not hold partition " +
                                                 std::to_string(partition_index_));
      core_.refresh_map();
      until = std::min(until, core_.clock().now() + 20 * kMillisecond);
    } else {
      link_ = &link;
      serial_ = link.serial();
      partition_ = state;
      link.enter();
      const Step step = co_await load_directory();
      if (step == Step::kDone && prepared()) break;
      if (step == Step::kBroken) why_ = link.last_error();
      leave();
      if (expired_deadline()) co_return tl::make_unexpected(unavailable());
      continue;
    }
    if (expired_deadline()) co_return tl::make_unexpected(unavailable());
    co_await change(until);
  }
  co_return Result<void>();
}

void Operation::Change::await_suspend(std::coroutine_handle<> handle) {
  waiter.handle = handle;
  operation.core_.wait(&waiter);
}

Task<Result<void>> Operation::retry() {
  LiveCounters::add(counters_.retries, 1);
  if (++attempts_ > kPromptRetries) {
    leave();
    if (expired_deadline()) {
      co_return tl::make_unexpected(Status(StatusCode::kDeadlineExceeded,
                                           "still contended after " + std::to_string(attempts_) +
                                               " attempts; nothing was changed"));
    }
    const Nanoseconds most =
        std::min(kLongestBackOff, kMicrosecond << std::min<uint32_t>(attempts_ - kPromptRetries, 20));
    const Nanoseconds pause = 1 + static_cast<Nanoseconds>(core_.random().below(static_cast<uint64_t>(most)));
    const Nanoseconds until = std::min(deadline(), core_.clock().now() + pause);
    co_await change(until);
  }
  co_return Result<void>();
}

// Two reads of the root around the entries: what lies between them belongs together.
Task<Step> Operation::load_directory() {
  Batch batch;
  std::array<PartitionState*, Batch::kMaxRequests> asked{};
  std::array<uint64_t, Batch::kMaxRequests> roots{};
  for (;;) {
    // After an epoch every partition's root is to be read: some others come along in the same post. None of them can
    // become stale again meanwhile, since this operation holds the link's report back.
    asked.fill(nullptr);
    const size_t count = link_->stale_partitions(*partition_, asked);
    batch.clear();
    for (size_t i = 0; i < count; ++i) {
      add_read(batch, proto::kDirectoryRootOffset, &roots[i], sizeof roots[i]);
      batch.requests[i].key = asked[i]->key;
    }
    if (co_await post(batch) != Step::kDone) co_return Step::kBroken;
    if (link_->serial() != serial_) co_return Step::kBroken;
    for (size_t i = 1; i < count; ++i) {
      if (proto::DirectoryRoot(roots[i]) == asked[i]->root) asked[i]->stale = false;
    }
    const proto::DirectoryRoot now(roots[0]);
    if (partition_->loaded && now == partition_->root) {
      partition_->stale = false;
      co_return Step::kDone;
    }
    if (now.depth() > proto::kMaxDirectoryDepth || now.offset() == 0 ||
        now.offset() + now.entries() * 8 > partition_->bytes) {
      link_->fail(Status(StatusCode::kCorruption, "partition " + std::to_string(partition_index_) +
                                                      ": its directory root makes no sense"));
      co_return Step::kBroken;
    }
    // Operations of this session may load it at the same time: each into its own memory, and the last one stands.
    std::vector<proto::TableRef> tables(now.entries());
    Batch entries;
    add_read(entries, now.offset(), tables.data(), tables.size() * 8);
    if (co_await post(entries) != Step::kDone) co_return Step::kBroken;
    if (link_->serial() != serial_) co_return Step::kBroken;
    partition_->tables = std::move(tables);
    partition_->root = now;
    partition_->loaded = true;
  }
}

Task<Step> Operation::check_directory() {
  uint64_t root = 0;
  Batch batch;
  add_read(batch, proto::kDirectoryRootOffset, &root, sizeof root);
  if (co_await post(batch) != Step::kDone) co_return Step::kBroken;
  const bool unchanged = proto::DirectoryRoot(root) == partition_->root || SKUA_PLANTED_BUG("frozen-is-not-checked");
  if (!unchanged) partition_->stale = true;
  // Another operation of this session may have read a later directory since the window was read.
  const bool same_table = table() == window_table_ || SKUA_PLANTED_BUG("window-of-another-table");
  co_return unchanged && same_table ? Step::kDone : Step::kRestart;
}

// --- Posting

bool Operation::Posted::await_ready() {
  LiveCounters& counters = operation.counters_;
  LiveCounters::add(counters.round_trips, 1);
  uint64_t bytes = 0;
  uint64_t kinds[4] = {};
  for (uint32_t i = 0; i < batch.count; ++i) {
    ++kinds[static_cast<size_t>(batch.requests[i].verb)];
    bytes += batch.requests[i].bytes();
  }
  const auto count = [&](std::atomic<uint64_t>& counter, Verb verb) {
    if (const uint64_t n = kinds[static_cast<size_t>(verb)]) LiveCounters::add(counter, n);
  };
  count(counters.reads, Verb::kRead);
  count(counters.writes, Verb::kWrite);
  count(counters.compare_and_swaps, Verb::kCompareAndSwap);
  LiveCounters::add(counters.bytes, bytes);
  if (operation.link_->serial() != operation.serial_) {
    batch.status = CompletionStatus::kFlushed;
    batch.done = true;
    return true;
  }
  return operation.link_->submit(batch, operation.core_.alone());
}

void Operation::Posted::await_suspend(std::coroutine_handle<> handle) {
  batch.waiter = handle;
  batch.deadline = operation.deadline();
}

void Operation::add_read(Batch& batch, uint64_t offset, void* into, size_t bytes) {
  WorkRequest& request = batch.add();
  request.verb = Verb::kRead;
  request.key = partition_->key;
  request.remote_offset = offset;
  request.local[0] = {into, static_cast<uint32_t>(bytes)};
  request.local_count = 1;
}

void Operation::add_cas(Batch& batch, uint64_t offset, uint64_t compare, uint64_t swap, uint64_t& old) {
  WorkRequest& request = batch.add();
  request.verb = Verb::kCompareAndSwap;
  request.key = partition_->key;
  request.remote_offset = offset;
  request.local[0] = {&old, 8};
  request.local_count = 1;
  request.compare = compare;
  request.swap_or_add = swap;
}

void Operation::add_write(Batch& batch, uint64_t offset, const proto::BlockHeader& header, std::string_view value) {
  WorkRequest& request = batch.add();
  request.verb = Verb::kWrite;
  request.key = partition_->key;
  request.remote_offset = offset;
  // WRITE only reads its local memory.
  request.local[0] = {const_cast<proto::BlockHeader*>(&header), sizeof header};
  request.local[1] = {const_cast<char*>(key_.data()), static_cast<uint32_t>(key_.size())};
  request.local[2] = {const_cast<char*>(value.data()), static_cast<uint32_t>(value.size())};
  request.local_count = value.empty() ? 2 : 3;
}

// --- Reading

Task<Step> Operation::read_window(Window& window) {
  const proto::TableRef table = this->table();
  window_table_ = table;
  window.place(table.offset() + hash_.home_bucket(table.log2_buckets()) * proto::kBucketBytes);
  Batch batch;
  add_read(batch, window.offset(), window.first_half(), proto::kHalfWindowBytes);
  if (co_await post(batch) != Step::kDone) co_return Step::kBroken;
  if (window.header().table_version() != table.version()) {
    LiveCounters::add(counters_.torn_reads, 1);
    partition_->stale = true;
    co_return Step::kRestart;
  }
  if (window.header().overflow() && !SKUA_PLANTED_BUG("overflow-ignored")) {
    SKUA_PROBE("find.second-half");
    batch.clear();
    add_read(batch, window.offset() + proto::kHalfWindowBytes, window.second_half(), proto::kHalfWindowBytes);
    if (co_await post(batch) != Step::kDone) co_return Step::kBroken;
    window.set_whole(true);
  }
  co_return Step::kDone;
}

Task<Step> Operation::find(Found& found, Want want, std::span<std::byte> user) {
  found.present = false;
  Step step = co_await read_window(found.window);
  if (step != Step::kDone) co_return step;
  std::array<size_t, proto::kWindowSlots> candidates;
  size_t count = 0;
  for (size_t i = 0; i < found.window.slots(); ++i) {
    const SlotWord word = found.window.slot(i);
    const bool tentative = word.state() == SlotState::kTentative && SKUA_PLANTED_BUG("tentative-is-read");
    if ((word.is_live() || tentative) && word.fingerprint() == hash_.fingerprint()) candidates[count++] = i;
  }
  for (size_t first = 0; first < count && !found.present; first += kCandidatesAtOnce) {
    const std::span<const size_t> some(candidates.data() + first, std::min(kCandidatesAtOnce, count - first));
    step = co_await read_candidates(found, some, want, count == 1 ? user : std::span<std::byte>{});
    if (step != Step::kDone) co_return step;
  }
  if (found.window.has_frozen()) co_return co_await check_directory();
  co_return Step::kDone;
}

Task<Step> Operation::read_candidates(Found& found, std::span<const size_t> slots, Want want,
                                      std::span<std::byte> user) {
  std::array<Scratch, kCandidatesAtOnce> scratch;
  std::array<size_t, kCandidatesAtOnce> read_bytes{};
  const size_t head = proto::kBlockHeaderBytes + key_.size();
  Batch batch;
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotWord word = found.window.slot(slots[i]);
    const size_t class_bytes = proto::size_class_bytes(static_cast<int>(word.size_class()));
    const bool whole = want == Want::kValue || class_bytes <= kWholeReadBytes;
    read_bytes[i] = whole ? class_bytes : std::min(class_bytes, head);
    if (!user.empty() && class_bytes > head) {
      // Header and key, the user's buffer, and what the class has beyond.
      const size_t body = std::min(user.size(), class_bytes - head);
      const size_t rest = class_bytes - head - body;
      scratch[i] = core_.scratch().take(head + rest);
      add_read(batch, word.block_offset(), scratch[i].data(), head);
      WorkRequest& request = batch.requests[batch.count - 1];
      request.local[1] = {user.data(), static_cast<uint32_t>(body)};
      request.local[2] = {scratch[i].data() + head, static_cast<uint32_t>(rest)};
      request.local_count = rest == 0 ? 2 : 3;
      found.into_user = true;
      continue;
    }
    found.into_user = false;
    scratch[i] = core_.scratch().take(read_bytes[i]);
    add_read(batch, word.block_offset(), scratch[i].data(), read_bytes[i]);
  }
  if (co_await post(batch) != Step::kDone) co_return Step::kBroken;
  for (size_t i = 0; i < slots.size(); ++i) {
    found.scratch = std::move(scratch[i]);
    Step step = Step::kDone;
    if (found.into_user) {
      step = accept_scattered(found, slots[i], user);
    } else {
      step = accept_candidate(found, slots[i], {found.scratch.data(), read_bytes[i]}, want);
    }
    if (step != Step::kDone || found.present) co_return step;
  }
  co_return Step::kDone;
}

Step Operation::accept_candidate(Found& found, size_t slot, std::span<const std::byte> bytes, Want want) {
  const SlotWord word = found.window.slot(slot);
  std::string_view key;
  BlockView view;
  BlockFault fault = BlockView::parse(bytes, word.without_frozen(), view);
  if (SKUA_PLANTED_BUG("checksum-skipped") && fault == BlockFault::kChecksum) fault = BlockFault::kNone;
  const size_t class_bytes = proto::size_class_bytes(static_cast<int>(word.size_class()));
  if (fault == BlockFault::kNone) {
    found.header = view.header();
    key = view.key();
    found.value = view.value();
  } else if (fault == BlockFault::kShort && want == Want::kIdentity && bytes.size() < class_bytes) {
    // Only the head was read. The slot word was live when it was read and this operation's epoch holds the block, so
    // generation and key decide; nothing of the value is shown.
    std::memcpy(&found.header, bytes.data(), sizeof found.header);
    if (found.header.key_bytes != key_.size()) return Step::kDone;
    key = {reinterpret_cast<const char*>(bytes.data()) + sizeof found.header, key_.size()};
    found.value = {};
  } else {
    SKUA_PROBE("find.block-not-whole");
    LiveCounters::add(counters_.torn_reads, 1);
    return Step::kRestart;
  }
  if (key != key_ && !SKUA_PLANTED_BUG("key-not-compared")) {
    SKUA_PROBE("find.another-key-with-this-fingerprint");
    return Step::kDone;
  }
  if (found.header.namespace_id != 0) return Step::kDone;
  found.present = true;
  found.slot_offset = found.window.slot_offset(slot);
  found.word = SKUA_PLANTED_BUG("frozen-is-swapped") ? word : word.without_frozen();
  found.frozen = word.frozen() && !SKUA_PLANTED_BUG("frozen-is-swapped");
  return Step::kDone;
}

Step Operation::accept_scattered(Found& found, size_t slot, std::span<const std::byte> user) {
  const SlotWord word = found.window.slot(slot);
  std::memcpy(&found.header, found.scratch.data(), sizeof found.header);
  const proto::BlockHeader& header = found.header;
  if ((header.generation & (proto::kVersionModulus - 1)) != word.version()) {
    LiveCounters::add(counters_.torn_reads, 1);
    return Step::kRestart;
  }
  const std::string_view key(reinterpret_cast<const char*>(found.scratch.data()) + sizeof header, key_.size());
  if (header.key_bytes != key_.size() || key != key_ || header.namespace_id != 0) return Step::kDone;
  if (header.value_bytes <= user.size()) {
    found.value = {reinterpret_cast<const char*>(user.data()), header.value_bytes};
    if (proto::block_checksum(header, key, found.value) != header.checksum) {
      LiveCounters::add(counters_.torn_reads, 1);
      return Step::kRestart;
    }
  }
  found.present = true;
  found.slot_offset = found.window.slot_offset(slot);
  found.word = word.without_frozen();
  found.frozen = word.frozen();
  return Step::kDone;
}

// --- Blocks

std::optional<GrantedBlock> Operation::take_block(uint32_t size_class) {
  BlockPool::Shelf& shelf = link_->pool().shelf(partition_index_, size_class);
  const auto block = link_->pool().take(shelf);
  link_->request_blocks(shelf);
  return block;
}

Task<Result<void>> Operation::wait_for_block(uint32_t size_class) {
  Link& link = *link_;
  const uint64_t serial = serial_;
  BlockPool::Shelf& asked = link.pool().shelf(partition_index_, size_class);
  const uint64_t refusals = asked.refusals;
  link.request_blocks(asked);
  // Nothing that was read is used again, so this operation does not hold the reclaim epoch back while it waits.
  leave();
  for (;;) {
    if (!link.ready() || link.serial() != serial) co_return Result<void>();
    BlockPool::Shelf& shelf = link.pool().shelf(partition_index_, size_class);
    if (shelf.available != 0) co_return Result<void>();
    if (shelf.refusals != refusals) {
      // Unreachable, or the session is gone: the next attempt finds out what to do.
      const StatusCode code = shelf.refusal->code();
      const bool again = code == StatusCode::kUnavailable || code == StatusCode::kStaleEpoch;
      if (!again || SKUA_PLANTED_BUG("stale-grant-ends-operation")) co_return tl::make_unexpected(*shelf.refusal);
      co_return Result<void>();
    }
    link.request_blocks(shelf);
    if (expired_deadline()) {
      co_return tl::make_unexpected(Status(StatusCode::kDeadlineExceeded,
                                           "waited for memory on server " + std::to_string(link.server()) +
                                               " until the deadline; nothing was changed"));
    }
    co_await change(deadline());
  }
}

Task<Result<void>> Operation::wait_for_growth() {
  SKUA_PROBE("insert.waits-for-a-split");
  Link& link = *link_;
  const uint64_t serial = serial_;
  const uint64_t answers = partition_->growth_answers;
  link.request_growth(*partition_, hash_, window_table_);
  leave();
  for (;;) {
    if (!link.ready() || link.serial() != serial) co_return Result<void>();
    const PartitionState* state = link.partition(partition_index_);
    if (state == nullptr) co_return Result<void>();
    if (state->growth_answers != answers) {
      const auto& refusal = state->growth_refusal;
      // Anything else: the next attempt finds out what to do.
      if (refusal && refusal->code() == StatusCode::kOutOfMemory) co_return tl::make_unexpected(*refusal);
      co_return Result<void>();
    }
    if (expired_deadline()) {
      co_return tl::make_unexpected(Status(StatusCode::kDeadlineExceeded,
                                           "waited for a table to be split by server " +
                                               std::to_string(link.server()) +
                                               " until the deadline; nothing was changed"));
    }
    co_await change(deadline());
  }
}

SlotWord Operation::word_of(SlotState state, const GrantedBlock& block, uint32_t size_class) const {
  SlotWord::Block fields;
  fields.block_units = block.block_units;
  fields.generation = block.generation;
  fields.size_class = size_class;
  fields.fingerprint = hash_.fingerprint();
  return SlotWord::of(state, fields);
}

// --- Cache

SlotCacheEntry* Operation::cached() {
  SlotCacheEntry* entry = core_.cache().find(hash_.bits(), tag_);
  if (entry == nullptr) return nullptr;
  const bool young = entry->younger_than(proto::kVersionModulus, link_->epoch()) || SKUA_PLANTED_BUG("old-cache-entry");
  if (!young || entry->table_version != static_cast<uint32_t>(table().version())) {
    *entry = SlotCacheEntry{};
    return nullptr;
  }
  return entry;
}

void Operation::remember(const Found& found) { remember(found.slot_offset, found.word, found.header); }

void Operation::remember(uint64_t slot_offset, SlotWord word, const proto::BlockHeader& header) {
  // Another operation of this session may have read a later directory meanwhile: then this slot is of the past.
  const proto::TableRef table = this->table();
  if (slot_offset - table.offset() >= proto::table_bytes(table.log2_buckets())) return;
  SlotCacheEntry entry;
  entry.hash = hash_.bits();
  entry.word = word;
  entry.generation = header.generation;
  entry.slot_offset = slot_offset;
  entry.block_bytes = static_cast<uint32_t>(proto::block_bytes(header.key_bytes, header.value_bytes));
  entry.epoch = static_cast<uint32_t>(link_->epoch());
  entry.table_version = static_cast<uint32_t>(table.version());
  entry.tag_and_expiry = (tag_ & ~1U) | (header.expiry_ms() != 0 ? 1U : 0U);
  core_.cache().remember(entry);
}

}  // namespace skua
