#pragma once
// SlotWord is the 64-bit word by which a slot names a block. It is changed by CAS alone.
//
//   63      53 52    45 44    39 38                                5 4 3 2 1 0
//  +----------+--------+--------+----------------------------------+-+-+-+---+
//  | finger-  | version| size   | block address, units of 64 B,    |C|F|D|st |   TENTATIVE, LIVE, FREED
//  | print 11 |    8   | class 6| from the partition's start   34  | | | |   |
//  +----------+--------+--------+----------------------------------+-+-+-+---+
//  |                        identity, 59 bits                      |-|F|-|00 |   EMPTY
//  +---------------------------------------------------------------+-+-+-+---+
//   st: state    D: DIRTY, not yet known to be on every backup    F: FROZEN by a rebuild    C: COLD, value on the
//   server's second tier
//
// version = the block's generation modulo 2^8. Every word value that a slot ever holds is unique within the life of
// any operation that saw it (docs/protocol.md, I1): an EMPTY word carries an identity, FREED keeps the block it freed.
#include <cstdint>

namespace skua::proto {

enum class SlotState : uint8_t { kEmpty = 0, kTentative = 1, kLive = 2, kFreed = 3 };

// M of rule 13. Simulations take less of the word's 8 bits, so that versions come round soon.
#ifdef SKUA_SIMULATION
inline constexpr uint32_t kVersionModulus = 2;
#else
inline constexpr uint32_t kVersionModulus = 256;
#endif
inline constexpr uint32_t kFingerprintModulus = 2048;
inline constexpr uint64_t kMaxBlockUnits = uint64_t{1} << 34;  // 1 TiB a partition

class SlotWord {
 public:
  constexpr SlotWord() = default;
  constexpr explicit SlotWord(uint64_t bits) : bits_(bits) {}

  // Requires: block_units < 2^34, size_class < 64, fingerprint < 2^11.
  struct Block {
    uint64_t block_units;
    uint64_t generation;
    uint32_t size_class;
    uint32_t fingerprint;
  };
  static constexpr SlotWord of(SlotState state, const Block& block) {
    return SlotWord(static_cast<uint64_t>(state) | (block.block_units << kAddressShift) |
                    (uint64_t{block.size_class} << kClassShift) |
                    ((block.generation & (kVersionModulus - 1)) << kVersionShift) |
                    (uint64_t{block.fingerprint} << kFingerprintShift));
  }
  // Requires: identity < 2^59.
  static constexpr SlotWord empty(uint64_t identity) { return SlotWord(identity << kAddressShift); }

  constexpr uint64_t bits() const { return bits_; }
  constexpr SlotState state() const { return static_cast<SlotState>(bits_ & 3); }
  constexpr bool dirty() const { return (bits_ & kDirty) != 0; }
  constexpr bool frozen() const { return (bits_ & kFrozen) != 0; }
  constexpr bool cold() const { return (bits_ & kCold) != 0; }
  constexpr bool names_block() const { return state() != SlotState::kEmpty; }

  constexpr uint64_t block_units() const { return (bits_ >> kAddressShift) & (kMaxBlockUnits - 1); }
  constexpr uint64_t block_offset() const { return block_units() * 64; }
  constexpr uint32_t size_class() const { return static_cast<uint32_t>(bits_ >> kClassShift) & 63; }
  constexpr uint32_t version() const { return static_cast<uint32_t>(bits_ >> kVersionShift) & 255; }
  constexpr uint32_t fingerprint() const { return static_cast<uint32_t>(bits_ >> kFingerprintShift); }
  constexpr uint64_t empty_identity() const { return bits_ >> kAddressShift; }

  // May an insert take this slot? EMPTY, or FREED and known to be freed everywhere; never FROZEN.
  constexpr bool is_free() const {
    return !frozen() && (state() == SlotState::kEmpty || (state() == SlotState::kFreed && !dirty()));
  }
  constexpr bool is_live() const { return state() == SlotState::kLive; }

  constexpr SlotWord with_state(SlotState state) const {
    return SlotWord((bits_ & ~uint64_t{3}) | static_cast<uint64_t>(state));
  }
  constexpr SlotWord with_dirty() const { return SlotWord(bits_ | kDirty); }
  constexpr SlotWord without_dirty() const { return SlotWord(bits_ & ~kDirty); }
  constexpr SlotWord with_frozen() const { return SlotWord(bits_ | kFrozen); }
  constexpr SlotWord without_frozen() const { return SlotWord(bits_ & ~kFrozen); }

  friend constexpr bool operator==(SlotWord, SlotWord) = default;

 private:
  static constexpr uint64_t kDirty = 1ULL << 2;
  static constexpr uint64_t kFrozen = 1ULL << 3;
  static constexpr uint64_t kCold = 1ULL << 4;
  static constexpr int kAddressShift = 5;
  static constexpr int kClassShift = 39;
  static constexpr int kVersionShift = 45;
  static constexpr int kFingerprintShift = 53;

  uint64_t bits_ = 0;
};

static_assert(sizeof(SlotWord) == 8);

// Identities of EMPTY words. A built table numbers its own slots; what the sweep renames takes a counter that never
// repeats in a partition's life (membership epoch in the high bits, so that a fail-over cannot repeat it either).
//   58: 0 built | 57..32 table version | 31..0 slot index       58: 1 renamed | 57..38 membership epoch | 37..0 counter
constexpr uint64_t built_identity(uint64_t table_version, uint64_t slot_index) {
  return ((table_version & ((1ULL << 26) - 1)) << 32) | slot_index;
}
constexpr uint64_t renamed_identity(uint64_t membership_epoch, uint64_t counter) {
  return (1ULL << 58) | ((membership_epoch & ((1ULL << 20) - 1)) << 38) | (counter & ((1ULL << 38) - 1));
}

}  // namespace skua::proto
