#include <sys/resource.h>

#include <cstdio>
#include <string>

#include "client/client.h"
#include "tests/rdma/checks.h"

namespace skua::rdma_checks {
namespace {

constexpr int kOperations = 300;
constexpr Nanoseconds kEver = 10 * kSecond;

struct Way {
  const char* name;
  WaitMode mode;
  Nanoseconds spin_time;
  bool sleeps;
};

long times_slept() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

bool check_way(const std::string& address, const Way& way) {
  ClientOptions options;
  options.seeds = {address};
  options.transport = "verbs";
  options.wait_mode = way.mode;
  options.spin_time = way.spin_time;
  options.operation_timeout = kEver;
  const auto client = Client::connect(options);
  const auto session = client ? (*client)->open_session() : tl::make_unexpected(client.error());
  if (!session) {
    std::printf("wait %s: %s\n", way.name, session.error().to_string().c_str());
    return false;
  }
  bool right = true;
  long before = 0;
  for (int i = 0; i < kOperations + 20; ++i) {
    if (i == 20) before = times_slept();  // connected, and the slabs known
    const std::string key = "wait" + std::to_string(i % 10);
    const std::string value = key + ":" + std::to_string(i);
    right = right && (*session)->put(key, value).has_value();
    const auto got = (*session)->get(key);
    right = right && got && *got && (*got)->bytes == value;
  }
  const long slept = times_slept() - before;
  std::printf("wait %s: %s, slept %ld times in %d PUTs and GETs\n", way.name, right ? "all right" : "WRONG", slept,
              kOperations);
  return right && (way.sleeps ? slept >= kOperations / 2 : slept <= kOperations / 10);
}

}  // namespace

bool check_waits(const std::string& address) {
  const Way ways[] = {{"busy", WaitMode::kSpin, 0, false},
                      {"event", WaitMode::kSleep, 0, true},
                      {"adaptive, long spin", WaitMode::kAdaptive, kEver, false},
                      {"adaptive, short spin", WaitMode::kAdaptive, kMicrosecond, true}};
  bool passed = true;
  for (const Way& way : ways) passed = check_way(address, way) && passed;
  return passed;
}

}  // namespace skua::rdma_checks
