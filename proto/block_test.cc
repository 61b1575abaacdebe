#include "proto/block.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "proto/limits.h"

namespace skua::proto {
namespace {

constexpr uint64_t kGeneration = 0x1234;

SlotWord word_of(uint64_t generation) {
  return SlotWord::of(SlotState::kLive,
                      {.block_units = 9, .generation = generation, .size_class = 1, .fingerprint = 3});
}

std::vector<std::byte> encode(std::string_view key, std::string_view value) {
  const BlockContent content{.key = key, .value = value, .generation = kGeneration, .expiry_ms = 77};
  const BlockHeader header = make_block_header(content, SlotWord::empty(5));
  std::vector<std::byte> bytes(block_bytes(key.size(), value.size()));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, key.data(), key.size());
  if (!value.empty()) std::memcpy(bytes.data() + sizeof header + key.size(), value.data(), value.size());
  return bytes;
}

BlockFault parse(std::span<const std::byte> bytes, SlotWord word = word_of(kGeneration)) {
  BlockView view;
  return BlockView::parse(bytes, word, view);
}

TEST(BlockView, ShowsWhatWasEncodedAtEveryLength) {
  for (const size_t key_bytes : {size_t{1}, size_t{23}, size_t{500}, kMaxKeyBytes}) {
    for (const size_t value_bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{465}, size_t{512}, size_t{100'000}}) {
      const std::string key(key_bytes, 'k');
      const std::string value(value_bytes, 'v');
      const auto bytes = encode(key, value);
      BlockView view;
      ASSERT_EQ(BlockView::parse(bytes, word_of(kGeneration), view), BlockFault::kNone)
          << key_bytes << " " << value_bytes;
      EXPECT_EQ(view.key(), key);
      EXPECT_EQ(view.value(), value);
      EXPECT_EQ(view.prev(), SlotWord::empty(5));
      EXPECT_FALSE(view.conditional());
    }
  }
}

TEST(BlockView, BytesBehindTheBlockAreNotLookedAt) {
  auto bytes = encode("key", "value");
  bytes.resize(1024, std::byte{0xee});
  BlockView view;
  ASSERT_EQ(BlockView::parse(bytes, word_of(kGeneration), view), BlockFault::kNone);
  EXPECT_EQ(view.value(), "value");
}

TEST(BlockView, EveryCutIsShort) {
  const auto bytes = encode("key", "some value");
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(parse(std::span(bytes).first(n)), BlockFault::kShort) << n;
  }
}

TEST(BlockView, AnotherLifeOfTheBlockIsAGenerationFault) {
  const auto bytes = encode("key", "value");
  EXPECT_EQ(parse(bytes, word_of(kGeneration + 1)), BlockFault::kGeneration);
  EXPECT_EQ(parse(bytes, word_of(kGeneration + kVersionModulus)), BlockFault::kNone);
}

TEST(BlockView, EveryFlippedBitButThoseOfPrevIsFound) {
  const auto whole = encode("some key", "and a value of some length");
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    auto bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const bool in_prev = bit / 8 >= 8 && bit / 8 < 16;
    EXPECT_EQ(parse(bytes) == BlockFault::kNone, in_prev) << "byte " << bit / 8 << " bit " << bit % 8;
  }
}

TEST(BlockView, TornAcrossTwoValuesIsFound) {
  const std::string key = "key";
  const auto older = encode(key, std::string(1000, 'a'));
  const auto newer = encode(key, std::string(1000, 'b'));
  for (size_t cut = 64; cut < older.size(); cut += 64) {
    auto torn = newer;
    std::memcpy(torn.data() + cut, older.data() + cut, older.size() - cut);
    EXPECT_EQ(parse(torn), BlockFault::kChecksum) << cut;
    torn = older;
    std::memcpy(torn.data() + cut, newer.data() + cut, newer.size() - cut);
    EXPECT_EQ(parse(torn), BlockFault::kChecksum) << cut;
  }
}

TEST(BlockView, HostileLengthsAreShortNotRead) {
  auto bytes = encode("key", "value");
  BlockHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto with = [&](uint16_t key_bytes, uint32_t value_bytes) {
    BlockHeader changed = header;
    changed.key_bytes = key_bytes;
    changed.value_bytes = value_bytes;
    std::memcpy(bytes.data(), &changed, sizeof changed);
    return parse(bytes);
  };
  EXPECT_EQ(with(0, 8), BlockFault::kShort);
  EXPECT_EQ(with(kMaxKeyBytes + 1, 0), BlockFault::kShort);
  EXPECT_EQ(with(3, kMaxValueBytes + 1), BlockFault::kShort);
  EXPECT_EQ(with(3, 0xffffffff), BlockFault::kShort);
  EXPECT_EQ(with(3, 6), BlockFault::kShort);
}

TEST(BlockView, MemoryOfZerosIsNoBlock) {
  const std::vector<std::byte> zeros(256);
  EXPECT_EQ(parse(zeros, word_of(0)), BlockFault::kShort);
}

TEST(BlockHeader, ExpiryKeeps48Bits) {
  BlockHeader header{};
  header.set_expiry_ms(kMaxExpiryMs);
  EXPECT_EQ(header.expiry_ms(), kMaxExpiryMs);
  header.set_expiry_ms(1);
  EXPECT_EQ(header.expiry_ms(), 1u);
}

TEST(BlockChecksum, CoversNeitherItselfNorPrev) {
  BlockHeader header = make_block_header({.key = "k", .value = "v", .generation = 1}, SlotWord::empty(1));
  const uint64_t checksum = header.checksum;
  header.prev = 99;
  header.checksum = 0;
  EXPECT_EQ(block_checksum(header, "k", "v"), checksum);
  EXPECT_NE(block_checksum(header, "k", "w"), checksum);
  EXPECT_NE(block_checksum(header, "l", "v"), checksum);
}

}  // namespace
}  // namespace skua::proto
