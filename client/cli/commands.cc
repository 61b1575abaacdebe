#include "client/cli/commands.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

#include "client/cli/escape.h"
#include "client/cli/exit_code.h"
#include "client/cli/files.h"
#include "client/doctor/diagnosis.h"
#include "common/base/log.h"
#include "common/transport/verbs/inspect.h"
#include "proto/limits.h"

namespace skua::cli {
namespace {

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, is_utf8(text) ? text : base64_encode(text));
  return out;
}

std::string_view boolean(bool value) { return value ? "true" : "false"; }

std::string hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// `{"found":false}` with --json, else nothing on standard output: the exit code says it.
int answer(const Arguments& arguments, std::string_view name, bool value, const VersionToken* version = nullptr) {
  if (arguments.json) {
    std::string line = "{\"" + std::string(name) + "\":" + std::string(boolean(value));
    if (version != nullptr && value) line += ",\"version\":" + quoted(version->to_string());
    print(line + "}\n");
  }
  return value ? kExitDone : kExitNo;
}

int get_to_file(const Arguments& arguments, std::string_view bytes) {
  auto file = OutputFile::create(arguments.file);
  if (!file) return report(arguments, kExitCannotCreate, file.error().message());
  auto written = (*file)->write(bytes);
  if (written) written = (*file)->commit();
  if (!written) return report(arguments, kExitCannotCreate, written.error().message());
  return kExitDone;
}

int run_get(const Arguments& arguments, Session& session) {
  const auto value = session.get(arguments.key);
  if (!value) return report(arguments, value.error());
  if (!value->has_value()) return answer(arguments, "found", false);
  const ValueView& view = **value;
  if (arguments.version_only && !arguments.json) {
    print(view.version.to_string() + "\n");
    return kExitDone;
  }
  if (!arguments.file.empty()) return get_to_file(arguments, view.bytes);
  if (!arguments.json) {
    print(view.bytes);
    if (isatty(STDOUT_FILENO) == 1 && !view.bytes.ends_with('\n')) print("\n");
    return kExitDone;
  }
  std::string line = "{\"found\":true,";
  append_json_member(line, "key", arguments.key);
  if (!arguments.version_only) {
    line += ',';
    append_json_member(line, "value", view.bytes);
  }
  print(line + ",\"version\":" + quoted(view.version.to_string()) + "}\n");
  return kExitDone;
}

// The value of put and cas, from the argument or the file.
Result<std::string> value_of(const Arguments& arguments) {
  if (arguments.value) return *arguments.value;
  return read_all(arguments.file, proto::kMaxValueBytes);
}

int report_value(const Arguments& arguments, const Status& status) {
  if (status.code() == StatusCode::kConfiguration) return report(arguments, kExitNoInput, status.message());
  return report(arguments, status);
}

int run_put(const Arguments& arguments, Session& session) {
  const auto value = value_of(arguments);
  if (!value) return report_value(arguments, value.error());
  const PutOptions options{.ttl = arguments.ttl};
  if (arguments.if_absent) {
    const auto outcome = session.put_if_absent(arguments.key, *value, options);
    if (!outcome) return report(arguments, outcome.error());
    return answer(arguments, "stored", outcome->stored, &outcome->version);
  }
  const auto version = session.put(arguments.key, *value, options);
  if (!version) return report(arguments, version.error());
  return answer(arguments, "stored", true, &*version);
}

int run_cas(const Arguments& arguments, Session& session) {
  const auto expected = VersionToken::parse(arguments.version);
  if (!expected) {
    return report(arguments, kExitUsage,
                  "VERSION '" + arguments.version + "' is not one; take it from `skua get --version-only KEY`");
  }
  const auto value = value_of(arguments);
  if (!value) return report_value(arguments, value.error());
  const auto outcome = session.compare_and_swap(arguments.key, *expected, *value, {.ttl = arguments.ttl});
  if (!outcome) return report(arguments, outcome.error());
  return answer(arguments, "swapped", outcome->swapped, &outcome->version);
}

int run_increment(const Arguments& arguments, Session& session) {
  const auto sum = session.increment(arguments.key, arguments.delta);
  if (!sum) return report(arguments, sum.error());
  print(arguments.json ? "{\"value\":" + std::to_string(*sum) + "}\n" : std::to_string(*sum) + "\n");
  return kExitDone;
}

