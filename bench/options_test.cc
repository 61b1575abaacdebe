#include "bench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace skua::bench {
namespace {

using ::testing::HasSubstr;

Result<Options> parse(std::vector<const char*> arguments) { return parse_options(arguments); }

std::string refusal(std::vector<const char*> arguments) {
  const auto options = parse(std::move(arguments));
  return options ? "accepted" : options.error().message();
}

TEST(Options, YcsbsFlagsAndOursAreUnderstood) {
  const auto options = parse({"-load", "-t", "-p", "recordcount=5", "-threads", "3", "-target=100", "-s", "--local",
                              "2", "--transport=tcp", "--memory", "64MiB", "--seed", "9", "--batch", "16", "-db",
                              "x.Y"});
  ASSERT_TRUE(options) << options.error().to_string();
  EXPECT_TRUE(options->phases.load && options->phases.run && options->status);
  EXPECT_EQ(options->properties.text("recordcount", ""), "5");
  EXPECT_EQ(options->properties.text("threadcount", ""), "3");
  EXPECT_EQ(options->properties.text("target", ""), "100");
  EXPECT_EQ(options->local_servers, 2u);
  EXPECT_EQ(options->transport, "tcp");
  EXPECT_EQ(options->memory, "64MiB");
  EXPECT_EQ(options->seed, 9u);
  EXPECT_EQ(options->batch, 16u);
}

TEST(Options, PropertyFlagWinsOverFilesWhereverItStands) {
  const std::string path = ::testing::TempDir() + "skua_options_test_workload";
  std::ofstream(path) << "recordcount=1\noperationcount=2\n";
  const auto options =
      parse({"-run", "-p", "recordcount=7", "-P", path.c_str(), "--cluster", "127.0.0.1:1"});
  std::remove(path.c_str());
  ASSERT_TRUE(options) << options.error().to_string();
  EXPECT_EQ(options->properties.text("recordcount", ""), "7");
  EXPECT_EQ(options->properties.text("operationcount", ""), "2");
}

TEST(Options, AddressesAndTokenFilesThatCannotBeUsedAreConfigurationErrors) {
  const std::string path = ::testing::TempDir() + "skua_options_test_token";
  std::ofstream(path) << "s3cret\n";
  const auto options = parse({"-load", "--cluster", "127.0.0.1:1", "--token-file", path.c_str()});
  std::remove(path.c_str());
  ASSERT_TRUE(options) << options.error().to_string();
  EXPECT_EQ(options->token, "s3cret");
  for (const char* address : {"127.0.0.1", "127.0.0.1:0", "http://a:1"}) {
    EXPECT_EQ(parse({"-load", "--cluster", address}).error().code(), StatusCode::kConfiguration) << address;
  }
  EXPECT_EQ(parse({"-load", "--token-file", "/no/such"}).error().code(), StatusCode::kConfiguration);
}

TEST(Options, WrongCommandLinesSayWhatWouldBeRight) {
  EXPECT_THAT(refusal({}), HasSubstr("-load, -run, or both"));
  EXPECT_THAT(refusal({"-run"}), HasSubstr("--local N"));
  EXPECT_THAT(refusal({"-run", "--local", "1"}), HasSubstr("begin empty"));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--cluster", "a:1"}), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"-load", "--local", "0"}), HasSubstr("from 1 to 64"));
  EXPECT_THAT(refusal({"-load", "--cluster", "localhost"}), HasSubstr("--cluster: "));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--rdma-atomics", "nic"}), HasSubstr("auto, device or cpu"));
  EXPECT_THAT(refusal({"-load", "--cluster", "h:1", "--rdma-atomics", "cpu"}), HasSubstr("--local starts"));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--wait", "long"}), HasSubstr("busy, event or adaptive"));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--rdma-mtu", "1500"}), HasSubstr("auto, 256, 512"));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--rdma-retry-count", "7"}), HasSubstr("from 0 to 6"));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--rdma-ack-timeout", "0"}), HasSubstr("from 1 to 31"));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--transport", "ib"}), HasSubstr("auto, verbs, shm or tcp"));
  EXPECT_THAT(refusal({"-load", "--local", "1", "--memory", "many"}), HasSubstr("--memory"));
  EXPECT_THAT(refusal({"-load", "--cluster", "a:1", "--memory", "1g"}), HasSubstr("that --local starts"));
  EXPECT_THAT(refusal({"-load", "--cluster", "a:1", "--read-only"}), HasSubstr("cannot -load"));
  EXPECT_THAT(refusal({"-p"}), HasSubstr("-p needs a value: NAME=VALUE"));
  EXPECT_THAT(refusal({"-p", "novalue"}), HasSubstr("must be name=value"));
  EXPECT_THAT(refusal({"-lod"}), HasSubstr("unknown option -lod"));
  EXPECT_THAT(refusal({"load"}), HasSubstr("'load' is no option"));
  EXPECT_THAT(refusal({"-s=1"}), HasSubstr("takes no value"));
}

TEST(Options, UnreadableWorkloadFileIsAConfigurationError) {
  const auto options = parse({"-run", "-P", "/nonexistent", "--cluster", "a:1"});
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code(), StatusCode::kConfiguration);
}

TEST(Options, HelpNeedsNothingElse) {
  const auto options = parse({"--help"});
  ASSERT_TRUE(options);
  EXPECT_TRUE(options->help);
}

}  // namespace
}  // namespace skua::bench
