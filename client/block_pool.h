#pragma once
// BlockPool holds the blocks that a server granted to a session and that no operation has taken yet.
//
// Shape:      one list of grants for each (partition, size class) in use; blocks of a grant are taken in order, so that
//             a count tells the server which belong to finished operations.
// Cost:       take: O(1), no allocation.
// Threads:    whoever holds the session's gate.
// Invariants: I11: consumption is reported only between operations.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/base/hooks.h"
#include "common/base/status.h"

namespace skua {

namespace control {
class EpochReport;
class Grant;
}  // namespace control

struct GrantedBlock {
  uint64_t block_units = 0;
  uint64_t generation = 0;
};

class BlockPool {
 public:
  // One (partition, size class).
  struct Shelf {
    uint32_t partition = 0;
    uint32_t size_class = 0;
    size_t available = 0;
    size_t last_grant = 0;   // blocks of the newest grant
    uint32_t want = 0;       // how many to ask for next
    bool requested = false;  // a GrantRequest is under way
    uint64_t refusals = 0;   // GrantRequests that ended in an error
    std::optional<Status> refusal;  // the newest one's
    struct GrantList {
      uint64_t id = 0;
      std::vector<GrantedBlock> blocks;
      size_t taken = 0;
      size_t reported = 0;
    };
    std::deque<GrantList> grants;
    size_t current = 0;      // index of the grant that blocks are taken from
  };

  static constexpr uint32_t kFirstWant = SKUA_KNOB(16, 1);
  static constexpr uint32_t kMostWant = SKUA_KNOB(1024, 2);
  static constexpr uint64_t kMostWantBytes = uint64_t{4} << 20;

  Shelf& shelf(uint32_t partition, uint32_t size_class);
  std::optional<GrantedBlock> take(Shelf& shelf);
  // Is it time to ask for more? True at most once until add or refused.
  bool should_request(Shelf& shelf);
  void add(Shelf& shelf, const control::Grant& grant);
  void refused(Shelf& shelf, const Status& why) {
    shelf.requested = false;
    ++shelf.refusals;
    shelf.refusal = why;
  }

  // Fills in what was taken since the last report; with return_unused, gives everything back.
  // Requires: no operation is running.
  void report(control::EpochReport& report, bool return_unused);
  // A grant was asked for: the server should learn what is finished.
  bool wants_report() const { return wants_report_; }
  void want_report() { wants_report_ = unreported_ != 0; }
  void clear();  // the session behind it is gone

 private:
  std::unordered_map<uint32_t, Shelf> shelves_;
  size_t unreported_ = 0;
  bool wants_report_ = false;
};

}  // namespace skua
