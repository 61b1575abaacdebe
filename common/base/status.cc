#include "common/base/status.h"

namespace skua {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument: return "kInvalidArgument";
    case StatusCode::kOutOfMemory: return "kOutOfMemory";
    case StatusCode::kUnavailable: return "kUnavailable";
    case StatusCode::kDeadlineExceeded: return "kDeadlineExceeded";
    case StatusCode::kInDoubt: return "kInDoubt";
    case StatusCode::kPermissionDenied: return "kPermissionDenied";
    case StatusCode::kUnauthenticated: return "kUnauthenticated";
    case StatusCode::kStaleEpoch: return "kStaleEpoch";
    case StatusCode::kPeerLost: return "kPeerLost";
    case StatusCode::kConfiguration: return "kConfiguration";
    case StatusCode::kResourceExhausted: return "kResourceExhausted";
    case StatusCode::kCorruption: return "kCorruption";
    case StatusCode::kIncompatible: return "kIncompatible";
    case StatusCode::kInternal: return "kInternal";
  }
  return "kUnknown";
}

std::string Status::to_string() const {
  return std::string(skua::to_string(code_)) + ": " + message_;
}

}  // namespace skua
