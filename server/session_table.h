#pragma once
// SessionTable is who may reach the server's memory: sessions, their leases and secrets, what they were granted, and
// the reclaim epoch that each has passed.
//
//   open -> active <-> detached (control connection broke)
//             |  lease or resume grace ran out, closed
//             v
//           ending: fenced on every target -> gone, its blocks are the sweep's
//
// A session holds back the oldest epoch until it is gone, since a verb of it may be under way until it is fenced (I9).
//
// Cost:    report: O(blocks reported) and, when the session was the oldest, O(sessions).
// Owns:    sessions. Borrows Executor, Entropy, Targets and partitions.
// Threads: the executor's; targets confirm fences from any.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/executor.h"
#include "common/base/log_limit.h"
#include "common/base/random.h"
#include "common/transport/target.h"
#include "server/partition.h"
#include "server/store.h"

namespace skua {

class SessionHost {
 public:
  virtual ~SessionHost() = default;
  // Granted blocks of this partition now belong to finished operations.
  virtual void blocks_used(Partition& partition) = 0;
  // The oldest epoch may have moved.
  virtual void epoch_reported() = 0;
  // What the session waits for is pointless: its connection broke, or it is gone.
  virtual void session_lost(SessionId session) = 0;
};

class SessionTable {
 public:
  struct Options {
    Nanoseconds lease = 0;
    Nanoseconds resume_grace = 0;
  };
  SessionTable(const Options& options, Executor& executor, Entropy& entropy, SessionHost& host);
  ~SessionTable();

  void add_target(Target& target) { targets_.push_back(&target); }
  const std::vector<Target*>& targets() const { return targets_; }

  struct Moment {
    uint64_t reclaim_epoch = 0;
    uint64_t cluster_time_ms = 0;
  };
  Result<control::SessionOpened> open(const control::OpenSession& request, PushFunction push, Moment moment,
                                      const std::vector<std::unique_ptr<Partition>>& partitions);
  // Error: kStaleEpoch, kUnauthenticated, kInvalidArgument (numbers that were never given out; nothing is changed).
  Result<void> report(const control::EpochReport& report, uint64_t reclaim_epoch);
  void fence(const control::FenceSession& request, std::function<void(Result<control::SessionFenced>)> done);
  Result<void> resume(const control::ResumeSession& request, PushFunction push);
  void detach(SessionId id);
  void close(SessionId id);

  // May this session be granted blocks? Error: kStaleEpoch, kPermissionDenied, kUnavailable (detached).
  Result<void> may_write(SessionId id) const;
  // Returns the grant's id. Requires: may_write(id).
  uint64_t record_grant(SessionId id, Partition& partition, std::vector<BlockRef> blocks);

  // The least epoch that a session has reported; UINT64_MAX without sessions.
  uint64_t oldest_epoch() const { return oldest_; }
  void announce(const control::EpochAdvance& advance);

  size_t size() const { return sessions_.size(); }
  size_t writers() const { return writers_; }
  uint64_t fenced() const { return fenced_; }    // as their clients asked, not those of an end
  uint64_t expired() const { return expired_; }

 private:
  struct GrantRecord {
    Partition* partition = nullptr;
    std::vector<BlockRef> blocks;
    uint32_t consumed = 0;
  };
  struct Session {
    SessionId id{};
    std::string secret;       // of the control plane; the same for the session's life
    std::string data_secret;  // of the data connection; another after each fence
    std::string client_name;  // printable
    bool read_only = false;
    bool detached = false;
    bool ending = false;
    PushFunction push;
    uint64_t reported = 0;
    Nanoseconds deadline = 0;
    Nanoseconds behind_since = 0;  // 0: has reported the newest epoch
    std::vector<RegionKey> keys;
    std::unordered_map<uint64_t, GrantRecord> grants;
    uint64_t next_grant = 1;
    size_t fences_left = 0;
    std::vector<std::function<void(Result<control::SessionFenced>)>> fence_waits;
  };

  Session* find(SessionId id);
  Result<Session*> authenticate(uint64_t id, const std::string& secret);
  std::string new_secret();
  void admit(const Session& session);
  void renew(Session& session);
  Result<void> check(const Session& session, const control::EpochReport& report, uint64_t reclaim_epoch) const;
  void apply_use(Session& session, const control::GrantUse& use);
  void end(Session& session);
  void start_fence(Session& session);
  void fence_confirmed(SessionId id);
  void forget(SessionId id);
  void update_oldest();
  Nanoseconds lost_at(const Session& session) const;
  void arm();
  void check_leases();

  Options options_;
  Executor& executor_;
  Entropy& entropy_;
  SessionHost& host_;
  std::vector<Target*> targets_;
  const std::vector<std::unique_ptr<Partition>>* partitions_ = nullptr;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  uint64_t oldest_ = UINT64_MAX;
  size_t writers_ = 0;
  uint64_t fenced_ = 0;
  uint64_t expired_ = 0;
  LogLimit expired_limit_;
  bool armed_ = false;
  Executor::TimerId timer_ = 0;
  Nanoseconds check_due_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace skua
