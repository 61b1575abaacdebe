#include "common/transport/transport.h"

namespace skua {

std::string_view to_string(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess: return "kSuccess";
    case CompletionStatus::kRemoteAccessError: return "kRemoteAccessError";
    case CompletionStatus::kFlushed: return "kFlushed";
    case CompletionStatus::kPeerLost: return "kPeerLost";
    case CompletionStatus::kBadRequest: return "kBadRequest";
  }
  return "unknown completion status";
}

}  // namespace skua
