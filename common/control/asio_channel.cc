#include "common/control/asio_channel.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <vector>

#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/units.h"
#include "common/control/asio_connection.h"
#include "common/control/asio_core.h"

namespace skua {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using internal::AsioChannel;
using internal::AsioConnection;
using internal::AsioCore;

std::string errno_text(const error_code& error) {
  return error.message() + " (errno " + std::to_string(error.value()) + ")";
}

// One attempt to reach one name: all its addresses in turn, under one time limit.
class DialOperation final : public internal::AsioOperation, public std::enable_shared_from_this<DialOperation> {
 public:
  using Done = std::function<void(Result<std::shared_ptr<Channel>>)>;

  DialOperation(std::shared_ptr<AsioCore> core, NetAddress address, Done done, ChannelEvents events)
      : core_(*core), weak_core_(core), address_(std::move(address)), resolver_(core->io()), socket_(core->io()),
        timer_(core->io()), done_(std::move(done)), events_(std::move(events)) {}
  ~DialOperation() override { core_.remove(*this); }

  void start(Nanoseconds timeout) {
    core_.add(shared_from_this());
    timer_->expires_after(std::chrono::nanoseconds(timeout));
    timer_->async_wait([self = shared_from_this(), timeout](const error_code& error) {
      if (error) return;
      self->refuse(StatusCode::kUnavailable, "no answer within " + format_duration(timeout) +
                                                 (self->reasons_.empty() ? "" : "; " + self->reasons_));
    });
    error_code no_address;
    const auto numeric = boost::asio::ip::make_address(address_.host, no_address);
    if (!no_address) {
      endpoints_.push_back(tcp::endpoint(numeric, address_.port));
      try_next();
      return;
    }
    resolver_->async_resolve(address_.host, std::to_string(address_.port), tcp::resolver::numeric_service,
                             [self = shared_from_this()](const error_code& error, const auto& results) {
                               self->on_resolved(error, results);
                             });
  }

  void abandon() override {
    resolver_.reset();
    socket_.reset();
    timer_.reset();
    const Done done = std::move(done_);
    const ChannelEvents events = std::move(events_);
  }

 private:
  void on_resolved(const error_code& error, const tcp::resolver::results_type& results) {
    if (!done_) return;
    if (error) {
      refuse(StatusCode::kConfiguration, "the name does not resolve (" + error.message() +
                                             "); check its spelling or write an IP address");
      return;
    }
    for (const auto& entry : results) endpoints_.push_back(entry.endpoint());
    try_next();
  }

  void try_next() {
    if (next_ == endpoints_.size()) {
      refuse(StatusCode::kUnavailable, reasons_);
      return;
    }
    const tcp::endpoint endpoint = endpoints_[next_++];
    socket_.emplace(core_.io());
    socket_->async_connect(endpoint, [self = shared_from_this(), endpoint](const error_code& error) {
      if (!self->done_) return;
      if (!error) {
        self->succeed();
        return;
      }
      if (!self->reasons_.empty()) self->reasons_ += "; ";
      if (self->endpoints_.size() > 1) self->reasons_ += internal::endpoint_text(endpoint) + " ";
      self->reasons_ += errno_text(error);
      self->try_next();
    });
  }

  void succeed() {
    timer_.reset();
    const std::shared_ptr<AsioCore> core = weak_core_.lock();
    if (!core) return;
    auto connection = std::make_shared<AsioConnection>(core_, std::move(*socket_), internal::ConnectionLimits{});
    socket_.reset();
    const Done done = std::move(done_);
    done_ = nullptr;
    ChannelEvents events = std::move(events_);
    done(std::make_shared<AsioChannel>(core, connection));
    connection->start(std::move(events), nullptr);
  }

  void refuse(StatusCode code, const std::string& why) {
    timer_.reset();
    socket_.reset();
    resolver_.reset();
    const ChannelEvents events = std::move(events_);
    const Done done = std::move(done_);
    done_ = nullptr;
    if (done) done(fail(code, "control connection to " + address_.to_string() + ": " + why));
  }

  AsioCore& core_;  // outlives every operation: handlers are destroyed with it
  const std::weak_ptr<AsioCore> weak_core_;
  const NetAddress address_;
  std::optional<tcp::resolver> resolver_;
  std::optional<tcp::socket> socket_;
  std::optional<boost::asio::steady_timer> timer_;
  std::vector<tcp::endpoint> endpoints_;
  size_t next_ = 0;
  std::string reasons_;
  Done done_;  // empty once called
  ChannelEvents events_;
};

class AsioDialer final : public Dialer {
 public:
  explicit AsioDialer(std::shared_ptr<AsioCore> core) : core_(std::move(core)) {}
  void dial(const NetAddress& address, Nanoseconds timeout,
            std::function<void(Result<std::shared_ptr<Channel>>)> done, ChannelEvents events) override {
    std::make_shared<DialOperation>(core_, address, std::move(done), std::move(events))->start(timeout);
  }

 private:
  std::shared_ptr<AsioCore> core_;
};

class AcceptOperation final : public internal::AsioOperation, public std::enable_shared_from_this<AcceptOperation> {
 public:
  static constexpr Nanoseconds kRetryDelay = 100 * kMillisecond;  // after accept failed: no descriptors, most likely

  AcceptOperation(const std::shared_ptr<AsioCore>& core, tcp::acceptor acceptor, ListenOptions options,
                  AcceptFunction accept)
      : core_(*core), weak_core_(core), acceptor_(std::move(acceptor)), retry_(core->io()),
        options_(std::move(options)), accept_(std::move(accept)) {}
  ~AcceptOperation() override { core_.remove(*this); }

