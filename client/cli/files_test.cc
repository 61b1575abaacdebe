#include "client/cli/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace skua::cli {
namespace {

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    std::string pattern = testing::TempDir() + "skua-files-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~FilesTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

 private:
  std::string folder_;
};

TEST_F(FilesTest, ReadAllTakesUpToTheLimitAndNamesTheFileBeyond) {
  const std::string bytes(300'000, '\0');
  EXPECT_EQ(read_all(write("a", bytes), bytes.size()).value(), bytes);
  EXPECT_EQ(read_all(write("empty", ""), 0).value(), "");
  const auto over = read_all(path("a"), bytes.size() - 1);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(over.error().message().find("299999 bytes"), std::string::npos);
}

TEST_F(FilesTest, AbsentFilesAndFoldersAreNamedWithTheReason) {
  const auto absent = open_input(path("absent"));
  ASSERT_FALSE(absent);
  EXPECT_NE(absent.error().message().find(path("absent") + "': No such file"), std::string::npos);
  const auto folder = open_input(path("."));
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message().find("directory"), std::string::npos);
  EXPECT_FALSE(OutputFile::create(path("absent/file")));
}

TEST_F(FilesTest, LineReaderHandsOutEveryLineOnce) {
  const std::string lengthy(1'000'000, 'x');
  LineReader lines(*open_input(write("a", "one\n\n" + lengthy + "\nlast")), 2'000'000);
  for (const std::string& expected : {std::string("one"), std::string(), lengthy, std::string("last")}) {
    const auto line = lines.next();
    ASSERT_TRUE(line && line->has_value());
    EXPECT_EQ(**line, expected);
  }
  EXPECT_EQ(lines.line(), 4u);
  EXPECT_EQ(lines.bytes_read(), 4u + 1 + 1'000'001 + 4);
  EXPECT_FALSE(lines.next()->has_value());
  EXPECT_FALSE(lines.next()->has_value());
}

TEST_F(FilesTest, LineReaderStopsAtALineOverTheLimit) {
  LineReader lines(*open_input(write("a", "ok\n" + std::string(3'000'000, 'x'))), 1'000'000);
  ASSERT_TRUE(lines.next()->has_value());
  const auto line = lines.next();
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(lines.line(), 2u);
}

TEST_F(FilesTest, OutputAppearsWholeOrNotAtAll) {
  write("out", "old");
  {
    auto file = OutputFile::create(path("out"));
    ASSERT_TRUE((*file)->write("new"));
    EXPECT_EQ(read("out"), "old");
  }
  EXPECT_EQ(read("out"), "old");
  EXPECT_EQ(entries(), 1u) << "nothing is left beside it";

  auto file = OutputFile::create(path("out"));
  ASSERT_TRUE((*file)->write("new"));
  ASSERT_TRUE((*file)->commit());
  EXPECT_EQ(read("out"), "new");
  file->reset();
  EXPECT_EQ(read("out"), "new");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FilesTest, FullDeviceIsAnError) {
  auto file = OutputFile::create("/dev/full");
  ASSERT_TRUE(file);
  auto written = (*file)->write("bytes");
  if (written) written = (*file)->commit();
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message().find("No space left"), std::string::npos);
}

}  // namespace
}  // namespace skua::cli
