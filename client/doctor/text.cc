// The diagnosis as a person reads it.
#include <algorithm>
#include <cstdio>
#include <string>

#include "client/doctor/diagnosis.h"
#include "common/base/units.h"
#include "common/transport/descriptor.h"

namespace skua::doctor {
namespace {

constexpr size_t kShownGids = 16;  // of a port

std::string number(uint64_t value) { return std::to_string(value); }

std::string fixed(double value, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.1f %s", value, unit);
  return text;
}
std::string microseconds(Nanoseconds time) { return fixed(static_cast<double>(time) / kMicrosecond, "us"); }
std::string milliseconds(Nanoseconds time) { return fixed(static_cast<double>(time) / kMillisecond, "ms"); }

bool is_taken(const Diagnosis& diagnosis, const DeviceFacts& device, const PortFacts& port, const GidEntry& gid) {
  const auto& choice = diagnosis.choice;
  return choice && choice->device == device.name && choice->port == port.number && choice->gid_index == gid.index;
}

std::string gid_line(const GidEntry& gid, bool taken) {
  char start[80];
  std::snprintf(start, sizeof(start), "      GID %-3u %-39s ", gid.index, address_of(gid.gid).c_str());
  std::string line = start + std::string(to_string(gid.kind));
  if (!gid.network_device.empty()) line += " on " + gid.network_device;
  return line + (taken ? "  <- taken\n" : "\n");
}

std::string port_lines(const Diagnosis& diagnosis, const DeviceFacts& device, const PortFacts& port) {
  std::string text = "    port " + number(port.number) + ": " + std::string(to_string(port.link)) + ", " + port.state +
                     ", MTU " + number(port.mtu) + " (the device's most: " + number(port.max_mtu) + "), " +
                     number(port.gids.size()) + " of " + number(port.gid_count) +
                     (port.link == VerbsLink::kIwarp ? " addresses\n" : " GIDs set\n");
  size_t shown = 0;
  for (const GidEntry& gid : port.gids) {
    const bool taken = is_taken(diagnosis, device, port, gid);
    if (shown < kShownGids || taken) text += gid_line(gid, taken);
    ++shown;
  }
  if (shown > kShownGids) text += "      and more, " + number(shown) + " in all; --json has them\n";
  return text;
}

std::string device_lines(const Diagnosis& diagnosis, const DeviceFacts& device) {
  std::string text = "  " + device.name + "\n";
  text += std::string("    atomics: ") +
          (device.remote_atomics ? "by the device\n" : "none; CAS travels as a message and the server's CPU executes "
                                                       "it\n");
  text += "    inline " + number(device.max_inline) + " B; " + number(device.max_send_requests) +
          " requests a queue; " + number(device.max_segments) + " pieces a request, " +
          number(device.max_read_segments) + " of a READ; " + number(device.max_read_depth) +
          " READs and atomics in flight (max_rd_atom)\n";
  text += "    registers up to " +
          (device.max_region_bytes >= uint64_t{1} << 60 ? std::string("any size")
                                                        : format_size(device.max_region_bytes)) +
          " at once, " + number(device.max_regions) + " times; memory windows 2B: " +
          (device.memory_windows_2b ? "yes" : "no") + "; on-demand paging: " +
          (device.on_demand_paging ? "yes" : "no") + "\n";
  for (const PortFacts& port : device.ports) text += port_lines(diagnosis, device, port);
  return text;
}

std::string devices_text(const Diagnosis& diagnosis) {
  std::string text = "RDMA devices\n";
  if (!diagnosis.devices) return text + "  none: " + diagnosis.devices.error().message() + "\n";
  for (const DeviceFacts& device : *diagnosis.devices) text += device_lines(diagnosis, device);
  if (diagnosis.choice) {
    text += "  taken: " + diagnosis.choice->reason + "\n";
  } else {
    text += "  none is taken: " + diagnosis.choice.error().message() + "\n";
  }
  return text;
}

std::string limits_text(const HostLimits& limits) {
  std::string text = "Memory\n  lock limit (RLIMIT_MEMLOCK): ";
  if (limits.memlock_bytes == UINT64_MAX) {
    text += "unlimited\n";
  } else {
    text += format_size(limits.memlock_bytes) + ", " + format_size(limits.pinned_bytes) + " of it in use; ";
    text += limits.may_exceed_memlock
                ? "this process may exceed it (CAP_IPC_LOCK)\n"
                : "this process may not exceed it: a server registers no more than that. Raise it: `ulimit -l "
                  "unlimited`, memlock in limits.conf, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 "
                  "for a container\n";
  }
  const HugePageFacts& pages = limits.huge_pages;
  text += "  2 MiB pages for a server: ";
  text += pages.collapse_error ? "no, MADV_COLLAPSE: " + errno_text(*pages.collapse_error) +
                                     "; needs Linux 6.1 with transparent huge pages; 4 KiB pages are used\n"
                               : "yes (a page was made by MADV_COLLAPSE)\n";
  text += "  set by the system: transparent " + (pages.transparent.empty() ? "not known" : pages.transparent) +
          ", of shared memory " + (pages.shared.empty() ? "not known" : pages.shared) + ", vm.nr_hugepages ";
  text += pages.reserved ? number(*pages.reserved) + " (" + number(pages.free) + " free; not needed)\n"
                         : "has no 2 MiB pages\n";
  return text;
}

std::string retries_text(const Diagnosis& diagnosis) {
  if (diagnosis.choice && diagnosis.choice->link == VerbsLink::kIwarp) {
    return "Retries\n  iWARP has no ACK time-out, TCP repeats: a peer silent for the response time-out (1 s) is lost\n";
  }
  const VerbsSettings& settings = diagnosis.settings;
  VerbsSettings once = settings;
  once.retry_count = 0;
  return "Retries\n  ACK time-out " + number(settings.ack_timeout) + " (" + milliseconds(dead_peer_after(once)) +
         "), sent again " + number(settings.retry_count) + " times: a dead peer shows after about " +
         milliseconds(dead_peer_after(settings)) + " (some devices wait up to four times longer)\n";
}

std::string loopback_text(const Diagnosis& diagnosis) {
  if (!diagnosis.loopback) return "";
  const auto& tried = *diagnosis.loopback;
  std::string text = "Connection of this process to itself\n  ";
  if (!tried) return text + "failed: " + tried.error().message() + "\n";
  text += "connected in " + milliseconds(tried->connect) + "; first READ, with registration, " +
          microseconds(tried->first_access) + "\n";
  return text + "  medians of " + number(kLoopbackRounds) + ": WRITE " + number(kLoopbackBytes) + " B " +
         microseconds(tried->write) + ", READ " + number(kLoopbackBytes) + " B " + microseconds(tried->read) +
         ", CAS " + microseconds(tried->compare_and_swap) + " (by the " +
         (tried->device_atomics ? "device" : "server's CPU") + ")\n";
}

std::string verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kUsable: return "verbs can be used.\n";
    case Verdict::kNoDevice: return "verbs cannot be used: there is no device for it.\n";
    case Verdict::kWishRefused: return "verbs cannot be used as asked for; without the --rdma options it could.\n";
    case Verdict::kBroken: return "verbs cannot be used: a connection over the device fails.\n";
  }
  return "";
}

}  // namespace

std::string to_text(const Diagnosis& diagnosis) {
  std::string text = devices_text(diagnosis) + limits_text(diagnosis.limits) + retries_text(diagnosis) +
                     loopback_text(diagnosis);
  if (diagnosis.verdict != Verdict::kUsable) {
    text += "Other transports\n"
            "  shm: works without RDMA, for clients on the server's host; one-sided as well, and faster than any\n"
            "  tcp: works without RDMA, wherever a socket reaches; the server's CPU executes each verb\n";
  }
  return text + verdict_text(diagnosis.verdict);
}

}  // namespace skua::doctor
