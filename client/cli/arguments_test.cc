#include "client/cli/arguments.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace skua::cli {
namespace {

using Words = std::vector<std::string>;

Arguments accepted(const Words& words) {
  auto parsed = parse_arguments(words);
  if (const auto* finished = std::get_if<Finished>(&parsed)) {
    ADD_FAILURE() << finished->exit_code << ": " << finished->text;
    return {};
  }
  return std::get<Arguments>(std::move(parsed));
}

Finished finished(const Words& words) {
  auto parsed = parse_arguments(words);
  if (const auto* result = std::get_if<Finished>(&parsed)) return *result;
  ADD_FAILURE() << "was accepted: " << words.back();
  return {};
}

class ArgumentsTest : public testing::Test {
 protected:
  ArgumentsTest() {
    unsetenv("SKUA_CLUSTER");
    unsetenv("SKUA_TOKEN_FILE");
  }
};

TEST_F(ArgumentsTest, DefaultsAreThoseOfALocalCluster) {
  const Arguments arguments = accepted({"get", "name"});
  EXPECT_EQ(arguments.command, Command::kGet);
  EXPECT_EQ(arguments.key, "name");
  EXPECT_EQ(arguments.seeds, Words{"127.0.0.1:7400"});
  EXPECT_EQ(arguments.transport, "auto");
  EXPECT_EQ(arguments.timeout, 5 * kSecond);
  EXPECT_FALSE(arguments.json);
  EXPECT_FALSE(arguments.progress);
}

TEST_F(ArgumentsTest, EveryCommandIsKnown) {
  EXPECT_EQ(accepted({"put", "k", "v"}).command, Command::kPut);
  EXPECT_EQ(accepted({"rm", "k"}).command, Command::kRemove);
  EXPECT_EQ(accepted({"exists", "k"}).command, Command::kExists);
  EXPECT_EQ(accepted({"incr", "k"}).command, Command::kIncrement);
  EXPECT_EQ(accepted({"cas", "k", "2f80.17", "v"}).command, Command::kCompareAndSwap);
  EXPECT_EQ(accepted({"load", "f"}).command, Command::kLoad);
  EXPECT_EQ(accepted({"dump", "-"}).command, Command::kDump);
  EXPECT_EQ(accepted({"stats"}).command, Command::kStatistics);
  EXPECT_EQ(accepted({"nodes"}).command, Command::kNodes);
  EXPECT_EQ(accepted({"ping"}).command, Command::kPing);
  EXPECT_EQ(accepted({"doctor"}).command, Command::kDoctor);
  EXPECT_EQ(accepted({"completion", "zsh"}).command, Command::kCompletion);
}

TEST_F(ArgumentsTest, GlobalOptionsStandBeforeOrBehindTheCommand) {
  for (const Words& words : {Words{"--cluster", "a:1,b:2", "--json", "--timeout", "250ms", "get", "k"},
                             Words{"get", "k", "--cluster", "a:1,b:2", "--json", "--timeout", "250ms"}}) {
    const Arguments arguments = accepted(words);
    EXPECT_EQ(arguments.seeds, (Words{"a:1", "b:2"}));
    EXPECT_TRUE(arguments.json);
    EXPECT_EQ(arguments.timeout, 250 * kMillisecond);
  }
}

TEST_F(ArgumentsTest, DoctorTakesWhatToLookAt) {
  const Arguments asked = accepted({"doctor", "--rdma-device", "mlx5_0", "--rdma-port", "2", "--rdma-gid-index", "3",
                                    "--address", "fe80::1%eth0", "--json"});
  EXPECT_EQ(asked.rdma_device, "mlx5_0");
  EXPECT_EQ(asked.rdma_port, 2U);
  EXPECT_EQ(asked.rdma_gid_index, 3U);
  EXPECT_EQ(asked.address, "fe80::1%eth0");
  const Finished refused = finished({"doctor", "--address", "example.org"});
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_NE(refused.text.find("--address 'example.org'"), std::string::npos);
  EXPECT_EQ(finished({"doctor", "--rdma-port", "0"}).exit_code, 64);
  EXPECT_EQ(finished({"doctor", "mlx5_0"}).exit_code, 64);
}

TEST_F(ArgumentsTest, RdmaOptionsAreTakenAndChecked) {
  const Arguments plain = accepted({"get", "k"});
  EXPECT_EQ(plain.rdma_mtu, 0U);
  EXPECT_EQ(plain.rdma_ack_timeout, 14U);
  EXPECT_EQ(plain.rdma_retry_count, 6U);
  const Arguments given = accepted({"get", "k", "--rdma-mtu", "2048", "--rdma-ack-timeout", "12", "--rdma-retry-count",
                                    "3", "--rdma-traffic-class", "106"});
  EXPECT_EQ(given.rdma_mtu, 2048U);
  EXPECT_EQ(given.rdma_ack_timeout, 12U);
  EXPECT_EQ(given.rdma_retry_count, 3U);
  EXPECT_EQ(given.rdma_traffic_class, 106U);
  EXPECT_EQ(accepted({"get", "k", "--rdma-mtu", "auto"}).rdma_mtu, 0U);
  for (const Words& wrong : {Words{"--rdma-mtu", "1500"}, Words{"--rdma-ack-timeout", "0"},
                             Words{"--rdma-ack-timeout", "32"}, Words{"--rdma-retry-count", "7"},
                             Words{"--rdma-traffic-class", "256"}}) {
    EXPECT_EQ(finished({"get", "k", wrong[0], wrong[1]}).exit_code, 64) << wrong[0] << " " << wrong[1];
  }
}

TEST_F(ArgumentsTest, EnvironmentNamesTheClusterUnlessAFlagDoes) {
  setenv("SKUA_CLUSTER", "[::1]:7000", 1);
  EXPECT_EQ(accepted({"ping"}).seeds, Words{"[::1]:7000"});
  EXPECT_EQ(accepted({"ping", "--cluster", "h:1"}).seeds, Words{"h:1"});
  setenv("SKUA_CLUSTER", "::1", 1);
  EXPECT_EQ(finished({"ping"}).exit_code, 78);
}

TEST_F(ArgumentsTest, KeysAndValuesThatLookLikeSomethingElse) {
  EXPECT_EQ(accepted({"get", "get"}).key, "get");
  EXPECT_EQ(accepted({"get", "put"}).key, "put");
  EXPECT_EQ(accepted({"get", "--", "--json"}).key, "--json");
  EXPECT_EQ(accepted({"get", "--", "-k"}).key, "-k");
  EXPECT_EQ(accepted({"put", "k", "stats"}).value, "stats");
  EXPECT_EQ(accepted({"put", "k", ""}).value, "");
  EXPECT_EQ(accepted({"put", "[a,b]", "{}"}).key, "[a,b]");
  EXPECT_EQ(accepted({"put", "[a,b]", "{}"}).value, "{}");
  EXPECT_EQ(accepted({"put", "'k'", "\"v\""}).key, "'k'");
  EXPECT_EQ(accepted({"put", "'k'", "\"v\""}).value, "\"v\"");
  EXPECT_EQ(accepted({"get", "a=b"}).key, "a=b");
  EXPECT_EQ(accepted({"get", "\xff\x01"}).key, "\xff\x01");
  EXPECT_EQ(accepted({"incr", "k", "-5"}).delta, -5);
}

TEST_F(ArgumentsTest, KeysAsHexadecimalAndWithEscapes) {
  EXPECT_EQ(accepted({"get", "--key-hex", "00ff0a"}).key, std::string("\0\xff\n", 3));
  const Arguments escaped = accepted({"put", "-e", "a\\x00", "b\\n"});
  EXPECT_EQ(escaped.key, std::string("a\0", 2));
  EXPECT_EQ(escaped.value, "b\n");
  EXPECT_EQ(accepted({"put", "a\\x00", "b\\n"}).key, "a\\x00");
  EXPECT_EQ(finished({"get", "--key-hex", "0"}).exit_code, 64);
  EXPECT_NE(finished({"get", "--key-hex", "zz"}).text.find("KEY 'zz', at byte 0"), std::string::npos);
  EXPECT_EQ(finished({"get", "-e", "a\\q"}).exit_code, 64);
  EXPECT_EQ(finished({"get", "-e", "--key-hex", "00"}).exit_code, 64);
}

TEST_F(ArgumentsTest, ValueComesFromArgumentFileOrStandardInput) {
  EXPECT_EQ(accepted({"put", "k", "v"}).value, "v");
  const Arguments file = accepted({"put", "k", "--file", "x"});
  EXPECT_FALSE(file.value);
  EXPECT_EQ(file.file, "x");
  const Arguments input = accepted({"put", "k", "-"});
  EXPECT_FALSE(input.value);
  EXPECT_EQ(input.file, "-");
  EXPECT_EQ(finished({"put", "k"}).exit_code, 64);
  EXPECT_EQ(finished({"put", "k", "v", "--file", "x"}).exit_code, 64);
  EXPECT_EQ(finished({"cas", "k", "1.1"}).exit_code, 64);
}

TEST_F(ArgumentsTest, OptionsOfPutAndOfTransfers) {
  const Arguments put = accepted({"put", "k", "v", "--ttl", "2s", "--if-absent"});
  EXPECT_EQ(put.ttl, 2 * kSecond);
  EXPECT_TRUE(put.if_absent);
  EXPECT_EQ(accepted({"dump", "f", "--format", "jsonl"}).format, RecordFormat::kJsonLines);
  EXPECT_EQ(accepted({"dump", "f", "--progress"}).progress, true);
  EXPECT_EQ(accepted({"load", "f", "--no-progress"}).progress, false);
}

TEST_F(ArgumentsTest, UsageErrorsEndWith64AndNameWhatIsWrong) {
  const struct {
    Words words;
    const char* says;
  } cases[] = {
      {{}, "subcommand"},
      {{"fetch", "k"}, "fetch"},
      {{"get"}, "KEY"},
      {{"get", "a", "b"}, "b"},
      {{"get", "a", "--frobnicate"}, "--frobnicate"},
      {{"get", "a", "--if-absent"}, "--if-absent"},
      {{"incr", "k", "many"}, "many"},
      {{"incr", "k", "9223372036854775808"}, "9223372036854775808"},
      {{"put", "k", "v", "--ttl", "soon"}, "soon"},
      {{"put", "k", "v", "--ttl", "1us"}, "at least 1ms"},
      {{"get", "k", "--timeout", "5"}, "5"},
      {{"get", "k", "--timeout", "0"}, "at least 1ms"},
      {{"get", "k", "--transport", "rdma"}, "rdma"},
      {{"dump", "f", "--format", "csv"}, "csv"},
      {{"completion", "tcsh"}, "tcsh"},
  };
  for (const auto& c : cases) {
    const Finished result = finished(c.words);
    EXPECT_EQ(result.exit_code, 64) << c.says;
    EXPECT_NE(result.text.find(c.says), std::string::npos) << c.says << " in: " << result.text;
  }
}

TEST_F(ArgumentsTest, AddressesThatCannotBeUsedEndWith78) {
  for (const char* address : {"localhost", "::1", "fe80::1%eth0", "[::1]", ":7400", "h:70000", "h:0", "", "a:1,,b:2"}) {
    const Finished result = finished({"ping", "--cluster", address});
    EXPECT_EQ(result.exit_code, 78) << address;
    EXPECT_NE(result.text.find("--cluster"), std::string::npos) << result.text;
  }
}

TEST_F(ArgumentsTest, TokenComesFromItsFileWithoutTheNewline) {
  const std::string path = testing::TempDir() + "skua-token-" + std::to_string(getpid());
  std::ofstream(path) << "secret\n";
  EXPECT_EQ(accepted({"ping", "--token-file", path}).token, "secret");
  std::ofstream(path) << "\n";
  EXPECT_EQ(finished({"ping", "--token-file", path}).exit_code, 78);
  unlink(path.c_str());
  EXPECT_EQ(finished({"ping", "--token-file", path}).exit_code, 78);
}

TEST_F(ArgumentsTest, HelpAndVersionEndWith0) {
  for (const Words& words : {Words{"--help"}, Words{"put", "--help"}, Words{"--version"}}) {
    const Finished result = finished(words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_FALSE(result.text.empty());
  }
  EXPECT_NE(finished({"--help"}).text.find("75 try again"), std::string::npos);
  EXPECT_NE(finished({"put", "--help"}).text.find("--if-absent"), std::string::npos);
}

TEST(CompletionScript, OffersEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(shell);
    for (const char* word : {"get", "put", "cas", "dump", "completion", "cluster", "if-absent", "no-progress"}) {
      EXPECT_NE(script.find(word), std::string::npos) << shell << " lacks " << word;
    }
  }
}

}  // namespace
}  // namespace skua::cli
