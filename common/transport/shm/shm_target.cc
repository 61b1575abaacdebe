// The shm target's thread: accepting, answering, fencing.
#include "common/transport/shm/shm_target.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "common/base/random.h"

namespace skua {
namespace {

constexpr Nanoseconds kAcceptPause = 100 * kMillisecond;
constexpr int kFenceChecks = 200;       // of `armed` at once, ~10 us, before the thread sleeps between checks
constexpr int kFenceCheckMs = 1;

Nanoseconds now() { return system_clock().now(); }

std::atomic_ref<uint64_t> shared(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

// Puts `life` on the calling thread's robust list: the kernel marks it with FUTEX_OWNER_DIED when the thread ends,
// killed or not (Documentation/locking/robust-futex-ABI). The list's node is private, the word shared. glibc's own
// robust mutexes are given up on this thread. Returns 0 or an errno.
class LifeMark {
 public:
  int set(ShmLifePage* life) {
    head_.list.next = &node_;
    node_.next = &head_.list;
    head_.futex_offset = reinterpret_cast<char*>(&life->owner) - reinterpret_cast<char*>(&node_);
    head_.list_op_pending = nullptr;
    std::atomic_ref<uint32_t>(life->owner).store(static_cast<uint32_t>(::syscall(SYS_gettid)));
    return ::syscall(SYS_set_robust_list, &head_, sizeof(head_)) == 0 ? 0 : errno;
  }

 private:
  robust_list_head head_{};
  robust_list node_{};
};

}  // namespace

ShmTarget::~ShmTarget() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
  }
  if (!unlink_path_.empty()) ::unlink(unlink_path_.c_str());
}

void ShmTarget::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void ShmTarget::admit(SessionTicket ticket) {
  const SessionId session = ticket.session;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t serial = tickets_.admit(std::move(ticket));
    commands_.push_back({session, serial, nullptr});
  }
  wake();
}

void ShmTarget::fence(SessionId session, std::function<void()> fenced) {
  {
    const std::lock_guard lock(mutex_);
    const uint64_t serial = tickets_.remove(session);
    commands_.push_back({session, serial, std::move(fenced)});
  }
  wake();
}

void ShmTarget::run(std::promise<int> started) {
  LifeMark mark;  // on this thread's stack until its very end
  const int error = mark.set(life_page_.as<ShmLifePage>());
  started.set_value(error);
  if (error == 0) serve_until_stopped();
  for (const auto& connection : connections_) {
    if (connection->may_touch_memory()) begin_fence(*connection);
  }
  connections_.clear();
  std::atomic_ref<uint32_t>(life_page_.as<ShmLifePage>()->owner).store(FUTEX_OWNER_DIED);
}

void ShmTarget::serve_until_stopped() {
  while (true) {
    wait();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    take_commands();
    any_waiting_ = false;
    for (const auto& connection : connections_) {
      if (connection->stage == Stage::kFencing) check_fence(*connection);
    }
    for (const auto& connection : connections_) {
      if (connection->stage == Stage::kAdmitting) admit_waiting(*connection);
      if (connection->stage == Stage::kAnswering) write_answer(*connection);
      const bool silent = connection->stage == Stage::kHello || connection->stage == Stage::kAnswering;
      if (silent && now() > connection->deadline) {
        if (connection->may_touch_memory()) {
          begin_fence(*connection);
        } else {
          connection->stage = Stage::kGone;
        }
      }
      any_waiting_ |= connection->stage == Stage::kAdmitting || connection->stage == Stage::kFencing;
    }
    std::erase_if(connections_, [](const auto& connection) { return connection->stage == Stage::kGone; });
    finish_endings();
    open_.store(static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                                  [](const auto& c) { return c->stage == Stage::kOpen; })),
                std::memory_order_relaxed);
  }
}

