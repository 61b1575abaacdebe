#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "tests/rdma/checks.h"

namespace skua::rdma_checks {
namespace {

constexpr int kForks = 8;
constexpr size_t kValueBytes = 100'000;  // by way of the registered ring; GETs land there
constexpr int kBetween = 40;             // operations between two forks

// All that is private and writable: heap, stacks, anonymous memory; not what a file or a device is mapped to.
void scribble() {
  std::ifstream maps("/proc/self/maps");
  const auto here = reinterpret_cast<uintptr_t>(&maps);
  std::string line;
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char rights[5] = {};
    unsigned long offset = 0;
    char device[16] = {};
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %15s %lu", &begin, &end, rights, &offset, device, &inode) != 6) {
      continue;
    }
    const bool ours = begin <= here && here < end;
    if (std::strcmp(rights, "rw-p") == 0 && inode == 0 && !ours) ranges.emplace_back(begin, end);
  }
  // Touching each page is what makes the kernel copy it; nothing that this process still needs is changed.
  for (const auto& [begin, end] : ranges) {
    for (uintptr_t page = begin; page < end; page += 4096) {
      std::atomic_ref(*reinterpret_cast<unsigned char*>(page)).fetch_or(0);
    }
  }
}

std::string value_of(const std::string& key, int round) {
  std::string value;
  while (value.size() < kValueBytes) value += key + "/" + std::to_string(round) + "/" + std::to_string(value.size());
  value.resize(kValueBytes);
  return value;
}

bool put_and_get(Session& session, const std::string& key, int round) {
  const std::string value = value_of(key, round);
  if (!session.put(key, value)) return false;
  const auto got = session.get(key);
  return got && *got && (*got)->bytes == value;
}

}  // namespace

bool check_fork(const std::string& address) {
  ClientOptions options;
  options.seeds = {address};
  options.transport = "verbs";
  const auto client = Client::connect(options);
  if (!client) {
    std::printf("cannot connect: %s\n", client.error().to_string().c_str());
    return false;
  }
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<int> done{0};
  std::thread load([&] {
    const auto session = (*client)->open_session();
    for (int round = 0; !stop && session; ++round) {
      if (!put_and_get(**session, "fork" + std::to_string(round % 5), round)) ++wrong;
      ++done;
    }
  });
  int children_failed = 0;
  for (int i = 0; i < kForks; ++i) {
    const int before = done;
    while (done < before + kBetween && wrong == 0) std::this_thread::yield();
    const pid_t child = ::fork();
    if (child == 0) {
      scribble();
      ::_exit(0);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) ++children_failed;
  }
  stop = true;
  load.join();
  const auto after = (*client)->open_session();
  const bool works = after && put_and_get(**after, "fork-after", 1);
  std::printf("fork: %d operations, %d wrong, %d children failed, %s afterwards\n", done.load(), wrong.load(),
              children_failed, works ? "works" : "does not work");
  return wrong == 0 && children_failed == 0 && works && done >= kForks * kBetween;
}

}  // namespace skua::rdma_checks
