#pragma once
// The shared-memory transport: a client on the server's host maps the server's arena and executes its verbs itself.
//
// Endpoint: "@skua-<random>", a Unix socket in the abstract namespace, or the path of one. The socket carries the
//   handshake alone: it passes the arena's memfd, the session's control page and the server's life page.
// Rights:   the socket admits processes of the server's user and of root. A read-only session gets a descriptor that
//   cannot be mapped writable. Between the partitions and sessions of one server the mapping separates nothing: keys
//   and ranges are checked by the client's own library, so shm is for processes that trust each other's code.
// Fence:    client sets `armed`, checks `fenced`, stores, clears `armed`; server sets `fenced`, then waits for `armed`
//   to be clear, for the socket to close or for the process to end. A process stopped inside an armed section delays
//   its fence until it goes on or ends.
// Death of the server: a word of the life page that the kernel marks when the server's thread ends for whatever
//   reason (robust futex list), so that every poll sees it without a system call. What completed before was read from
//   a server that lived.
#include <cstddef>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/transport/target.h"
#include "common/transport/transport.h"

namespace skua {

struct ShmTargetOptions {
  std::string address;             // "@name" or a path; empty: "@skua-<random>"
  size_t max_connections = 1024;
  Nanoseconds handshake_timeout = 5 * kSecond;  // for a peer that connects and stays silent
};

// Queue pairs of one connector share one mapping of each arena. `clock` outlives connector and queue pairs.
std::unique_ptr<Connector> make_shm_connector(const Clock& clock);

// Error: kConfiguration (the address is taken or cannot be used), kResourceExhausted. `arena` outlives the target.
Result<std::unique_ptr<Target>> make_shm_target(const ShmTargetOptions& options, const ArenaInfo& arena);

}  // namespace skua
