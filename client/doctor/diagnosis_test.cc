// Machines that no test runs on, through fakes of what is looked at.
#include "client/doctor/diagnosis.h"

#include <gmock/gmock.h>

#include <cerrno>

namespace skua::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Gid gid_v4(uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last}; }
Gid link_local() { return {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}; }

class Machine final : public DeviceQueries {
 public:
  Result<std::vector<DeviceFacts>> devices() override {
    ++asked;
    if (error) return tl::make_unexpected(*error);
    return facts;
  }
  DeviceFacts& add(const std::string& name, const std::string& state = "ACTIVE") {
    DeviceFacts device;
    device.name = name;
    device.remote_atomics = true;
    device.max_inline = 220;
    device.max_read_depth = 16;
    PortFacts port;
    port.state = state;
    port.active = state == "ACTIVE";
    port.mtu = 1024;
    port.max_mtu = 4096;
    port.gid_count = 256;
    port.gids = {{0, link_local(), GidKind::kRoceV1, "eth0"}, {3, gid_v4(5), GidKind::kRoceV2, "eth0"}};
    device.ports.push_back(port);
    facts.push_back(device);
    return facts.back();
  }
  Diagnosis examine(const DeviceWish& wish = {}) {
    return diagnose({*this, built_in, limits,
                     [this](const DeviceChoice& choice) {
                       tried_on = choice.device;
                       return loopback;
                     }, settings},
                    wish);
  }

  std::vector<DeviceFacts> facts;
  std::optional<Status> error;
  int asked = 0;
  bool built_in = true;
  VerbsSettings settings;
  HostLimits limits{uint64_t{8} << 20, 0, false, {}};
  Result<LoopbackTimes> loopback =
      LoopbackTimes{5 * kMillisecond, 120 * kMicrosecond, 19 * kMicrosecond, 28500, 20 * kMicrosecond, true};
  std::string tried_on;
};

