#include "client/doctor/host_limits.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace skua::doctor {
namespace {

class HugePages : public testing::Test {
 protected:
  HugePages() {
    char name[] = "/tmp/skua-doctor-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~HugePages() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::string root_;
};

TEST_F(HugePages, SettingsAreReadFromTheSystemsFiles) {
  write("hugepages/hugepages-2048kB/nr_hugepages", "512");
  write("hugepages/hugepages-2048kB/free_hugepages", "17");
  write("transparent_hugepage/enabled", "always [madvise] never");
  write("transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force");
  const HugePageFacts facts = read_huge_pages(root_);
  EXPECT_EQ(facts.reserved, 512U);
  EXPECT_EQ(facts.free, 17U);
  EXPECT_EQ(facts.transparent, "madvise");
  EXPECT_EQ(facts.shared, "never");
}

TEST_F(HugePages, AKernelWithoutThemIsSaidToHaveNone) {
  write("hugepages/hugepages-1048576kB/nr_hugepages", "4");
  const HugePageFacts facts = read_huge_pages(root_);
  EXPECT_FALSE(facts.reserved);
  EXPECT_EQ(facts.transparent, "");
}

}  // namespace
}  // namespace skua::doctor
