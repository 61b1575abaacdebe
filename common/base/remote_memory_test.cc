#include "common/base/remote_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace skua {
namespace {

TEST(RemoteMemory, CopiesEveryLengthAtEveryOffsetAndNothingElse) {
  alignas(8) std::byte remote[64];
  for (size_t offset = 0; offset < 16; ++offset) {
    for (size_t bytes = 0; bytes + offset <= 48; ++bytes) {
      std::vector<std::byte> sent(bytes + 1);
      for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i + offset + 1);
      std::memset(remote, 0xee, sizeof(remote));
      copy_to_remote(remote + offset, sent.data(), bytes);
      for (size_t i = 0; i < sizeof(remote); ++i) {
        const bool inside = i >= offset && i < offset + bytes;
        ASSERT_EQ(remote[i], inside ? sent[i - offset] : std::byte{0xee}) << offset << " " << bytes << " " << i;
      }
      std::vector<std::byte> got(bytes + 1, std::byte{0xaa});
      copy_from_remote(got.data(), remote + offset, bytes);
      ASSERT_EQ(std::memcmp(got.data(), sent.data(), bytes), 0);
      ASSERT_EQ(got[bytes], std::byte{0xaa});
    }
  }
}

TEST(RemoteMemory, WordOperationsReturnWhatTheyFound) {
  alignas(8) std::byte remote[8];
  store_word(remote, 5);
  EXPECT_EQ(compare_and_swap_word(remote, {4, 9}), 5U);
  EXPECT_EQ(load_word(remote), 5U);
  EXPECT_EQ(compare_and_swap_word(remote, {5, 9}), 5U);
  EXPECT_EQ(load_word(remote), 9U);
  EXPECT_EQ(fetch_add_word(remote, 3), 9U);
  EXPECT_EQ(load_word(remote), 12U);
}

TEST(RemoteMemory, AlignedWordsOfACopyAreWhole) {
  alignas(64) std::byte remote[72] = {};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::byte image[70];
    for (int round = 0; !stop; ++round) {
      std::memset(image, (round & 1) != 0 ? 0xff : 0, sizeof(image));
      copy_to_remote(remote + 1, image, sizeof(image));
    }
  });
  for (int i = 0; i < 50000; ++i) {
    uint64_t words[9] = {};
    copy_from_remote(words, remote, 70);
    for (int w = 1; w < 8; ++w) {  // the first and the last are written byte by byte
      if (words[w] != 0 && words[w] != UINT64_MAX) ADD_FAILURE() << std::hex << words[w];
    }
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace skua
