#include "proto/block.h"

#include <array>
#include <cstring>

#include "proto/limits.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace skua::proto {
namespace {

constexpr size_t kCoveredHeaderBytes = kBlockHeaderBytes - kChecksumStart;

const char* covered_part(const BlockHeader& header) {
  return reinterpret_cast<const char*>(&header) + kChecksumStart;
}

}  // namespace

uint64_t block_checksum(const BlockHeader& header, std::string_view key, std::string_view value) {
  // Short blocks are hashed in one piece: the streaming state costs more than the copy.
  char piece[512];
  const size_t total = kCoveredHeaderBytes + key.size() + value.size();
  if (total <= sizeof(piece)) {
    std::memcpy(piece, covered_part(header), kCoveredHeaderBytes);
    std::memcpy(piece + kCoveredHeaderBytes, key.data(), key.size());
    if (!value.empty()) std::memcpy(piece + kCoveredHeaderBytes + key.size(), value.data(), value.size());
    return XXH3_64bits(piece, total);
  }
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, covered_part(header), kCoveredHeaderBytes);
  XXH3_64bits_update(&state, key.data(), key.size());
  if (!value.empty()) XXH3_64bits_update(&state, value.data(), value.size());
  return XXH3_64bits_digest(&state);
}

struct BlockChecksum::State {
  XXH3_state_t xxh3;
};

BlockChecksum::BlockChecksum(const BlockHeader& header) : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
  XXH3_64bits_update(&state_->xxh3, covered_part(header), kCoveredHeaderBytes);
}

BlockChecksum::~BlockChecksum() = default;

void BlockChecksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

uint64_t BlockChecksum::digest() const { return XXH3_64bits_digest(&state_->xxh3); }

uint64_t make_generation(uint64_t block_units, uint64_t life) {
  const std::array<uint64_t, 2> names{block_units, life};
  return moved_generation(XXH3_64bits(names.data(), sizeof names), life);
}

uint32_t compiled_version_modulus() { return kVersionModulus; }

BlockHeader make_block_header(const BlockContent& content, SlotWord prev) {
  BlockHeader header{};
  header.prev = prev.bits();
  header.generation = content.generation;
  header.set_expiry_ms(content.expiry_ms);
  header.namespace_id = content.namespace_id;
  header.value_bytes = static_cast<uint32_t>(content.value.size());
  header.key_bytes = static_cast<uint16_t>(content.key.size());
  header.flags = content.flags;
  header.checksum = block_checksum(header, content.key, content.value);
  return header;
}

BlockFault BlockView::parse(std::span<const std::byte> bytes, SlotWord word, BlockView& view) {
  if (bytes.size() < kBlockHeaderBytes) return BlockFault::kShort;
  std::memcpy(&view.header_, bytes.data(), kBlockHeaderBytes);
  const BlockHeader& header = view.header_;
  if ((header.generation & (kVersionModulus - 1)) != word.version()) return BlockFault::kGeneration;
  if (header.key_bytes == 0 || header.key_bytes > kMaxKeyBytes || header.value_bytes > kMaxValueBytes ||
      block_bytes(header.key_bytes, header.value_bytes) > bytes.size()) {
    return BlockFault::kShort;
  }
  const char* text = reinterpret_cast<const char*>(bytes.data());
  // Contiguous in the buffer, so one pass; the local copy of the header is what is believed and must be what is hashed.
  const size_t covered = kCoveredHeaderBytes + header.key_bytes + header.value_bytes;
  view.key_ = {text + kBlockHeaderBytes, header.key_bytes};
  view.value_ = {text + kBlockHeaderBytes + header.key_bytes, header.value_bytes};
  return XXH3_64bits(text + kChecksumStart, covered) == header.checksum ? BlockFault::kNone : BlockFault::kChecksum;
}

}  // namespace skua::proto
