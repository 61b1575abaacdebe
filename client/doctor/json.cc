// The diagnosis as a program reads it.
#include <string>
#include <string_view>

#include "client/cli/escape.h"
#include "client/doctor/diagnosis.h"

namespace skua::doctor {
namespace {

// Builds one JSON object or array, member by member.
class Json {
 public:
  explicit Json(char open) : text_(1, open) {}
  Json& raw(std::string_view name, std::string_view value) {
    begin(name);
    text_ += value;
    return *this;
  }
  Json& text(std::string_view name, std::string_view value) {
    begin(name);
    cli::append_json_string(text_, cli::is_utf8(value) ? std::string(value) : cli::printable(value));
    return *this;
  }
  Json& number(std::string_view name, uint64_t value) { return raw(name, std::to_string(value)); }
  Json& number(std::string_view name, int64_t value) { return raw(name, std::to_string(value)); }
  Json& boolean(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  std::string end() { return text_ + (text_.front() == '{' ? "}" : "]"); }

 private:
  void begin(std::string_view name) {
    if (text_.size() > 1) text_ += ',';
    if (text_.front() != '{') return;  // an array's values have no names
    cli::append_json_string(text_, name);
    text_ += ':';
  }
  std::string text_;
};

std::string json_of(const PortFacts& port) {
  Json gids('[');
  for (const GidEntry& gid : port.gids) {
    gids.raw("", Json('{').number("index", uint64_t{gid.index}).text("address", address_of(gid.gid))
                     .text("kind", to_string(gid.kind)).text("network_device", gid.network_device).end());
  }
  return Json('{').number("port", uint64_t{port.number}).text("link", to_string(port.link)).text("state", port.state)
      .boolean("active", port.active).number("mtu", uint64_t{port.mtu}).number("max_mtu", uint64_t{port.max_mtu})
      .number("gid_table_length", uint64_t{port.gid_count}).raw("gids", gids.end()).end();
}

std::string json_of(const DeviceFacts& device) {
  Json ports('[');
  for (const PortFacts& port : device.ports) ports.raw("", json_of(port));
  return Json('{').text("name", device.name).boolean("atomics", device.remote_atomics)
      .number("max_inline", uint64_t{device.max_inline})
      .number("max_send_requests", uint64_t{device.max_send_requests})
      .number("max_segments", uint64_t{device.max_segments})
      .number("max_read_segments", uint64_t{device.max_read_segments})
      .number("max_rd_atom", uint64_t{device.max_read_depth})
      .number("max_region_bytes", device.max_region_bytes).number("max_regions", device.max_regions)
      .boolean("memory_windows_2b", device.memory_windows_2b)
      .boolean("on_demand_paging", device.on_demand_paging).raw("ports", ports.end()).end();
}

std::string json_of(const DeviceChoice& choice) {
  return Json('{').text("device", choice.device).number("port", uint64_t{choice.port})
      .number("gid_index", uint64_t{choice.gid_index}).text("gid", address_of(choice.gid))
      .text("kind", to_string(choice.kind)).number("mtu", uint64_t{choice.mtu})
      .boolean("atomics", choice.remote_atomics).text("reason", choice.reason).end();
}

std::string json_of(const HostLimits& limits) {
  const HugePageFacts& pages = limits.huge_pages;
  const bool unlimited = limits.memlock_bytes == UINT64_MAX;
  const std::string huge = Json('{').boolean("usable", !pages.collapse_error)
      .raw("nr_hugepages", pages.reserved ? std::to_string(*pages.reserved) : "null")
      .number("free", pages.free).text("transparent", pages.transparent).text("shared", pages.shared).end();
  return Json('{').raw("memlock_bytes", unlimited ? "null" : std::to_string(limits.memlock_bytes))
      .boolean("memlock_unlimited", unlimited).number("pinned_bytes", limits.pinned_bytes)
      .boolean("may_exceed_memlock", limits.may_exceed_memlock).raw("huge_pages_2mib", huge).end();
}

std::string retries_of(const Diagnosis& diagnosis) {
  if (diagnosis.choice && diagnosis.choice->link == VerbsLink::kIwarp) return "null";  // TCP's own
  const VerbsSettings& settings = diagnosis.settings;
  return Json('{').number("ack_timeout", uint64_t{settings.ack_timeout})
      .number("retry_count", uint64_t{settings.retry_count})
      .number("dead_peer_after_ms", dead_peer_after(settings) / kMillisecond).end();
}

std::string json_of(const Result<LoopbackTimes>& tried) {
  if (!tried) return Json('{').boolean("works", false).text("error", tried.error().message()).end();
  return Json('{').boolean("works", true).number("connect_ns", tried->connect)
      .number("first_access_ns", tried->first_access).number("write_ns", tried->write)
      .number("read_ns", tried->read).number("compare_and_swap_ns", tried->compare_and_swap)
      .boolean("device_atomics", tried->device_atomics).end();
}

}  // namespace

std::string to_json(const Diagnosis& diagnosis) {
  Json all('{');
  all.boolean("usable", diagnosis.verdict == Verdict::kUsable).boolean("built_with_verbs", diagnosis.built_in);
  Json devices('[');
  if (diagnosis.devices) {
    for (const DeviceFacts& device : *diagnosis.devices) devices.raw("", json_of(device));
  }
  all.raw("devices", devices.end()).raw("choice", diagnosis.choice ? json_of(*diagnosis.choice) : "null");
  if (!diagnosis.choice) all.text("why_none", diagnosis.choice.error().message());
  all.raw("memory", json_of(diagnosis.limits)).raw("retries", retries_of(diagnosis));
  all.raw("loopback", diagnosis.loopback ? json_of(*diagnosis.loopback) : "null");
  return all.end() + "\n";
}

}  // namespace skua::doctor