  void accept_next() {
    if (!acceptor_) return;
    acceptor_->async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
      self->on_accepted(error, std::move(socket));
    });
  }

  void abandon() override {
    acceptor_.reset();
    retry_.reset();
    const AcceptFunction accept = std::move(accept_);
    accept_ = nullptr;
  }

 private:
  void on_accepted(const error_code& error, tcp::socket socket) {
    if (!acceptor_) return;
    if (error) {
      log_warning(options_.name + ": accept: " + errno_text(error));
      retry_->expires_after(std::chrono::nanoseconds(kRetryDelay));
      retry_->async_wait([self = shared_from_this()](const error_code& stopped) {
        if (!stopped) self->accept_next();
      });
      return;
    }
    if (connections_ < options_.max_connections) {
      full_logged_ = false;
      open(std::move(socket));
    } else if (!full_logged_) {
      full_logged_ = true;
      log_warning(options_.name + ": closes new connections, " + std::to_string(connections_) + " are open");
    }
    accept_next();
  }

  void open(tcp::socket socket) {
    const std::shared_ptr<AsioCore> core = weak_core_.lock();
    if (!core) return;
    const internal::ConnectionLimits limits{options_.max_queued_bytes, options_.max_first_frame_bytes,
                                            options_.first_frame_timeout};
    auto connection = std::make_shared<AsioConnection>(core_, std::move(socket), limits);
    ++connections_;
    ChannelEvents events = accept_(std::make_shared<AsioChannel>(core, connection));
    events.on_closed = [self = shared_from_this(), told = std::move(events.on_closed)](const Status& reason) {
      self->log_closed(reason);
      if (told) told(reason);
    };
    connection->start(std::move(events), [self = shared_from_this()] { --self->connections_; });
  }

  void log_closed(const Status& reason) {
    const std::string line = options_.name + ": connection closed: " + reason.message();
    if (reason.message().ends_with(internal::kClosedByPeer)) return log_debug(line);
    if (const auto more = closed_limit_.admit(system_clock().now())) log_info(line + *more);
  }

  AsioCore& core_;
  const std::weak_ptr<AsioCore> weak_core_;
  LogLimit closed_limit_;
  std::optional<tcp::acceptor> acceptor_;
  std::optional<boost::asio::steady_timer> retry_;
  const ListenOptions options_;
  AcceptFunction accept_;
  size_t connections_ = 0;
  bool full_logged_ = false;
};

class AsioListener final : public Listener {
 public:
  AsioListener(std::shared_ptr<AsioCore> core, std::shared_ptr<AcceptOperation> operation, NetAddress address)
      : core_(std::move(core)), operation_(std::move(operation)), address_(std::move(address)) {}
  ~AsioListener() override {
    core_->run_or_post([operation = std::move(operation_)] { operation->abandon(); });
  }
  NetAddress address() const override { return address_; }

 private:
  std::shared_ptr<AsioCore> core_;
  std::shared_ptr<AcceptOperation> operation_;
  NetAddress address_;
};

Error refuse_listen(const ListenOptions& options, const NetAddress& address, std::string_view step,
                    const error_code& error) {
  StatusCode code = StatusCode::kConfiguration;
  std::string remedy;
  if (error == boost::asio::error::address_in_use) {
    remedy = "another process listens there: stop it, choose another port with " + options.flag +
             ", or port 0 for a free one";
  } else if (error == boost::asio::error::access_denied) {
    remedy = "ports below 1024 need a privilege: choose a higher one with " + options.flag;
  } else if (error == boost::asio::error::no_descriptors || error == boost::asio::error::no_memory) {
    code = StatusCode::kResourceExhausted;
    remedy = "raise the limit of open files (ulimit -n)";
  } else {
    remedy = "give an address of this host with " + options.flag + ", or 0.0.0.0 for all of them";
  }
  return fail(code, options.name + " on " + address.to_string() + ": " + std::string(step) + ": " + errno_text(error) +
                        "; " + remedy);
}

}  // namespace

std::unique_ptr<Dialer> make_asio_dialer(AsioExecutor& executor) {
  return std::make_unique<AsioDialer>(executor.core());
}

Result<std::unique_ptr<Listener>> listen_asio(AsioExecutor& executor, const NetAddress& address, ListenOptions options,
                                              AcceptFunction accept) {
  const std::shared_ptr<AsioCore>& core = executor.core();
  error_code error;
  tcp::resolver resolver(core->io());
  const auto found = resolver.resolve(address.host, std::to_string(address.port),
                                      tcp::resolver::numeric_service | tcp::resolver::passive, error);
  if (error) return refuse_listen(options, address, "look-up of the name", error);
  tcp::acceptor acceptor(core->io());
  std::string_view step;
  for (const auto& entry : found) {
    const tcp::endpoint endpoint = entry.endpoint();
    error_code ignored;
    acceptor.close(ignored);
    step = "socket";
    acceptor.open(endpoint.protocol(), error);
    if (error) continue;
    acceptor.set_option(tcp::acceptor::reuse_address(true), ignored);
    step = "bind";
    acceptor.bind(endpoint, error);
    if (error) continue;
    step = "listen";
    acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
    if (!error) break;
  }
  if (error) return refuse_listen(options, address, step, error);
  const NetAddress bound{address.host, acceptor.local_endpoint(error).port()};
  if (error) return refuse_listen(options, address, "getsockname", error);
  auto operation = std::make_shared<AcceptOperation>(core, std::move(acceptor), std::move(options), std::move(accept));
  core->add(operation);
  core->post([operation] { operation->accept_next(); });
  return std::make_unique<AsioListener>(core, std::move(operation), bound);
}

}  // namespace skua
