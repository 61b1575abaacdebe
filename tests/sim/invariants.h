#pragma once
// What must hold of servers' memory, judged at every verb and when all is quiet.
//
//  - A LIVE or TENTATIVE word comes back in its slot only when about M reclaim epochs have passed since it left (I1,
//    I13; M: modulus of the version in a word).
//  - No WRITE reaches a block that a LIVE word names (I2, I11).
//  - A block that is put into a slot is named by no other word, LIVE, TENTATIVE or FREED, nor by the word that a
//    TENTATIVE one replaces (I1, I11).
//  - When all sessions have ended: no TENTATIVE or FREED word is left, no block is granted or retired, each LIVE word
//    has a block of its own, whole and with the word's version, and no other block is used (guarantee 3).
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "common/transport/sim/world.h"
#include "proto/slot_word.h"
#include "server/store.h"
#include "tests/sim/record.h"

namespace skua::sim {

class Invariants {
 public:
  // `ordered_writes`: a WRITE takes effect before the CAS behind it, as the seam promises.
  Invariants(Record& record, bool ordered_writes) : record_(record), ordered_writes_(ordered_writes) {}

  void effect(const VerbEffect& effect);
  void server_forgot() {  // its memory may be had again
    regions_.clear();
    live_.clear();
    named_.clear();
    replaces_.clear();
    left_.clear();
  }

  // Empty: all is quiet and as it should be. `partitions`: of this store.
  std::string judge_quiet(Store& store) const;

 private:
  struct LiveBlock {
    uint64_t bytes = 0;
    std::byte* slot = nullptr;
    uint64_t word = 0;
  };
  // The directory has changed: what slots held lies elsewhere now.
  void follow(std::byte* region);
  void slot_changed(const VerbEffect& effect);
  void taken_into_use(const VerbEffect& effect);
  void written(const VerbEffect& effect);

  Record& record_;
  const bool ordered_writes_;
  std::map<std::byte*, uint64_t> regions_;  // -> directory root as last seen
  std::map<const std::byte*, LiveBlock> live_;                         // by the block's begin
  std::unordered_map<const std::byte*, std::byte*> named_;             // block -> the slot that last named it
  std::map<std::byte*, std::pair<uint64_t, const std::byte*>> replaces_;  // slot -> word, block it replaces
  std::unordered_map<std::byte*, std::map<uint64_t, uint64_t>> left_;  // slot -> word -> epoch in which it left
};

}  // namespace skua::sim
