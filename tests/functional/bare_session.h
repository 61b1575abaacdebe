#pragma once
// BareSession is one session of a client, without its public face: a test runs operations on it as coroutines, and can
// break its connections at the next CAS.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "client/client_core.h"
#include "client/data_path.h"
#include "client/session_core.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/control/asio_channel.h"
#include "common/transport/shm/shm.h"
#include "common/transport/tcp/tcp.h"
#include "tests/functional/local_cluster.h"

namespace skua::testing {

enum class Fault {
  kNone,
  kLoseCompletion,  // the post takes effect, and the connection breaks before its completion
  kLosePost,        // the connection breaks before the post is sent
};

// The next post with a CAS in it, on any queue pair, meets this fault, once.
struct FaultSwitch {
  Fault next_cas = Fault::kNone;
  int skip = 0;  // posts with a CAS that pass before
  int met = 0;
  std::function<void()> before_cas;  // runs once, before that post
};

class FaultyQueuePair final : public QueuePair {
 public:
  FaultyQueuePair(std::unique_ptr<QueuePair> inner, FaultSwitch& faults) : inner_(std::move(inner)), faults_(faults) {}

  QueuePairState state() const override { return broken_ ? QueuePairState::kError : inner_->state(); }
  const Status& error() const override { return broken_ ? why_ : inner_->error(); }
  size_t post(std::span<const WorkRequest> requests) override {
    if (broken_) return 0;
    bool cas = false;
    for (const WorkRequest& request : requests) cas |= request.verb == Verb::kCompareAndSwap;
    if (cas && faults_.before_cas) std::exchange(faults_.before_cas, nullptr)();
    if (cas && faults_.next_cas != Fault::kNone && faults_.skip-- == 0) {
      const Fault fault = std::exchange(faults_.next_cas, Fault::kNone);
      ++faults_.met;
      if (fault == Fault::kLoseCompletion) execute(requests);
      broken_ = true;
      for (const WorkRequest& request : requests) lost_.push_back(request.context);
      return requests.size();
    }
    return inner_->post(requests);
  }
  size_t poll(std::span<Completion> completions) override {
    if (!broken_) return inner_->poll(completions);
    size_t count = 0;
    while (count < completions.size() && !lost_.empty()) {
      completions[count++] = {lost_.front(), CompletionStatus::kPeerLost};
      lost_.pop_front();
    }
    return count;
  }
  int wait_descriptor() const override { return inner_->wait_descriptor(); }
  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  void close() override { inner_->close(); }

 private:
  void execute(std::span<const WorkRequest> requests) {
    size_t left = 0;
    for (const WorkRequest& request : requests) left += request.signaled ? 1 : 0;
    ASSERT_EQ(inner_->post(requests), requests.size());
    Completion done[8];
    while (left > 0) left -= inner_->poll(done);
  }
  std::unique_ptr<QueuePair> inner_;
  FaultSwitch& faults_;
  std::deque<uint64_t> lost_;
  bool broken_ = false;
  Status why_{StatusCode::kPeerLost, "the test broke the connection"};
};

class FaultyConnector final : public Connector {
 public:
  FaultyConnector(std::unique_ptr<Connector> inner, FaultSwitch& faults) : inner_(std::move(inner)), faults_(faults) {}
  std::string_view name() const override { return inner_->name(); }
  Result<std::unique_ptr<QueuePair>> connect(const ConnectTarget& target) override {
    auto inner = inner_->connect(target);
    if (!inner) return inner;
    return std::make_unique<FaultyQueuePair>(std::move(*inner), faults_);
  }

 private:
  std::unique_ptr<Connector> inner_;
  FaultSwitch& faults_;
};

class BareSession {
 public:
  // `transport`: shm or tcp.
  BareSession(const std::string& transport, ClientOptions options)
      : executor_(system_clock()), dialer_(make_asio_dialer(executor_)) {
    ClientCore::Environment environment;
    environment.executor = &executor_;
    environment.dialer = dialer_.get();
    environment.clock = &system_clock();
    environment.entropy = &system_entropy();
    auto inner = transport == "shm" ? make_shm_connector(system_clock()) : make_tcp_connector(system_clock());
    environment.connectors = {std::make_shared<FaultyConnector>(std::move(inner), faults_)};
    client_ = std::make_shared<ClientCore>(options, environment);
    executor_.start();
    std::promise<bool> started;
    executor_.post([&] { client_->start([&](Result<void> result) { started.set_value(result.has_value()); }); });
    SKUA_CHECK(started.get_future().get(), "the client core starts");
    session_ = std::make_shared<SessionCore>(client_, options);
    client_->add_session(session_);
  }
  BareSession(const LocalCluster& cluster, const std::string& transport)
      : BareSession(transport, cluster.client_options(transport)) {}
  ~BareSession() {
    client_->remove_session(session_);
    session_->shut_down();
    std::promise<void> stopped;
    executor_.post([&] { client_->stop([&] { stopped.set_value(); }); });
    stopped.get_future().get();
    executor_.stop();
  }

  SessionCore& core() { return *session_; }
  FaultSwitch& faults() { return faults_; }

  template <class T>
  T run(Task<T> task) {
    task.start();
    while (!task.done()) session_->poll_or_wait();
    return task.take();
  }
  Result<VersionToken> put(const std::string& key, const std::string& value, PutOptions options = {}) {
    return run(put_operation(*session_, key, value, options));
  }
  std::string get(const std::string& key) {
    auto got = run(get_operation(*session_, key, {}));
    if (!got) return "<" + got.error().to_string() + ">";
    return got->present ? std::string(got->value) : "<absent>";
  }

 private:
  FaultSwitch faults_;
  AsioExecutor executor_;
  std::unique_ptr<Dialer> dialer_;
  std::shared_ptr<ClientCore> client_;
  std::shared_ptr<SessionCore> session_;
};

}  // namespace skua::testing
