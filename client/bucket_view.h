#pragma once
// Window is a key's window of buckets as read from remote memory: up to 28 slot words and the home bucket's header.
// Owns its bytes. A window that was read in halves shows slots of the second half only once that was read.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "proto/region_layout.h"

namespace skua {

class Window {
 public:
  // Where the window begins in the partition; forgets what was read.
  void place(uint64_t offset) {
    offset_ = offset;
    whole_ = false;
  }
  std::byte* first_half() { return bytes_.data(); }
  std::byte* second_half() { return bytes_.data() + proto::kHalfWindowBytes; }
  void set_whole(bool whole) { whole_ = whole; }
  bool whole() const { return whole_; }

  uint64_t offset() const { return offset_; }
  uint64_t slot_offset(size_t slot) const { return offset_ + proto::window_slot_offset(slot); }
  proto::BucketHeader header() const { return proto::BucketHeader(word_at(0)); }
  size_t slots() const { return whole_ ? proto::kWindowSlots : proto::kWindowSlots / 2; }
  // Requires: slot < slots().
  proto::SlotWord slot(size_t slot) const { return proto::SlotWord(word_at(proto::window_slot_offset(slot))); }
  bool has_frozen() const {
    for (size_t i = 0; i < slots(); ++i) {
      if (slot(i).frozen()) return true;
    }
    return false;
  }

 private:
  uint64_t word_at(uint64_t offset) const {
    uint64_t word = 0;
    std::memcpy(&word, bytes_.data() + offset, sizeof word);
    return word;
  }
  alignas(64) std::array<std::byte, proto::kWindowBytes> bytes_{};
  uint64_t offset_ = 0;
  bool whole_ = false;
};

}  // namespace skua
