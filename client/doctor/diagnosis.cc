#include "client/doctor/diagnosis.h"

#include <utility>

namespace skua::doctor {
namespace {

// Answers what was found before.
class KnownDevices final : public DeviceQueries {
 public:
  explicit KnownDevices(const Result<std::vector<DeviceFacts>>& found) : found_(found) {}
  Result<std::vector<DeviceFacts>> devices() override { return found_; }

 private:
  const Result<std::vector<DeviceFacts>>& found_;
};

Verdict verdict_of(const Diagnosis& diagnosis, KnownDevices& known) {
  if (!diagnosis.devices) return Verdict::kNoDevice;
  if (!diagnosis.choice) return choose_device(known, {}) ? Verdict::kWishRefused : Verdict::kNoDevice;
  return diagnosis.loopback && *diagnosis.loopback ? Verdict::kUsable : Verdict::kBroken;
}

}  // namespace

Diagnosis diagnose(const Sources& sources, const DeviceWish& wish) {
  Diagnosis diagnosis;
  diagnosis.built_in = sources.built_in;
  diagnosis.settings = sources.settings;
  diagnosis.limits = sources.limits;
  diagnosis.devices = sources.queries.devices();
  KnownDevices known(diagnosis.devices);
  diagnosis.choice = choose_device(known, wish);
  if (diagnosis.choice) diagnosis.loopback = sources.loopback(*diagnosis.choice);
  diagnosis.verdict = verdict_of(diagnosis, known);
  return diagnosis;
}

Nanoseconds dead_peer_after(const VerbsSettings& settings) {
  constexpr Nanoseconds kUnit = 4096;
  return (kUnit << settings.ack_timeout) * (settings.retry_count + 1);
}

}  // namespace skua::doctor
