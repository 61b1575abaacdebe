#include "client/cli/escape.h"

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace skua::cli {
namespace {

std::string every_byte() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

TEST(Escape, WritesNamedAndHexadecimalEscapesAndKeepsText) {
  EXPECT_EQ(escape(""), "");
  EXPECT_EQ(escape("a\tb\nc\rd\\e"), "a\\tb\\nc\\rd\\\\e");
  EXPECT_EQ(escape(std::string("\0\x1f\x7f", 3)), "\\x00\\x1f\\x7f");
  EXPECT_EQ(escape("grüße €"), "grüße €");
  EXPECT_EQ(escape("\xc3"), "\\xc3");
  EXPECT_EQ(escape("\xffx"), "\\xffx");
}

TEST(Escape, NeverHoldsATabOrANewline) {
  EXPECT_EQ(escape(every_byte()).find_first_of("\t\n\r"), std::string::npos);
  EXPECT_TRUE(is_utf8(escape(every_byte())));
}

TEST(Printable, KeepsTextAndShowsControlCharacters) {
  const std::string_view bytes("a\0\x1b[m\\x\n\xff\xc3\xbc", 11);
  EXPECT_EQ(printable(bytes), "a\\x00\\x1b[m\\x\n\\xff\xc3\xbc");
}

TEST(Unescape, GivesBackAnyBytes) {
  EXPECT_EQ(unescape(escape(every_byte())).value(), every_byte());
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random.below(40), '\0');
    for (char& c : bytes) c = static_cast<char>(random.below(256));
    ASSERT_EQ(unescape(escape(bytes)).value(), bytes);
    ASSERT_EQ(base64_decode(base64_encode(bytes)).value(), bytes);
  }
}

TEST(Unescape, NamesThePlaceOfWhatItDoesNotKnow) {
  for (const char* text : {"ab\\", "ab\\q", "ab\\x", "ab\\x1", "ab\\xg0", "ab\\x0g"}) {
    const auto bytes = unescape(text);
    ASSERT_FALSE(bytes) << text;
    EXPECT_NE(bytes.error().message().find("at byte 2"), std::string::npos) << bytes.error().message();
  }
}

TEST(Utf8, AcceptsShortestFormsOfScalarValuesOnly) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
  EXPECT_FALSE(is_utf8("\xc0\x80")) << "overlong";
  EXPECT_FALSE(is_utf8("\xe0\x9f\xbf")) << "overlong";
  EXPECT_FALSE(is_utf8("\xf0\x8f\xbf\xbf")) << "overlong";
  EXPECT_FALSE(is_utf8("\xed\xa0\x80")) << "surrogate";
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80")) << "above the last code point";
  EXPECT_FALSE(is_utf8("\x80")) << "continuation alone";
  EXPECT_FALSE(is_utf8("\xe2\x82")) << "cut";
  EXPECT_FALSE(is_utf8("\xff"));
}

TEST(Base64, MatchesTheVectorsOfRfc4648) {
  const struct {
    const char* bytes;
    const char* text;
  } cases[] = {{"", ""},           {"f", "Zg=="},         {"fo", "Zm8="},        {"foo", "Zm9v"},
               {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& c : cases) {
    EXPECT_EQ(base64_encode(c.bytes), c.text);
    EXPECT_EQ(base64_decode(c.text).value(), c.bytes);
  }
}

TEST(Base64, RefusesWhatTheEncoderDoesNotWrite) {
  for (const char* text :
       {"Z", "Zg", "Zg=", "Z===", "====", "Zm9v\n", "Zm9v ===", "Zh==", "Zm9=", "Z*==", "Zg==Zg=="}) {
    EXPECT_FALSE(base64_decode(text)) << text;
  }
}

TEST(Hex, DecodesBothCasesAndRefusesTheRest) {
  EXPECT_EQ(hex_decode("00fF7a").value(), std::string("\0\xff\x7a", 3));
  EXPECT_EQ(hex_decode("").value(), "");
  EXPECT_FALSE(hex_decode("0"));
  EXPECT_FALSE(hex_decode("0g"));
  EXPECT_FALSE(hex_decode("0x"));
}

}  // namespace
}  // namespace skua::cli
