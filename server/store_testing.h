#pragma once
// What tests of the store share: virtual time, a target that only keeps tickets, and a client that does on the arena's
// bytes what a real one does over a transport. Header-only; not part of the library.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "proto/block.h"
#include "proto/key_hash.h"
#include "proto/region_layout.h"
#include "server/store.h"

namespace skua::testing {

using proto::SlotState;
using proto::SlotWord;

class VirtualExecutor final : public Executor, public Clock {
 public:
  void post(std::function<void()> function) override {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(function));
  }
  TimerId after(Nanoseconds delay, std::function<void()> function) override {
    timers_.emplace(std::pair(now_.load() + delay, ++last_timer_), std::move(function));
    return last_timer_;
  }
  void cancel(TimerId timer) override {
    std::erase_if(timers_, [&](const auto& entry) { return entry.first.second == timer; });
  }
  const Clock& clock() const override { return *this; }
  Nanoseconds now() const override { return now_; }
  int64_t wall_ms() const override { return 1'700'000'000'000; }

  // One posted function; false: there is none.
  bool step() {
    std::function<void()> function;
    {
      const std::lock_guard lock(mutex_);
      if (posted_.empty()) return false;
      function = std::move(posted_.front());
      posted_.pop_front();
    }
    function();
    return true;
  }
  void run() {
    for (int i = 0; step(); ++i) {
      if (i > 1'000'000) return ADD_FAILURE() << "functions are posted without end";
    }
  }
  void advance(Nanoseconds time) {
    const Nanoseconds end = now_ + time;
    for (run(); !timers_.empty() && timers_.begin()->first.first <= end; run()) {
      auto node = timers_.extract(timers_.begin());
      now_ = std::max(now_.load(), node.key().first);
      node.mapped()();
    }
    now_ = end;
  }
  // The process stands still: time passes, nothing runs.
  void stall(Nanoseconds time) { now_ = now_ + time; }
  size_t timers() const { return timers_.size(); }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> posted_;
  std::map<std::pair<Nanoseconds, TimerId>, std::function<void()>> timers_;
  TimerId last_timer_ = 0;
  std::atomic<Nanoseconds> now_{5 * kSecond};
};

class SeededEntropy final : public Entropy {
 public:
  uint64_t next() override { return random_.next(); }

 private:
  Random random_{42};
};

class TicketTarget final : public Target {
 public:
  std::string_view name() const override { return "fake"; }
  std::string endpoint() const override { return "fake:1"; }
  void admit(SessionTicket ticket) override { tickets[static_cast<uint64_t>(ticket.session)] = std::move(ticket); }
  void fence(SessionId session, std::function<void()> fenced) override {
    tickets.erase(static_cast<uint64_t>(session));
    if (hold) {
      held.push_back(std::move(fenced));
    } else {
      fenced();
    }
  }
  size_t connections() const override { return tickets.size(); }

  std::map<uint64_t, SessionTicket> tickets;
  bool hold = false;  // fences are confirmed by confirm only
  std::vector<std::function<void()>> held;
  void confirm() {
    for (const auto& fenced : std::exchange(held, {})) fenced();
  }
};

struct World {
  explicit World(StoreOptions options, uint32_t partition_count = 1) : partitions(partition_count) {
    auto created = Store::create(options, executor, entropy);
    EXPECT_TRUE(created) << created.error().message();
    store = std::move(*created);
    store->add_target(target);
    Store::Assignment assignment{77, 88, 3, {}};
    for (uint32_t p = 0; p < partition_count; ++p) assignment.partitions.push_back(p);
    const auto served = store->serve(assignment);
    EXPECT_TRUE(served) << served.error().message();
  }
  control::ServerStats stats() const {
    control::ServerStats out;
    store->statistics(out);
    return out;
  }
  VirtualExecutor executor;
  SeededEntropy entropy;
  TicketTarget target;
  uint32_t partitions;
  std::unique_ptr<Store> store;
};

// A session that works on the arena. By default it reports each epoch as soon as the executor runs.
class DirectClient {
 public:
  struct Block {
    uint64_t units = 0;
    uint64_t generation = 0;
    int size_class = 0;
  };

