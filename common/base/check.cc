#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace skua::internal {

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %.*s\n", file, line, condition, static_cast<int>(detail.size()),
               detail.data());
  std::abort();
}

}  // namespace skua::internal
