#include "server/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sysexits.h>

#include <filesystem>
#include <fstream>

#include "server/data_directory.h"

namespace skua {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    std::string pattern = "/dev/shm/skua-config-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~ConfigTest() override { std::filesystem::remove_all(directory_); }
  std::string write(const std::string& text) const {
    std::ofstream(directory_ + "/file") << text;
    return directory_ + "/file";
  }

  std::string directory_;
};

TEST_F(ConfigTest, DefaultsAreThoseOfTheHelp) {
  const CommandLine line = parse_command_line({});

  ASSERT_TRUE(line.run) << line.text;
  EXPECT_EQ(line.config.node.listen, (NetAddress{"127.0.0.1", 7400}));
  EXPECT_EQ(line.config.node.data_dir, "./skua-data");
  EXPECT_EQ(line.config.node.store.memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(line.config.node.transports, (std::vector<std::string>{"shm", "tcp"}));
  EXPECT_FALSE(line.config.node.join);
}

TEST_F(ConfigTest, EveryFlagIsApplied) {
  std::ofstream(directory_ + "/token") << "s3cret\n";
  const CommandLine line = parse_command_line(
      {"--listen", "[::1]:1", "--data-listen", "10.0.0.1:2", "--advertise", "host", "--join=a:3",
       "--initial-servers", "3", "--partitions", "128", "--name", "n", "--data-dir", "d", "--memory", "256MiB",
       "--expected-keys", "5", "--pages", "small", "--transports", "tcp", "--token-file", directory_ + "/token",
       "--lease-ms", "700", "--log-level", "error", "--ready-fd", "9", "--ready-file", "r", "--join-timeout", "2s"});

  ASSERT_TRUE(line.run) << line.text;
  const NodeOptions& node = line.config.node;
  EXPECT_EQ(node.listen, (NetAddress{"::1", 1}));
  EXPECT_EQ(node.data_listen, (NetAddress{"10.0.0.1", 2}));
  EXPECT_EQ(node.advertise, "host");
  EXPECT_EQ(node.join, (NetAddress{"a", 3}));
  EXPECT_EQ(node.initial_servers, 3u);
  EXPECT_EQ(node.partitions, 128u);
  EXPECT_EQ(node.name, "n");
  EXPECT_EQ(node.data_dir, "d");
  EXPECT_EQ(node.store.memory_bytes, uint64_t{256} << 20);
  EXPECT_EQ(node.store.expected_keys, 5u);
  EXPECT_EQ(node.store.pages, PagePolicy::kSmall);
  EXPECT_EQ(node.transports, std::vector<std::string>{"tcp"});
  EXPECT_EQ(node.token, "s3cret");
  EXPECT_EQ(node.store.lease, 700 * kMillisecond);
  EXPECT_EQ(node.join_timeout, 2 * kSecond);
  EXPECT_EQ(line.config.log_level, LogLevel::kError);
  EXPECT_EQ(line.config.ready_fd, 9);
  EXPECT_EQ(line.config.ready_file, "r");
}

TEST_F(ConfigTest, EveryFlagOfVerbsIsApplied) {
  const CommandLine line = parse_command_line(
      {"--transports", "verbs", "--rdma-device", "mlx5_1", "--rdma-port", "2", "--rdma-gid-index", "0",
       "--rdma-traffic-class", "106", "--rdma-listen", "10.0.0.1:7", "--rdma-atomics", "device", "--rdma-ack-timeout",
       "12", "--rdma-retry-count", "3", "--rdma-mtu", "2048"});

  ASSERT_TRUE(line.run) << line.text;
  const NodeOptions& node = line.config.node;
  EXPECT_EQ(node.transports, std::vector<std::string>{"verbs"});
  EXPECT_EQ(node.rdma.device, "mlx5_1");
  EXPECT_EQ(node.rdma.port, 2u);
  EXPECT_EQ(node.rdma.gid_index, 0u);
  EXPECT_EQ(node.rdma.traffic_class, 106u);
  EXPECT_EQ(node.rdma_listen, (NetAddress{"10.0.0.1", 7}));
  EXPECT_EQ(node.rdma_atomics, "device");
  EXPECT_EQ(node.rdma.ack_timeout, 12u);
  EXPECT_EQ(node.rdma.retry_count, 3u);
  EXPECT_EQ(node.rdma.path_mtu, 2048u);
}

TEST_F(ConfigTest, WrongFlagsAndValuesAreUsageErrorsThatNameThem) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--rdma-retry-count", "7"}, "'7' is not a whole number from 0 to 6"},
      {{"--rdma-ack-timeout", "0"}, "'0' is not a whole number from 1 to 31"},
      {{"--rdma-mtu", "1500"}, "'1500' is none of auto, 256, 512, 1024, 2048, 4096"},
      {{"--rdma-atomics", "nic"}, "'nic' is none of auto, device, cpu"},
      {{"--memry", "1g"}, "did you mean --memory?"},
      {{"--pages=huge", "stray"}, "unexpected argument 'stray'"},
      {{"--listen", "localhost"}, "--listen: address 'localhost': no port"},
      {{"--listen", "::1"}, "brackets"},
      {{"--partitions", "12"}, "power of two"},
      {{"--memory", "lots"}, "--memory: size 'lots'"},
      {{"--memory", "0"}, "needs memory"},
      {{"--initial-servers", "0"}, "'0' is not a whole number"},
      {{"--expected-keys", "1e6"}, "'1e6'"},
      {{"--pages", "giant"}, "auto, huge, small"},
      {{"--log-level", "loud"}, "'loud'"},
      {{"--memory", "1EiB"}, "GiB or TiB"},
      {{"--name"}, "--name"},
  };
  for (const auto& [arguments, text] : cases) {
    const CommandLine line = parse_command_line(arguments);
    EXPECT_FALSE(line.run);
    EXPECT_EQ(line.exit_code, EX_USAGE) << arguments[0];
    EXPECT_NE(line.text.find(text), std::string::npos) << line.text;
  }
}

