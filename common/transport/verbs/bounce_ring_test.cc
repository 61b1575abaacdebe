#include "common/transport/verbs/bounce_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "common/base/random.h"

namespace skua {
namespace {

TEST(BounceRing, PiecesNeverOverlapAndNeverWrap) {
  constexpr uint64_t kBytes = 4096;
  std::vector<std::byte> memory(kBytes);
  BounceRing ring(memory.data(), kBytes);
  std::vector<int> owner(kBytes, 0);
  struct Out {
    size_t at;
    size_t bytes;
    uint64_t end;
  };
  std::deque<Out> out;
  Random random(7);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    const uint64_t wanted = 1 + random.below(kBytes / 2);
    const BounceRing::Piece piece = ring.take(wanted);
    if (piece.data == nullptr) {
      ++refused;
      ASSERT_FALSE(out.empty()) << "an empty ring has room for half of itself";
    } else {
      const auto at = static_cast<size_t>(piece.data - memory.data());
      ASSERT_LE(at + wanted, kBytes);
      for (size_t i = at; i < at + wanted; ++i) ASSERT_EQ(std::exchange(owner[i], 1), 0) << round;
      out.push_back({at, wanted, piece.end});
    }
    while (!out.empty() && (piece.data == nullptr || random.below(3) == 0)) {
      for (size_t i = out.front().at; i < out.front().at + out.front().bytes; ++i) owner[i] = 0;
      ring.release_through(out.front().end);
      out.pop_front();
      if (piece.data == nullptr) break;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace skua
