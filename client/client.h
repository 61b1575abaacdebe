#pragma once
// Client is a connection to a cluster; Session runs operations on it, one session a thread.
//
//   auto client = skua::Client::connect({.seeds = {"127.0.0.1:7400"}});
//   auto session = (*client)->open_session();
//   (*session)->put("name", "skua");
//   auto value = (*session)->get("name");   // Result<std::optional<ValueView>>
//
// Every operation is linearizable per key (docs/protocol.md, section 4 of the guarantees) and has a deadline.
// Errors, for every operation: kInvalidArgument (key, value or argument; nothing was sent), kUnavailable and
// kDeadlineExceeded (nothing was changed), kOutOfMemory (nothing was changed; the old value stands), kInDoubt (a
// mutation that may have happened), kPermissionDenied (a read-only session writes), kUnauthenticated.
// Absence, a lost compare_and_swap and an existing key are outcomes, not errors.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/counters.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/task.h"

namespace skua {

class Entropy;

enum class WaitMode : uint8_t {
  kAdaptive,  // spins for spin_time, then sleeps until something arrives
  kSpin,      // never sleeps; lowest latency, one core a session
  kSleep,     // sleeps at once
};

// How verbs reaches a device. What is unset is chosen: a routable RoCE v2 GID first.
struct RdmaOptions {
  std::string device;                     // "mlx5_0"
  uint32_t port = 0;
  std::optional<uint32_t> gid_index;
  std::optional<uint32_t> traffic_class;  // DSCP * 4 of what is sent
  uint32_t path_mtu = 0;                  // 256 to 4096 bytes, at most; 0: what both ends' ports carry
  uint32_t ack_timeout = 14;              // 1 to 31: 4.096 us * 2^N until something is sent again
  uint32_t retry_count = 6;               // 0 to 6
  // For measuring what each is worth.
  bool inline_sends = true;
  bool doorbell_batching = true;
  bool selective_signaling = true;
};

struct ClientOptions {
  std::vector<std::string> seeds;         // host:port of one or more servers; the first that answers is used
  // auto | verbs | shm | tcp. auto takes the first of the others that server and host have, in this order.
  std::string transport = "auto";
  RdmaOptions rdma;
  std::string token;                      // the cluster's access token, when it has one
  std::string name;                       // for the server's logs and statistics
  bool read_only = false;
  Nanoseconds connect_timeout = 5 * kSecond;
  Nanoseconds operation_timeout = 5 * kSecond;  // deadline of each operation
  Nanoseconds response_timeout = kSecond;       // a server silent for so long under a request counts as lost
  WaitMode wait_mode = WaitMode::kAdaptive;
  Nanoseconds spin_time = 50 * kMicrosecond;
  size_t cache_entries = 65536;           // bound of a session's slot cache, 48 bytes each; 0 = no cache
  size_t batch_depth = 32;                // operations that multi_get and multi_put keep in flight
  const Clock* clock = nullptr;           // null: the system's
  Entropy* entropy = nullptr;             // null: the system's
};

// Names one version of one key, wherever its block lies: the write that made it (docs/protocol.md, I6). Two writes of a
// key have one token with a probability of 2^-56.
struct VersionToken {
  uint64_t write_id = 0;

  std::string to_string() const;  // "5c0ffee2f80117", for people and command lines
  static std::optional<VersionToken> parse(std::string_view text);
  friend bool operator==(const VersionToken&, const VersionToken&) = default;
};

struct ValueView {
  std::string_view bytes;  // borrowed from the session until its next call
  VersionToken version;
};
struct Stored {
  size_t value_bytes = 0;
  VersionToken version;
};
struct PutOptions {
  Nanoseconds ttl = 0;  // 0: never expires; else at least 1 ms
};
struct PutIfAbsentOutcome {
  bool stored = false;   // false: the key exists
  VersionToken version;  // of what was stored
};
struct CompareAndSwapOutcome {
  bool swapped = false;  // false: absent, or another version
  VersionToken version;  // of the new value
};

struct MultiGetItem {
  std::string_view key;
  Result<std::optional<Stored>> result{std::nullopt};
  std::string value;     // kept capacity is reused
};
struct MultiPutItem {
  std::string_view key;
  std::string_view value;
  PutOptions options;
  Result<VersionToken> result{VersionToken{}};
};

struct ServerInfo {
  uint32_t id = 0;
  std::string name;
  std::string address;
  uint64_t instance = 0;
  bool alive = false;
  uint64_t memory_bytes = 0;
  uint32_t partitions = 0;  // primaries
};
struct ClusterInfo {
  uint64_t cluster_id = 0;
  uint64_t membership_epoch = 0;
  uint32_t partitions = 0;
  bool forming = false;
  std::vector<ServerInfo> servers;
};
// A server's statistics as (name, value) pairs in a stable order: "memory_used_bytes", "cpu_ms", "class.1280.used", ...
struct ServerStatistics {
  uint32_t server = 0;
  std::vector<std::pair<std::string, uint64_t>> values;
  std::string pages;
  uint64_t value_or_zero(std::string_view name) const;
};

struct ScanItem {
  std::string_view key;
  std::string_view value;
  VersionToken version;
  uint64_t ttl_left_ms = 0;  // 0: does not expire
};

class SessionCore;

// Session: one thread's way into the cluster.
// Cost in round trips (dependent ones), R = 1: get 1 with the location cached, else 2 (3 where the key lies in the
//   second half of its window); put 1 cached, else 3 (update and insert); compare_and_swap 1 cached, else 3; remove 1
//   cached, else 3; put_if_absent 3; exists as get; increment 2 cached, else 3. A multi_ operation posts many at once.
// Threads: one owner thread; distinct sessions run in parallel. Not for use inside a signal handler.
// Owns:    queue pairs, slot cache and granted blocks. Its Client outlives it.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The value, or nothing when the key is absent or expired.
  Result<std::optional<ValueView>> get(std::string_view key);
  // The value goes to `buffer`. kInvalidArgument names both sizes when it does not fit; `buffer` may then hold part.
  Result<std::optional<Stored>> get_into(std::string_view key, std::span<std::byte> buffer);
  Result<VersionToken> put(std::string_view key, std::string_view value, PutOptions options = {});
  Result<PutIfAbsentOutcome> put_if_absent(std::string_view key, std::string_view value, PutOptions options = {});
  // Replaces the value if its version is still `expected`.
  Result<CompareAndSwapOutcome> compare_and_swap(std::string_view key, VersionToken expected, std::string_view value,
                                                 PutOptions options = {});
  // True: was there, and is gone. False: was absent.
  Result<bool> remove(std::string_view key);
  Result<bool> exists(std::string_view key);
  // Adds to a decimal value ("41" -> "42"); an absent key counts from 0. Keeps the key's expiry. kInvalidArgument
  // when the value is not a decimal 64-bit number or the sum overflows.
  Result<int64_t> increment(std::string_view key, int64_t delta = 1);

