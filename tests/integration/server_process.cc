#include "tests/integration/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace skua::testing {
namespace {

constexpr Nanoseconds kPatience = 30 * kSecond;

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  SKUA_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe");
  return ends;
}

// False at the end of the stream.
bool append_from(int descriptor, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t bytes = ::read(descriptor, buffer.data(), buffer.size());
  if (bytes <= 0) return false;
  text.append(buffer.data(), static_cast<size_t>(bytes));
  return true;
}

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t start = text.find(before);
  if (start == std::string::npos) return "";
  const size_t from = start + before.size();
  return text.substr(from, text.find(after, from) - from);
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = "/dev/shm/skua-test-XXXXXX";
  path_ = ::mkdtemp(pattern.data());
}

TemporaryDirectory::~TemporaryDirectory() { std::filesystem::remove_all(path_); }

ServerProcess::ServerProcess(const TemporaryDirectory& directory, const std::string& name,
                             std::vector<std::string> flags)
    : ready_file_(directory.path() + "/" + name + ".ready") {
  std::filesystem::remove(ready_file_);
  if (std::find(flags.begin(), flags.end(), "--listen") == flags.end()) {
    flags.insert(flags.end(), {"--listen", "127.0.0.1:0"});
  }
  if (std::find(flags.begin(), flags.end(), "--data-dir") == flags.end()) {
    flags.insert(flags.end(), {"--data-dir", directory.path() + "/" + name});
  }
  flags.insert(flags.end(), {"--ready-file", ready_file_});
  flags.insert(flags.begin(), SKUA_SERVER_PROGRAM);
  std::vector<char*> arguments;
  for (std::string& flag : flags) arguments.push_back(flag.data());
  arguments.push_back(nullptr);
  const std::array<int, 2> output = make_pipe();
  const std::array<int, 2> errors = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
  SKUA_CHECK(::posix_spawn(&pid_, SKUA_SERVER_PROGRAM, &actions, nullptr, arguments.data(), environ) == 0, "spawn");
  posix_spawn_file_actions_destroy(&actions);
  ::close(output[1]);
  ::close(errors[1]);
  output_pipe_ = output[0];
  error_pipe_ = errors[0];
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (output_pipe_ >= 0) ::close(output_pipe_);
  if (error_pipe_ >= 0) ::close(error_pipe_);
}

template <class Done>
bool ServerProcess::read_until(Done done) {
  const Nanoseconds end = system_clock().now() + kPatience;
  while (!done()) {
    const Nanoseconds left = end - system_clock().now();
    if (left <= 0 || (output_pipe_ < 0 && error_pipe_ < 0)) return false;
    std::array<pollfd, 2> ready{pollfd{output_pipe_, POLLIN, 0}, pollfd{error_pipe_, POLLIN, 0}};
    if (::poll(ready.data(), ready.size(), static_cast<int>(left / kMillisecond) + 1) <= 0) return false;
    if (ready[0].revents != 0 && !append_from(output_pipe_, output_)) ::close(std::exchange(output_pipe_, -1));
    if (ready[1].revents != 0 && !append_from(error_pipe_, errors_)) ::close(std::exchange(error_pipe_, -1));
  }
  return true;
}

bool ServerProcess::wait_ready() {
  return read_until([this] {
    const size_t at = output_.find("ready: ");
    return at != std::string::npos && output_.find('\n', at) != std::string::npos;
  });
}

bool ServerProcess::wait_error_text(const std::string& text) {
  return read_until([&] { return errors_.find(text) != std::string::npos; });
}

void ServerProcess::signal(int number) const { ::kill(pid_, number); }

std::optional<int> ServerProcess::wait_exit() {
  read_until([] { return false; });  // both streams end with the process
  if (output_pipe_ >= 0 || error_pipe_ >= 0) return std::nullopt;
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string ServerProcess::ready_json() const {
  std::ostringstream text;
  text << std::ifstream(ready_file_).rdbuf();
  return text.str();
}

NetAddress ServerProcess::control_address() const {
  return parse_net_address(between(ready_json(), "\"control\":\"", "\"")).value_or(NetAddress{});
}

std::string ServerProcess::data_address(const std::string& transport) const {
  return between(ready_json(), "{\"transport\":\"" + transport + "\",\"address\":\"", "\"");
}

}  // namespace skua::testing
