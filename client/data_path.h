#pragma once
// The operations themselves, as coroutines on a session's core. Public faces: client.h.
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/operation.h"

namespace skua {

// What a read found; `value` lives in `scratch` or in the user's buffer.
struct GetOutcome {
  bool present = false;
  VersionToken version;
  std::string_view value;
  size_t value_bytes = 0;
  Scratch scratch;
};

Task<Result<GetOutcome>> get_operation(SessionCore& core, std::string_view key, std::span<std::byte> user);
Task<Result<bool>> exists_operation(SessionCore& core, std::string_view key);

Task<Result<VersionToken>> put_operation(SessionCore& core, std::string_view key, std::string_view value,
                                         PutOptions options);
Task<Result<PutIfAbsentOutcome>> put_if_absent_operation(SessionCore& core, std::string_view key,
                                                         std::string_view value, PutOptions options);
Task<Result<CompareAndSwapOutcome>> compare_and_swap_operation(SessionCore& core, std::string_view key,
                                                               VersionToken expected, std::string_view value,
                                                               PutOptions options);
Task<Result<int64_t>> increment_operation(SessionCore& core, std::string_view key, int64_t delta);
Task<Result<bool>> remove_operation(SessionCore& core, std::string_view key);

// Where a scan of one partition stands, and what its last step found.
struct ScanCursor {
  struct Item {
    std::string bytes;  // key and value
    size_t key_bytes = 0;
    VersionToken version;
    uint64_t ttl_left_ms = 0;
  };
  using Prefix = std::pair<uint32_t, uint64_t>;  // so many directory bits, and which
  std::set<Prefix> done;                         // of tables that were seen to the end
  uint64_t table = 0;                            // TableRef of the one under way
  uint64_t next_word = 0;                        // its first word that is still to be looked at
  std::set<uint64_t> found_in_table;             // hashes, keyed by a secret, of what it had so far
  std::set<uint64_t> found_before;               // of what tables had that were replaced half-way: not found twice
  bool finished = false;
  std::vector<Item> found;
};
// One step of a scan: fills `found` with about a mebibyte, or with what is left. Whoever takes the items does so
// between operations, when the session may report, however long that lasts.
Task<Result<void>> scan_operation(SessionCore& core, uint32_t partition, ScanCursor& cursor);

// --- Shared by put.cc, conditional.cc and insert.cc

// A block about to be written: what goes in, and where it goes.
struct Draft {
  GrantedBlock block;
  uint32_t size_class = 0;
  proto::BlockContent content;
  proto::SlotWord word(const Operation& operation, proto::SlotState state) const {
    return operation.word_of(state, block, size_class);
  }
  VersionToken version() const { return {proto::write_id(block.generation)}; }
};
// The size class for key and value. Requires: both were checked.
uint32_t class_for(std::string_view key, std::string_view value);
// Takes a block for `draft`; waits for one where none is at hand, and then false: what was read is void, start over.
Task<Result<bool>> take_draft(Operation& operation, Draft& draft);
// WRITE and CAS(from -> draft's word) in one post. On a win remembers the new place.
Task<Published> replace(Operation& operation, uint64_t slot_offset, proto::SlotWord from, Draft& draft);

// What put_if_absent and increment share: replaces what was found, or inserts. Error: kOutOfMemory, kInDoubt, deadline.
enum class StoredOutcome : uint8_t { kYes, kAgain };
Task<Result<StoredOutcome>> store_conditionally(Operation& operation, Found& found, Draft& draft, uint32_t tries);
Draft make_draft(Operation& operation, std::string_view value, const PutOptions& options, uint8_t flags);

enum class Inserted : uint8_t {
  kDone,
  kAgain,    // lost a race: read again, with a fresh block
  kFull,     // no slot of the window is free
  kInDoubt,
};
// Rule 1, 4 and the Dekker of two inserters: docs/protocol.md, INSERT. `window`: as find left it, the key absent.
Task<Inserted> insert(Operation& operation, Window& window, Draft& draft, uint32_t tries);

}  // namespace skua
