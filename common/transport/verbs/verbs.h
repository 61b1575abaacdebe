#pragma once
// The verbs transport: reliable connections made by librdmacm on InfiniBand, RoCE or iWARP devices.
//
// One-sided: READ and WRITE, and CAS and FETCH_ADD where the server lets the device execute them; its CPU sees none.
//   Where it does not (VerbsAtomics::kCpu, or a device without atomics), they travel as small messages on the same
//   queue pair and the server's CPU executes them; a READ behind one is held back until its answer is there.
// Memory: regions are registered in slabs, a session and a slab at a time, when the session first touches one: its
//   queue pair asks for the slab's address and remote key in a message. Registered memory is pinned.
// Rights: a protection domain a session, so that a remote key is worthless to all others; a read-only session's
//   registrations have neither REMOTE_WRITE nor REMOTE_ATOMIC. The device checks key, range and right.
// Fence:  the server destroys the queue pair; when that call returns no verb of it takes effect any more.
// Death of a peer: the device retries for ack_timeout and retry_count (0.5 s as set here), then reports an error.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/net_address.h"
#include "common/base/status.h"
#include "common/transport/target.h"
#include "common/transport/transport.h"

namespace skua {

// Which device, port and GID, and how it is driven. What is unset is chosen (device_select.h).
struct VerbsSettings {
  std::string device;                    // "mlx5_0"; empty: any
  uint32_t port = 0;                     // 0: any
  std::optional<uint32_t> gid_index;
  std::optional<uint32_t> traffic_class;  // of the IP header: DSCP * 4; unset: the system's default
  uint32_t path_mtu = 0;                  // at most so many bytes; 0: what both ends' ports carry
  uint32_t ack_timeout = 14;             // 4.096 us * 2^n
  uint32_t retry_count = 6;              // at most 6: some devices take 7 as for ever
  uint32_t rnr_retry_count = 6;
  uint32_t message_window = 64;          // messages without an answer, at most; the smaller of both ends' is used
  // Each is on because it pays; off is for measuring that.
  bool inline_sends = true;              // small WRITEs travel in the work request
  bool doorbell_batching = true;         // what is posted together goes to the device as one chain
  bool selective_signaling = true;       // a completion for what is waited for, and one in 16 of the rest
};

// Error: kConfiguration, a value outside its range.
Result<void> check_verbs_settings(const VerbsSettings& settings);

// Who executes CAS and FETCH_ADD: all sessions of a server, on every transport, must agree (one atomics domain).
enum class VerbsAtomics : uint8_t {
  kCpu,     // messages; right beside shm and tcp, and on every device
  kDevice,  // the device; only where nobody else executes atomics on the same memory
  kDeviceIfAble,  // in options only: kDevice on a device that has them, else kCpu
};

struct VerbsTargetOptions {
  VerbsSettings settings;
  std::string listen_host;                // empty: the address of the GID that is taken
  uint16_t listen_port = 0;               // 0: the system picks one, see endpoint()
  std::string listener_name = "verbs listener";  // for messages
  std::string advertise_host;             // what endpoint() says instead
  VerbsAtomics atomics = VerbsAtomics::kCpu;
  uint64_t slab_bytes = uint64_t{1} << 20;  // registered at once; a power of two, at least 4 KiB
  size_t max_connections = 1024;
};

// What the client side's queue pairs of the calling thread have asked of the device so far; for benchmarks.
struct VerbsCounts {
  uint64_t doorbells = 0;      // calls of ibv_post_send
  uint64_t work_requests = 0;  // READs, WRITEs, atomics and messages
  uint64_t inlined = 0;        // those whose bytes travelled in the work request
  uint64_t completions = 0;    // taken from completion queues
};
VerbsCounts verbs_counts();

// False: built without libibverbs; everything below then fails with kConfiguration and says so.
bool verbs_built_in();

// `clock` outlives connector and queue pairs. A connector without a device answers connect with kConfiguration.
std::unique_ptr<Connector> make_verbs_connector(const VerbsSettings& settings, const Clock& clock);

// Error: kConfiguration (no device, port down, no such GID, address in use, no atomics), kPermissionDenied,
// kResourceExhausted; each names cause, value and remedy. `arena` outlives the target; memory that a session has
// touched stays pinned and must not be given back to the system while the target lives.
Result<std::unique_ptr<Target>> make_verbs_target(const VerbsTargetOptions& options, const ArenaInfo& arena);

}  // namespace skua
