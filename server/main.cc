// skua-server: reads its settings, runs one node, ends on a signal.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <thread>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/base/standard_descriptors.h"
#include "server/config.h"
#include "server/node.h"

namespace {

void write_log(skua::LogLevel level, std::string_view text) {
  constexpr std::array kLevels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
  spdlog::log(kLevels[static_cast<size_t>(level)], "{}", text);
}

void set_up_log(skua::LogLevel level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("skua", std::move(sink)));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  spdlog::set_level(spdlog::level::debug);
  skua::set_log_sink(&write_log);
  skua::set_log_level(level);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string ready_json(const skua::Node& node) {
  std::string endpoints;
  for (const auto& endpoint : node.endpoints()) {
    endpoints += (endpoints.empty() ? "" : ",") + std::string("{\"transport\":") + quoted(endpoint.transport) +
                 ",\"address\":" + quoted(endpoint.address) + "}";
  }
  return "{\"control\":" + quoted(node.control_address()) + ",\"endpoints\":[" + endpoints +
         "],\"pid\":" + std::to_string(::getpid()) + ",\"server\":" + std::to_string(node.server_id()) +
         ",\"name\":" + quoted(node.name()) + ",\"state\":" + (node.serving() ? "\"serving\"" : "\"forming\"") +
         ",\"pages\":" + quoted(node.pages()) + "}\n";
}

std::string ready_line(const skua::Node& node) {
  std::string endpoints;
  for (const auto& endpoint : node.endpoints()) endpoints += ", " + endpoint.transport + " " + endpoint.address;
  return "ready: server " + std::to_string(node.server_id()) + ", control " + node.control_address() + endpoints +
         ", pages " + node.pages() + (node.serving() ? "" : ", waits for more servers to join") + "\n";
}

bool write_all(int descriptor, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t bytes = ::write(descriptor, text.data() + written, text.size() - written);
    if (bytes < 0) return false;
    written += static_cast<size_t>(bytes);
  }
  return true;
}

// Empty, or what went wrong.
std::string announce(const skua::ServerConfig& config, const skua::Node& node) {
  const std::string json = ready_json(node);
  if (config.ready_fd >= 0) {
    const bool written = write_all(config.ready_fd, json);
    ::close(config.ready_fd);
    if (!written) return "--ready-fd " + std::to_string(config.ready_fd) + ": cannot be written";
  }
  if (!config.ready_file.empty()) {
    const std::string fresh = config.ready_file + ".new";
    const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const bool written = file >= 0 && write_all(file, json);
    if (file >= 0) ::close(file);
    if (!written || std::rename(fresh.c_str(), config.ready_file.c_str()) != 0) {
      return "--ready-file " + config.ready_file + ": cannot be written";
    }
  }
  std::cout << ready_line(node) << std::flush;
  return "";
}

// What ends the program: signals, and the node's own end. Made before any thread, so that all of them block the
// signals.
struct EndEvents {
  EndEvents() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    signal_descriptor = ::signalfd(-1, &signals, SFD_CLOEXEC);
    own_descriptor = ::eventfd(0, EFD_CLOEXEC);
  }
  // Threads: any.
  void raise() const {
    const uint64_t one = 1;
    write_all(own_descriptor, std::string(reinterpret_cast<const char*>(&one), sizeof one));
  }
  // Waits for a signal, which it returns, or for raise(), which is 0.
  int wait() const {
    std::array<pollfd, 2> ready{pollfd{signal_descriptor, POLLIN, 0}, pollfd{own_descriptor, POLLIN, 0}};
    while (::poll(ready.data(), ready.size(), -1) < 0) {
    }
    if ((ready[0].revents & POLLIN) == 0) {
      uint64_t raised = 0;
      return ::read(own_descriptor, &raised, sizeof raised) == sizeof raised ? 0 : SIGTERM;
    }
    signalfd_siginfo info{};
    return ::read(signal_descriptor, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : SIGTERM;
  }

  int signal_descriptor = -1;
  int own_descriptor = -1;
};

int run(const skua::ServerConfig& config) {
  const EndEvents end;
  std::atomic<bool> failed{false};
  std::atomic<int> exit_code{0};  // set before `failed`
  skua::Node::Events events;
  events.failed = [&](const skua::Status& why) {
    skua::log_error("this server ends: " + why.message());
    exit_code = skua::exit_code_of(why.code());
    failed = true;
    end.raise();
  };
  // Aside, so that a signal ends a start that waits for its coordinator.
  skua::Result<std::unique_ptr<skua::Node>> node = skua::fail(skua::StatusCode::kInternal, "not started");
  std::atomic<bool> started{false};
  std::thread starter([&] {
    node = skua::Node::start(config.node, skua::system_clock(), skua::system_entropy(), std::move(events));
    started = true;
    end.raise();
  });
  while (!started) {
    if (const int signal = end.wait(); signal != 0) ::_exit(128 + signal);
  }
  starter.join();
  if (!node) {
    std::cerr << "skua-server: " << node.error().message() << "\n";
    return skua::exit_code_of(node.error().code());
  }
  if (const std::string problem = announce(config, **node); !problem.empty()) {
    std::cerr << "skua-server: " << problem << "\n";
    return EX_CANTCREAT;
  }
  while (!failed) {
    if (end.wait() != 0) break;
  }
  if (failed) return exit_code;
  skua::log_info("drains; a second signal ends it at once");
  (*node)->drain([&] { end.raise(); });
  if (const int second = end.wait(); second != 0) ::_exit(128 + second);
  node->reset();
  skua::log_info("ended");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  skua::reserve_standard_descriptors();
  const skua::CommandLine line = skua::parse_command_line(std::vector<std::string>(argv + 1, argv + argc));
  if (!line.run) {
    std::ostream& out = line.exit_code == 0 ? std::cout : std::cerr;
    out << line.text << std::flush;
    return out ? line.exit_code : EX_CANTCREAT;
  }
  set_up_log(line.config.log_level);
  return run(line.config);
}
