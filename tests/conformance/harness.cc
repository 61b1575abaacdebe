#include "tests/conformance/harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstring>
#include <thread>

#include "common/base/check.h"
#include "common/base/net_address.h"
#include "common/base/remote_memory.h"
#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_pages.h"
#include "common/transport/tcp/tcp.h"
#include "tests/conformance/verbs_fixture.h"

namespace skua::conformance {
namespace {

void set_patience(int socket) {
  const timeval patience{kPatience / kSecond, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

class ShmFixture final : public Fixture {
 public:
  Result<std::unique_ptr<Target>> make_target(const TargetSettings& settings, const ArenaInfo& arena) override {
    return make_shm_target({"", settings.max_connections, settings.first_message_timeout}, arena);
  }
  std::unique_ptr<Connector> make_connector(const Clock& clock) override { return make_shm_connector(clock); }
  Descriptor open_socket(const std::string& endpoint) override {
    const auto address = parse_unix_address(endpoint);
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_patience(socket.get());
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(address->bytes), address->size) != 0) return {};
    return socket;
  }
  std::pair<Descriptor, std::string> make_silent_listener() override {
    const std::string name = "@skua-silent-" + std::to_string(system_entropy().next());
    const auto address = parse_unix_address(name);
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SKUA_CHECK(::bind(socket.get(), reinterpret_cast<const sockaddr*>(address->bytes), address->size) == 0, name);
    SKUA_CHECK(::listen(socket.get(), 4) == 0, name);
    return {std::move(socket), name};
  }
  bool server_executes() const override { return false; }
};

class TcpFixture final : public Fixture {
 public:
  Result<std::unique_ptr<Target>> make_target(const TargetSettings& settings, const ArenaInfo& arena) override {
    TcpTargetOptions options;
    options.threads = 2;
    options.max_connections = settings.max_connections;
    options.first_message_timeout = settings.first_message_timeout;
    return make_tcp_target(options, arena);
  }
  std::unique_ptr<Connector> make_connector(const Clock& clock) override { return make_tcp_connector(clock); }
  Descriptor open_socket(const std::string& endpoint) override {
    const auto address = parse_net_address(endpoint);
    sockaddr_in peer = loopback(address->port);
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_patience(socket.get());
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) return {};
    return socket;
  }
  std::pair<Descriptor, std::string> make_silent_listener() override {
    sockaddr_in address = loopback(0);
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t size = sizeof(address);
    SKUA_CHECK(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0, "loopback");
    SKUA_CHECK(::listen(socket.get(), 4) == 0, "loopback");
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    return {std::move(socket), "127.0.0.1:" + std::to_string(ntohs(address.sin_port))};
  }
  bool server_executes() const override { return true; }

 private:
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
};

}  // namespace

std::unique_ptr<Fixture> make_fixture(const std::string& transport) {
  if (transport == "shm") return std::make_unique<ShmFixture>();
  if (transport == "verbs") return make_verbs_fixture(VerbsAtomics::kCpu);
  if (transport == "verbs_nic") return make_verbs_fixture(VerbsAtomics::kDevice);
  if (transport == "verbs_narrow") {
    VerbsSettings settings;
    settings.path_mtu = 256;
    settings.message_window = 1;
    settings.doorbell_batching = false;
    return make_verbs_fixture(VerbsAtomics::kCpu, settings);
  }
  SKUA_CHECK(transport == "tcp", transport);
  return std::make_unique<TcpFixture>();
}

Arena::Arena(uint64_t bytes) : bytes_(bytes) {
  memory_.reset(::memfd_create("skua-test-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SKUA_CHECK(memory_ && ::ftruncate(memory_.get(), static_cast<off_t>(bytes)) == 0, "memfd");
  void* range = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0);
  SKUA_CHECK(range != MAP_FAILED, "mmap");
  data_ = static_cast<std::byte*>(range);
}

Arena::~Arena() { ::munmap(data_, bytes_); }

uint64_t Arena::word(uint64_t offset) const { return load_word(data_ + offset); }

Session make_session(uint64_t id, const Arena& arena, const std::vector<RegionAt>& regions) {
  Session session;
  session.ticket.session = SessionId{id};
  const std::vector<std::byte> secret = pattern(16, id * 77);
  session.ticket.secret.assign(reinterpret_cast<const char*>(secret.data()), secret.size());
  session.target.session = session.ticket.session;
  session.target.secret = session.ticket.secret;
  session.target.response_timeout = kPatience;
  uint32_t partition = 0;
  for (const RegionAt& region : regions) {
    session.ticket.regions.push_back({region.key, arena.at(region.arena_offset), region.bytes, region.arena_offset});
    session.target.regions.push_back({partition++, region.key, region.bytes});
  }
  return session;
}

bool poll_until(const std::function<bool()>& done) {
  const Nanoseconds end = system_clock().now() + kPatience;
  while (!done()) {
    if (system_clock().now() > end) {
      ADD_FAILURE() << "nothing happened for " << kPatience / kSecond << " s";
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

QueuePairState settle(QueuePair& queue_pair) {
  poll_until([&] {
    queue_pair.poll({});
    return queue_pair.state() != QueuePairState::kConnecting;
  });
  return queue_pair.state();
}

std::vector<Completion> run(QueuePair& queue_pair, std::vector<WorkRequest> requests, size_t completions) {
  std::vector<Completion> all;
  size_t posted = 0;
  poll_until([&] {
    posted += queue_pair.post(std::span(requests).subspan(posted));
    Completion some[16];
    const size_t count = queue_pair.poll(some);
    all.insert(all.end(), some, some + count);
    return all.size() >= completions && (posted == requests.size() || queue_pair.state() == QueuePairState::kError);
  });
  return all;
}

CompletionStatus run_one(QueuePair& queue_pair, const WorkRequest& request) {
  const auto completions = run(queue_pair, {request});
  return completions.size() == 1 ? completions[0].status : CompletionStatus::kFlushed;
}

WorkRequest read_request(Place place, void* to, uint32_t bytes) {
  WorkRequest request;
  request.verb = Verb::kRead;
  request.key = place.key;
  request.remote_offset = place.offset;
  request.local_count = 1;
  request.local[0] = {to, bytes};
  return request;
}

WorkRequest write_request(Place place, const void* from, uint32_t bytes) {
  WorkRequest request = read_request(place, const_cast<void*>(from), bytes);
  request.verb = Verb::kWrite;
  return request;
}

WorkRequest cas_request(Place place, uint64_t compare, uint64_t swap, uint64_t* found) {
  WorkRequest request = read_request(place, found, 8);
  request.verb = Verb::kCompareAndSwap;
  request.compare = compare;
  request.swap_or_add = swap;
  return request;
}

WorkRequest add_request(Place place, uint64_t add, uint64_t* found) {
  WorkRequest request = read_request(place, found, 8);
  request.verb = Verb::kFetchAndAdd;
  request.swap_or_add = add;
  return request;
}

std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random.next();
    std::memcpy(made.data() + i, &word, std::min<size_t>(8, bytes - i));
  }
  return made;
}

}  // namespace skua::conformance
