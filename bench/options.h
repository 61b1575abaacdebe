#pragma once
// Options of skua-bench: YCSB's flags with one dash, our own with two (either is accepted for both).
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bench/ycsb/properties.h"
#include "bench/ycsb/workload.h"
#include "common/base/status.h"

namespace skua::bench {

struct Options {
  ycsb::Properties properties;  // of all -P files in order, then of all -p, -threads and -target in order
  ycsb::Phases phases;
  bool status = false;
  uint32_t local_servers = 0;   // 0: use `cluster`
  std::string cluster;
  std::string transport = "auto";
  std::string wait = "adaptive";  // or busy, event
  std::string rdma_device;      // of verbs; empty: the best one
  uint32_t rdma_port = 0;
  std::optional<uint32_t> rdma_gid_index;
  std::optional<uint32_t> rdma_traffic_class;
  uint32_t rdma_mtu = 0;        // 0: auto
  std::optional<uint32_t> rdma_ack_timeout;
  std::optional<uint32_t> rdma_retry_count;
  std::string rdma_atomics;     // of local servers: auto, device or cpu; empty: their own default
  std::string memory;           // of each local server; empty: enough for the workload
  std::string server_binary;    // empty: skua-server beside this program
  std::string token;
  std::optional<uint64_t> seed;
  uint64_t batch = 1;
  bool read_only = false;
  bool help = false;
  bool version = false;
};

// `arguments` without the program's name. Error: kInvalidArgument for a wrong command line, kConfiguration for a file.
Result<Options> parse_options(std::span<const char* const> arguments);
std::string_view help_text();

}  // namespace skua::bench
