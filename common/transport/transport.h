#pragma once
// The transport seam: what the data path asks of a network. Siblings implement it: shm, tcp and sim.
//
// It promises only what the weakest device does (docs/protocol.md, "What is relied on"):
//  - Requests on one queue pair take effect at the responder in order WRITE -> WRITE, WRITE -> CAS, CAS -> READ,
//    CAS -> CAS. READ against READ is not ordered, and nothing is ordered inside a READ or WRITE beyond an aligned
//    8-byte word.
//  - Remote atomics are atomic against remote atomics of the same partition only.
//  - A completion without error says that the request took effect. One with an error says nothing about it.
// Sources: InfiniBand Architecture Specification 1.4, volume 1, 9.5 (ordering), 9.4.5 (atomics); ibv_post_send(3).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace skua {

// Names one registered region to one session; random, worthless to another session and after revocation.
enum class RegionKey : uint64_t {};
enum class SessionId : uint64_t {};

enum class Verb : uint8_t { kRead, kWrite, kCompareAndSwap, kFetchAndAdd };

struct LocalSegment {
  void* data = nullptr;
  uint32_t bytes = 0;
};

// One request. READ scatters into local[], WRITE gathers from it; CAS and FETCH_ADD put the old value, 8 bytes, into
// local[0]. Local memory is the poster's and stays valid and untouched until the completion.
struct WorkRequest {
  static constexpr size_t kMaxLocal = 3;

  Verb verb = Verb::kRead;
  bool signaled = true;    // false: no completion of its own; settled by the next signaled one
  uint8_t local_count = 0;
  RegionKey key{};
  uint64_t remote_offset = 0;  // from the region's start; atomics: a multiple of 8
  LocalSegment local[kMaxLocal];
  uint64_t compare = 0;
  uint64_t swap_or_add = 0;
  uint64_t context = 0;    // handed back in the completion

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < local_count; ++i) sum += local[i].bytes;
    return sum;
  }
};

enum class CompletionStatus : uint8_t {
  kSuccess = 0,
  kRemoteAccessError = 1,  // key unknown, revoked or of another session; range outside the region; right missing
  kFlushed = 2,            // behind a failed request, or posted on a broken queue pair
  kPeerLost = 3,           // no answer: the connection broke or nothing came for the queue pair's time-out
  kBadRequest = 4,         // unaligned atomic, more bytes than max_message_bytes
};
std::string_view to_string(CompletionStatus status);

struct Completion {
  uint64_t context = 0;
  CompletionStatus status = CompletionStatus::kSuccess;
};

struct Capabilities {
  std::string_view transport;        // "shm", "tcp", "verbs", "sim"
  uint32_t queue_depth = 0;          // requests that may be outstanding on a queue pair
  uint64_t max_message_bytes = 0;    // of one READ or WRITE
  bool remote_atomics = true;        // false: CAS travels as a message and the server's CPU executes it
  bool read_only = false;            // WRITE and atomics end in kRemoteAccessError
};

enum class QueuePairState : uint8_t { kConnecting, kReady, kError };

// QueuePair is one reliable connection of one session to one server.
// Cost:    post and poll are called once a doorbell, not once a request.
// Threads: one owner thread.
// Errors:  the first request that fails, and all behind it, complete with an error in the order posted (one
//          completion for every signaled request and for the failed one), and the queue pair stays in kError: it is
//          closed and another is connected. post on it then accepts nothing.
class QueuePair {
 public:
  virtual ~QueuePair() = default;

  // Progress of connecting is made by poll. The reason of kError is in error().
  virtual QueuePairState state() const = 0;
  virtual const Status& error() const = 0;  // Requires: state() == kError.

  // Takes the first n of `requests` and returns n. n < size: no room (poll, then post the rest) or, with state() ==
  // kError, none will be taken any more. Requests are copied; the memory they name is not.
  virtual size_t post(std::span<const WorkRequest> requests) = 0;

  // Moves up to completions.size() completions out; never blocks. Returns how many.
  virtual size_t poll(std::span<Completion> completions) = 0;

  // Readable when poll may have something to do, or -1 when the transport makes progress only inside poll.
  virtual int wait_descriptor() const = 0;

  virtual const Capabilities& capabilities() const = 0;

  // Ends the connection. Outstanding requests may have taken effect or may yet (until the server has fenced the
  // session); no completion and no touch of local memory comes after it.
  virtual void close() = 0;
};

struct RegionInfo {
  uint32_t partition = 0;
  RegionKey key{};
  uint64_t bytes = 0;
};

// What a session knows when it connects its data plane.
struct ConnectTarget {
  std::string address;             // as the server's endpoint said
  SessionId session{};
  std::string secret;              // 16 bytes
  std::vector<RegionInfo> regions;
  bool read_only = false;
  Nanoseconds response_timeout = kSecond;  // no byte or completion for so long with requests outstanding: kPeerLost
};

// Client side of one transport.
// Threads: connect from any; the queue pair it returns belongs to its caller's thread.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual std::string_view name() const = 0;  // "shm", "tcp", ...
  // Returns at once with a queue pair in kConnecting or kReady. Error: this transport cannot reach the address at all
  // (no such socket, other host), so that `auto` goes on to the next.
  virtual Result<std::unique_ptr<QueuePair>> connect(const ConnectTarget& target) = 0;
};

}  // namespace skua
