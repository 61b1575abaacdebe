// Load over verbs while the other side is killed: two_nodes_client HOST:PORT FAULT_FILE returns|gone
// Two sessions put and get until all is well, then FAULT_FILE is created, which makes someone kill the server. Each
// session must report an error within kErrorLimit of its last success and, where the server returns, work again.
// Exit code 0: it was so. It prints what it saw.
#include <atomic>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"

namespace skua {
namespace {

constexpr Nanoseconds kErrorLimit = kSecond;
constexpr Nanoseconds kReturnLimit = 30 * kSecond;
constexpr Nanoseconds kFaultLimit = 20 * kSecond;  // until the fault shows at all
constexpr uint64_t kWarmUp = 200;                  // operations of each session

struct Worker {
  std::atomic<uint64_t> done{0};
  std::string report;
  bool passed = false;
};

// Nothing: it succeeded, and what was read was right.
std::optional<Status> one_operation(Session& session, uint64_t number) {
  const std::string key = "key" + std::to_string(number % 50);
  if (number % 2 == 0) {
    const auto put = session.put(key, "value of " + key);
    if (!put) return put.error();
    return std::nullopt;
  }
  const auto got = session.get(key);
  if (!got) return got.error();
  if (*got && (*got)->bytes != "value of " + key) return Status(StatusCode::kCorruption, key + " has a wrong value");
  return std::nullopt;
}

void work(Client& client, bool returns, const std::atomic<bool>& fault_came, Worker& worker) {
  const Clock& clock = system_clock();
  const auto session = client.open_session();
  if (!session) {
    worker.report = "no session: " + session.error().to_string();
    return;
  }
  Nanoseconds last_good = clock.now();
  const Nanoseconds end = last_good + kFaultLimit + kReturnLimit;
  std::optional<Status> error;
  uint64_t early = 0;  // errors of a slow start, before the fault
  while (clock.now() < end) {
    error = one_operation(**session, worker.done);
    if (error && fault_came) break;
    if (error) {
      ++early;
      continue;
    }
    last_good = clock.now();
    ++worker.done;
  }
  if (!error) {
    worker.report = "nothing failed";
    return;
  }
  const Nanoseconds gap = clock.now() - last_good;
  worker.report = std::to_string(worker.done) + " operations, " + std::to_string(early) +
                  " errors before the fault; error " + std::to_string(gap / kMillisecond) +
                  " ms after the last success: " + error->to_string();
  worker.passed = worker.done >= kWarmUp && gap <= kErrorLimit && error->code() != StatusCode::kCorruption;
  if (!returns) return;
  const Nanoseconds failed_at = clock.now();
  while (clock.now() - failed_at < kReturnLimit) {
    if (!one_operation(**session, worker.done)) {
      worker.report += "; works again " + std::to_string((clock.now() - failed_at) / kMillisecond) + " ms later";
      return;
    }
  }
  worker.report += "; did not recover";
  worker.passed = false;
}

int run(const std::string& address, const std::string& fault, bool returns) {
  ClientOptions options;
  options.seeds = {address};
  options.transport = "verbs";
  options.operation_timeout = 800 * kMillisecond;
  const auto client = Client::connect(options);
  if (!client) {
    std::printf("cannot connect: %s\n", client.error().to_string().c_str());
    return 1;
  }
  std::vector<Worker> workers(2);
  std::vector<std::thread> threads;
  std::atomic<bool> fault_came{false};
  for (Worker& worker : workers) threads.emplace_back([&] { work(**client, returns, fault_came, worker); });
  const Nanoseconds end = system_clock().now() + kFaultLimit;
  while ((workers[0].done < kWarmUp || workers[1].done < kWarmUp) && system_clock().now() < end) {
    std::this_thread::yield();
  }
  fault_came = true;
  std::ofstream(fault) << "now\n";
  bool passed = true;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads[i].join();
    std::printf("session %zu: %s\n", i, workers[i].report.c_str());
    passed = passed && workers[i].passed;
  }
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace skua

int main(int count, char** arguments) {
  if (count != 4) return 64;
  return skua::run(arguments[1], arguments[2], std::string(arguments[3]) == "returns");
}