  // Each item gets its own result; batch_depth of them are in flight at once. An empty batch is no error. Items are not
  // ordered among each other: of one key put twice in a batch, either value may stay.
  void multi_get(std::span<MultiGetItem> items);
  void multi_put(std::span<MultiPutItem> items);

  // Every key that is present throughout the scan is shown once; others may be. READs whole tables; no order. The
  // items' views end with the call. `visit` returns false to stop.
  Result<void> scan(const std::function<bool(const ScanItem&)>& visit);

  // The same operations as coroutines. Keys and values are borrowed until the task is done; views that it returns live
  // until it is destroyed or the session's next call. Drive them with run, or poll from an own loop.
  struct Owned {
    std::string value;
    VersionToken version;
  };
  Task<Result<std::optional<Owned>>> async_get(std::string_view key);
  Task<Result<VersionToken>> async_put(std::string_view key, std::string_view value, PutOptions options = {});
  Task<Result<PutIfAbsentOutcome>> async_put_if_absent(std::string_view key, std::string_view value,
                                                       PutOptions options = {});
  Task<Result<CompareAndSwapOutcome>> async_compare_and_swap(std::string_view key, VersionToken expected,
                                                             std::string_view value, PutOptions options = {});
  Task<Result<bool>> async_remove(std::string_view key);
  Task<Result<bool>> async_exists(std::string_view key);
  Task<Result<int64_t>> async_increment(std::string_view key, int64_t delta = 1);

  // Starts `task` and makes progress until it has returned.
  template <class T>
  T run(Task<T> task) {
    task.start();
    while (!task.done()) poll_or_wait();
    return task.take();
  }
  // One round of progress, without blocking: posts, completions, timers. True when something happened.
  bool poll();
  // poll, and when nothing happened waits as the wait mode says.
  void poll_or_wait();

  CounterTable counters() const;  // Threads: any.
  // What is used to reach each server, and why: "server 1: shm; server 2: tcp (shm: no such socket ...)".
  std::string transport_report() const;

 private:
  friend class Client;
  explicit Session(std::shared_ptr<SessionCore> core);
  struct Borrowed;  // what get's view points to
  struct BorrowedDeleter {
    void operator()(Borrowed* borrowed) const;
  };
  std::shared_ptr<SessionCore> core_;
  std::unique_ptr<Borrowed, BorrowedDeleter> borrowed_;
};

// Client: shared state of sessions, and a background thread for the control plane.
// Threads: any, all methods. Sessions are closed before it is destroyed.
class Client {
 public:
  // Error: kConfiguration (an address or option), kUnavailable (no seed answers; all reasons are named),
  // kUnauthenticated, kIncompatible.
  static Result<std::unique_ptr<Client>> connect(ClientOptions options);
  ~Client();

  Result<std::unique_ptr<Session>> open_session();

  Result<ClusterInfo> cluster_info();
  Result<ServerStatistics> server_statistics(uint32_t server);
  Result<Nanoseconds> ping(uint32_t server);
  // Sum over closed and open sessions.
  CounterTable counters() const;

 private:
  struct Machinery;
  explicit Client(std::unique_ptr<Machinery> machinery);
  std::unique_ptr<Machinery> machinery_;
};

}  // namespace skua
