#pragma once
// Operation is what every operation on a key shares: its place in the cluster, its deadline, its costs, and the steps
// of the protocol that several operations take (docs/protocol.md).
//
// Life: prepare() finds the key's partition and enters its link, which holds the reclaim epoch back; from then on what
//       was read stays meaningful until leave(). A connection that breaks shows as kBroken in whatever step was under
//       way; prepare() then leads back to a usable place, or to the Status that ends the operation.
// Threads: the session's.
// Invariants: I1-I5, I8-I10, I13.
#include <coroutine>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "client/bucket_view.h"
#include "client/session_core.h"
#include "common/base/hooks.h"
#include "proto/block.h"
#include "proto/key_hash.h"

namespace skua {

enum class Step : uint8_t {
  kDone,
  kBroken,   // the connection broke; nothing is known of what was under way
  kRestart,  // the table was replaced, or a check failed: read again
};

// How a CAS that publishes a word ended.
enum class Verdict : uint8_t { kWon, kLost, kInDoubt };
struct Published {
  Verdict verdict = Verdict::kLost;
  proto::SlotWord current;  // kLost: what the slot held
};

// A block as found behind a live slot word of this key.
struct Found {
  bool present = false;
  uint64_t slot_offset = 0;
  proto::SlotWord word;       // without FROZEN
  bool frozen = false;
  proto::BlockHeader header{};
  std::string_view value;     // when asked for
  bool into_user = false;     // the value is in the user's buffer
  Scratch scratch;
  Window window;              // for an insert when absent
};

// What find should bring along.
enum class Want : uint8_t {
  kIdentity,  // that the key is there: header and key are enough for large blocks
  kValue,     // the value, verified
};

class Operation {
 public:
  Operation(SessionCore& core, OperationKind kind, std::string_view key);
  Operation(const Operation&) = delete;
  ~Operation();

  std::string_view key() const { return key_; }
  proto::KeyHash hash() const { return hash_; }
  SessionCore& core() { return core_; }
  Link& link() { return *link_; }
  PartitionState& partition() { return *partition_; }
  proto::TableRef table() const { return partition_->tables[hash_.directory_index(partition_->root.depth())]; }
  LiveCounters& counters() { return counters_; }

  // --- Place and time
  // True when the place is usable as it is: link ready, directory fresh. No round trip.
  bool prepared();
  // Makes it so, waiting as long as the deadline allows. Everything read before is void.
  Task<Result<void>> prepare();
  void leave();
  Nanoseconds deadline();
  bool expired_deadline() { return core_.clock().now() >= deadline(); }
  // Counts a new start; from the fourth on waits a random time that grows. Error: the deadline has passed.
  Task<Result<void>> retry();
  uint64_t now_ms() { return link_->cluster_time_ms(); }
  // Is a block that was read in this attempt past its expiry? "Expired" needs a time from before the READ, "present"
  // one from behind it; in between, the attempt is repeated with a fresh earlier time (ADR 0005).
  enum class Lifetime : uint8_t { kPresent, kExpired, kUnclear };
  Lifetime lifetime(const proto::BlockHeader& header) {
    if (header.expiry_ms() == 0) return Lifetime::kPresent;
    if (SKUA_PLANTED_BUG("expired-is-present")) return Lifetime::kPresent;
    if (header.expiry_ms() <= observed_ms_) return Lifetime::kExpired;
    observed_ms_ = now_ms();
    return header.expiry_ms() > observed_ms_ ? Lifetime::kPresent : Lifetime::kUnclear;
  }

  // --- Posting
  struct Posted {
    Operation& operation;
    Batch& batch;
    bool await_ready();
    void await_suspend(std::coroutine_handle<> handle);
    Step await_resume() const {
      if (batch.status == CompletionStatus::kSuccess) return Step::kDone;
      if (batch.posted) LiveCounters::add(operation.counters_.cut_off, 1);
      return Step::kBroken;
    }
  };
  // One round trip.
  Posted post(Batch& batch) { return Posted{*this, batch}; }
  void add_read(Batch& batch, uint64_t offset, void* into, size_t bytes);
  void add_cas(Batch& batch, uint64_t offset, uint64_t compare, uint64_t swap, uint64_t& old);
  void add_write(Batch& batch, uint64_t offset, const proto::BlockHeader& header, std::string_view value);

