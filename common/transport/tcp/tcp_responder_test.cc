#include "common/transport/tcp/tcp_responder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "common/base/random.h"

namespace skua {
namespace {

constexpr RegionKey kKey{9};

class TcpResponderTest : public testing::Test {
 protected:
  TcpResponderTest() : memory_(1 << 20) {
    responder_.assign(std::vector<MappedRegion>{{kKey, memory_.data(), memory_.size()}}, false);
  }
  static void add(std::string& stream, Verb verb, uint64_t offset, uint64_t bytes, const std::string& payload = {}) {
    WireRequest request{};
    request.verb = static_cast<uint8_t>(verb);
    request.bytes = bytes;
    request.key = static_cast<uint64_t>(kKey);
    request.offset = offset;
    request.swap_or_add = 1;
    stream.append(reinterpret_cast<const char*>(&request), sizeof(request));
    stream += payload;
  }
  // Shows `stream` in pieces of random length, and takes output in pieces as well.
  std::string feed(const std::string& stream, uint64_t seed, uint64_t longest) {
    Random random(seed);
    std::string output;
    std::string pending;
    size_t shown = 0;
    for (int idle = 0; idle < 3;) {
      const size_t more = std::min<size_t>(1 + random.below(longest), stream.size() - shown);
      pending += stream.substr(shown, more);
      shown += more;
      const size_t used = responder_.execute(std::as_bytes(std::span(pending)));
      pending.erase(0, used);
      size_t room = 1 + random.below(longest);
      size_t sent = 0;
      for (const iovec& segment : responder_.output()) {
        const size_t part = std::min(room, segment.iov_len);
        output.append(static_cast<const char*>(segment.iov_base), part);
        room -= part;
        sent += part;
      }
      responder_.sent(sent);
      idle = used == 0 && sent == 0 && shown == stream.size() ? idle + 1 : 0;
    }
    EXPECT_EQ(pending, "");
    return output;
  }

  std::vector<std::byte> memory_;
  TcpResponder responder_;
};

TEST_F(TcpResponderTest, AnswerDoesNotDependOnHowTheStreamIsCut) {
  std::string stream;
  for (int i = 0; i < 50; ++i) {
    add(stream, Verb::kWrite, 3, 1000, std::string(1000, static_cast<char>('a' + i % 26)));
    add(stream, Verb::kFetchAndAdd, 4096, 8);
    add(stream, Verb::kRead, 0, 1003);
    add(stream, Verb::kRead, 0, 0);
    add(stream, Verb::kRead, 100, 70000);
  }
  std::string first;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    const std::string output = feed(stream, seed, seed < 4 ? stream.size() : 5000 / seed);
    if (seed == 1) first = output;
    // READs of 70000 bytes may be sent while later WRITEs change what they cover: only lengths are compared there.
    ASSERT_EQ(output.size(), first.size());
    ASSERT_EQ(output.size(), 50U * (8 + 16 + 8 + 1003 + 8 + 8 + 70000));
  }
}

TEST_F(TcpResponderTest, OutputStaysBoundedWhileNothingIsSent) {
  std::string stream;
  for (int i = 0; i < 1000; ++i) add(stream, Verb::kRead, 0, 16000);
  size_t used = responder_.execute(std::as_bytes(std::span(stream)));
  EXPECT_LT(used, stream.size());
  size_t waiting = 0;
  for (const iovec& segment : responder_.output()) waiting += segment.iov_len;
  EXPECT_LE(waiting, TcpResponder::kOutputBytes);
  EXPECT_EQ(responder_.execute(std::as_bytes(std::span(stream).subspan(used))), 0U);
}

TEST_F(TcpResponderTest, NothingIsExecutedBehindAFailure) {
  std::string stream;
  add(stream, Verb::kFetchAndAdd, 0, 8);
  add(stream, Verb::kRead, memory_.size(), 1);
  add(stream, Verb::kFetchAndAdd, 0, 8);
  responder_.execute(std::as_bytes(std::span(stream)));
  EXPECT_TRUE(responder_.failed());
  EXPECT_EQ(load_word(memory_.data()), 1U);
}

TEST_F(TcpResponderTest, RandomBytesNeverTouchMemory) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    std::string stream(500, '\0');
    for (char& byte : stream) byte = static_cast<char>(random.next());
    TcpResponder responder;
    responder.assign(std::vector<MappedRegion>{{kKey, memory_.data(), memory_.size()}}, false);
    EXPECT_EQ(responder.execute(std::as_bytes(std::span(stream))), sizeof(WireRequest));
    EXPECT_TRUE(responder.failed());
  }
  EXPECT_TRUE(std::all_of(memory_.begin(), memory_.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

}  // namespace
}  // namespace skua