TEST(Doctor, UsableDeviceIsShownWithWhatIsTakenAndHowFastItIs) {
  Machine machine;
  machine.add("mlx5_0");
  const Diagnosis found = machine.examine();
  EXPECT_EQ(found.verdict, Verdict::kUsable);
  EXPECT_EQ(machine.asked, 1);
  EXPECT_EQ(machine.tried_on, "mlx5_0");
  const std::string text = to_text(found);
  for (const char* part :
       {"  mlx5_0\n", "atomics: by the device", "inline 220 B", "16 READs and atomics in flight",
        "port 1: RoCE, ACTIVE, MTU 1024 (the device's most: 4096), 2 of 256 GIDs set", "RoCE v1 on eth0\n",
        "RoCE v2 on eth0  <- taken\n", "taken: mlx5_0 port 1, GID 3 10.0.0.5 (RoCE v2): the first that is routable",
        "8 MiB, 0 B of it in use; this process may not exceed it", "ulimit -l unlimited",
        "ACK time-out 14 (67.1 ms), sent again 6 times: a dead peer shows after about 469.8 ms",
        "connected in 5.0 ms", "WRITE 64 B 19.0 us, READ 64 B 28.5 us, CAS 20.0 us (by the device)",
        "verbs can be used.\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("Other transports")));
}

TEST(Doctor, WithoutADeviceItSaysWhyAndWhatElseThereIs) {
  Machine machine;
  machine.error = Status(StatusCode::kConfiguration, "no RDMA device: this host has none");
  const Diagnosis found = machine.examine();
  EXPECT_EQ(found.verdict, Verdict::kNoDevice);
  EXPECT_EQ(machine.tried_on, "");
  const std::string text = to_text(found);
  for (const char* part : {"none: no RDMA device: this host has none", "RLIMIT_MEMLOCK", "shm: works without RDMA",
                           "tcp: works without RDMA", "verbs cannot be used: there is no device for it."}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(to_json(found), HasSubstr("\"usable\":false"));
  EXPECT_THAT(to_json(found), HasSubstr("\"why_none\":\"no RDMA device: this host has none\""));
}

TEST(Doctor, PortThatIsDownIsNoDeviceAndIsShown) {
  Machine machine;
  machine.add("mlx5_0", "DOWN");
  const Diagnosis found = machine.examine();
  EXPECT_EQ(found.verdict, Verdict::kNoDevice);
  EXPECT_THAT(to_text(found), HasSubstr("port 1: RoCE, DOWN"));
  EXPECT_THAT(to_text(found), HasSubstr("none is taken: port 1 of mlx5_0 is DOWN"));
}

TEST(Doctor, WishThatIsNotThereIsToldFromAHostThatHasNothing) {
  Machine machine;
  machine.add("mlx5_0");
  for (const DeviceWish& wish : {DeviceWish{"mlx5_9", 0, std::nullopt, ""}, DeviceWish{"", 2, std::nullopt, ""},
                                 DeviceWish{"", 0, 200, ""}, DeviceWish{"", 0, std::nullopt, "10.9.9.9"}}) {
    const Diagnosis found = machine.examine(wish);
    EXPECT_EQ(found.verdict, Verdict::kWishRefused);
    EXPECT_THAT(to_text(found), HasSubstr("without the --rdma options it could"));
  }
}

TEST(Doctor, ConnectionThatFailsIsNotCalledUsable) {
  Machine machine;
  machine.add("mlx5_0");
  machine.loopback = tl::make_unexpected(Status(StatusCode::kUnavailable, "CAS: peer lost"));
  const Diagnosis found = machine.examine();
  EXPECT_EQ(found.verdict, Verdict::kBroken);
  EXPECT_THAT(to_text(found), HasSubstr("failed: CAS: peer lost"));
  EXPECT_THAT(to_json(found), HasSubstr("\"loopback\":{\"works\":false,\"error\":\"CAS: peer lost\"}"));
}

TEST(Doctor, DeviceWithoutAtomicsSaysWhoExecutesThem) {
  Machine machine;
  machine.add("siw0").remote_atomics = false;
  machine.loopback->device_atomics = false;
  const std::string text = to_text(machine.examine());
  EXPECT_THAT(text, HasSubstr("atomics: none; CAS travels as a message and the server's CPU executes it"));
  EXPECT_THAT(text, HasSubstr("CAS 20.0 us (by the server's CPU)"));
}

TEST(Doctor, LongGidTableDoesNotHideWhatIsTaken) {
  Machine machine;
  auto& gids = machine.add("mlx5_0").ports[0].gids;
  gids.clear();
  for (uint32_t i = 0; i < 200; ++i) gids.push_back({i, link_local(), GidKind::kRoceV2, "eth0"});
  gids.push_back({255, gid_v4(7), GidKind::kRoceV2, "eth1"});
  const std::string text = to_text(machine.examine());
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 40);
  EXPECT_THAT(text, HasSubstr("RoCE v2 on eth1  <- taken"));
  EXPECT_THAT(text, HasSubstr("201 in all"));
  EXPECT_THAT(to_json(machine.examine()), HasSubstr("\"index\":199,"));
}

TEST(Doctor, LimitsThatDoNotBindAreNotComplainedOf) {
  Machine machine;
  machine.add("mlx5_0");
  machine.limits.may_exceed_memlock = true;
  EXPECT_THAT(to_text(machine.examine()), HasSubstr("may exceed it (CAP_IPC_LOCK)"));
  machine.limits.memlock_bytes = UINT64_MAX;
  EXPECT_THAT(to_text(machine.examine()), HasSubstr("RLIMIT_MEMLOCK): unlimited\n"));
  EXPECT_THAT(to_json(machine.examine()), HasSubstr("\"memlock_bytes\":null,\"memlock_unlimited\":true"));
}

TEST(Doctor, HugePagesThatCannotBeMadeHaveTheirCause) {
  Machine machine;
  machine.limits.huge_pages = {uint64_t{0}, 0, "never", "never", EINVAL};
  const std::string text = to_text(machine.examine());
  EXPECT_THAT(text, HasSubstr("no, MADV_COLLAPSE: EINVAL"));
  EXPECT_THAT(text, HasSubstr("transparent never, of shared memory never, vm.nr_hugepages 0 (0 free"));
}

TEST(Doctor, RetriesAreThoseAskedFor) {
  Machine machine;
  machine.add("mlx5_0");
  machine.settings.ack_timeout = 12;
  machine.settings.retry_count = 3;
  EXPECT_THAT(to_text(machine.examine()), HasSubstr("ACK time-out 12 (16.8 ms), sent again 3 times"));
  EXPECT_THAT(to_json(machine.examine()), HasSubstr("\"retries\":{\"ack_timeout\":12,\"retry_count\":3,"));
}

TEST(Doctor, IwarpHasNoAckTimeout) {
  Machine machine;
  DeviceFacts& device = machine.add("siw0");
  for (PortFacts& port : device.ports) port.link = VerbsLink::kIwarp;
  const std::string text = to_text(machine.examine());
  EXPECT_THAT(text, HasSubstr("iWARP has no ACK time-out"));
  EXPECT_EQ(text.find("sent again"), std::string::npos);
  EXPECT_THAT(to_json(machine.examine()), HasSubstr("\"retries\":null"));
}

TEST(Doctor, DeadPeerShowsInUnderASecondByDefault) {
  EXPECT_LT(dead_peer_after({}), kSecond);
  VerbsSettings slow;
  slow.ack_timeout = 19;
  EXPECT_EQ(dead_peer_after(slow) / kMillisecond, 15032);
}

}  // namespace
}  // namespace skua::doctor
