#pragma once
// What the transports' conformance suite runs on: an arena in this process, a target on it, queue pairs to it.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/transport/descriptor.h"
#include "common/transport/target.h"
#include "common/transport/transport.h"

namespace skua::conformance {

inline constexpr Nanoseconds kPatience = 20 * kSecond;  // a test that waits longer has failed
inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// One transport as the suite sees it.
struct TargetSettings {
  size_t max_connections = 64;
  Nanoseconds first_message_timeout = 5 * kSecond;
};
class Fixture {
 public:
  virtual ~Fixture() = default;
  virtual Result<std::unique_ptr<Target>> make_target(const TargetSettings& settings, const ArenaInfo& arena) = 0;
  virtual std::unique_ptr<Connector> make_connector(const Clock& clock) = 0;
  // A blocking socket to a target's handshake, with a receive time-out of kPatience.
  virtual Descriptor open_socket(const std::string& endpoint) = 0;
  // A listener that never accepts, and its endpoint.
  virtual std::pair<Descriptor, std::string> make_silent_listener() = 0;
  // The server's CPU executes the verbs, and a stopped server answers nothing.
  virtual bool server_executes() const = 0;
  // Why this machine cannot run it; empty: it can.
  virtual std::string missing() const { return ""; }
};
// "shm", "tcp", "verbs" (atomics by the server's CPU), "verbs_nic" (by the device), "verbs_narrow" (by the CPU;
// a path MTU of 256, one message at a time, a doorbell each).
std::unique_ptr<Fixture> make_fixture(const std::string& transport);
// What capabilities and names say: "verbs" for both of the last.
inline std::string name_of(const std::string& transport) { return transport.substr(0, transport.find('_')); }

// Sparse memory behind a memfd, as a server has it.
class Arena {
 public:
  explicit Arena(uint64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ArenaInfo info() const { return {data_, bytes_, memory_.get()}; }
  std::byte* at(uint64_t offset) const { return data_ + offset; }
  uint64_t word(uint64_t offset) const;

 private:
  Descriptor memory_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// One session's ticket, and what its client connects with.
struct Session {
  SessionTicket ticket;
  ConnectTarget target;
};
struct RegionAt {
  RegionKey key{};
  uint64_t arena_offset = 0;
  uint64_t bytes = 0;
};
Session make_session(uint64_t id, const Arena& arena, const std::vector<RegionAt>& regions);

// Polls until `done`, or fails the test. Returns whether it is done.
bool poll_until(const std::function<bool()>& done);
// The queue pair in kReady or kError.
QueuePairState settle(QueuePair& queue_pair);

// Posts them all, in as many doorbells as it takes, and polls until `completions` have come.
std::vector<Completion> run(QueuePair& queue_pair, std::vector<WorkRequest> requests, size_t completions);
inline std::vector<Completion> run(QueuePair& queue_pair, std::vector<WorkRequest> requests) {
  const size_t all = requests.size();
  return run(queue_pair, std::move(requests), all);
}
CompletionStatus run_one(QueuePair& queue_pair, const WorkRequest& request);

struct Place {
  RegionKey key{};
  uint64_t offset = 0;
};
WorkRequest read_request(Place place, void* to, uint32_t bytes);
WorkRequest write_request(Place place, const void* from, uint32_t bytes);
WorkRequest cas_request(Place place, uint64_t compare, uint64_t swap, uint64_t* found);
WorkRequest add_request(Place place, uint64_t add, uint64_t* found);

// Bytes that say where they belong.
std::vector<std::byte> pattern(size_t bytes, uint64_t seed);

}  // namespace skua::conformance
