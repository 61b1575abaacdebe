#pragma once
// What an operator sets: flags, and a TOML file with the same names. A flag beats the file, the file beats the default.
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "server/node.h"

namespace skua {

struct ServerConfig {
  NodeOptions node;
  LogLevel log_level = LogLevel::kInfo;
  int ready_fd = -1;
  std::string ready_file;
};

// Reads `path` into `config`. Error: kConfiguration with the path and, for an unknown key, the nearest known one.
Result<void> load_config_file(const std::string& path, ServerConfig& config);

// What the command line asks for: to run with `config`, or to print `text` and exit with `exit_code`.
struct CommandLine {
  ServerConfig config;
  bool run = false;
  int exit_code = 0;
  std::string text;
};
CommandLine parse_command_line(const std::vector<std::string>& arguments);

// sysexits.h: 64 usage, 69 unavailable, 70 internal, 71 operating system, 78 configuration.
int exit_code_of(StatusCode code);

}  // namespace skua