  explicit DirectClient(World& world, bool read_only = false) : world_(world) {
    control::OpenSession request;
    request.set_access(read_only ? control::ACCESS_READ_ONLY : control::ACCESS_READ_WRITE);
    auto result = world.store->open_session(request, push());
    EXPECT_TRUE(result);
    opened = *result;
    id = opened.session_id();
    secret = opened.secret();
    epoch = opened.reclaim_epoch();
    regions = world.target.tickets.at(id).regions;
  }

  PushFunction push() {
    return [this](const control::EpochAdvance& advance) {
      epoch = advance.reclaim_epoch();
      return_unused |= advance.return_unused();
      if (reports) world_.executor.post([this] { report(); });
    };
  }

  // Whether the store accepted it.
  Result<void> report() {
    control::EpochReport message;
    message.set_session_id(id);
    message.set_reclaim_epoch(epoch);
    for (auto& [number, grant] : grants_) {
      control::GrantUse* use = message.add_grants();
      use->set_grant_id(number);
      use->set_consumed(grant.consumed);
      if (return_unused) use->set_returned(true);
      if (return_unused || grant.consumed == grant.blocks.size()) grant.consumed = kClosed;
    }
    std::erase_if(grants_, [](const auto& entry) { return entry.second.consumed == kClosed; });
    return_unused = false;
    return world_.store->report(message);
  }

  void ask(uint32_t partition, int size_class, uint32_t blocks, std::function<void(Result<control::Grant>)> done) {
    control::GrantRequest request;
    request.set_session_id(id);
    request.set_partition(partition);
    request.set_size_class(static_cast<uint32_t>(size_class));
    request.set_blocks(blocks);
    world_.store->grant(request, std::move(done));
  }

  // A block to write, granted when there is none in stock. Runs the executor until the grant is answered.
  Result<Block> take(uint32_t partition, int size_class) {
    for (auto& [number, grant] : grants_) {
      if (grant.partition == partition && grant.size_class == size_class && grant.consumed < grant.blocks.size()) {
        return grant.blocks[grant.consumed++];
      }
    }
    std::optional<Result<control::Grant>> answer;
    ask(partition, size_class, batch, [&](Result<control::Grant> result) { answer = std::move(result); });
    for (int i = 0; !answer && i < 100; ++i) world_.executor.advance(answer_step);
    if (!answer) return fail(StatusCode::kDeadlineExceeded, "no answer");
    if (!*answer) return Error(answer->error());
    Grant& grant = grants_[(*answer)->grant_id()];
    grant.partition = partition;
    grant.size_class = size_class;
    for (int i = 0; i < (*answer)->block_units_size(); ++i) {
      grant.blocks.push_back({(*answer)->block_units(i), (*answer)->generations(i), size_class});
    }
    return grant.blocks[grant.consumed++];
  }

  uint32_t partition_of(const std::string& key) const {
    return proto::KeyHash::of(key).partition(world_.partitions);
  }
  std::byte* region(uint32_t partition) const { return regions[partition].data; }

  SlotWord word_of(const std::string& key, const Block& block, SlotState state) const {
    return SlotWord::of(state, {block.units, block.generation, static_cast<uint32_t>(block.size_class),
                                proto::KeyHash::of(key).fingerprint()});
  }

  void write(const std::string& key, const std::string& value, const Block& block, SlotWord prev,
             uint64_t expiry_ms = 0) {
    proto::BlockContent content;
    content.key = key;
    content.value = value;
    content.generation = block.generation;
    content.expiry_ms = expiry_ms;
    const proto::BlockHeader header = proto::make_block_header(content, prev);
    std::byte* at = region(partition_of(key)) + block.units * proto::kBlockUnit;
    std::memcpy(at, &header, sizeof header);
    std::memcpy(at + sizeof header, key.data(), key.size());
    std::memcpy(at + sizeof header + key.size(), value.data(), value.size());
  }

