// Operations have a long deadline: that a session notices is seen in its counters, not by an operation giving up.
#include <poll.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "tests/rdma/checks.h"

namespace skua::rdma_checks {
namespace {

constexpr Nanoseconds kErrorLimit = kSecond;
constexpr Nanoseconds kDeadline = 60 * kSecond;    // of an operation
constexpr Nanoseconds kReturnLimit = 30 * kSecond;
constexpr Nanoseconds kFaultLimit = 20 * kSecond;  // until the fault shows at all
constexpr uint64_t kWarmUp = 200;                  // operations of each session

struct Worker {
  std::string name;
  std::unique_ptr<Client> client;  // its own, so that its counters are
  std::atomic<uint64_t> done{0};
  std::atomic<Nanoseconds> last_good{0};
  std::atomic<bool> corrupt{false};
  std::thread thread;

  uint64_t cut_off() const {
    uint64_t sum = 0;
    for (const OperationCounters& kind : client->counters()) sum += kind.cut_off;
    return sum;
  }
};

bool one_operation(Session& session, uint64_t number, Worker& worker) {
  const std::string key = worker.name + std::to_string(number % 50);
  if (number % 2 == 0) return session.put(key, "value of " + key).has_value();
  const auto got = session.get(key);
  if (!got) return false;
  if (*got && (*got)->bytes != "value of " + key) worker.corrupt = true;
  return true;
}

void work(Worker& worker) {
  const auto session = worker.client->open_session();
  if (!session) return;
  for (uint64_t number = 0;; ++number) {
    if (!one_operation(**session, number, worker)) continue;
    worker.last_good = system_clock().now();
    ++worker.done;
  }
}

bool wait_for(Nanoseconds limit, const std::function<bool()>& done) {
  const Nanoseconds end = system_clock().now() + limit;
  while (!done()) {
    if (system_clock().now() > end) return false;
    ::poll(nullptr, 0, 1);  // counters change in silence
  }
  return true;
}

// From the last success until a connection broke.
bool expect_trouble(Worker& worker, uint64_t before) {
  Nanoseconds last_good = worker.last_good;
  const bool shown = wait_for(kFaultLimit, [&] {
    if (worker.cut_off() != before) return true;
    last_good = worker.last_good;
    return false;
  });
  const Nanoseconds gap = system_clock().now() - last_good;
  std::printf("session %s: %s %lld ms after the last success\n", worker.name.c_str(),
              shown ? "noticed" : "noticed nothing", static_cast<long long>(gap / kMillisecond));
  return shown && gap <= kErrorLimit;
}

bool expect_return(Worker& worker) {
  const Nanoseconds begin = system_clock().now();
  const uint64_t before = worker.done;
  const bool back = wait_for(kReturnLimit, [&] { return worker.done >= before + 10; });
  std::printf("session %s: %s %lld ms later\n", worker.name.c_str(), back ? "works again" : "does not work",
              static_cast<long long>((system_clock().now() - begin) / kMillisecond));
  return back;
}

}  // namespace

bool check_fault(const Fault& fault) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (const char* const name : {"a", "b"}) {
    ClientOptions options;
    options.seeds = {fault.address};
    options.transport = "verbs";
    options.operation_timeout = kDeadline;
    auto client = Client::connect(options);
    if (!client) {
      std::printf("cannot connect: %s\n", client.error().to_string().c_str());
      return false;
    }
    workers.push_back(std::make_unique<Worker>());
    Worker& worker = *workers.back();
    worker.name = name;
    worker.client = std::move(*client);
    worker.thread = std::thread([&worker] { work(worker); });
  }
  bool passed = true;
  for (const auto& worker : workers) {
    if (wait_for(kFaultLimit, [&] { return worker->done >= kWarmUp; })) continue;
    std::printf("session %s: only %llu operations\n", worker->name.c_str(),
                static_cast<unsigned long long>(worker->done));
    passed = false;
  }
  std::vector<uint64_t> before;
  for (const auto& worker : workers) before.push_back(worker->cut_off());
  std::ofstream(fault.file) << "now\n";
  std::vector<std::thread> watchers;
  std::atomic<int> failures{0};
  for (size_t i = 0; i < workers.size(); ++i) {
    watchers.emplace_back([&fault, &failures, &worker = *workers[i], count = before[i]] {
      if (!expect_trouble(worker, count) || (fault.returns && !expect_return(worker))) ++failures;
    });
  }
  for (std::thread& watcher : watchers) watcher.join();
  for (auto& worker : workers) {
    if (worker->corrupt) std::printf("session %s: a wrong value\n", worker->name.c_str());
    passed = passed && !worker->corrupt;
    // An operation on a server that is gone would end with its deadline: the process ends before it.
    worker->thread.detach();
    (void)worker.release();
  }
  return passed && failures == 0;
}

}  // namespace skua::rdma_checks
