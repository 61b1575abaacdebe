#pragma once
// The server side of the transport seam: memory that sessions may reach, and who may reach it.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/transport/transport.h"

namespace skua {

// One region as the server exposes it to one session.
struct ExposedRegion {
  RegionKey key{};
  std::byte* data = nullptr;      // where the server has it mapped
  uint64_t bytes = 0;
  uint64_t arena_offset = 0;      // where it starts in the arena's file (shm maps it from there)
};

struct SessionTicket {
  SessionId session{};
  std::string secret;             // what the data connection must show
  bool read_only = false;
  std::vector<ExposedRegion> regions;
};

// Arena is the server's memory as a transport needs to know it.
struct ArenaInfo {
  std::byte* data = nullptr;
  uint64_t bytes = 0;             // of address range, not of memory in use
  int descriptor = -1;            // memfd behind it; -1 where there is none (sim)
};

// Executes a server's own atomics where its clients' are executed, so that they are atomic against each other.
// Threads: the server's control thread.
class AtomicsExecutor {
 public:
  virtual ~AtomicsExecutor() = default;
  // Returns the value found; it was replaced if that equals `compare`. Nothing: it failed, and may have happened.
  virtual std::optional<uint64_t> compare_and_swap(std::byte* word, uint64_t compare, uint64_t swap) = 0;
};

// Target is one transport's responder in a server.
// Threads: admit, fence and remove come from the server's control thread; the responder has threads of its own.
class Target {
 public:
  virtual ~Target() = default;
  virtual std::string_view name() const = 0;
  // What clients are told to connect to; ports are real ones (never 0).
  virtual std::string endpoint() const = 0;

  // From now on a data connection that shows the ticket's session and secret is let in; it takes the place of an
  // earlier ticket of the same session.
  virtual void admit(SessionTicket ticket) = 0;

  // Ends the session's data connection and forgets its ticket. `fenced` is called once (on any thread; post it back)
  // when it is certain that no verb of that connection takes effect any more; at once when there is none.
  virtual void fence(SessionId session, std::function<void()> fenced) = 0;

  // Who executes atomics on what it exposes; null: this host's CPU. The target's.
  virtual AtomicsExecutor* atomics() { return nullptr; }

  // Connected sessions, for statistics.
  virtual size_t connections() const = 0;
};

}  // namespace skua
