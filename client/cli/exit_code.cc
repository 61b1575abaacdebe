#include "client/cli/exit_code.h"

namespace skua::cli {

ExitCode exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument: return kExitUsage;
    case StatusCode::kUnavailable:
    case StatusCode::kStaleEpoch:
    case StatusCode::kPeerLost: return kExitUnavailable;
    case StatusCode::kOutOfMemory:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kInDoubt: return kExitTryAgain;
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnauthenticated: return kExitPermission;
    case StatusCode::kConfiguration: return kExitConfiguration;
    case StatusCode::kResourceExhausted: return kExitSystem;
    case StatusCode::kIncompatible: return kExitProtocol;
    case StatusCode::kCorruption:
    case StatusCode::kInternal: return kExitInternal;
  }
  return kExitInternal;
}

}  // namespace skua::cli
