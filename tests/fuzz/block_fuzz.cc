// Promises of blocks and buckets as read from remote memory (proto/block.h, client/bucket_view.h), for any bytes:
//   nothing outside the bytes is read, and key and value lie within them;
//   a block that is accepted has the word's version and legal lengths, and encodes to the same header again;
//   with any one bit of it flipped (but for `prev`, which the checksum leaves out) it is refused;
//   every slot word, bucket header and directory word gives the same bits when it is put together from its fields.
#include <cstring>
#include <string>

#include "client/bucket_view.h"
#include "common/base/check.h"
#include "proto/block.h"
#include "proto/limits.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

using proto::BlockFault;
using proto::BlockView;
using proto::SlotWord;

// Gives random bytes the checksum and version that let them in; the lengths stay as they are.
void make_right(std::string& block, SlotWord& word) {
  proto::BlockHeader header;
  if (block.size() < sizeof header) return;
  std::memcpy(&header, block.data(), sizeof header);
  if (proto::block_bytes(header.key_bytes, header.value_bytes) > block.size()) return;
  const std::string_view content = std::string_view(block).substr(sizeof header);
  header.checksum = proto::block_checksum(header, content.substr(0, header.key_bytes),
                                          content.substr(header.key_bytes, header.value_bytes));
  std::memcpy(block.data(), &header, sizeof header);
  word = SlotWord::of(proto::SlotState::kLive, {word.block_units(), header.generation, word.size_class(), 0});
}

void check_accepted(std::string block, SlotWord word, const BlockView& view, uint64_t flip) {
  const proto::BlockHeader& header = view.header();
  const size_t total = proto::block_bytes(view.key().size(), view.value().size());
  SKUA_CHECK(total <= block.size() && !view.key().empty() && view.key().size() <= proto::kMaxKeyBytes, "lengths");
  SKUA_CHECK((header.generation & (proto::kVersionModulus - 1)) == word.version(), "version");
  SKUA_CHECK(proto::block_checksum(header, view.key(), view.value()) == header.checksum, "checksum in two pieces");
  const proto::BlockHeader again = proto::make_block_header(
      {view.key(), view.value(), header.generation, header.expiry_ms(), header.namespace_id, header.flags},
      view.prev());
  SKUA_CHECK(header.reserved != 0 || std::memcmp(&again, &header, sizeof again) == 0, "encodes to the same header");

  const size_t bit = flip % (total * 8);
  if (bit / 8 >= offsetof(proto::BlockHeader, prev) && bit / 8 < proto::kChecksumStart) return;
  block[bit / 8] = static_cast<char>(block[bit / 8] ^ (1 << (bit % 8)));
  BlockView flipped;
  SKUA_CHECK(BlockView::parse(std::as_bytes(std::span(block)), word, flipped) != BlockFault::kNone, "one bit flipped");
}

void check_word(SlotWord word) {
  SlotWord again = SlotWord::of(word.state(), {word.block_units(), word.version(), word.size_class(),
                                               word.fingerprint()});
  if (word.dirty()) again = again.with_dirty();
  if (word.frozen()) again = again.with_frozen();
  constexpr uint64_t kCold = 16;  // nobody sets it
  SKUA_CHECK(again.bits() == (word.bits() & ~kCold) && word.cold() == ((word.bits() & kCold) != 0), "slot word");
  SKUA_CHECK(word.names_block() || SlotWord::empty(word.empty_identity()).bits() == (word.bits() & ~uint64_t{31}),
             "empty word");
  SKUA_CHECK(!word.is_free() || !word.is_live(), "free or live");
}

void check_window(std::string_view bytes, uint64_t offset, bool whole) {
  Window window;
  window.place(offset);
  std::memcpy(window.first_half(), bytes.data(), std::min(bytes.size(), proto::kHalfWindowBytes));
  if (whole && bytes.size() >= proto::kWindowBytes) {
    std::memcpy(window.second_half(), bytes.data() + proto::kHalfWindowBytes, proto::kHalfWindowBytes);
    window.set_whole(true);
  }
  bool frozen = false;
  for (size_t slot = 0; slot < window.slots(); ++slot) {
    check_word(window.slot(slot));
    frozen |= window.slot(slot).frozen();
    const uint64_t at = window.slot_offset(slot) - offset;
    SKUA_CHECK(at % 8 == 0 && at % 64 != 0 && at + 8 <= proto::kWindowBytes, "a slot lies in the window");
    uint64_t word = 0;
    if (at + 8 <= bytes.size()) std::memcpy(&word, bytes.data() + at, sizeof word);
    SKUA_CHECK(at + 8 > bytes.size() || word == window.slot(slot).bits(), "a slot is what was read");
  }
  SKUA_CHECK(window.has_frozen() == frozen, "frozen");

  const proto::BucketHeader header = window.header();
  auto again = proto::BucketHeader::of(header.local_depth(), header.table_version());
  if (header.overflow()) again = again.with_overflow();
  constexpr uint64_t kUnused = ((uint64_t{1} << 38) - (uint64_t{1} << 7)) | 2;
  SKUA_CHECK(again.bits() == (header.bits() & ~kUnused), "bucket header");
  const proto::DirectoryRoot root(header.bits());
  SKUA_CHECK(proto::DirectoryRoot::of(root.offset(), root.depth(), root.version()) == root, "directory root");
  const proto::TableRef table(header.bits());
  SKUA_CHECK(proto::TableRef::of({table.offset(), table.log2_buckets(), table.local_depth(), table.version()}) == table,
             "table reference");
}

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  fuzz::Input input(data, size);
  const uint8_t mode = input.byte();
  proto::SlotWord word(input.number());
  const uint64_t number = input.number();
  std::string block(input.rest());
  block.shrink_to_fit();
  if ((mode & 1) != 0) fuzz::make_right(block, word);
  proto::BlockView view;
  const auto fault = proto::BlockView::parse(std::as_bytes(std::span(block)), word, view);
  if (fault == proto::BlockFault::kNone) fuzz::check_accepted(block, word, view, number);
  fuzz::check_window(block, number & ~uint64_t{63}, (mode & 2) != 0);
  return 0;
}
