#include "common/base/standard_descriptors.h"

#include <fcntl.h>

#include <cerrno>

namespace skua {

void reserve_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // open takes the lowest free number, which is this one; the wrong direction keeps it unusable.
    static_cast<void>(::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace skua
