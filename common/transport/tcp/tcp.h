#pragma once
// The TCP transport: a responder in the server executes the verbs on the arena's memory, anywhere a socket reaches.
//
// Order:  requests of one connection are executed and answered one after another.
// Cost:   one sendmsg a doorbell and one recv for many responses, on both sides; large payloads are gathered from and
//         scattered to where they lie. The server's CPU works for each request.
// Fence:  the connection is closed on the thread that executes its verbs; then nothing of it can run.
// Rights: checked by the responder for every request. The first that fails is answered, and the connection ends.
// Wire:   tcp/wire.h. Not encrypted.
#include <cstddef>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/net_address.h"
#include "common/base/status.h"
#include "common/transport/target.h"
#include "common/transport/transport.h"

namespace skua {

struct TcpTargetOptions {
  NetAddress listen{"127.0.0.1", 0};   // port 0: the system picks one, see endpoint()
  std::string listener_name = "tcp data listener";  // for messages
  std::string advertise_host;          // what endpoint() says instead of listen.host, for 0.0.0.0 and NAT
  unsigned threads = 1;                // a connection stays on one of them
  size_t max_connections = 4096;
  // A thread that has just worked looks for more for so long before it sleeps. For servers with cores of their own,
  // where waking a thread costs more than a round trip; on shared cores it costs 2 to 4 times the latency it saves.
  Nanoseconds spin_time = 0;
  Nanoseconds first_message_timeout = 5 * kSecond;  // also for a frame that was begun and does not go on
};

// `clock` outlives connector and queue pairs. connect resolves the host's name, which may block.
std::unique_ptr<Connector> make_tcp_connector(const Clock& clock);

// Error: kConfiguration, naming listener, address, errno and remedy; kResourceExhausted. `arena` outlives the target.
Result<std::unique_ptr<Target>> make_tcp_target(const TcpTargetOptions& options, const ArenaInfo& arena);

}  // namespace skua