int ShmTarget::wait_timeout_ms() const {
  if (any_waiting_) return kFenceCheckMs;
  Nanoseconds until = accept_pause_until_ != 0 ? accept_pause_until_ : INT64_MAX;
  for (const auto& connection : connections_) {
    if (connection->stage == Stage::kHello || connection->stage == Stage::kAnswering) {
      until = std::min(until, connection->deadline);
    }
  }
  if (until == INT64_MAX) return -1;
  return static_cast<int>(std::max<Nanoseconds>(0, until - now()) / kMillisecond) + 1;
}

// Sleeps until there is something to do, and does what sockets ask for.
void ShmTarget::wait() {
  std::vector<pollfd> waits;
  waits.push_back({wake_.get(), POLLIN, 0});
  if (now() >= accept_pause_until_) accept_pause_until_ = 0;
  waits.push_back({accept_pause_until_ == 0 ? listener_.get() : -1, POLLIN, 0});
  const size_t first = waits.size();
  for (const auto& connection : connections_) {
    const bool writing = connection->stage == Stage::kAnswering;
    waits.push_back({connection->socket.get(), static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), 0});
  }
  if (::poll(waits.data(), waits.size(), wait_timeout_ms()) <= 0) return;
  if (waits[0].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
  }
  const size_t known = connections_.size();
  for (size_t i = 0; i < known; ++i) {
    if ((waits[first + i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(*connections_[i]);
  }
  if (waits[1].revents != 0) accept_all();
}

void ShmTarget::take_commands() {
  std::vector<Ending> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (Ending& ending : commands) {
    for (const auto& connection : connections_) {
      if (!is_ending(*connection, ending)) continue;
      if (connection->may_touch_memory()) {
        begin_fence(*connection);
      } else if (connection->stage == Stage::kAdmitting) {
        refuse(*connection, Status(StatusCode::kUnauthenticated, "the session was ended while it connected"));
      }
    }
    endings_.push_back(std::move(ending));
  }
}

void ShmTarget::finish_endings() {
  std::vector<std::function<void()>> done;
  std::erase_if(endings_, [&](Ending& ending) {
    for (const auto& connection : connections_) {
      if (is_ending(*connection, ending) && connection->may_touch_memory()) return false;
    }
    if (ending.done) done.push_back(std::move(ending.done));
    return true;
  });
  for (const auto& call : done) call();
}

size_t ShmTarget::in_use() const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](const auto& connection) {
    return connection->stage != Stage::kGone && !connection->refused;
  }));
}

void ShmTarget::accept_all() {
  while (true) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) accept_pause_until_ = now() + kAcceptPause;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    auto connection = std::make_unique<ShmConnection>();
    connection->deadline = now() + options_.handshake_timeout;
    ucred peer{};
    socklen_t size = sizeof(peer);
    const bool known = ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    connection->socket = std::move(socket);
    if (!known || (peer.uid != 0 && peer.uid != ::geteuid())) {
      refuse(*connection, Status(StatusCode::kPermissionDenied,
                                 "the server runs as user " + std::to_string(::geteuid()) + " and admits its own " +
                                     "processes and root's, not user " + std::to_string(peer.uid) + "; use tcp"));
    } else if (in_use() >= options_.max_connections) {
      refuse(*connection, Status(StatusCode::kResourceExhausted,
                                 "all " + std::to_string(options_.max_connections) +
                                     " shm connections of the server are in use; close some or raise its limit"));
    } else if (peer.pid > 0) {
      connection->process.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    }
    if (connection->stage == Stage::kHello) read_from(*connection);  // as a rule its hello is there already
    connections_.push_back(std::move(connection));
  }
}