int run_nodes(const Arguments& arguments, Client& client) {
  const auto info = client.cluster_info();
  if (!info) return report(arguments, info.error());
  std::string out;
  if (arguments.json) {
    out = "{\"cluster_id\":" + quoted(hexadecimal(info->cluster_id)) +
          ",\"membership_epoch\":" + std::to_string(info->membership_epoch) +
          ",\"partitions\":" + std::to_string(info->partitions) + ",\"forming\":" +
          std::string(boolean(info->forming)) + ",\"servers\":[";
    for (const ServerInfo& server : info->servers) {
      if (out.back() != '[') out += ',';
      out += "{\"id\":" + std::to_string(server.id) + ",\"name\":" + quoted(server.name) +
             ",\"address\":" + quoted(server.address) + ",\"alive\":" + std::string(boolean(server.alive)) +
             ",\"memory_bytes\":" + std::to_string(server.memory_bytes) +
             ",\"partitions\":" + std::to_string(server.partitions) + "}";
    }
    print(out + "]}\n");
    return kExitDone;
  }
  std::printf("cluster %s, membership epoch %llu, %u partitions%s\n", hexadecimal(info->cluster_id).c_str(),
              static_cast<unsigned long long>(info->membership_epoch), info->partitions,
              info->forming ? ", still forming" : "");
  std::printf("%-4s %-16s %-24s %-6s %12s %10s\n", "id", "name", "address", "state", "memory MiB", "partitions");
  for (const ServerInfo& server : info->servers) {
    std::printf("%-4u %-16s %-24s %-6s %12llu %10u\n", server.id, server.name.c_str(), server.address.c_str(),
                server.alive ? "alive" : "lost", static_cast<unsigned long long>(server.memory_bytes >> 20),
                server.partitions);
  }
  return kExitDone;
}

int run_statistics(const Arguments& arguments, Client& client) {
  const auto info = client.cluster_info();
  if (!info) return report(arguments, info.error());
  std::string out;
  int exit_code = kExitDone;
  for (const ServerInfo& server : info->servers) {
    const auto statistics = client.server_statistics(server.id);
    if (!statistics) {
      exit_code = report(arguments, statistics.error());
      continue;
    }
    if (arguments.json) {
      if (!out.empty()) out += ',';
      out += "{\"server\":" + std::to_string(server.id) + ",\"pages\":" + quoted(statistics->pages) + ",\"values\":{";
      for (const auto& [name, value] : statistics->values) {
        if (out.back() != '{') out += ',';
        out += quoted(name) + ":" + std::to_string(value);
      }
      out += "}}";
      continue;
    }
    out += "server " + std::to_string(server.id) + " " + server.address + "\n";
    if (!statistics->pages.empty()) out += "  pages " + statistics->pages + "\n";
    for (const auto& [name, value] : statistics->values) out += "  " + name + " " + std::to_string(value) + "\n";
  }
  print(arguments.json ? "{\"servers\":[" + out + "]}\n" : out);
  return exit_code;
}

int run_ping(const Arguments& arguments, Client& client) {
  const auto info = client.cluster_info();
  if (!info) return report(arguments, info.error());
  std::string out;
  int exit_code = kExitDone;
  for (const ServerInfo& server : info->servers) {
    const auto round_trip = client.ping(server.id);
    const std::string id = std::to_string(server.id);
    const std::string time = round_trip ? std::to_string(*round_trip / kMicrosecond) : "";
    if (!round_trip) exit_code = exit_code_of(round_trip.error().code());
    if (arguments.json) {
      out += (out.empty() ? "" : ",") + ("{\"server\":" + id);
      out += round_trip ? ",\"microseconds\":" + time : ",\"error\":" + quoted(round_trip.error().to_string());
      out += "}";
    } else {
      out += "server " + id + " " + server.address + ": ";
      out += round_trip ? time + " us\n" : round_trip.error().to_string() + "\n";
    }
  }
  print(arguments.json ? "{\"servers\":[" + out + "]}\n" : out);
  return exit_code;
}

