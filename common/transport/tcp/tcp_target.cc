// The TCP target: listener, threads, handshake, and each connection's round of receive, execute, send.
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/transport/descriptor.h"
#include "common/transport/handshake.h"
#include "common/transport/tcp/tcp.h"
#include "common/transport/tcp/tcp_responder.h"

namespace skua {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kInputBytes = 64 << 10;
constexpr size_t kRefusalsBeyondLimit = 64;  // connections over the limit that are still told so
constexpr size_t kRefusedDrainBytes = 128 << 20;  // what is read and dropped behind a failed request, at most
constexpr std::chrono::nanoseconds kAcceptPause{100 * kMillisecond};

class TcpConnection;

// One thread and its io_context; its connections live and die on it.
struct Worker {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);
  asio::steady_timer deadlines{context};
  std::unordered_set<std::shared_ptr<TcpConnection>> connections;
  std::thread thread;
};

// Who may connect, and who is connected, under one lock: a fence must find every connection that was let in.
// Threads: any.
class Registry {
 public:
  struct Entered {
    TicketTable::Admitted admitted;
    std::vector<std::shared_ptr<TcpConnection>> earlier;  // of the same session, to be ended first
  };
  Result<Entered> enter(const DataHello& hello, const std::shared_ptr<TcpConnection>& connection);
  void leave(uint64_t session, const TcpConnection* connection);
  std::vector<std::shared_ptr<TcpConnection>> admit(SessionTicket ticket);
  std::vector<std::shared_ptr<TcpConnection>> remove(SessionId session);
  size_t connections() const { return count_.load(std::memory_order_relaxed); }
  void log_refused(const tcp::socket& socket, const Status& why);

 private:
  LogLimit limit_;
  std::mutex mutex_;
  TicketTable tickets_;
  std::unordered_map<uint64_t, std::vector<std::shared_ptr<TcpConnection>>> entered_;
  std::atomic<size_t> count_{0};
};

// Threads: its worker's; end is called from any.
class TcpConnection : public std::enable_shared_from_this<TcpConnection> {
 public:
  TcpConnection(tcp::socket socket, Worker& worker, Registry& registry, const TcpTargetOptions& options)
      : socket_(std::move(socket)),
        worker_(worker),
        registry_(registry),
        timeout_(options.first_message_timeout),
        input_(std::make_unique<std::byte[]>(kInputBytes)) {}

  void start() {
    expect_more();
    read_more();
  }
  void refuse(const Status& status) {
    answer_ = make_refusal(status);
    stage_ = Stage::kRefusing;
    expect_more();
    write_answer();
  }
  // Closes it; `ended` is called on its worker when that is done and no verb of it can run.
  void end(std::function<void()> ended) {
    asio::post(worker_.context, [self = shared_from_this(), ended = std::move(ended)] {
      self->close();
      ended();
    });
  }
  bool is_late(Nanoseconds now) const { return deadline_ != 0 && now > deadline_; }
  void close();

 private:
  enum class Stage { kHello, kAdmitting, kOpen, kRefusing, kDraining, kClosed };

  void expect_more() { deadline_ = system_clock().now() + timeout_; }
  void read_more();
  void on_read(const error_code& error, size_t bytes);
  void take_hello();
  void welcome(const SessionTicket& ticket, bool read_only);
  void write_answer();
  void serve();
  bool send_output();
  void wait_writable(void (TcpConnection::*then)());
  void drain();

  tcp::socket socket_;
  Worker& worker_;
  Registry& registry_;
  const Nanoseconds timeout_;
  Stage stage_ = Stage::kHello;
  uint64_t session_ = 0;
  bool entered_ = false;      // in the registry
  Nanoseconds deadline_ = 0;  // 0: none; idle between requests
  std::unique_ptr<std::byte[]> input_;
  size_t input_bytes_ = 0;
  size_t drained_ = 0;
  std::string answer_;  // of the handshake
  size_t answered_ = 0;
  TcpResponder responder_;
};

Result<Registry::Entered> Registry::enter(const DataHello& hello, const std::shared_ptr<TcpConnection>& connection) {
  const std::lock_guard lock(mutex_);
  auto admitted = tickets_.check(hello);
  if (!admitted) return Error(std::move(admitted).error());
  auto& entered = entered_[hello.session];
  Entered result{std::move(*admitted), entered};
  entered.push_back(connection);
  count_.fetch_add(1, std::memory_order_relaxed);
  return result;
}