// All that has come, so that a peer that left at once is known to have left.
void ShmTarget::read_from(ShmConnection& connection) {
  char buffer[256];
  while (connection.stage != Stage::kGone) {
    const ssize_t got = ::recv(connection.socket.get(), buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {  // the last descriptor of the other end is closed: queue pair or process is no more
      connection.stage = Stage::kGone;
    } else if (connection.stage == Stage::kHello) {
      connection.received.append(buffer, static_cast<size_t>(got));
      take_hello(connection);
    } else {
      if (connection.may_touch_memory()) begin_fence(connection);  // nothing may follow a hello
      return;
    }
  }
}

void ShmTarget::take_hello(ShmConnection& connection) {
  if (connection.received.size() < kHelloPrefixBytes) return;
  DataHello hello{};
  std::memcpy(&hello, connection.received.data(), std::min(sizeof(hello), connection.received.size()));
  if (auto checked = check_hello_prefix(hello); !checked) return refuse(connection, checked.error());
  if (connection.received.size() < sizeof(hello)) return;
  if (connection.received.size() > sizeof(hello)) {
    return refuse(connection, Status(StatusCode::kIncompatible, "bytes after the hello"));
  }
  Result<TicketTable::Admitted> admitted = fail(StatusCode::kInternal, "");
  {
    const std::lock_guard lock(mutex_);
    admitted = tickets_.check(hello);
  }
  if (!admitted) return refuse(connection, admitted.error());
  connection.session = admitted->ticket.session;
  connection.serial = admitted->serial;
  connection.read_only = admitted->ticket.read_only || (hello.flags & kDataReadOnly) != 0;
  connection.regions = std::move(admitted->ticket.regions);
  connection.stage = Stage::kAdmitting;
}

// The session's earlier connection, if there is one, is fenced before a later one is let in.
void ShmTarget::admit_waiting(ShmConnection& connection) {
  bool clear = true;
  for (const auto& other : connections_) {
    if (other.get() == &connection || other->session != connection.session || !other->may_touch_memory()) continue;
    if (other->stage != Stage::kFencing) begin_fence(*other);
    clear = clear && other->stage == Stage::kGone;
  }
  if (!clear) return;
  if (auto prepared = prepare_welcome(connection); !prepared) {
    refuse(connection, prepared.error());
    return;
  }
  connection.stage = Stage::kAnswering;
}

Result<void> ShmTarget::prepare_welcome(ShmConnection& connection) {
  auto memory = make_sealed_memory("skua-shm-session", sizeof(ShmSessionPage));
  if (!memory) return Error(std::move(memory).error());
  if (connection.read_only) {
    auto arena = reopen_read_only(arena_.descriptor);
    if (!arena) return Error(std::move(arena).error());
    auto page = reopen_read_only(memory->get());
    if (!page) return Error(std::move(page).error());
    connection.arena = std::move(*arena);
    connection.session_read_only = std::move(*page);
  }
  auto page = MappedFile::map(memory->get(), sizeof(ShmSessionPage), MappedFile::Access::kReadWrite);
  if (!page) return Error(std::move(page).error());
  connection.session_memory = std::move(*memory);
  connection.session_page = std::move(*page);

  DataWelcome welcome = make_welcome();
  welcome.flags = connection.read_only ? kDataReadOnly : 0;
  welcome.arena_bytes = arena_.bytes;
  welcome.regions = static_cast<uint32_t>(connection.regions.size());
  connection.answer.assign(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
  for (const ExposedRegion& region : connection.regions) {
    const ShmRegion shown{static_cast<uint64_t>(region.key), region.arena_offset, region.bytes};
    connection.answer.append(reinterpret_cast<const char*>(&shown), sizeof(shown));
  }
  return {};
}

void ShmTarget::refuse(ShmConnection& connection, const Status& status) {
  connection.answer = make_refusal(status);
  connection.refused = true;
  connection.stage = Stage::kAnswering;
}

void ShmTarget::write_answer(ShmConnection& connection) {
  while (connection.answered < connection.answer.size()) {
    iovec part{connection.answer.data() + connection.answered, connection.answer.size() - connection.answered};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kShmDescriptors)] = {};
    if (connection.answered == 0 && !connection.refused) {
      const int passed[kShmDescriptors] = {
          connection.read_only ? connection.arena.get() : arena_.descriptor,
          connection.read_only ? connection.session_read_only.get() : connection.session_memory.get(),
          life_memory_.get()};
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(passed));
      std::memcpy(CMSG_DATA(header), passed, sizeof(passed));
    }
    const ssize_t sent = ::sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) {
      connection.stage = Stage::kGone;
      return;
    }
    connection.answered += static_cast<size_t>(sent);
  }
  connection.stage = connection.refused ? Stage::kGone : Stage::kOpen;
  connection.answer = {};
  connection.regions = {};
  connection.arena.reset();
  connection.session_read_only.reset();
  connection.session_memory.reset();
}

