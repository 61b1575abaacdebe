#include "common/transport/verbs/path_mtu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/transport/verbs/verbs.h"

namespace skua {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(PathMtu, PortOffersWhatItCarriesNow) {
  EXPECT_EQ(offered_mtu({"mlx5_0", 1, 1024, 4096}, 0).value(), 1024U);
  EXPECT_EQ(offered_mtu({"mlx5_0", 1, 4096, 4096}, 2048).value(), 2048U);
  EXPECT_EQ(offered_mtu({"mlx5_0", 1, 4096, 4096}, 4096).value(), 4096U);
}

TEST(PathMtu, MoreThanThePortCarriesIsRefusedWithBothValuesAndTheRemedy) {
  const auto refused = offered_mtu({"mlx5_0", 2, 1024, 4096}, 4096);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kConfiguration);
  EXPECT_THAT(refused.error().message(), AllOf(HasSubstr("--rdma-mtu 4096"), HasSubstr("mlx5_0 port 2 is 1024"),
                                               HasSubstr("raise the MTU of its network interface")));
  const auto never = offered_mtu({"mthca0", 1, 2048, 2048}, 4096);
  ASSERT_FALSE(never);
  EXPECT_THAT(never.error().message(), AllOf(HasSubstr("largest MTU of mthca0 port 1 is 2048"), HasSubstr("auto")));
}

TEST(PathMtu, SmallerOfTheTwoIsTaken) {
  EXPECT_EQ(agreed_mtu({4096, 1024, 1024}).value(), 1024U);
  EXPECT_EQ(agreed_mtu({1024, 4096, 4096}).value(), 1024U);
  EXPECT_EQ(agreed_mtu({4096, 4096, 4096}).value(), 4096U);
}

TEST(PathMtu, OldClientWorksWhereItsPathFits) {
  EXPECT_EQ(agreed_mtu({4096, 0, 1024}).value(), 1024U);
  const auto refused = agreed_mtu({1024, 0, 4096});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kIncompatible);
  EXPECT_THAT(refused.error().message(), AllOf(HasSubstr("client 4096"), HasSubstr("server 1024"),
                                               HasSubstr("give both the same MTU")));
}

TEST(PathMtu, OfferThatIsNoneIsRefused) {
  for (const uint32_t bytes : {1U, 128U, 1500U, 8192U, UINT32_MAX}) {
    EXPECT_FALSE(agreed_mtu({4096, bytes, 4096})) << bytes;
    EXPECT_FALSE(is_path_mtu(bytes)) << bytes;
  }
}

TEST(VerbsSettingsCheck, ValuesOutsideTheirRangeAreRefused) {
  EXPECT_TRUE(check_verbs_settings({}));
  VerbsSettings settings;
  settings.retry_count = 7;
  EXPECT_THAT(check_verbs_settings(settings).error().message(), HasSubstr("from 0 to 6"));
  settings = {};
  settings.ack_timeout = 32;
  EXPECT_THAT(check_verbs_settings(settings).error().message(), HasSubstr("from 1 to 31"));
  settings.ack_timeout = 0;
  EXPECT_FALSE(check_verbs_settings(settings));
  settings = {};
  settings.path_mtu = 1500;
  EXPECT_THAT(check_verbs_settings(settings).error().message(), HasSubstr("256, 512, 1024, 2048 or 4096"));
  settings = {};
  settings.traffic_class = 256;
  EXPECT_FALSE(check_verbs_settings(settings));
}

}  // namespace
}  // namespace skua
