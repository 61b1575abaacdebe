// Layouts against bytes that were made by other means (tests/golden/*.hex), both ways. The versions stand here as
// literals: whoever changes a layout changes the version, and these files with it.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "proto/block.h"
#include "proto/region_layout.h"
#include "proto/slot_word.h"
#include "proto/version.h"

namespace skua::proto {
namespace {

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file(std::string(SKUA_GOLDEN_DIR) + "/" + name);
  EXPECT_TRUE(file) << name;
  std::vector<std::byte> bytes;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream numbers(line);
    for (unsigned value = 0; numbers >> std::hex >> value;) bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class T>
T from(const std::vector<std::byte>& bytes, size_t offset = 0) {
  T value{};
  EXPECT_LE(offset + sizeof value, bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

constexpr SlotWord::Block kBlock{.block_units = 0x2f80, .generation = 0x117, .size_class = 7, .fingerprint = 0x5a5};
constexpr SlotWord::Block kLastBlock{
    .block_units = kMaxBlockUnits - 1, .generation = 255, .size_class = 58, .fingerprint = 2047};

const std::array<SlotWord, 7> kWords = {
    SlotWord::empty(built_identity(5, 77)),
    SlotWord::empty(renamed_identity(3, 9)),
    SlotWord::of(SlotState::kTentative, kBlock),
    SlotWord::of(SlotState::kLive, kBlock),
    SlotWord::of(SlotState::kLive, kBlock).with_dirty(),
    SlotWord::of(SlotState::kLive, kBlock).with_frozen(),
    SlotWord::of(SlotState::kFreed, kLastBlock),
};

TEST(Golden, VersionsAndMagicsAreThoseOfTheGoldenBytes) {
  EXPECT_EQ(kLayoutVersion, 1u);
  EXPECT_EQ(kControlVersion, 1u);
  EXPECT_EQ(kDataVersion, 1u);
  EXPECT_EQ(std::memcmp(&kRegionMagic, "SKRGION1", 8), 0);
  EXPECT_EQ(std::memcmp(&kControlMagic, "KTL1", 4), 0);
  EXPECT_EQ(std::memcmp(&kDataMagic, "SDT1", 4), 0);
}

TEST(Golden, SlotWordsPackToTheBytes) { EXPECT_EQ(bytes_of(kWords), golden("slot_word.hex")); }

TEST(Golden, SlotWordsUnpackFromTheBytes) {
  const auto bits = from<std::array<uint64_t, 7>>(golden("slot_word.hex"));
  EXPECT_EQ(SlotWord(bits[0]).empty_identity(), built_identity(5, 77));
  EXPECT_EQ(SlotWord(bits[1]).empty_identity(), renamed_identity(3, 9));
  const SlotWord live(bits[3]);
  EXPECT_EQ(live.state(), SlotState::kLive);
  EXPECT_EQ(live.block_units(), 0x2f80u);
  EXPECT_EQ(live.version(), 0x17u);
  EXPECT_EQ(live.size_class(), 7u);
  EXPECT_EQ(live.fingerprint(), 0x5a5u);
  EXPECT_TRUE(SlotWord(bits[4]).dirty());
  EXPECT_TRUE(SlotWord(bits[5]).frozen());
  const SlotWord freed(bits[6]);
  EXPECT_EQ(freed.state(), SlotState::kFreed);
  EXPECT_EQ(freed.block_units(), (uint64_t{1} << 34) - 1);
  EXPECT_EQ(freed.version(), 255u);
  EXPECT_EQ(freed.size_class(), 58u);
  EXPECT_EQ(freed.fingerprint(), 2047u);
}

TEST(Golden, BucketBothWays) {
  Bucket bucket{};
  bucket.header = BucketHeader::of(4, 5).with_overflow().bits();
  for (size_t i = 0; i < kWords.size(); ++i) bucket.slots[i] = kWords[i].bits();
  const auto bytes = golden("bucket.hex");
  EXPECT_EQ(bytes_of(bucket), bytes);

  const auto read = from<Bucket>(bytes);
  const BucketHeader header(read.header);
  EXPECT_TRUE(header.overflow());
  EXPECT_EQ(header.local_depth(), 4u);
  EXPECT_EQ(header.table_version(), 5u);
  EXPECT_EQ(SlotWord(read.slots[6]), kWords[6]);
}

TEST(Golden, DirectoryBothWays) {
  const std::array<uint64_t, 3> written = {
      DirectoryRoot::of(0x1000, 2, 9).bits(),
      TableRef::of({.offset = 0x10000, .log2_buckets = 13, .local_depth = 1, .version = 5}).bits(),
      TableRef::of({.offset = 0x20000, .log2_buckets = 10, .local_depth = 2, .version = 6}).bits(),
  };
  const auto bytes = golden("directory.hex");
  EXPECT_EQ(bytes_of(written), bytes);

  const auto read = from<std::array<uint64_t, 3>>(bytes);
  const DirectoryRoot root(read[0]);
  EXPECT_EQ(root.offset(), 0x1000u);
  EXPECT_EQ(root.depth(), 2u);
  EXPECT_EQ(root.entries(), 4u);
  EXPECT_EQ(root.version(), 9u);
  const TableRef table(read[2]);
  EXPECT_EQ(table.offset(), 0x20000u);
  EXPECT_EQ(table.log2_buckets(), 10u);
  EXPECT_EQ(table.local_depth(), 2u);
  EXPECT_EQ(table.version(), 6u);
}

TEST(Golden, BlockBothWays) {
  const std::string key("user:\0\xff", 7);
  std::string value;
  for (char c = 0; c < 40; ++c) value.push_back(c);
  const BlockContent content{.key = key,
                             .value = value,
                             .generation = 0x118,
                             .expiry_ms = 0x123456789abc,
                             .namespace_id = 7,
                             .flags = kBlockConditional};
  const BlockHeader header = make_block_header(content, kWords[3]);
  auto written = bytes_of(header);
  for (char c : key + value) written.push_back(static_cast<std::byte>(c));
  const auto bytes = golden("block.hex");
  EXPECT_EQ(written, bytes);

  BlockView view;
  SlotWord::Block named = kBlock;
  named.generation = 0x118;
  ASSERT_EQ(BlockView::parse(bytes, SlotWord::of(SlotState::kLive, named), view), BlockFault::kNone);
  EXPECT_EQ(view.key(), key);
  EXPECT_EQ(view.value(), value);
  EXPECT_EQ(view.prev(), kWords[3]);
  EXPECT_TRUE(view.conditional());
  EXPECT_EQ(view.header().generation, 0x118u);
  EXPECT_EQ(view.header().expiry_ms(), 0x123456789abcu);
  EXPECT_EQ(view.header().namespace_id, 7u);
  EXPECT_FALSE(view.expired(0x123456789abb));
  EXPECT_TRUE(view.expired(0x123456789abc));
}

TEST(Golden, RegionHeaderBothWays) {
  RegionHeader header{};
  header.magic = kRegionMagic;
  header.layout_version = 1;
  header.partition = 42;
  header.cluster_id = 0x1122334455667788;
  header.instance = 0x99aabbccddeeff00;
  header.membership_epoch = 3;
  header.region_bytes = uint64_t{1} << 30;
  header.directory_root = DirectoryRoot::of(0x1000, 2, 9).bits();
  header.reclaim_epoch = 17;
  auto bytes = golden("region_header.hex");
  ASSERT_EQ(bytes.size(), 64u);
  bytes.resize(4096);
  EXPECT_EQ(bytes_of(header), bytes);

  const auto read = from<RegionHeader>(bytes);
  EXPECT_EQ(read.magic, kRegionMagic);
  EXPECT_EQ(read.partition, 42u);
  EXPECT_EQ(read.instance, 0x99aabbccddeeff00u);
  EXPECT_EQ(DirectoryRoot(read.directory_root).version(), 9u);
  EXPECT_EQ(from<uint64_t>(bytes, kDirectoryRootOffset), header.directory_root);
  EXPECT_EQ(read.reclaim_epoch, 17u);
}

}  // namespace
}  // namespace skua::proto
