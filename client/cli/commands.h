#pragma once
// Runs one command against a cluster.
#include <string_view>

#include "client/cli/arguments.h"
#include "client/client.h"

namespace skua::cli {

// Returns the exit code. Errors go to standard error; with --json to standard output as {"error":...} as well.
int run_command(const Arguments& arguments, const Clock& clock);

// To be called last: `exit_code`, or that of a standard output that did not take all that was printed.
int end_output(int exit_code);

// load and dump (transfer.cc).
int run_load(const Arguments& arguments, const Clock& clock, Session& session);
int run_dump(const Arguments& arguments, const Clock& clock, Client& client, Session& session);

// Prints the error and returns its exit code.
int report(const Arguments& arguments, const Status& status);
int report(const Arguments& arguments, int exit_code, std::string_view message);

}  // namespace skua::cli
