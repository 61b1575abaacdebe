// Tables that no test machine has, through a fake of the queries.
#include "common/transport/verbs/device_select.h"

#include <gmock/gmock.h>

namespace skua {
namespace {

using ::testing::HasSubstr;

Gid gid_v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}
Gid gid_v6(uint8_t first, uint8_t second, uint8_t last) {
  Gid gid{};
  gid[0] = first;
  gid[1] = second;
  gid[15] = last;
  return gid;
}
Gid link_local() { return gid_v6(0xfe, 0x80, 1); }

class FakeQueries final : public DeviceQueries {
 public:
  Result<std::vector<DeviceFacts>> devices() override {
    ++calls;
    if (error) return tl::make_unexpected(*error);
    return facts;
  }
  PortFacts& add(const std::string& name, std::vector<GidEntry> gids, const std::string& state = "ACTIVE") {
    DeviceFacts device;
    device.name = name;
    device.remote_atomics = true;
    PortFacts port;
    port.state = state;
    port.active = state == "ACTIVE";
    port.mtu = 1024;
    port.gid_count = 16;
    port.gids = std::move(gids);
    device.ports.push_back(std::move(port));
    facts.push_back(std::move(device));
    return facts.back().ports.back();
  }
  std::vector<DeviceFacts> facts;
  std::optional<Status> error;
  int calls = 0;
};

GidEntry v1(uint32_t index, const Gid& gid) { return {index, gid, GidKind::kRoceV1, "eth0"}; }
GidEntry v2(uint32_t index, const Gid& gid) { return {index, gid, GidKind::kRoceV2, "eth0"}; }

uint32_t chosen_index(FakeQueries& queries, const DeviceWish& wish = {}) {
  const auto choice = choose_device(queries, wish);
  EXPECT_TRUE(choice) << choice.error().to_string();
  return choice ? choice->gid_index : UINT32_MAX;
}
std::string refusal(FakeQueries& queries, const DeviceWish& wish = {}) {
  const auto choice = choose_device(queries, wish);
  EXPECT_FALSE(choice);
  return choice ? "" : choice.error().message();
}

TEST(DeviceSelect, RoutableIsTakenBeforeTheLinkLocalThatComesFirst) {
  FakeQueries queries;
  queries.add("mlx5_0", {v1(0, link_local()), v2(1, link_local()), v1(2, gid_v4(10, 0, 0, 5)),
                         v2(3, gid_v4(10, 0, 0, 5))});
  const auto choice = choose_device(queries, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->gid_index, 3U);
  EXPECT_EQ(choice->kind, GidKind::kRoceV2);
  EXPECT_EQ(choice->address, "10.0.0.5");
  EXPECT_THAT(choice->reason, HasSubstr("mlx5_0 port 1, GID 3 10.0.0.5 (RoCE v2)"));
}

TEST(DeviceSelect, IwarpIsReachedAtTheAddressOfItsInterface) {
  FakeQueries queries;
  queries.add("siw0", {{0, link_local(), GidKind::kIwarp, "eth0"}, {1, gid_v4(10, 0, 0, 5), GidKind::kIwarp, "eth0"}})
      .link = VerbsLink::kIwarp;
  const auto choice = choose_device(queries, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->address, "10.0.0.5");
  EXPECT_THAT(choice->reason, HasSubstr("(iWARP)"));
  const auto bound = choose_device(queries, {"", 0, std::nullopt, "fe80::1"});
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_EQ(bound->gid_index, 0U);
  EXPECT_EQ(bound->address, "fe80::1%eth0");
}

TEST(DeviceSelect, VersionTwoIsTakenOfAPair) {
  FakeQueries queries;
  queries.add("mlx5_0", {v1(4, gid_v4(10, 0, 0, 5)), v2(5, gid_v4(10, 0, 0, 5))});
  EXPECT_EQ(chosen_index(queries), 5U);
}

TEST(DeviceSelect, VersionOneIsTakenWhereThereIsNoOther) {
  FakeQueries queries;
  queries.add("mlx4_0", {v1(0, link_local()), v1(1, gid_v4(10, 0, 0, 5))});
  EXPECT_EQ(chosen_index(queries), 1U);
}

TEST(DeviceSelect, IPv6OnlyWorks) {
  FakeQueries queries;
  queries.add("mlx5_0", {v2(0, link_local()), v2(1, gid_v6(0xfd, 0, 9))});
  const auto choice = choose_device(queries, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->address, "fd00::9");
}

TEST(DeviceSelect, LinkLocalAloneIsTakenWithItsScope) {
  FakeQueries queries;
  queries.add("rxe0", {v2(0, link_local())});
  const auto choice = choose_device(queries, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->address, "fe80::1%eth0");
  EXPECT_THAT(choice->reason, HasSubstr("link-local, none is routable"));
}

TEST(DeviceSelect, PrivateAddressesAreRoutable) {
  FakeQueries queries;
  queries.add("mlx5_0", {v2(0, gid_v4(192, 168, 1, 4)), v2(1, link_local())});
  EXPECT_EQ(chosen_index(queries), 0U);
}

TEST(DeviceSelect, HolesAndZerosArePassedOver) {
  FakeQueries queries;
  queries.add("mlx5_0", {v2(0, Gid{}), v2(7, gid_v4(10, 0, 0, 5))});
  EXPECT_EQ(chosen_index(queries), 7U);
  EXPECT_THAT(refusal(queries, {"", 0, 0U, ""}), HasSubstr("--rdma-gid-index 0: that entry of mlx5_0 port 1 is empty"));
  EXPECT_THAT(refusal(queries, {"", 0, 3U, ""}), HasSubstr("is empty"));
}

TEST(DeviceSelect, AllZeroTableSaysWhatIsMissing) {
  FakeQueries queries;
  queries.add("mlx5_0", {v2(0, Gid{}), v2(1, Gid{})});
  EXPECT_THAT(refusal(queries), HasSubstr("no active port has a GID: give the RDMA device's network interface an IP"));
}

TEST(DeviceSelect, BoundAddressDecidesBetweenTwoInterfaces) {
  FakeQueries queries;
  queries.add("mlx5_0", {v2(3, gid_v4(10, 0, 0, 5))});
  queries.add("mlx5_1", {v1(2, gid_v4(10, 0, 1, 5)), v2(3, gid_v4(10, 0, 1, 5))});
  const auto choice = choose_device(queries, {"", 0, {}, "10.0.1.5"});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->device, "mlx5_1");
  EXPECT_EQ(choice->gid_index, 3U);
  const std::string none = refusal(queries, {"", 0, {}, "10.9.9.9"});
  EXPECT_THAT(none, HasSubstr("no GID of an active port is 10.9.9.9"));
  EXPECT_THAT(none, HasSubstr("mlx5_0 port 1 ACTIVE (GIDs 3 10.0.0.5 RoCE v2)"));
}

