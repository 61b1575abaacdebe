#include "bench/local_cluster.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/net_address.h"

namespace skua::bench {
namespace {

constexpr Nanoseconds kLongestWait = 100 * kMillisecond;  // before looking whether the run was interrupted
constexpr int kReadyDescriptor = 3;                        // its number in the server

// Waits until it can be read, at most kLongestWait; whether it can.
bool wait_for(const Descriptor& descriptor) {
  pollfd polled{descriptor.number(), POLLIN, 0};
  return poll(&polled, 1, static_cast<int>(kLongestWait / kMillisecond)) > 0;
}

// The control address in what a server says when it is ready, one line of JSON.
std::optional<std::string> control_address(const std::string& text) {
  constexpr std::string_view kName = "\"control\":\"";
  const size_t name = text.find(kName);
  if (name == std::string::npos || text.back() != '\n') return std::nullopt;
  const size_t begin = name + kName.size();
  const std::string address = text.substr(begin, text.find('"', begin) - begin);
  if (!parse_net_address(address)) return std::nullopt;
  return address;
}

std::string end_of_log(const std::string& path) {
  constexpr size_t kShown = 2000;
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.size() > kShown) text.erase(0, text.size() - kShown);
  return text.empty() ? "it logged nothing" : "its log ends:\n" + text;
}

// Only what is safe between fork and exec.
[[noreturn]] void become(char* const* arguments, const char* log, int ready, pid_t parent) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  // tidy: allow(banned): a forked child has no main to return to
  if (getppid() != parent) _exit(127);
  (void)setpgid(0, 0);  // a Ctrl-C is for the benchmark, which stops its servers itself
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
  const int output = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (output >= 0) {
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
  }
  // A descriptor that is its own copy would keep close-on-exec.
  if (ready == kReadyDescriptor) {
    (void)fcntl(ready, F_SETFD, 0);
  } else {
    (void)dup2(ready, kReadyDescriptor);
  }
  execv(arguments[0], arguments);
  // tidy: allow(banned): a forked child has no main to return to
  _exit(127);
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Result<std::string> find_server_binary(const std::string& wish) {
  std::string path = wish;
  if (path.empty()) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return fail(StatusCode::kConfiguration, "where this program lies is unknown: use --server-binary FILE");
    path = (self.parent_path() / "skua-server").string();
  }
  if (access(path.c_str(), X_OK) != 0) {
    return fail(StatusCode::kConfiguration, "the server program " + path + " cannot be run: " + std::strerror(errno) +
                                                "; build the target skua-server, or use --server-binary FILE");
  }
  return path;
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(LocalClusterOptions options, const Clock& clock,
                                                          const std::atomic<bool>& interrupted) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(options), clock));
  SKUA_RETURN_IF_ERROR(cluster->make_folder());
  // The first server is the one that the others join.
  for (uint32_t i = 0; i < cluster->options_.servers; ++i) {
    SKUA_RETURN_IF_ERROR(cluster->launch(i));
    if (i == 0) SKUA_RETURN_IF_ERROR(cluster->wait_until_ready(0, interrupted));
  }
  for (uint32_t i = 1; i < cluster->options_.servers; ++i) {
    SKUA_RETURN_IF_ERROR(cluster->wait_until_ready(i, interrupted));
  }
  return cluster;
}

LocalCluster::~LocalCluster() { stop(); }

Result<void> LocalCluster::make_folder() {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "skua-bench-XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr) {
    return fail(StatusCode::kConfiguration, "no folder for the servers' files can be made at " + name + ": " +
                                                std::strerror(errno) + "; set TMPDIR to one that can be written");
  }
  folder_ = name;
  return {};
}

Result<void> LocalCluster::launch(uint32_t index) {
  Server server;
  server.folder = folder_ + "/server" + std::to_string(index + 1);
  std::error_code error;
  std::filesystem::create_directory(server.folder, error);
  if (error) return fail(StatusCode::kConfiguration, server.folder + " cannot be made: " + error.message());

  std::vector<std::string> arguments{options_.server_binary, "--listen", "127.0.0.1:0",
                                     "--ready-fd", std::to_string(kReadyDescriptor),
                                     "--data-dir", server.folder + "/data"};
  const auto add = [&](std::string flag, std::string value) {
    arguments.push_back(std::move(flag));
    arguments.push_back(std::move(value));
  };
  if (index == 0) {
    add("--initial-servers", std::to_string(options_.servers));
  } else {
    add("--join", servers_.front().address);
  }
  if (!options_.memory.empty()) add("--memory", options_.memory);
  if (options_.expected_keys != 0) add("--expected-keys", std::to_string(options_.expected_keys));
  arguments.insert(arguments.end(), options_.more_arguments.begin(), options_.more_arguments.end());
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);

  const std::string log = server.folder + "/log";
  const auto cannot_start = [] {
    return fail(StatusCode::kUnavailable, std::string("a server process cannot be started: ") + std::strerror(errno));
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return cannot_start();
  server.ready = Descriptor(ends[0]);
  const Descriptor told(ends[1]);
  const pid_t parent = getpid();
  server.process = fork();
  if (server.process == 0) become(raw.data(), log.c_str(), told.number(), parent);
  if (server.process < 0) return cannot_start();
  server.ended = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, server.process, 0)));
  servers_.push_back(std::move(server));
  if (servers_.back().ended.number() < 0) return cannot_start();
  return {};
}

std::string LocalCluster::collect(Server& server) {
  int status = 0;
  while (waitpid(server.process, &status, 0) < 0 && errno == EINTR) {
  }
  server.process = -1;
  return WIFSIGNALED(status) ? "by signal " + std::to_string(WTERMSIG(status))
                             : "with exit code " + std::to_string(WEXITSTATUS(status));
}

Result<void> LocalCluster::wait_until_ready(uint32_t index, const std::atomic<bool>& interrupted) {
  Server& server = servers_[index];
  const std::string name = "server " + std::to_string(index + 1);
  const Nanoseconds deadline = clock_.now() + options_.ready_timeout;
  std::string said;
  while (clock_.now() < deadline) {
    if (interrupted.load()) return fail(StatusCode::kUnavailable, "interrupted while " + name + " started");
    if (!wait_for(server.ready)) continue;
    char buffer[4096];
    const ssize_t bytes = read(server.ready.number(), buffer, sizeof(buffer));
    if (bytes > 0) {
      said.append(buffer, static_cast<size_t>(bytes));
      if (auto address = control_address(said)) {
        server.address = std::move(*address);
        return {};
      }
    } else if (bytes == 0) {
      // It ends, or has closed the pipe without a word.
      (void)kill(server.process, SIGTERM);
      const std::string how = collect(server);
      return fail(StatusCode::kUnavailable, name + " ended " + how + "; " + end_of_log(server.folder + "/log"));
    }
  }
  return fail(StatusCode::kUnavailable, name + " was not ready after " +
                                            std::to_string(options_.ready_timeout / kSecond) + " s; " +
                                            end_of_log(server.folder + "/log"));
}

void LocalCluster::stop() {
  // The coordinator last, so that the others can take their leave.
  for (auto server = servers_.rbegin(); server != servers_.rend(); ++server) {
    if (server->process > 0) (void)kill(server->process, SIGTERM);
  }
  const Nanoseconds deadline = clock_.now() + kStopTimeout;
  for (Server& server : servers_) {
    if (server.process <= 0) continue;
    bool ended = false;
    while (!ended && clock_.now() < deadline) ended = wait_for(server.ended);
    if (!ended) (void)kill(server.process, SIGKILL);
    (void)collect(server);
  }
  servers_.clear();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace skua::bench
