#include "proto/key_hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/limits.h"

namespace skua::proto {
namespace {

TEST(KeyHash, IsXxh3SeededByTheNamespace) {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte.push_back(static_cast<char>(i));
  EXPECT_EQ(KeyHash::of("a").bits(), 0xe6c632b61e964e1fu);
  EXPECT_EQ(KeyHash::of("user6284781860667377211").bits(), 0x5c8c12554f88eabcu);
  EXPECT_EQ(KeyHash::of("user6284781860667377211", 7).bits(), 0xa5cea25908c24ed2u);
  EXPECT_EQ(KeyHash::of(every_byte).bits(), 0x9408a4433b952d71u);
}

TEST(KeyHash, FieldsShareNoBit) {
  for (int bit = 0; bit < 64; ++bit) {
    const KeyHash hash(uint64_t{1} << bit);
    const int fields = (hash.partition(kMaxPartitions) != 0) + (hash.directory_index(24) != 0) +
                       (hash.home_bucket(13) != 0) + (hash.fingerprint() != 0);
    EXPECT_EQ(fields, 1) << bit;
  }
}

TEST(KeyHash, FieldsStartWhereTheLayoutSays) {
  const KeyHash hash((uint64_t{0x5a5} << 53) | (uint64_t{0x1abc} << 40) | (uint64_t{0xabcdef} << 16) | 0x1234);
  EXPECT_EQ(hash.fingerprint(), 0x5a5u);
  EXPECT_EQ(hash.home_bucket(13), 0x1abcu);
  EXPECT_EQ(hash.home_bucket(4), 0xcu);
  EXPECT_EQ(hash.directory_index(24), 0xabcdefu);
  EXPECT_EQ(hash.directory_index(0), 0u);
  EXPECT_EQ(hash.directory_index(4), 0xfu);
  EXPECT_EQ(hash.partition(65536), 0x1234u);
  EXPECT_EQ(hash.partition(64), 0x34u);
  EXPECT_EQ(hash.partition(1), 0u);
}

TEST(KeyHash, KeysSpreadOverPartitionsAndBuckets) {
  constexpr int kKeys = 64 * 256;
  std::vector<int> partitions(64);
  std::vector<int> buckets(64);
  for (int i = 0; i < kKeys; ++i) {
    const KeyHash hash = KeyHash::of("user" + std::to_string(i));
    ++partitions[hash.partition(64)];
    ++buckets[hash.home_bucket(6)];
  }
  for (size_t i = 0; i < 64; ++i) {  // 256 expected, standard deviation 16
    EXPECT_NEAR(partitions[i], 256, 96) << i;
    EXPECT_NEAR(buckets[i], 256, 96) << i;
  }
}

}  // namespace
}  // namespace skua::proto