void Registry::leave(uint64_t session, const TcpConnection* connection) {
  const std::lock_guard lock(mutex_);
  const auto found = entered_.find(session);
  if (found == entered_.end()) return;
  const size_t gone = std::erase_if(found->second, [&](const auto& other) { return other.get() == connection; });
  count_.fetch_sub(gone, std::memory_order_relaxed);
  if (found->second.empty()) entered_.erase(found);
}

std::vector<std::shared_ptr<TcpConnection>> Registry::admit(SessionTicket ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = entered_.find(static_cast<uint64_t>(ticket.session));
  tickets_.admit(std::move(ticket));
  return found == entered_.end() ? std::vector<std::shared_ptr<TcpConnection>>{} : found->second;
}

std::vector<std::shared_ptr<TcpConnection>> Registry::remove(SessionId session) {
  const std::lock_guard lock(mutex_);
  tickets_.remove(session);
  const auto found = entered_.find(static_cast<uint64_t>(session));
  return found == entered_.end() ? std::vector<std::shared_ptr<TcpConnection>>{} : found->second;
}

void Registry::log_refused(const tcp::socket& socket, const Status& why) {
  if (!log_enabled(LogLevel::kInfo)) return;
  const auto more = limit_.admit(system_clock().now());
  if (!more) return;
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  const std::string from = error ? "a peer" : NetAddress{peer.address().to_string(), peer.port()}.to_string();
  log_info("data: " + from + ": refused: " + why.message() + *more);
}

// Ends them all, then calls `done`, at once when there are none.
void end_all(const std::vector<std::shared_ptr<TcpConnection>>& connections, std::function<void()> done) {
  if (connections.empty()) return done();
  auto left = std::make_shared<std::atomic<size_t>>(connections.size());
  for (const auto& connection : connections) {
    connection->end([left, done] {
      if (left->fetch_sub(1, std::memory_order_acq_rel) == 1) done();
    });
  }
}

void TcpConnection::close() {
  if (stage_ == Stage::kClosed) return;
  stage_ = Stage::kClosed;
  deadline_ = 0;
  error_code ignored;
  socket_.close(ignored);
  if (entered_) registry_.leave(session_, this);
  worker_.connections.erase(shared_from_this());
}

