#pragma once
// `skua doctor`: whether verbs can be used on this host, which device it would take and why, and what limits it.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/doctor/host_limits.h"
#include "client/doctor/loopback.h"
#include "common/transport/verbs/device_select.h"
#include "common/transport/verbs/verbs.h"

namespace skua::doctor {

// What is looked at, so that tests can stand in for a machine.
struct Sources {
  DeviceQueries& queries;
  bool built_in = true;       // with libibverbs
  HostLimits limits;
  // Runs over the device that was chosen.
  std::function<Result<LoopbackTimes>(const DeviceChoice&)> loopback;
  VerbsSettings settings = {};
};

enum class Verdict : uint8_t {
  kUsable,       // a connection was made and every verb worked
  kNoDevice,     // none that can be used; why is in `devices` or `choice`
  kWishRefused,  // what was asked for is not there, and something else would do
  kBroken,       // there is a device, and the connection over it failed
};

struct Diagnosis {
  Verdict verdict = Verdict::kNoDevice;
  bool built_in = true;
  Result<std::vector<DeviceFacts>> devices;
  Result<DeviceChoice> choice;
  HostLimits limits;
  VerbsSettings settings;     // whose retries are shown
  std::optional<Result<LoopbackTimes>> loopback;  // nothing: there was nothing to try it on
};

// Cost: as the sources; the devices are asked once.
Diagnosis diagnose(const Sources& sources, const DeviceWish& wish);

// After how long a peer that is gone shows, with these settings and no more: the device may take up to four times that.
Nanoseconds dead_peer_after(const VerbsSettings& settings);

// For a person; lines end with a newline.
std::string to_text(const Diagnosis& diagnosis);
// One line. Members are only ever added.
std::string to_json(const Diagnosis& diagnosis);

}  // namespace skua::doctor
