#include "common/control/frame.h"

#include <gtest/gtest.h>

#include "proto/version.h"

namespace skua {
namespace {

control::Envelope ping(uint64_t id, const std::string& payload) {
  control::Envelope envelope;
  envelope.set_id(id);
  envelope.mutable_ping()->set_payload(payload);
  return envelope;
}

std::string header(uint32_t magic, uint32_t length) {
  std::string bytes;
  for (const uint32_t value : {magic, length}) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((value >> shift) & 0xff));
  }
  return bytes;
}

std::string refusal(std::string_view bytes) {
  FrameDecoder decoder;
  decoder.feed(bytes);
  const auto result = decoder.next();
  if (result) return "taken";
  EXPECT_EQ(result.error().code(), StatusCode::kCorruption);
  return result.error().message();
}

TEST(Frame, HeaderIsMagicAndLengthLittleEndian) {
  std::string bytes;
  ASSERT_TRUE(encode_frame(ping(5, "abc"), bytes));

  ASSERT_GT(bytes.size(), kFrameHeaderBytes);
  EXPECT_EQ(bytes.substr(0, 4), "KTL1");
  EXPECT_EQ(static_cast<size_t>(bytes[4]), bytes.size() - kFrameHeaderBytes);
  EXPECT_EQ(bytes.substr(5, 3), std::string(3, '\0'));
}

TEST(Frame, StreamInPiecesOfEverySizeGivesTheSameEnvelopes) {
  std::string stream;
  for (uint64_t id = 1; id <= 20; ++id) ASSERT_TRUE(encode_frame(ping(id, std::string(id * 37, 'x')), stream));
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{64}, stream.size()}) {
    FrameDecoder decoder;
    uint64_t expected = 1;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.feed(std::string_view(stream).substr(at, piece));
      for (;;) {
        const auto next = decoder.next();
        ASSERT_TRUE(next);
        if (!*next) break;
        EXPECT_EQ((*next)->id(), expected);
        EXPECT_EQ((*next)->ping().payload().size(), expected * 37);
        ++expected;
      }
    }
    EXPECT_EQ(expected, 21u);
    EXPECT_EQ(decoder.pending_bytes(), 0u);
  }
}

TEST(Frame, WrongMagicIsRefusedByItsFourthByte) {
  EXPECT_NE(refusal("GET ").find("magic"), std::string::npos);
  EXPECT_EQ(refusal("GET"), "taken");  // not known yet
}

TEST(Frame, LengthBeyondTheLimitIsRefusedBeforeAnyOfItArrives) {
  for (const uint32_t length : {uint32_t{kMaxFrameBytes + 1}, 0x80000000u, 0x80000001u, 0xffffffffu}) {
    EXPECT_NE(refusal(header(proto::kControlMagic, length)).find(std::to_string(length)), std::string::npos);
  }
  EXPECT_EQ(refusal(header(proto::kControlMagic, kMaxFrameBytes)), "taken");
}

TEST(Frame, LengthOfTwoToThe63IsRefused) {
  // A peer that writes 64-bit lengths: the low half is zero, the high half is taken for the body.
  EXPECT_NE(refusal(header(proto::kControlMagic, 0) + std::string("\0\0\0\x80", 4)).find("zero"), std::string::npos);
}

TEST(Frame, LengthZeroAndBytesThatAreNoEnvelopeAreRefused) {
  EXPECT_NE(refusal(header(proto::kControlMagic, 0)).find("zero"), std::string::npos);
  EXPECT_NE(refusal(header(proto::kControlMagic, 3) + "\xff\xff\xff").find("no control message"), std::string::npos);
}

TEST(Frame, RefusalStaysWhateverComesLater) {
  FrameDecoder decoder;
  decoder.feed("nonsense");
  ASSERT_FALSE(decoder.next());
  std::string good;
  ASSERT_TRUE(encode_frame(ping(1, "x"), good));
  decoder.feed(good);

  EXPECT_FALSE(decoder.next());
}

TEST(Frame, EnvelopeOverTheLimitIsNotEncoded) {
  std::string out = "before";
  const auto result = encode_frame(ping(1, std::string(kMaxFrameBytes, 'x')), out);

  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(out, "before");
}

TEST(Frame, LimitOfTheFirstFrameCanBeLiftedForTheNext) {
  std::string stream;
  ASSERT_TRUE(encode_frame(ping(1, "x"), stream));
  ASSERT_TRUE(encode_frame(ping(2, std::string(2000, 'x')), stream));
  FrameDecoder decoder(100);
  decoder.feed(stream);
  ASSERT_TRUE(decoder.next().value().has_value());
  decoder.set_max_frame_bytes(kMaxFrameBytes);

  EXPECT_EQ(decoder.next().value()->id(), 2u);
}

}  // namespace
}  // namespace skua
