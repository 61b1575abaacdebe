#include "common/base/net_address.h"

#include <gtest/gtest.h>

namespace skua {
namespace {

TEST(ParseNetAddress, AcceptsEachWrittenForm) {
  const struct {
    const char* text;
    const char* host;
    uint16_t port;
  } cases[] = {
      {"localhost:7400", "localhost", 7400},
      {"node-1.example:65535", "node-1.example", 65535},
      {"10.0.0.1:0", "10.0.0.1", 0},
      {"[::1]:7000", "::1", 7000},
      {"[fe80::1%eth0]:7400", "fe80::1%eth0", 7400},
      {"0.0.0.0:80", "0.0.0.0", 80},
  };
  for (const auto& c : cases) {
    const auto address = parse_net_address(c.text);
    ASSERT_TRUE(address) << c.text;
    EXPECT_EQ(address->host, c.host);
    EXPECT_EQ(address->port, c.port);
    EXPECT_EQ(address->to_string(), c.text);
  }
}

TEST(ParseNetAddress, RefusesWithTheTextAndTheRemedy) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"localhost", "no port; write host:7400"},
      {"", "no port"},
      {"http://127.0.0.1:7400", "without a scheme"},
      {"127.0.0.1:7400:7401", "more than one port"},
      {"::1", "needs brackets; write [::1]:7400"},
      {"fe80::1%eth0", "needs brackets"},
      {"::1:7400", "needs brackets"},
      {"[::1]", "no port; write [::1]:7400"},
      {"[::1]7400", "no port"},
      {"[::1:7400", "without ']'"},
      {"[]:7400", "no host"},
      {"[[x]:7400", "a bracket within the host"},
      {"a]b:7400", "a bracket within the host"},
      {":7400", "no host"},
      {"localhost:", "port '' is not a number from 0 to 65535"},
      {"localhost:65536", "port '65536'"},
      {"localhost:-1", "port '-1'"},
      {"localhost:+1", "port '+1'"},
      {"localhost: 80", "port ' 80'"},
      {"localhost:80x", "port '80x'"},
      {"localhost:http", "port 'http'"},
      {"localhost:99999999999999999999", "port '99999999999999999999'"},
  };
  for (const auto& c : cases) {
    const auto address = parse_net_address(c.text);
    ASSERT_FALSE(address) << c.text;
    EXPECT_EQ(address.error().code(), StatusCode::kConfiguration) << c.text;
    const std::string& message = address.error().message();
    EXPECT_NE(message.find("address '" + std::string(c.text) + "'"), std::string::npos) << message;
    EXPECT_NE(message.find(c.says), std::string::npos) << message;
  }
}

TEST(NetAddress, KnowsWildcardAndLoopback) {
  EXPECT_TRUE(parse_net_address("0.0.0.0:1")->is_wildcard());
  EXPECT_TRUE(parse_net_address("[::]:1")->is_wildcard());
  EXPECT_FALSE(parse_net_address("10.0.0.1:1")->is_wildcard());
  EXPECT_TRUE(parse_net_address("127.3.2.1:1")->is_loopback());
  EXPECT_TRUE(parse_net_address("[::1]:1")->is_loopback());
  EXPECT_TRUE(parse_net_address("localhost:1")->is_loopback());
  EXPECT_FALSE(parse_net_address("128.0.0.1:1")->is_loopback());
}

}  // namespace
}  // namespace skua
