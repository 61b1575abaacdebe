// The set-up half of the TCP queue pair, and the connector.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/transport/tcp/tcp.h"
#include "common/transport/tcp/tcp_queue_pair.h"

namespace skua {
namespace {

Result<std::vector<TcpQueuePair::SocketAddress>> resolve(const NetAddress& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return fail(StatusCode::kConfiguration, "tcp " + address.to_string() + ": the name does not resolve: " +
                                                ::gai_strerror(error));
  }
  std::vector<TcpQueuePair::SocketAddress> addresses;
  for (const addrinfo* item = found; item != nullptr; item = item->ai_next) {
    TcpQueuePair::SocketAddress one{};
    if (item->ai_addrlen > sizeof(one.bytes)) continue;
    std::memcpy(&one.bytes, item->ai_addr, item->ai_addrlen);
    one.size = item->ai_addrlen;
    addresses.push_back(one);
  }
  ::freeaddrinfo(found);
  return addresses;
}

class TcpConnector final : public Connector {
 public:
  explicit TcpConnector(const Clock& clock) : clock_(clock) {}
  std::string_view name() const override { return "tcp"; }

  Result<std::unique_ptr<QueuePair>> connect(const ConnectTarget& target) override {
    auto hello = make_hello(target);
    if (!hello) return Error(std::move(hello).error());
    auto address = parse_net_address(target.address);
    if (!address) return Error(std::move(address).error());
    auto candidates = resolve(*address);
    if (!candidates) return Error(std::move(candidates).error());
    TcpQueuePair::Options options{*hello, target.address, std::move(*candidates), target.response_timeout};
    auto queue_pair = std::make_unique<TcpQueuePair>(std::move(options), clock_);
    SKUA_RETURN_IF_ERROR(queue_pair->dial());
    return queue_pair;
  }

 private:
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<Connector> make_tcp_connector(const Clock& clock) { return std::make_unique<TcpConnector>(clock); }

TcpQueuePair::TcpQueuePair(Options options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      capabilities_{"tcp", kQueueDepth, kMaxMessageBytes, true, (options_.hello.flags & kDataReadOnly) != 0},
      ring_(std::make_unique<std::array<Entry, kQueueDepth>>()),
      headers_(std::make_unique<std::array<WireRequest, kQueueDepth>>()),
      input_(std::make_unique<std::byte[]>(kInputBytes)) {}

Result<void> TcpQueuePair::dial() {
  deadline_ = clock_.now() + options_.response_timeout;
  events_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!events_) return fail(StatusCode::kResourceExhausted, "tcp " + options_.address + ": " + errno_text(errno));
  if (auto started = start_dial(); !started) {
    return fail(started.error().code(), "tcp " + options_.address + ": " + started.error().message());
  }
  return {};
}

// Begins to connect to the next candidate; those that fail at once are passed over.
Result<void> TcpQueuePair::start_dial() {
  int error = EADDRNOTAVAIL;
  for (; candidate_ < options_.candidates.size(); ++candidate_) {
    const SocketAddress& address = options_.candidates[candidate_];
    socket_.reset(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) {
      error = errno;
      continue;
    }
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const int result = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size);
    if (result == 0 || errno == EINPROGRESS || errno == EINTR) {
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT;
      ::epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket_.get(), &event);
      watch_writable_ = true;
      return {};
    }
    error = errno;
  }
  return fail(StatusCode::kUnavailable, "cannot connect: " + errno_text(error));
}

// False: not yet.
Result<bool> TcpQueuePair::finish_dial() {
  pollfd wait{socket_.get(), POLLOUT, 0};
  if (::poll(&wait, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) {
    ++candidate_;
    if (candidate_ == options_.candidates.size()) {
      return fail(StatusCode::kUnavailable, "cannot connect: " + errno_text(error) +
                                                "; check that the server runs and its data port is open");
    }
    SKUA_RETURN_IF_ERROR(start_dial());
    return false;
  }
  const ssize_t sent = ::send(socket_.get(), &options_.hello, sizeof(options_.hello), MSG_NOSIGNAL);
  const bool answered_already = sent < 0 && (errno == EPIPE || errno == ECONNRESET);  // a refusal waits to be read
  if (sent != static_cast<ssize_t>(sizeof(options_.hello)) && !answered_already) {
    return fail(StatusCode::kUnavailable, "hello was not taken: " + errno_text(errno));
  }
  phase_ = Phase::kWelcome;
  watch(false);
  return true;
}

void TcpQueuePair::watch(bool writable) {
  if (writable == watch_writable_) return;
  watch_writable_ = writable;
  epoll_event event{};
  event.events = writable ? EPOLLIN | EPOLLOUT : EPOLLIN;
  ::epoll_ctl(events_.get(), EPOLL_CTL_MOD, socket_.get(), &event);
}

void TcpQueuePair::advance_handshake() {
  Result<bool> step = phase_ == Phase::kDialing ? finish_dial() : Result<bool>(true);
  if (step && *step) step = receive_welcome();
  if (!step) {
    fail_with(step.error());
  } else if (*step) {
    phase_ = Phase::kOpen;
    state_ = QueuePairState::kReady;
  } else if (clock_.now() > deadline_) {
    fail_with(Status(StatusCode::kUnavailable, "no answer while connecting for " +
                                                   std::to_string(options_.response_timeout / kMillisecond) + " ms"));
  }
}

// True: the welcome is there and says yes.
Result<bool> TcpQueuePair::receive_welcome() {
  char buffer[sizeof(DataWelcome) + kMaxReasonBytes];
  while (true) {
    size_t wanted = sizeof(DataWelcome);
    if (received_.size() >= wanted) {
      DataWelcome welcome{};
      std::memcpy(&welcome, received_.data(), sizeof(welcome));
      SKUA_RETURN_IF_ERROR(check_welcome(welcome));
      wanted += welcome.reason_bytes;
      if (received_.size() >= wanted) {
        if (welcome.status != 0) {
          return Error(status_of_refusal(welcome, std::string_view(received_).substr(sizeof(welcome))));
        }
        capabilities_.read_only = (welcome.flags & kDataReadOnly) != 0;
        return true;
      }
    }
    const ssize_t got = ::recv(socket_.get(), buffer, wanted - received_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      return fail(StatusCode::kUnavailable, "the server closed the connection during the handshake" +
                                                (got < 0 ? ": " + errno_text(errno) : std::string()));
    }
    received_.append(buffer, static_cast<size_t>(got));
  }
}

void TcpQueuePair::fail_with(Status status) {
  if (state_ == QueuePairState::kError) return;
  state_ = QueuePairState::kError;
  error_ = Status(status.code(), "tcp " + options_.address + ": " + status.message());
  socket_.reset();
}

void TcpQueuePair::close() {
  fail_with(Status(StatusCode::kPeerLost, "closed by this side"));
  head_ = sent_ = tail_;
}

}  // namespace skua
