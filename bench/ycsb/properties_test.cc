#include "bench/ycsb/properties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "bench/ycsb/known_properties.h"

namespace skua::ycsb {
namespace {

using ::testing::HasSubstr;

Properties parse(std::string_view text) {
  Properties properties;
  const auto loaded = properties.load_text(text, "test");
  EXPECT_TRUE(loaded) << loaded.error().to_string();
  return properties;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes) : path_(::testing::TempDir() + "skua_properties_test_file") {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Properties, SeparatorsMayBeEqualsColonOrBlank) {
  const Properties p = parse("a=1\nb: 2\nc 3\nd = 4\n  e\t:\t5  \nf\n");
  EXPECT_EQ(p.text("a", ""), "1");
  EXPECT_EQ(p.text("b", ""), "2");
  EXPECT_EQ(p.text("c", ""), "3");
  EXPECT_EQ(p.text("d", ""), "4");
  EXPECT_EQ(p.text("e", ""), "5");
  EXPECT_TRUE(p.has("f"));
  EXPECT_EQ(p.text("f", "x"), "");
}

TEST(Properties, CommentsAndBlankLinesAreSkipped) {
  const Properties p = parse("# a=1\n  ! b=2\n\n\t\nc=3 # not a comment\n");
  EXPECT_EQ(p.entries().size(), 1u);
  EXPECT_EQ(p.text("c", ""), "3 # not a comment");
}

TEST(Properties, LineEndingInOddBackslashesContinues) {
  const Properties p = parse("fruits = apple, \\\n   banana, \\\r\n   pear\nback = one\\\\\nnext=2\n");
  EXPECT_EQ(p.text("fruits", ""), "apple, banana, pear");
  EXPECT_EQ(p.text("back", ""), "one\\");
  EXPECT_EQ(p.text("next", ""), "2");
}

TEST(Properties, EscapesAreResolvedInNamesAndValues) {
  const Properties p = parse("a\\ b\\=c = x\\ty\\n\nu = \\u00e4\\u20AC\\ud83d\\ude00\n");
  EXPECT_EQ(p.entries().at("a b=c").value, "x\ty\n");
  EXPECT_EQ(p.text("u", ""), "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(Properties, BrokenUnicodeEscapeIsRefusedWithItsLine) {
  Properties properties;
  const auto loaded = properties.load_text("a=1\nb=\\u12g4\n", "file");
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(), HasSubstr("file:2"));
  EXPECT_TRUE(properties.entries().empty());
}

TEST(Properties, LaterSettingReplacesEarlier) {
  Properties p = parse("a=1\na=2\n");
  EXPECT_EQ(p.text("a", ""), "2");
  p.set("a", "3", "-p");
  EXPECT_EQ(p.text("a", ""), "3");
}

TEST(Properties, NumbersAreCheckedAndErrorsNameNameValueAndPlace) {
  const Properties p = parse("a=12x\nb=-1\nc=1.5\nd=maybe\ne=18446744073709551615\nok=42\n");
  EXPECT_EQ(p.integer("ok", 0).value(), 42u);
  EXPECT_EQ(p.integer("absent", 7).value(), 7u);
  EXPECT_THAT(p.integer("a", 0).error().message(), HasSubstr("property a=12x (test:1): must be a whole number"));
  EXPECT_FALSE(p.integer("b", 0));
  EXPECT_FALSE(p.integer("e", 0));
  EXPECT_THAT(p.integer("ok", 0, 43).error().message(), HasSubstr("at least 43"));
  EXPECT_EQ(p.real("c", 0, {0, 2}).value(), 1.5);
  EXPECT_FALSE(p.real("c", 0, {0, 1}));
  EXPECT_FALSE(p.real("d", 0, {0, 1}));
  EXPECT_FALSE(p.boolean("d", false));
}

TEST(Properties, MissingFileIsNamedWithItsReason) {
  Properties properties;
  const auto loaded = properties.load_file("/nonexistent/workload");
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(), HasSubstr("/nonexistent/workload"));
  EXPECT_THAT(loaded.error().message(), HasSubstr("No such file"));
}

TEST(Properties, FolderIsNoWorkloadFile) {
  Properties properties;
  EXPECT_FALSE(properties.load_file("/"));
}

TEST(Properties, BinaryFileIsRefused) {
  const TemporaryFile file(std::string_view("\x7f" "ELF\0\1recordcount=1\n", 20));
  Properties properties;
  const auto loaded = properties.load_file(file.path());
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(), HasSubstr("is not a workload file: byte 0 at offset 4"));
}

TEST(Properties, TextWithoutAnyKnownPropertyIsRefused) {
  const TemporaryFile file("Dear reader,\nthis is a letter.\n");
  Properties properties;
  const auto loaded = properties.load_file(file.path());
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(), HasSubstr("sets no property"));
}

TEST(KnownProperties, UnknownNameIsWarnedAboutWithTheNearestOne) {
  const Properties p = parse("recordcout=5\nrecordcount=5\n");
  const auto warnings = check_property_names(p);
  ASSERT_TRUE(warnings);
  ASSERT_EQ(warnings->size(), 1u);
  EXPECT_THAT(warnings->front(), HasSubstr("recordcout"));
  EXPECT_THAT(warnings->front(), HasSubstr("did you mean recordcount?"));
}

TEST(KnownProperties, UnsupportedOneIsRefusedUnlessHarmless) {
  EXPECT_TRUE(check_property_names(parse("measurement.trackjvm=false\n")));
  const auto refused = check_property_names(parse("measurement.trackjvm=true\n"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("not supported"));
}

}  // namespace
}  // namespace skua::ycsb