void TcpConnection::read_more() {
  socket_.async_read_some(asio::buffer(input_.get() + input_bytes_, kInputBytes - input_bytes_),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void TcpConnection::on_read(const error_code& error, size_t bytes) {
  if (stage_ == Stage::kClosed) return;
  if (error) return close();
  input_bytes_ += bytes;
  switch (stage_) {
    case Stage::kHello: return take_hello();
    case Stage::kOpen: return serve();
    case Stage::kDraining: return drain();
    case Stage::kAdmitting:
    case Stage::kRefusing:
    case Stage::kClosed: return;
  }
}

void TcpConnection::take_hello() {
  if (input_bytes_ < kHelloPrefixBytes) return read_more();
  DataHello hello{};
  std::memcpy(&hello, input_.get(), std::min(sizeof(hello), input_bytes_));
  if (auto checked = check_hello_prefix(hello); !checked) {
    registry_.log_refused(socket_, checked.error());
    return refuse(checked.error());
  }
  if (input_bytes_ < sizeof(hello)) return read_more();
  input_bytes_ -= sizeof(hello);
  std::memmove(input_.get(), input_.get() + sizeof(hello), input_bytes_);
  auto entered = registry_.enter(hello, shared_from_this());
  if (!entered) return refuse(entered.error());
  session_ = hello.session;
  entered_ = true;
  stage_ = Stage::kAdmitting;
  const bool read_only = entered->admitted.ticket.read_only || (hello.flags & kDataReadOnly) != 0;
  auto ticket = std::make_shared<SessionTicket>(std::move(entered->admitted.ticket));
  end_all(entered->earlier, [self = shared_from_this(), ticket, read_only] {
    asio::dispatch(self->worker_.context, [self, ticket, read_only] { self->welcome(*ticket, read_only); });
  });
}

void TcpConnection::welcome(const SessionTicket& ticket, bool read_only) {
  if (stage_ != Stage::kAdmitting) return;  // fenced meanwhile
  std::vector<MappedRegion> regions;
  for (const ExposedRegion& region : ticket.regions) regions.push_back({region.key, region.data, region.bytes});
  responder_.assign(regions, read_only);
  DataWelcome message = make_welcome();
  message.flags = read_only ? kDataReadOnly : 0;
  answer_.assign(reinterpret_cast<const char*>(&message), sizeof(message));
  write_answer();
}

void TcpConnection::write_answer() {
  while (answered_ < answer_.size()) {
    const ssize_t sent = ::send(socket_.native_handle(), answer_.data() + answered_, answer_.size() - answered_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return wait_writable(&TcpConnection::write_answer);
    if (sent < 0) return close();
    answered_ += static_cast<size_t>(sent);
  }
  answer_ = {};
  if (stage_ == Stage::kRefusing) return drain();
  stage_ = Stage::kOpen;
  deadline_ = 0;
  serve();
}

void TcpConnection::wait_writable(void (TcpConnection::*then)()) {
  socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this(), then](const error_code& error) {
    if (self->stage_ == Stage::kClosed) return;
    if (error) return self->close();
    (self.get()->*then)();
  });
}

// Executes what has come, sends the answers, and asks for more; one pass sends with one system call as a rule.
void TcpConnection::serve() {
  size_t used = 0;
  bool more = true;
  while (more) {
    const size_t taken = responder_.execute({input_.get() + used, input_bytes_ - used});
    used += taken;
    more = !responder_.output().empty();
    if (more && !send_output()) {
      if (stage_ == Stage::kClosed) return;
      break;
    }
    if (responder_.failed()) break;
  }
  input_bytes_ -= used;
  if (used != 0) std::memmove(input_.get(), input_.get() + used, input_bytes_);
  if (!responder_.output().empty()) {
    deadline_ = 0;  // the peer is slow to read: nothing more is executed until it does
    return wait_writable(&TcpConnection::serve);
  }
  if (responder_.failed()) return drain();
  if (input_bytes_ != 0 || responder_.mid_request()) {
    expect_more();
  } else {
    deadline_ = 0;
  }
  read_more();
}

// False: the socket takes no more for now, or it broke and was closed.
bool TcpConnection::send_output() {
  while (!responder_.output().empty()) {
    const auto segments = responder_.output();
    msghdr message{};
    message.msg_iov = segments.data();
    message.msg_iovlen = segments.size();
    const ssize_t sent = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      responder_.sent(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      close();
      return false;
    }
  }
  return true;
}

// After the last answer: what still comes is dropped until the peer closes, since closing over unread bytes would
// reset the connection and could take the answer with it.
void TcpConnection::drain() {
  if (stage_ != Stage::kDraining) {
    stage_ = Stage::kDraining;
    expect_more();
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  drained_ += input_bytes_;
  input_bytes_ = 0;
  if (drained_ > kRefusedDrainBytes) return close();
  read_more();
}

class TcpTarget final : public Target {
 public:
  explicit TcpTarget(const TcpTargetOptions& options) : options_(options) {}
  ~TcpTarget() override;
  Result<void> start();

  std::string_view name() const override { return "tcp"; }
  std::string endpoint() const override { return endpoint_.to_string(); }
  void admit(SessionTicket ticket) override { end_all(registry_.admit(std::move(ticket)), [] {}); }
  void fence(SessionId session, std::function<void()> fenced) override {
    end_all(registry_.remove(session), std::move(fenced));
  }
  size_t connections() const override { return registry_.connections(); }

 private:
  Result<void> listen();
  void run(Worker& worker) const;
  void accept_next();
  void check_deadlines(Worker& worker);

  const TcpTargetOptions options_;
  NetAddress endpoint_;
  Registry registry_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<tcp::acceptor> acceptor_;   // on workers_[0], as the timer and the counter below
  std::unique_ptr<asio::steady_timer> accept_pause_;
  size_t next_worker_ = 0;
};

TcpTarget::~TcpTarget() {
  for (const auto& worker : workers_) worker->context.stop();
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
  // What is left in the contexts may hold connections of other contexts: it runs, on closed connections, before any
  // context goes.
  acceptor_.reset();
  accept_pause_.reset();
  for (int round = 0; round < 3; ++round) {
    for (const auto& worker : workers_) {
      worker->deadlines.cancel();
      while (!worker->connections.empty()) (*worker->connections.begin())->close();
      worker->context.restart();
      worker->context.poll();
    }
  }
}

Error cannot_listen(const TcpTargetOptions& options, const error_code& error, const char* what) {
  const std::string numbered = " (errno " + std::to_string(error.value()) + ")";
  const std::string reason = error.category() == boost::system::system_category() ? errno_text(error.value()) + numbered
                                                                                  : error.message();
  std::string remedy = "choose an address of this host, or 0.0.0.0 for all of them, with --data-listen";
  if (error == asio::error::address_in_use) {
    remedy = "stop the process that holds the port, or choose another with --data-listen (port 0 takes a free one)";
  } else if (error == asio::error::access_denied) {
    remedy = "ports below 1024 need a privilege: choose a higher one with --data-listen";
  }
  return fail(StatusCode::kConfiguration, options.listener_name + " cannot " + what + " " +
                                              options.listen.to_string() + ": " + reason + "; " + remedy);
}

Result<void> TcpTarget::listen() {
  error_code error;
  tcp::resolver resolver(workers_[0]->context);
  const auto found = resolver.resolve(options_.listen.host, std::to_string(options_.listen.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return cannot_listen(options_, error, "resolve");
  const tcp::endpoint address = found.begin()->endpoint();
  acceptor_ = std::make_unique<tcp::acceptor>(workers_[0]->context);
  acceptor_->open(address.protocol(), error);
  if (error) return cannot_listen(options_, error, "open a socket for");
  acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
  acceptor_->bind(address, error);
  if (error) return cannot_listen(options_, error, "bind");
  acceptor_->listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot_listen(options_, error, "listen on");
  endpoint_.host = options_.advertise_host.empty() ? options_.listen.host : options_.advertise_host;
  endpoint_.port = acceptor_->local_endpoint(error).port();
  return {};
}

Result<void> TcpTarget::start() {
  for (unsigned i = 0; i < std::max(1U, options_.threads); ++i) workers_.push_back(std::make_unique<Worker>());
  SKUA_RETURN_IF_ERROR(listen());
  accept_pause_ = std::make_unique<asio::steady_timer>(workers_[0]->context);
  accept_next();
  for (const auto& worker : workers_) {
    check_deadlines(*worker);
    worker->thread = std::thread([this, &worker = *worker] { run(worker); });
  }
  return {};
}

void TcpTarget::run(Worker& worker) const {
  asio::io_context& context = worker.context;
  if (options_.spin_time == 0) {
    context.run();
    return;
  }
  Nanoseconds spin_until = 0;
  while (!context.stopped()) {
    if (context.poll() != 0 || (system_clock().now() >= spin_until && context.run_one() != 0)) {
      spin_until = system_clock().now() + options_.spin_time;
    }
  }
}

void TcpTarget::accept_next() {
  Worker& worker = *workers_[next_worker_];
  acceptor_->async_accept(worker.context, [this, &worker](const error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      next_worker_ = (next_worker_ + 1) % workers_.size();
      auto shared = std::make_shared<tcp::socket>(std::move(socket));
      asio::post(worker.context, [this, &worker, shared] {
        error_code ignored;
        shared->set_option(tcp::no_delay(true), ignored);
        shared->non_blocking(true, ignored);
        auto connection = std::make_shared<TcpConnection>(std::move(*shared), worker, registry_, options_);
        worker.connections.insert(connection);
        const size_t others = worker.connections.size() - 1;
        const size_t limit = std::max<size_t>(1, options_.max_connections / workers_.size());
        if (others >= limit + kRefusalsBeyondLimit) return connection->close();
        if (others >= limit) {
          return connection->refuse(Status(StatusCode::kResourceExhausted,
                                           "all " + std::to_string(options_.max_connections) +
                                               " tcp connections of the server are in use; close some or raise its "
                                               "limit"));
        }
        connection->start();
      });
      return accept_next();
    }
    accept_pause_->expires_after(kAcceptPause);  // out of descriptors or memory
    accept_pause_->async_wait([this](const error_code& stopped) {
      if (!stopped) accept_next();
    });
  });
}

void TcpTarget::check_deadlines(Worker& worker) {
  worker.deadlines.expires_after(std::chrono::nanoseconds(std::max<Nanoseconds>(
      options_.first_message_timeout / 4, 10 * kMillisecond)));
  worker.deadlines.async_wait([this, &worker](const error_code& error) {
    if (error) return;
    const Nanoseconds now = system_clock().now();
    std::vector<std::shared_ptr<TcpConnection>> late;  // closing one takes it out of the set
    for (const auto& connection : worker.connections) {
      if (connection->is_late(now)) late.push_back(connection);
    }
    for (const auto& connection : late) connection->close();
    check_deadlines(worker);
  });
}

}  // namespace

Result<std::unique_ptr<Target>> make_tcp_target(const TcpTargetOptions& options, const ArenaInfo&) {
  auto target = std::make_unique<TcpTarget>(options);
  try {
    SKUA_RETURN_IF_ERROR(target->start());
  } catch (const std::exception& error) {  // Asio's reactor or a thread could not be made
    return fail(StatusCode::kResourceExhausted, options.listener_name + " on " + options.listen.to_string() + ": " +
                                                    error.what() + "; see ulimit -n and ulimit -u");
  }
  return target;
}

}  // namespace skua