  // --- Reading
  Task<Step> read_window(Window& window);
  Task<Step> find(Found& found, Want want, std::span<std::byte> user = {});
  // A FROZEN word was met in the window: kDone when what was read stands, else the directory has changed.
  Task<Step> check_directory();

  // --- Blocks
  // A block for this key's partition, or nothing when none is at hand: wait_for_block then.
  std::optional<GrantedBlock> take_block(uint32_t size_class);
  // Leaves the link and waits. Error: kOutOfMemory, or the deadline.
  Task<Result<void>> wait_for_block(uint32_t size_class);
  // The key's window, as last read, is full. Leaves the link and waits until the server has split the table. Error:
  // kOutOfMemory, or the deadline.
  Task<Result<void>> wait_for_growth();
  proto::SlotWord word_of(proto::SlotState state, const GrantedBlock& block, uint32_t size_class) const;

  // --- Publishing
  // Posts `batch` (WRITEs or nothing) with CAS(old -> neu) behind it, and finds out how it ended even when the
  // connection breaks. `prev`: the word that neu's block names as replaced.
  Task<Published> publish(Batch& batch, uint64_t slot_offset, proto::SlotWord old, proto::SlotWord neu,
                          proto::SlotWord prev);
  // The operation's CAS from `from`, read in this operation, lost to `current`: may it count as having happened just
  // before? (rule 5, ADR 0005) Nothing: the connection broke.
  Task<std::optional<bool>> absorbed(proto::SlotWord from, proto::SlotWord current);

  // --- Cache
  SlotCacheEntry* cached();
  void remember(const Found& found);
  void remember(uint64_t slot_offset, proto::SlotWord word, const proto::BlockHeader& header);
  void forget() { core_.cache().forget(hash_.bits(), tag_); }

  // Counts the failure and hands it on.
  Error failed(Status status);
  Status doubt() const;  // kInDoubt, with what was sent and to whom
  // kPermissionDenied in a read-only session.
  Result<void> check_writable() const;

  // Waits until something about links or map changes, or `until`.
  struct Change {
    Operation& operation;
    SessionCore::Waiter waiter;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() const {}
  };
  Change change(Nanoseconds until) { return Change{*this, {{}, until, false}}; }

 private:
  struct Admission {
    Link& link;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) { link.admission().push_back(handle); }
    void await_resume() const {}
  };
  Task<Step> load_directory();
  Task<Step> read_candidates(Found& found, std::span<const size_t> slots, Want want, std::span<std::byte> user);
  Step accept_candidate(Found& found, size_t slot, std::span<const std::byte> bytes, Want want);
  Step accept_scattered(Found& found, size_t slot, std::span<const std::byte> user);
  Task<std::optional<Published>> resolve(uint64_t slot_offset, proto::SlotWord old, proto::SlotWord neu,
                                         proto::SlotWord prev);
  Task<bool> reconnected();
  Status unavailable() const;

  SessionCore& core_;
  const OperationKind kind_;
  const std::string_view key_;
  const proto::KeyHash hash_;
  const uint32_t tag_;  // tells keys of one hash apart in the cache
  LiveCounters& counters_;
  Link* link_ = nullptr;            // entered
  uint64_t serial_ = 0;             // of the link's session when it was entered
  PartitionState* partition_ = nullptr;
  proto::TableRef window_table_;    // where the last window was read
  uint32_t partition_index_ = 0;
  Nanoseconds deadline_ = 0;        // 0: not asked for yet
  uint32_t attempts_ = 0;
  uint64_t observed_ms_ = 0;        // cluster time, read before the current attempt's READs; 0: not needed so far
  std::optional<Status> why_;       // what stood in the way last
};

// kInvalidArgument for what no server could store; nothing is sent.
Result<void> check_key(std::string_view key);
Result<void> check_value(std::string_view value);
Result<void> check_options(const PutOptions& options);

}  // namespace skua