TEST(DeviceSelect, ExplicitIndexIsTakenOrRefusedWithTheTable) {
  FakeQueries queries;
  queries.add("mlx5_0", {v1(0, link_local()), v2(1, gid_v4(10, 0, 0, 5))});
  EXPECT_EQ(chosen_index(queries, {"", 0, 0U, ""}), 0U);
  EXPECT_THAT(refusal(queries, {"", 0, 16U, ""}), HasSubstr("the table of mlx5_0 port 1 has 16 entries"));
  EXPECT_THAT(refusal(queries, {"", 0, 0U, "10.0.0.5"}), HasSubstr("is fe80::1, but 10.0.0.5 is to be bound"));
}

TEST(DeviceSelect, ExplicitDeviceAndPortAreChecked) {
  FakeQueries queries;
  queries.add("mlx5_0", {v2(1, gid_v4(10, 0, 0, 5))});
  EXPECT_THAT(refusal(queries, {"mlx5_7", 0, {}, ""}), HasSubstr("--rdma-device mlx5_7: no such RDMA device; there is: "
                                                                 "mlx5_0"));
  EXPECT_THAT(refusal(queries, {"mlx5_0", 2, {}, ""}), HasSubstr("--rdma-port 2: no such port on mlx5_0"));
}

TEST(DeviceSelect, PortThatIsDownIsNamed) {
  FakeQueries queries;
  queries.add("mlx5_0", {v2(1, gid_v4(10, 0, 0, 5))}, "DOWN");
  EXPECT_THAT(refusal(queries), HasSubstr("port 1 of mlx5_0 is DOWN, not ACTIVE: check cable"));
  queries.add("mlx5_1", {v2(2, gid_v4(10, 0, 1, 5))});
  EXPECT_EQ(chosen_index(queries), 2U) << "one that is up is taken instead";
}

TEST(DeviceSelect, InfiniBandHasNoAddressOfItsOwn) {
  FakeQueries queries;
  queries.add("mlx5_0", {{0, link_local(), GidKind::kInfiniBand, ""}}).link = VerbsLink::kInfiniBand;
  const auto choice = choose_device(queries, {"", 0, {}, "10.0.0.5"});
  ASSERT_TRUE(choice) << choice.error().to_string();
  EXPECT_EQ(choice->address, "");
}

TEST(DeviceSelect, LongTablesAreAskedForOnceAndShownInPart) {
  FakeQueries queries;
  std::vector<GidEntry> gids;
  for (uint32_t i = 0; i < 256; ++i) gids.push_back(v2(i, gid_v4(10, 0, 1, static_cast<uint8_t>(i))));
  queries.add("mlx5_0", std::move(gids));
  const std::string text = refusal(queries, {"", 0, {}, "10.9.9.9"});
  EXPECT_EQ(queries.calls, 1);
  EXPECT_THAT(text, HasSubstr("and 248 more"));
  EXPECT_LT(text.size(), 800U);
}

TEST(DeviceSelect, WhatTheSystemSaysIsHandedOn) {
  FakeQueries queries;
  queries.error = Status(StatusCode::kPermissionDenied, "mlx5_0 cannot be opened");
  const auto choice = choose_device(queries, {});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace skua
