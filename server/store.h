#pragma once
// Store is a server's registered memory, and the sessions that may reach it: partitions, heap, grants, reclaim epochs.
//
// Cost:    a GET or a PUT costs it nothing. It works when a session opens, asks for blocks or reports, and when the
//          sweep runs; the sweep runs only while blocks wait to be reclaimed.
// Owns:    the arena and all bookkeeping. Borrows Executor, Entropy and Targets, which outlive it.
// Threads: the executor's only. Targets' threads touch the arena's bytes, never the bookkeeping.
// Errors:  kOutOfMemory from grant; kStaleEpoch for a session that was given up; kUnauthenticated for a wrong secret.
// Invariants: I1, I11, I12, I13 (docs/protocol.md).
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/transport/target.h"
#include "proto/control.pb.h"
#include "proto/key_hash.h"

namespace skua {

enum class PagePolicy : uint8_t { kAuto, kHugeRequired, kSmall };  // 2 MiB where it can / or fail / 4 KiB

struct StoreOptions {
  uint64_t memory_bytes = uint64_t{1} << 30;  // limit of header pages, directories, tables and heap together
  PagePolicy pages = PagePolicy::kAuto;
  uint64_t expected_keys = 1'000'000;         // on this server, all partitions together; there are tables for them from
                                              // the start, and more as more keys come
  uint32_t log2_table_buckets = 10;           // of each table, 6 to 13; smaller where memory is small
  bool keeps_memory = false;                  // what partitions have taken stays theirs: it is registered somewhere
  Nanoseconds lease = 3 * kSecond;            // a session silent for so long is fenced and given up
  Nanoseconds resume_grace = 2 * kSecond;     // a session whose control connection broke is kept for so long
  Nanoseconds sweep_interval = 200 * kMillisecond;  // between sweeps while nothing is short
};

// What the sessions of one control connection are told without asking.
using PushFunction = std::function<void(const control::EpochAdvance&)>;

class Store {
 public:
  // Reserves address range and tells how pages were had. Error: kResourceExhausted or kConfiguration, with what was
  // wanted, what the limit is and how to raise it.
  static Result<std::unique_ptr<Store>> create(const StoreOptions& options, Executor& executor, Entropy& entropy);
  virtual ~Store() = default;

  virtual ArenaInfo arena() const = 0;
  // Targets are told of every session. Requires: before the first open_session.
  virtual void add_target(Target& target) = 0;

  // Formats and serves these partitions. Once. Error: kOutOfMemory when their tables do not fit.
  struct Assignment {
    uint64_t cluster_id = 0;
    uint64_t instance = 0;
    uint64_t membership_epoch = 0;
    std::vector<uint32_t> partitions;
  };
  virtual Result<void> serve(const Assignment& assignment) = 0;

  virtual Result<control::SessionOpened> open_session(const control::OpenSession& request, PushFunction push) = 0;
  // Answers when blocks are there, or with kOutOfMemory when a complete reclaim that began after the request freed
  // none; other sessions' reports may be needed for it, so up to a lease later.
  virtual void grant(const control::GrantRequest& request,
                     std::function<void(Result<control::Grant>)> done) = 0;
  // Answers when the table is another than the one that the session knows, or its key's window has room; else with
  // kOutOfMemory.
  virtual void grow_table(const control::GrowTable& request, std::function<void(const Result<void>&)> done) = 0;
  virtual Result<void> report(const control::EpochReport& report) = 0;
  virtual void fence_session(const control::FenceSession& request,
                             std::function<void(Result<control::SessionFenced>)> done) = 0;
  virtual Result<void> resume_session(const control::ResumeSession& request, PushFunction push) = 0;
  // The session's control connection broke: it has resume_grace to come back.
  virtual void detach_session(SessionId session) = 0;
  // Orderly end: its data connection is fenced, its blocks are the sweep's.
  virtual void close_session(SessionId session) = 0;

  // Splits the table of `partition` that `hash` leads to, soon, however full it is. kStaleEpoch: not served here.
  virtual Result<void> split_table(uint32_t partition, proto::KeyHash hash) = 0;

  // Every block of `partition` moves to another place, soon; what is gained by it does not count.
  virtual Result<void> compact(uint32_t partition) = 0;

  virtual uint64_t cluster_time_ms() const = 0;
  // Aligns this server's time with the coordinator's; later calls only slew forward.
  virtual void set_cluster_time_ms(uint64_t now_ms) = 0;
  virtual void statistics(control::ServerStats& out) const = 0;
};

}  // namespace skua