TEST_F(ConfigTest, FlagIsSuggestedOnlyWhenItIsNear) {
  EXPECT_NE(parse_command_line({"--initialservers", "3"}).text.find("--initial-servers"), std::string::npos);
  const CommandLine far = parse_command_line({"--nosuch", "3"});
  EXPECT_EQ(far.exit_code, EX_USAGE);
  EXPECT_NE(far.text.find("'--nosuch'"), std::string::npos) << far.text;
  EXPECT_EQ(far.text.find("did you mean"), std::string::npos) << far.text;
}

TEST_F(ConfigTest, TokenFileThatCannotBeUsedIsAConfigurationError) {
  const std::string empty = write("");
  for (const std::string& path : {std::string("/no/such"), directory_, empty}) {
    const CommandLine line = parse_command_line({"--token-file", path});
    EXPECT_EQ(line.exit_code, EX_CONFIG);
    EXPECT_NE(line.text.find("--token-file: '" + path + "'"), std::string::npos) << line.text;
  }
}

TEST_F(ConfigTest, HelpNamesEveryFlagAndExitsWithZero) {
  const CommandLine line = parse_command_line({"--help"});

  EXPECT_FALSE(line.run);
  EXPECT_EQ(line.exit_code, 0);
  for (const char* flag : {"--listen", "--join", "--partitions", "--pages", "--ready-file", "--config"}) {
    EXPECT_NE(line.text.find(flag), std::string::npos) << flag;
  }
}

TEST_F(ConfigTest, FileHasTheSameNamesAndAFlagBeatsIt) {
  const std::string path =
      write("listen = \"10.0.0.1:9\"\nmemory = \"64MiB\"\npartitions = 16\ntransports = [\"tcp\", \"shm\"]\n");
  const CommandLine line = parse_command_line({"--memory", "128MiB", "--config", path});

  ASSERT_TRUE(line.run) << line.text;
  EXPECT_EQ(line.config.node.listen, (NetAddress{"10.0.0.1", 9}));
  EXPECT_EQ(line.config.node.partitions, 16u);
  EXPECT_EQ(line.config.node.transports, (std::vector<std::string>{"tcp", "shm"}));
  EXPECT_EQ(line.config.node.store.memory_bytes, uint64_t{128} << 20);
}

TEST_F(ConfigTest, FileThatCannotBeUsedIsAConfigurationErrorThatNamesTheKey) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"lisen = \"a:1\"\n", "lisen: no such key; did you mean 'listen'?"},
      {"memory = \"many\"\n", "memory: size 'many'"},
      {"memory = 1.5\n", "write a string, a whole number"},
      {"[server]\nmemory = 1\n", "server: no such key"},
      {"a = \n", "line 1"},
  };
  for (const auto& [text, expected] : cases) {
    const CommandLine line = parse_command_line({"--config", write(text)});
    EXPECT_FALSE(line.run);
    EXPECT_EQ(line.exit_code, EX_CONFIG);
    EXPECT_NE(line.text.find(expected), std::string::npos) << line.text;
    EXPECT_NE(line.text.find(directory_), std::string::npos) << line.text;
  }
  EXPECT_EQ(parse_command_line({"--config", "/no/such"}).exit_code, EX_CONFIG);
}

TEST_F(ConfigTest, DataDirectoryRemembersWhoUsedIt) {
  {
    const auto fresh = DataDirectory::open(directory_ + "/a/b");
    ASSERT_TRUE(fresh) << fresh.error().message();
    EXPECT_FALSE((*fresh)->identity());
    ASSERT_TRUE((*fresh)->remember({"me", 0xabcd, true}));

    const auto second = DataDirectory::open(directory_ + "/a/b");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), StatusCode::kUnavailable);
    EXPECT_NE(second.error().message().find("/a/b"), std::string::npos);
  }
  const auto again = DataDirectory::open(directory_ + "/a/b");
  ASSERT_TRUE(again && (*again)->identity());
  EXPECT_EQ((*again)->identity()->name, "me");
  EXPECT_EQ((*again)->identity()->cluster_id, 0xabcdu);
  EXPECT_TRUE((*again)->identity()->coordinator);
}

TEST_F(ConfigTest, DataDirectoryOfAnotherFormatOrPlaceIsRefused) {
  std::ofstream(directory_ + "/identity") << "skua server 9\n";
  EXPECT_EQ(DataDirectory::open(directory_).error().code(), StatusCode::kConfiguration);
  std::ofstream(directory_ + "/identity") << "skua server 1\nname=\n";
  EXPECT_EQ(DataDirectory::open(directory_).error().code(), StatusCode::kCorruption);
  const auto impossible = DataDirectory::open("/proc/none");
  EXPECT_EQ(impossible.error().code(), StatusCode::kConfiguration);
  EXPECT_NE(impossible.error().message().find("--data-dir"), std::string::npos);
}

}  // namespace
}  // namespace skua
