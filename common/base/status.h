#pragma once
// Status says why something did not happen; Result<T> is a value or a Status.
//
// Three kinds of failure are kept apart. A bug aborts (check.h). An outcome that a caller expects (absent, lost) is
// part of the return type. What the environment did is a Status, and a code exists only if a caller reacts to it.
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace skua {

enum class StatusCode : uint8_t {
  kInvalidArgument = 1,   // the request itself is wrong; never worth a retry
  kOutOfMemory = 2,       // the store is full; the old value stands; works again after removes
  kUnavailable = 3,       // nothing was changed; the server or the cluster cannot be reached now
  kDeadlineExceeded = 4,  // nothing was changed; the caller's time ran out
  kInDoubt = 5,           // a mutation was posted and its fate could not be learned; it may have happened
  kPermissionDenied = 6,  // the session's rights do not allow it
  kUnauthenticated = 7,   // the token was missing or wrong
  kStaleEpoch = 8,        // key, session or map is of an earlier epoch: refresh and retry
  kPeerLost = 9,          // a connection broke: re-open the session
  kConfiguration = 10,    // a flag, file or address that cannot be used as it is
  kResourceExhausted = 11,  // the operating system refused memory, descriptors or ports
  kCorruption = 12,       // bytes that no correct peer could have written
  kIncompatible = 13,     // the peer speaks another protocol or layout version
  kInternal = 14,         // a condition that should not be; reported, not retried
};

std::string_view to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "kOutOfMemory: heap of partition 3 is full (...)"
  std::string to_string() const;

 private:
  StatusCode code_;
  std::string message_;
};

template <class T>
using Result = tl::expected<T, Status>;
using Error = tl::unexpected<Status>;

inline Error fail(StatusCode code, std::string message) {
  return Error(Status(code, std::move(message)));
}

}  // namespace skua

// Hands the error of `expr` (a Result) to the caller.
#define SKUA_RETURN_IF_ERROR(expr)                                       \
  do {                                                                   \
    if (auto skua_result_ = (expr); !skua_result_)                       \
      return ::tl::make_unexpected(std::move(skua_result_).error());     \
  } while (false)
