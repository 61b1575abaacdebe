#pragma once
// Exit codes of `skua`, after sysexits.h; a script can tell them apart.
#include "common/base/status.h"

namespace skua::cli {

enum ExitCode : int {
  kExitDone = 0,
  kExitNo = 1,              // not found, not swapped, already there
  kExitUsage = 64,
  kExitData = 65,           // a line of a file
  kExitNoInput = 66,        // a file cannot be read
  kExitUnavailable = 69,
  kExitInternal = 70,
  kExitSystem = 71,
  kExitCannotCreate = 73,   // a file cannot be written
  kExitTryAgain = 75,       // in doubt, out of time, or the store is full
  kExitProtocol = 76,
  kExitPermission = 77,
  kExitConfiguration = 78,
};

ExitCode exit_code_of(StatusCode code);

}  // namespace skua::cli
