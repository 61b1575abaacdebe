#pragma once
// Encoding and checking of whole blocks: what a writer puts into one and what a reader believes of one.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "proto/region_layout.h"

namespace skua::proto {

// A block's generation as grants and headers carry it: above, an id of the write that fills the block, which goes with
// the value when the server moves it; below, the version that a word naming the block has (modulo kVersionModulus).
inline constexpr int kWriteIdShift = 8;
static_assert(kVersionModulus <= 1U << kWriteIdShift);
constexpr uint64_t write_id(uint64_t generation) { return generation >> kWriteIdShift; }
// For `life`, which counts the lives of the block at `block_units` through all lives of the server. The id is a hash of
// the two, so that no two writes have the same but for one chance in 2^56.
uint64_t make_generation(uint64_t block_units, uint64_t life);
// For the copy of a block of `generation` in a block that lives its `life`.
constexpr uint64_t moved_generation(uint64_t generation, uint64_t life) {
  return (write_id(generation) << kWriteIdShift) | (life & ((1U << kWriteIdShift) - 1));
}

struct BlockContent {
  std::string_view key;
  std::string_view value;
  uint64_t generation = 0;
  uint64_t expiry_ms = 0;
  uint16_t namespace_id = 0;
  uint8_t flags = 0;
};

// Bytes that header, key and value take together.
constexpr size_t block_bytes(size_t key_bytes, size_t value_bytes) {
  return kBlockHeaderBytes + key_bytes + value_bytes;
}

// The header for `content` over `prev`, checksum included. Cost: one pass over key and value.
BlockHeader make_block_header(const BlockContent& content, SlotWord prev);

// The checksum that `header` should carry when key and value follow it. Key and value need not be contiguous.
uint64_t block_checksum(const BlockHeader& header, std::string_view key, std::string_view value);

// The same checksum over key and value in pieces. `header` is not kept.
class BlockChecksum {
 public:
  explicit BlockChecksum(const BlockHeader& header);
  ~BlockChecksum();
  BlockChecksum(const BlockChecksum&) = delete;
  BlockChecksum& operator=(const BlockChecksum&) = delete;
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// kVersionModulus as this library was compiled; a program must have been compiled with the same.
uint32_t compiled_version_modulus();

enum class BlockFault : uint8_t {
  kNone = 0,
  kShort = 1,       // lengths name more bytes than there are
  kGeneration = 2,  // not the block's life that the slot word names
  kChecksum = 3,    // torn, reused, or never a block
};

// BlockView is a block as read from remote memory. It checks before it shows: lengths, version, checksum.
// Owns nothing: borrows `bytes`.
class BlockView {
 public:
  // `bytes`: what was read at the word's block; may be shorter than the class, never longer than the buffer.
  static BlockFault parse(std::span<const std::byte> bytes, SlotWord word, BlockView& view);

  const BlockHeader& header() const { return header_; }
  std::string_view key() const { return key_; }
  std::string_view value() const { return value_; }
  SlotWord prev() const { return SlotWord(header_.prev); }
  bool conditional() const { return (header_.flags & kBlockConditional) != 0; }
  bool expired(uint64_t now_ms) const { return header_.expiry_ms() != 0 && header_.expiry_ms() <= now_ms; }

 private:
  BlockHeader header_{};
  std::string_view key_;
  std::string_view value_;
};

}  // namespace skua::proto
