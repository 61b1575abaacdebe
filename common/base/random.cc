#include "common/base/random.h"

#include <sys/random.h>

#include "common/base/check.h"

namespace skua {
namespace {

class SystemEntropy final : public Entropy {
 public:
  uint64_t next() override {
    uint64_t bits = 0;
    SKUA_CHECK(getrandom(&bits, sizeof bits, 0) == sizeof bits, "getrandom(2) failed");
    return bits;
  }
};

}  // namespace

Entropy& system_entropy() {
  static SystemEntropy entropy;
  return entropy;
}

}  // namespace skua
