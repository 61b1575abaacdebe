#pragma once
// The command line of `skua`: what was asked for, checked as far as it can be without a server.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "client/cli/record.h"
#include "common/base/clock.h"

namespace skua::cli {

enum class Command : uint8_t {
  kGet, kPut, kRemove, kExists, kIncrement, kCompareAndSwap, kLoad, kDump, kStatistics, kNodes, kPing, kDoctor,
  kCompletion,
};

struct Arguments {
  Command command = Command::kGet;
  // For every command.
  std::vector<std::string> seeds;
  std::string transport = "auto";
  std::string rdma_device;
  uint32_t rdma_port = 0;
  std::optional<uint32_t> rdma_gid_index;
  std::optional<uint32_t> rdma_traffic_class;
  uint32_t rdma_mtu = 0;             // 0: auto
  uint32_t rdma_ack_timeout = 14;
  uint32_t rdma_retry_count = 6;
  std::string token;
  Nanoseconds timeout = 5 * kSecond;
  bool read_only = false;
  bool json = false;
  // For some of them.
  std::string key;                   // as bytes, --key-hex and --escapes applied
  std::optional<std::string> value;  // from the argument; without it `file` is read
  std::string file;                  // "-": standard input or output
  std::string version;               // of cas
  Nanoseconds ttl = 0;
  bool if_absent = false;
  bool version_only = false;
  int64_t delta = 1;
  RecordFormat format = RecordFormat::kTsv;
  std::optional<bool> progress;      // nothing: when standard error is a terminal
  std::string shell;
  std::string address;               // of doctor: the IP address that a server would listen on
};

// What is left to do when there is nothing to run: `text` goes to standard output if exit_code is 0, else to standard
// error.
struct Finished {
  int exit_code = 0;
  std::string text;
};

// `words` without the program's name.
std::variant<Arguments, Finished> parse_arguments(const std::vector<std::string>& words);

// For `skua completion SHELL`. Requires: shell is bash, zsh or fish.
std::string completion_script(const std::string& shell);

}  // namespace skua::cli
