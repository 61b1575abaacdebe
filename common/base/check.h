#pragma once
// SKUA_CHECK aborts on a bug, with the condition, its place and a message. It is on in every build.
// It is never reachable by what a peer or a user sent: that is a Status.
#include <string_view>

namespace skua::internal {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view detail);
}

#define SKUA_CHECK(condition, detail)                                                    \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::skua::internal::check_failed(__FILE__, __LINE__, #condition, (detail));          \
  } while (false)
