#include "common/transport/descriptor.h"

#include <cstring>

namespace skua {

std::string errno_text(int error) {
  const char* name = ::strerrorname_np(error);
  const char* text = ::strerrordesc_np(error);
  if (name == nullptr || text == nullptr) return "errno " + std::to_string(error);
  return std::string(name) + ": " + text;
}

}  // namespace skua