int run_doctor(const Arguments& arguments, const Clock& clock) {
  VerbsSettings settings;
  settings.device = arguments.rdma_device;
  settings.port = arguments.rdma_port;
  settings.gid_index = arguments.rdma_gid_index;
  settings.traffic_class = arguments.rdma_traffic_class;
  settings.path_mtu = arguments.rdma_mtu;
  settings.ack_timeout = arguments.rdma_ack_timeout;
  settings.retry_count = arguments.rdma_retry_count;
  const auto queries = make_inspecting_queries();
  set_log_level(LogLevel::kOff);  // what fails is in the diagnosis
  const auto loopback = [&](const DeviceChoice& choice) {
    return doctor::time_verbs_loopback(choice, arguments.address, settings, clock);
  };
  const doctor::Sources sources{*queries, verbs_built_in(), doctor::read_host_limits(), loopback, settings};
  const doctor::Diagnosis diagnosis =
      doctor::diagnose(sources, {settings.device, settings.port, settings.gid_index, arguments.address});
  print(arguments.json ? doctor::to_json(diagnosis) : doctor::to_text(diagnosis));
  switch (diagnosis.verdict) {
    case doctor::Verdict::kUsable: return kExitDone;
    case doctor::Verdict::kWishRefused: return kExitConfiguration;
    case doctor::Verdict::kNoDevice:
    case doctor::Verdict::kBroken: return kExitUnavailable;
  }
  return kExitInternal;
}

int run_on_session(const Arguments& arguments, const Clock& clock, Client& client) {
  const auto session = client.open_session();
  if (!session) return report(arguments, session.error());
  Session& on = **session;
  switch (arguments.command) {
    case Command::kGet: return run_get(arguments, on);
    case Command::kPut: return run_put(arguments, on);
    case Command::kCompareAndSwap: return run_cas(arguments, on);
    case Command::kIncrement: return run_increment(arguments, on);
    case Command::kLoad: return run_load(arguments, clock, on);
    case Command::kDump: return run_dump(arguments, clock, client, on);
    case Command::kRemove: {
      const auto removed = on.remove(arguments.key);
      return removed ? answer(arguments, "removed", *removed) : report(arguments, removed.error());
    }
    case Command::kExists: {
      const auto there = on.exists(arguments.key);
      return there ? answer(arguments, "exists", *there) : report(arguments, there.error());
    }
    default: return report(arguments, kExitInternal, "a command without a session reached one");
  }
}

}  // namespace

int report(const Arguments& arguments, int exit_code, std::string_view message) {
  std::fprintf(stderr, "skua: %s\n", printable(message).c_str());
  if (arguments.json) {
    print("{\"error\":{\"exit_code\":" + std::to_string(exit_code) + ",\"message\":" + quoted(message) + "}}\n");
  }
  return exit_code;
}

int report(const Arguments& arguments, const Status& status) {
  return report(arguments, exit_code_of(status.code()), status.to_string());
}

int end_output(int exit_code) {
  // A large piece is written at once and fails there, a small one when it is flushed.
  const bool unwritten = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !unwritten) return exit_code;
  pollfd output{::fileno(stdout), 0, 0};
  if (::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0) {
    // Nobody reads the pipe any more: end as every filter does.
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  std::fprintf(stderr, "skua: cannot write to standard output\n");
  return kExitCannotCreate;
}

int run_command(const Arguments& arguments, const Clock& clock) {
  if (arguments.command == Command::kCompletion) {
    print(completion_script(arguments.shell));
    return end_output(kExitDone);
  }
  if (arguments.command == Command::kDoctor) return end_output(run_doctor(arguments, clock));
  ClientOptions options;
  options.seeds = arguments.seeds;
  options.transport = arguments.transport;
  options.rdma.device = arguments.rdma_device;
  options.rdma.port = arguments.rdma_port;
  options.rdma.gid_index = arguments.rdma_gid_index;
  options.rdma.traffic_class = arguments.rdma_traffic_class;
  options.rdma.path_mtu = arguments.rdma_mtu;
  options.rdma.ack_timeout = arguments.rdma_ack_timeout;
  options.rdma.retry_count = arguments.rdma_retry_count;
  options.token = arguments.token;
  options.name = "skua";
  options.read_only = arguments.read_only;
  options.connect_timeout = arguments.timeout;
  options.operation_timeout = arguments.timeout;
  const auto client = Client::connect(std::move(options));
  if (!client) return report(arguments, client.error());
  int exit_code = kExitDone;
  switch (arguments.command) {
    case Command::kNodes: exit_code = run_nodes(arguments, **client); break;
    case Command::kStatistics: exit_code = run_statistics(arguments, **client); break;
    case Command::kPing: exit_code = run_ping(arguments, **client); break;
    default: exit_code = run_on_session(arguments, clock, **client); break;
  }
  return end_output(exit_code);
}

}  // namespace skua::cli
