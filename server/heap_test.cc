#include "server/heap.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/base/random.h"
#include "server/arena.h"

namespace skua {
namespace {

std::unique_ptr<Arena> make_arena(uint64_t bytes, size_t partitions) {
  auto arena = Arena::create(bytes, PagePolicy::kAuto);
  EXPECT_TRUE(arena) << arena.error().message();
  const auto divided = (*arena)->divide(partitions);
  EXPECT_TRUE(divided);
  return std::move(*arena);
}

// A heap whose blocks all end in an epoch of their own.
struct HeapFixture {
  explicit HeapFixture(uint64_t bytes = 8 << 20) : arena(make_arena(bytes, 1)), extents(*arena, 0), heap(extents) {}
  std::optional<TakenBlock> take(int size_class) { return heap.take(size_class, epoch, true); }
  // Everything used and not in `keep` retires and is free again.
  void reclaim() {
    heap.begin_sweep();
    heap.finish_sweep();
    heap.release_retired(++epoch);
  }
  std::unique_ptr<Arena> arena;
  ExtentMap extents;
  Heap heap;
  uint64_t epoch = 1;
};

TEST(SegmentShape, EveryClassWastesAtMostAnEighth) {
  for (int c = 0; c < proto::kSizeClasses; ++c) {
    const SegmentShape shape = segment_shape(c);
    const uint64_t bytes = shape.chunks * kChunkBytes;
    EXPECT_GE(shape.blocks, 1U) << c;
    EXPECT_LE(shape.blocks, 1024U) << c;
    EXPECT_LE((bytes - shape.blocks * proto::size_class_bytes(c)) * 8, bytes) << c;
  }
}

// Versions are remembered by (first chunk, class): two segments of a class at other chunks must share no block address.
TEST(SegmentShape, OverlappingSegmentsOfAClassShareNoBlockAddress) {
  for (int c = 0; c < proto::kSizeClasses; ++c) {
    const SegmentShape shape = segment_shape(c);
    const uint64_t block = proto::size_class_bytes(c);
    for (uint64_t shift = 1; shift < shape.chunks; ++shift) {
      const uint64_t bytes = shift * kChunkBytes;
      EXPECT_FALSE(bytes % block == 0 && bytes / block < shape.blocks) << c << " shifted by " << shift;
    }
  }
}

TEST(Heap, BlocksOfAllClassesNeverOverlap) {
  HeapFixture f;
  std::map<uint64_t, uint64_t> taken;  // start -> end, bytes
  Random random(7);
  for (int i = 0; i < 3000; ++i) {
    const int c = static_cast<int>(random.below(30));
    const auto block = f.take(c);
    if (!block) continue;
    EXPECT_GE(block->generation, 1U);
    taken[block->block_units * 64] = block->block_units * 64 + proto::size_class_bytes(c);
  }
  ASSERT_GT(taken.size(), 1000U);
  uint64_t end = 0;
  for (const auto& [start, stop] : taken) {
    EXPECT_GE(start, end);
    end = stop;
  }
  EXPECT_LE(end, f.arena->stride());
}

TEST(Heap, BlockUsedAfterTheSweepBeganIsNoCandidate) {
  HeapFixture f;
  const auto before = f.take(3);
  const auto during = f.take(3);
  const auto granted = f.take(3);
  f.heap.use(before->ref);

  f.heap.begin_sweep();
  f.heap.use(during->ref);
  const auto result = f.heap.finish_sweep();

  EXPECT_EQ(result.retired, 1U);
  EXPECT_EQ(f.heap.counts(3).retired, 1U);
  EXPECT_EQ(f.heap.counts(3).used, 1U);
  EXPECT_EQ(f.heap.counts(3).granted, 1U);
  EXPECT_TRUE(granted);
}

TEST(Heap, FreedBlockComesBackWithTheNextGeneration) {
  HeapFixture f;
  const auto pin = f.take(3);  // keeps the segment open
  const auto first = f.take(3);
  f.heap.use(first->ref);
  f.reclaim();
  const auto second = f.take(3);
  EXPECT_EQ(second->block_units, first->block_units);
  EXPECT_EQ(second->generation, first->generation + 1);
  EXPECT_TRUE(pin);
}

TEST(Heap, MarkedBlockStaysAndWordsOfOtherLivesAreNotCurrent) {
  HeapFixture f;
  const auto block = f.take(5);
  f.heap.use(block->ref);
  const auto word = [&](uint64_t units, uint64_t generation, uint32_t size_class) {
    return proto::SlotWord::of(proto::SlotState::kLive, {units, generation, size_class, 1});
  };
  const auto good = word(block->block_units, block->generation, 5);
  BlockMeta* meta = f.heap.find(good);
  ASSERT_NE(meta, nullptr);
  EXPECT_TRUE(f.heap.current(*meta, good));
  EXPECT_FALSE(f.heap.current(*meta, word(block->block_units, block->generation + 1, 5)));
  EXPECT_EQ(f.heap.find(word(block->block_units + 1, 1, 5)), nullptr);
  EXPECT_EQ(f.heap.find(word(block->block_units, 1, 6)), nullptr);
  EXPECT_EQ(f.heap.find(word(block->block_units, 1, 63)), nullptr);
  EXPECT_EQ(f.heap.find(word(proto::kMaxBlockUnits - 1, 1, 5)), nullptr);
  for (int i = 0; i < 130; ++i) {  // marks wrap twice
    f.heap.begin_sweep();
    f.heap.mark(*meta);
    EXPECT_EQ(f.heap.finish_sweep().retired, 0U);
  }
}

TEST(Heap, EmptySegmentsServeAnotherClass) {
  HeapFixture f(2 << 20);
  uint64_t small = 0;
  while (auto block = f.take(2)) {
    f.heap.use(block->ref);
    ++small;
  }
  EXPECT_FALSE(f.take(20));
  f.reclaim();
  EXPECT_EQ(f.heap.used_bytes(), 0U);
  EXPECT_EQ(f.heap.heap_bytes(), 0U);

  uint64_t large_bytes = 0;
  while (auto block = f.take(20)) {
    f.heap.use(block->ref);
    large_bytes += proto::size_class_bytes(20);
  }
  EXPECT_GE(large_bytes * 10, small * proto::size_class_bytes(2) * 9);
}

// One block lives on while its neighbour takes all 256 versions: without memory of each block's own version, the
// segment that follows would start with the version that the long-lived one had until a moment ago.
TEST(Heap, LongLivedBlockOfAClosedSegmentDoesNotGetItsVersionBackAtOnce) {
  HeapFixture f;
  const auto lasting = f.take(9);
  for (int i = 0; i < 255; ++i) {
    const auto churned = f.take(9);
    ASSERT_NE(churned->block_units, lasting->block_units);
    f.heap.use(churned->ref);
    f.reclaim();
  }
  f.heap.use(lasting->ref);
  f.reclaim();
  ASSERT_EQ(f.heap.heap_bytes(), 0U) << "the segment is closed";

  const auto again = f.take(9);

  ASSERT_EQ(again->block_units, lasting->block_units);
  EXPECT_GT(again->generation, lasting->generation + 250) << "full generations go on from the highest";
  EXPECT_EQ(again->generation & 255, (lasting->generation + 1) & 255);
}

// Model of rule 13: a word (address, class, version) that was valid until epoch e is not handed out again before epoch
// e + 256; and no (address, generation) ever comes back, whatever the class.
TEST(Heap, GenerationsAndVersionsSurviveReuseOfSegments) {
  HeapFixture f(1 << 20);
  std::map<uint64_t, uint64_t> highest;                               // address -> generation
  std::map<std::tuple<uint64_t, int, uint64_t>, uint64_t> last_valid;  // (address, class, version) -> epoch
  Random random(11);
  const int classes[] = {6, 9, 22, 24};
  std::vector<TakenBlock> held;
  std::vector<int> held_class;
  for (int round = 0; round < 6000; ++round) {
    const int c = classes[random.below(4)];
    const auto wanted = 1 + random.below(40);
    for (uint64_t i = 0; i < wanted; ++i) {
      const auto block = f.take(c);
      if (!block) break;
      ASSERT_GT(block->generation, highest[block->block_units]) << "round " << round;
      highest[block->block_units] = block->generation;
      const auto valid = last_valid.find({block->block_units, c, block->generation & 255});
      if (valid != last_valid.end()) {
        ASSERT_GE(f.epoch, valid->second + 256) << "round " << round;
      }
      held.push_back(*block);
      held_class.push_back(c);
    }
    const bool all = random.chance(0.3);
    for (size_t i = 0; i < held.size();) {
      if (!all && random.chance(0.3)) {
        ++i;
        continue;
      }
      f.heap.use(held[i].ref);
      last_valid[{held[i].block_units, held_class[i], held[i].generation & 255}] = f.epoch;
      held[i] = held.back();
      held_class[i] = held_class.back();
      held.pop_back();
      held_class.pop_back();
    }
    f.reclaim();
  }
}

TEST(ExtentMap, MemoryGoesBackToTheServerWideLimit) {
  auto arena = make_arena(4 << 20, 2);
  ExtentMap a(*arena, 0);
  ExtentMap b(*arena, arena->stride());
  std::vector<uint32_t> chunks;
  while (auto chunk = a.allocate(1)) chunks.push_back(*chunk);
  EXPECT_EQ(chunks.size(), (4 << 20) / kChunkBytes);
  EXPECT_FALSE(b.allocate(1));
  EXPECT_EQ(std::set<uint32_t>(chunks.begin(), chunks.end()).size(), chunks.size());

  for (const uint32_t chunk : chunks) a.free(chunk, 1);
  EXPECT_EQ(arena->idle(), 4U << 20);
  EXPECT_EQ(a.trim(0), 4U << 20);
  EXPECT_EQ(arena->committed(), 0U);
  EXPECT_TRUE(b.allocate(64));
  EXPECT_EQ(arena->committed(), 4U << 20);
}

TEST(ExtentMap, TrimmedMemoryReadsAsZero) {
  auto arena = make_arena(4 << 20, 1);
  ExtentMap map(*arena, 0);
  const auto chunk = map.allocate(1);
  arena->data()[*chunk * kChunkBytes] = std::byte{7};
  map.free(*chunk, 1);
  map.trim(0);
  EXPECT_EQ(arena->data()[*chunk * kChunkBytes], std::byte{0});
}

TEST(ExtentMap, RunsFindGapsAndRespectTheRange) {
  auto arena = make_arena(16 << 20, 1);
  ExtentMap map(*arena, 0);
  const auto a = map.allocate(10);
  const auto b = map.allocate(10);
  const auto c = map.allocate(10);
  ASSERT_TRUE(a && b && c);
  map.free(*b, 10);
  EXPECT_EQ(map.allocate(11), std::optional<uint32_t>(*c + 10));
  EXPECT_EQ(map.allocate(10), b);
  EXPECT_FALSE(map.allocate(static_cast<uint32_t>(map.chunk_limit()) + 1));
}

TEST(Arena, MoreMemoryThanThereIsNamesWantedLimitAndRemedy) {
  const auto arena = Arena::create(uint64_t{1} << 40, PagePolicy::kAuto);
  ASSERT_FALSE(arena);
#ifndef __SANITIZE_THREAD__
  EXPECT_EQ(arena.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(arena.error().message().find("wanted 1048576 MiB"), std::string::npos) << arena.error().message();
#endif
  EXPECT_NE(arena.error().message().find("--memory"), std::string::npos);
  const auto tiny = Arena::create(4096, PagePolicy::kAuto);
  ASSERT_FALSE(tiny);
  EXPECT_EQ(tiny.error().code(), StatusCode::kConfiguration);
}

TEST(Arena, ExtentsFollowMemoryPerPartition) {
  EXPECT_EQ(make_arena(64 << 20, 1)->extent_bytes(), 2U << 20);
  EXPECT_EQ(make_arena(256 << 20, 64)->extent_bytes(), 256U << 10);
  EXPECT_EQ(make_arena(256 << 20, 4096)->extent_bytes(), 64U << 10);
  EXPECT_EQ(make_arena(64 << 20, 1)->stride() % kHugePageBytes, 0U);
  EXPECT_GE(make_arena(256 << 20, 4096)->stride(), 4 * kChunkBytes);
}

TEST(Arena, SaysNothingOfPagesBeforeItIsDivided) {
  const auto arena = Arena::create(64 << 20, PagePolicy::kAuto);
  ASSERT_TRUE(arena);
  EXPECT_NE((*arena)->pages().find("number of partitions"), std::string::npos) << (*arena)->pages();
}

TEST(Arena, MoreMemoryThanThereIsIsRefusedWithBothNumbers) {
  const auto arena = Arena::create(uint64_t{1} << 40, PagePolicy::kAuto);
  if (arena || arena.error().code() != StatusCode::kResourceExhausted) GTEST_SKIP() << "a machine of another size";
  EXPECT_NE(arena.error().message().find("wanted 1048576 MiB of memory, but "), std::string::npos);
  EXPECT_NE(arena.error().message().find(" MiB: lower --memory"), std::string::npos) << arena.error().message();
}

TEST(Arena, SaysWhatPagesItGot) {
  EXPECT_EQ(make_arena(4 << 20, 1)->pages().substr(0, 6), "4 KiB:");
  auto arena = make_arena(64 << 20, 1);
  ExtentMap map(*arena, 0);
  ASSERT_TRUE(map.allocate(32));
  EXPECT_TRUE(arena->pages().starts_with("2 MiB (MADV_COLLAPSE)") || arena->pages().starts_with("4 KiB: MADV_COLLAPSE"))
      << arena->pages();
}

TEST(Arena, RequiredHugePagesFailWithNumbersWhenPartitionsAreTooMany) {
  auto arena = Arena::create(64 << 20, PagePolicy::kHugeRequired);
  if (!arena) {
    EXPECT_NE(arena.error().message().find("64 MiB"), std::string::npos);
    return;
  }
  const auto divided = (*arena)->divide(64);
  ASSERT_FALSE(divided);
  EXPECT_NE(divided.error().message().find("256 MiB"), std::string::npos) << divided.error().message();
}

}  // namespace
}  // namespace skua
