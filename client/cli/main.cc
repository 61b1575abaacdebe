// The `skua` command.
#include <csignal>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "common/base/clock.h"
#include "common/base/standard_descriptors.h"

int main(int argc, char** argv) {
  skua::reserve_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // soft-iWARP raises it in who posts to a connection that has just ended
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto parsed = skua::cli::parse_arguments(words);
  if (const auto* finished = std::get_if<skua::cli::Finished>(&parsed)) {
    std::fputs(finished->text.c_str(), finished->exit_code == 0 ? stdout : stderr);
    return skua::cli::end_output(finished->exit_code);
  }
  return skua::cli::run_command(std::get<skua::cli::Arguments>(parsed), skua::system_clock());
}