  std::vector<uint64_t*> window(const std::string& key) const {
    const proto::KeyHash hash = proto::KeyHash::of(key);
    std::byte* data = region(partition_of(key));
    const auto* header = reinterpret_cast<const proto::RegionHeader*>(data);
    const proto::DirectoryRoot root(header->directory_root);
    const auto* directory = reinterpret_cast<const uint64_t*>(data + root.offset());
    const proto::TableRef table(directory[hash.directory_index(root.depth())]);
    auto* buckets = reinterpret_cast<proto::Bucket*>(data + table.offset()) + hash.home_bucket(table.log2_buckets());
    std::vector<uint64_t*> slots;
    for (size_t b = 0; b < proto::kWindowBuckets; ++b) {
      for (uint64_t& slot : buckets[b].slots) slots.push_back(&slot);
    }
    return slots;
  }
  static SlotWord load(uint64_t* slot) {
    return SlotWord(std::atomic_ref<uint64_t>(*slot).load(std::memory_order_acquire));
  }
  static bool swap(uint64_t* slot, SlotWord from, SlotWord to) {
    uint64_t expected = from.bits();
    return std::atomic_ref<uint64_t>(*slot).compare_exchange_strong(expected, to.bits());
  }

  // The slot whose LIVE word names the key, or nullptr.
  uint64_t* find(const std::string& key) const {
    for (uint64_t* slot : window(key)) {
      const SlotWord word = load(slot);
      if (!word.is_live() || word.fingerprint() != proto::KeyHash::of(key).fingerprint()) continue;
      if (view(key, word) != std::nullopt) return slot;
    }
    return nullptr;
  }
  std::optional<std::string> view(const std::string& key, SlotWord word) const {
    proto::BlockView block;
    const std::byte* at = region(partition_of(key)) + word.block_offset();
    const auto bytes = proto::size_class_bytes(static_cast<int>(word.size_class()));
    if (proto::BlockView::parse({at, bytes}, word, block) != proto::BlockFault::kNone) return std::nullopt;
    if (block.key() != key) return std::nullopt;
    return std::string(block.value());
  }
  std::optional<std::string> get(const std::string& key) const {
    uint64_t* slot = find(key);
    return slot == nullptr ? std::nullopt : view(key, load(slot));
  }
  uint64_t* free_slot(const std::string& key) const {
    for (uint64_t* slot : window(key)) {
      if (load(slot).is_free()) return slot;
    }
    return nullptr;
  }

  // Nothing: stored. Else why not.
  std::optional<StatusCode> put(const std::string& key, const std::string& value, uint64_t expiry_ms = 0) {
    const int size_class = proto::size_class_for(proto::block_bytes(key.size(), value.size()));
    const auto block = take(partition_of(key), size_class);
    if (!block) return block.error().code();
    uint64_t* slot = find(key);
    if (slot == nullptr) slot = free_slot(key);
    if (slot == nullptr) return StatusCode::kInternal;
    const SlotWord old = load(slot);
    write(key, value, *block, old, expiry_ms);
    if (old.is_live()) return swapped(swap(slot, old, word_of(key, *block, SlotState::kLive)));
    const SlotWord tentative = word_of(key, *block, SlotState::kTentative);
    if (!swap(slot, old, tentative)) return StatusCode::kInDoubt;
    return swapped(swap(slot, tentative, word_of(key, *block, SlotState::kLive)));
  }
  bool remove(const std::string& key) {
    uint64_t* slot = find(key);
    if (slot == nullptr) return false;
    const SlotWord word = load(slot);
    return swap(slot, word, word.with_state(SlotState::kFreed));
  }

  control::SessionOpened opened;
  uint64_t id = 0;
  std::string secret;
  uint64_t epoch = 0;
  std::vector<ExposedRegion> regions;
  bool reports = true;
  bool return_unused = false;
  uint32_t batch = 32;
  Nanoseconds answer_step = 0;

 private:
  static constexpr uint32_t kClosed = UINT32_MAX;
  struct Grant {
    uint32_t partition = 0;
    int size_class = 0;
    uint32_t consumed = 0;
    std::vector<Block> blocks;
  };
  static std::optional<StatusCode> swapped(bool done) {
    return done ? std::nullopt : std::optional(StatusCode::kInDoubt);
  }

  World& world_;
  std::map<uint64_t, Grant> grants_;
};

}  // namespace skua::testing
