#pragma once
// LocalCluster is a set of throw-away skua-server processes on this host, with a folder for their files and logs.
//
// Ends:    servers stop and the folder goes with the object; SIGTERM first, SIGKILL after kStopTimeout. Should this
//          process be killed, the kernel kills them.
// Threads: one owner thread, which must outlive the object: the kernel ties the servers' life to it.
// Errors:  kConfiguration (no such program), kUnavailable (a server ended or is not ready in time, with the end of its
//          log).
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace skua::bench {

// Closes its file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }

 private:
  int number_ = -1;
};

struct LocalClusterOptions {
  uint32_t servers = 1;
  std::string server_binary;    // see find_server_binary
  std::string memory;           // of each
  uint64_t expected_keys = 0;   // on each; 0: the server's own default
  std::vector<std::string> more_arguments;  // of each, as they are
  Nanoseconds ready_timeout = 30 * kSecond;
};

class LocalCluster {
 public:
  // Gives up when `interrupted` becomes true.
  static Result<std::unique_ptr<LocalCluster>> start(LocalClusterOptions options, const Clock& clock,
                                                     const std::atomic<bool>& interrupted);
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Of the first server: enough to reach all.
  const std::string& address() const { return servers_.front().address; }

  static constexpr Nanoseconds kStopTimeout = 10 * kSecond;

 private:
  struct Server {
    pid_t process = -1;
    Descriptor ended;   // readable when the process has ended
    Descriptor ready;   // gets a line of JSON when the server is ready
    std::string folder;
    std::string address;
  };
  LocalCluster(LocalClusterOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  Result<void> make_folder();
  Result<void> launch(uint32_t index);
  Result<void> wait_until_ready(uint32_t index, const std::atomic<bool>& interrupted);
  // Waits for its end and says how it ended.
  static std::string collect(Server& server);
  void stop();

  const LocalClusterOptions options_;
  const Clock& clock_;
  std::string folder_;
  std::vector<Server> servers_;
};

// `wish` if it is not empty, else skua-server beside the running program. Error: kConfiguration when it cannot be run.
Result<std::string> find_server_binary(const std::string& wish);

}  // namespace skua::bench