void ShmTarget::begin_fence(ShmConnection& connection) {
  shared(connection.session_page.as<ShmSessionPage>()->fenced).store(1, std::memory_order_seq_cst);
  if (connection.stage == Stage::kGone) return;
  connection.stage = Stage::kFencing;
  check_fence(connection);
  any_waiting_ = true;
}

void ShmTarget::check_fence(ShmConnection& connection) {
  const auto armed = shared(connection.session_page.as<ShmSessionPage>()->armed);
  for (int i = 0; i < kFenceChecks; ++i) {
    if (armed.load(std::memory_order_seq_cst) == 0) {
      connection.stage = Stage::kGone;
      return;
    }
  }
  pollfd process{connection.process.get(), POLLIN, 0};
  if (connection.process && ::poll(&process, 1, 0) == 1) connection.stage = Stage::kGone;
}

Result<void> ShmTarget::listen() {
  if (options_.address.empty()) {
    char name[32];
    std::snprintf(name, sizeof(name), "@skua-%016llx", static_cast<unsigned long long>(system_entropy().next()));
    options_.address = name;
  }
  auto address = parse_unix_address(options_.address);
  if (!address) return Error(std::move(address).error());
  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  wake_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!listener_ || !wake_) {
    return fail(StatusCode::kResourceExhausted, "shm listener: " + errno_text(errno) + "; see ulimit -n");
  }
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(address->bytes), address->size) != 0 ||
      ::listen(listener_.get(), SOMAXCONN) != 0) {
    return fail(StatusCode::kConfiguration, "shm listener cannot bind " + options_.address + ": " +
                                                errno_text(errno) + "; stop the server that holds it, remove a "
                                                "left-over socket file, or leave the address empty");
  }
  if (options_.address.front() != '@') unlink_path_ = options_.address;
  return {};
}

Result<void> ShmTarget::start() {
  if (arena_.descriptor < 0) {
    return fail(StatusCode::kConfiguration, "shm needs an arena that is backed by a memfd");
  }
  // A client that may write could otherwise shorten the file under everyone. EPERM: the arena's owner sealed it.
  ::fcntl(arena_.descriptor, F_ADD_SEALS, F_SEAL_SHRINK);
  auto life = make_sealed_memory("skua-shm-life", sizeof(ShmLifePage));
  if (!life) return Error(std::move(life).error());
  auto page = MappedFile::map(life->get(), sizeof(ShmLifePage), MappedFile::Access::kReadWrite);
  if (!page) return Error(std::move(page).error());
  life_page_ = std::move(*page);
  auto read_only = reopen_read_only(life->get());
  if (!read_only) return Error(std::move(read_only).error());
  life_memory_ = std::move(*read_only);
  SKUA_RETURN_IF_ERROR(listen());

  std::promise<int> started;
  std::future<int> result = started.get_future();
  try {
    thread_ = std::thread([this, promise = std::move(started)]() mutable { run(std::move(promise)); });
  } catch (const std::system_error& error) {
    return fail(StatusCode::kResourceExhausted, std::string("shm thread: ") + error.what() + "; see ulimit -u");
  }
  if (const int error = result.get(); error != 0) {
    return fail(StatusCode::kResourceExhausted, "shm: set_robust_list: " + errno_text(error) +
                                                    "; the system call must be allowed");
  }
  return {};
}

Result<std::unique_ptr<Target>> make_shm_target(const ShmTargetOptions& options, const ArenaInfo& arena) {
  auto target = std::make_unique<ShmTarget>(options, arena);
  SKUA_RETURN_IF_ERROR(target->start());
  return target;
}

}  // namespace skua
