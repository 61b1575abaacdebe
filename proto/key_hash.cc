#include "proto/key_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace skua::proto {

KeyHash KeyHash::of(std::string_view key, uint16_t namespace_id) {
  return KeyHash(XXH3_64bits_withSeed(key.data(), key.size(), namespace_id));
}

uint64_t keyed_hash(std::string_view key, uint64_t secret) {
  return XXH3_64bits_withSeed(key.data(), key.size(), secret);
}

}  // namespace skua::proto
