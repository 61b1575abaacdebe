#include "client/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <sstream>

#include "client/cli/escape.h"
#include "client/cli/exit_code.h"
#include "common/base/net_address.h"
#include "common/base/token_file.h"
#include "common/base/units.h"

namespace skua::cli {
namespace {

constexpr const char* kFooter =
    "Keys and values are bytes. On the command line a key is taken as it is written; --key-hex reads it as\n"
    "hexadecimal, --escapes reads \\t \\n \\r \\\\ \\xHH in key and value. Put -- before a key that begins with a\n"
    "dash.\n"
    "Exit codes: 0 done; 1 not found, not swapped, or the key exists; 64 usage; 65 a bad line in a file; 66 a file\n"
    "cannot be read; 69 unavailable; 70 internal; 71 system resources; 73 a file cannot be written; 75 try again\n"
    "(a change may have happened, or the store is full); 76 another protocol version; 77 not permitted;\n"
    "78 configuration.";

constexpr const char* kFileFooter =
    "FILE holds a key a line, with its value and the milliseconds that it has left to live, if it expires.\n"
    "tsv: KEY<tab>VALUE or KEY<tab>VALUE<tab>MILLISECONDS; \\t \\n \\r \\\\ \\xHH stand for bytes.\n"
    "jsonl: {\"key\":\"...\",\"value\":\"...\",\"ttl_ms\":1000}; bytes that are no UTF-8 stand in key_base64 and\n"
    "value_base64. Order is not kept; keys that change meanwhile appear with one of their values.";

constexpr const char* kDoctorFooter =
    "It needs no server: it looks at this host's RDMA devices, connects to itself over the one that a server or\n"
    "client takes, and measures each verb. Exit codes: 0 verbs can be used; 69 there is no device for it, or the\n"
    "connection failed; 78 the --rdma options ask for what is not there, while another device would do.";

// Texts as they were written, before they are checked.
struct Raw {
  std::string cluster = "127.0.0.1:7400";
  std::string token_file;
  std::string timeout = "5s";
  std::string key;
  std::string value;
  std::string ttl;
  std::string delta = "1";
  std::string format = "tsv";
  std::string rdma_mtu = "auto";
  bool key_hex = false;
  bool escapes = false;
  bool progress = false;
  bool no_progress = false;
};

// Parser owns the description of the command line, and where CLI11 puts what it reads.
class Parser {
 public:
  Parser() : app_("Reads and changes the keys of a Skua cluster.", "skua") {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.footer(kFooter);
    app_.set_version_flag("--version", "skua " SKUA_VERSION);
    add_global_options();
    add_key_commands();
    add_change_commands();
    add_bulk_commands();
    add_cluster_commands();
  }

  std::variant<Arguments, Finished> parse(const std::vector<std::string>& words) {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    try {
      app_.parse(reversed);
    } catch (const CLI::ParseError& error) {
      std::ostringstream out;
      const bool asked = app_.exit(error, out, out) == 0;
      if (!asked && app_.get_subcommands().empty() && !app_.remaining().empty()) {
        return failed(kExitUsage, "no command or option '" + app_.remaining().front() + "'; see skua --help");
      }
      if (asked) return Finished{kExitDone, out.str()};
      std::string why = out.str();
      while (why.ends_with('\n')) why.pop_back();
      return failed(kExitUsage, why);
    }
    if (auto failure = check()) return *std::move(failure);
    return arguments_;
  }

  const CLI::App& app() const { return app_; }

 private:
  CLI::App* add(Command command, const char* name, const char* description) {
    CLI::App* sub = app_.add_subcommand(name, description);
    sub->callback([this, command] { arguments_.command = command; });
    return sub;
  }
  void add_key(CLI::App* sub) { sub->add_option("KEY", raw_.key, "the key")->required(); }
  void add_value(CLI::App* sub) {
    auto* value = sub->add_option("VALUE", raw_.value, "the value; - reads standard input");
    auto* file = sub->add_option("--file", arguments_.file, "read the value from a file")->type_name("PATH");
    file->excludes(value);
    sub->add_option("--ttl", raw_.ttl, "the key expires after so long (500ms, 2s, 1h)")->type_name("DURATION");
  }

  void add_global_options() {
    app_.add_option("--cluster", raw_.cluster, "servers to ask first, separated by commas")
        ->type_name("HOST:PORT")->envname("SKUA_CLUSTER")->capture_default_str();
    app_.add_option("--transport", arguments_.transport, "auto, verbs, shm or tcp")
        ->check(CLI::IsMember({"auto", "verbs", "shm", "tcp"}))->type_name("NAME")->capture_default_str();
    app_.add_option("--rdma-device", arguments_.rdma_device, "RDMA device of verbs")->type_name("NAME");
    app_.add_option("--rdma-port", arguments_.rdma_port, "its port")->check(CLI::Range(1, 255))->type_name("N");
    app_.add_option("--rdma-gid-index", arguments_.rdma_gid_index, "its GID")->check(CLI::Range(0, 65535))
        ->type_name("N");
    app_.add_option("--rdma-traffic-class", arguments_.rdma_traffic_class, "DSCP * 4 of what is sent")
        ->check(CLI::Range(0, 255))->type_name("N");
    app_.add_option("--rdma-mtu", raw_.rdma_mtu, "path MTU at most; auto: what both ends carry")
        ->check(CLI::IsMember({"auto", "256", "512", "1024", "2048", "4096"}))->type_name("BYTES")
        ->capture_default_str();
    app_.add_option("--rdma-ack-timeout", arguments_.rdma_ack_timeout, "wait 4.096 us * 2^N before sending again")
        ->check(CLI::Range(1, 31))->type_name("N")->capture_default_str();
    app_.add_option("--rdma-retry-count", arguments_.rdma_retry_count, "and so many times")
        ->check(CLI::Range(0, 6))->type_name("N")->capture_default_str();
    app_.add_option("--token-file", raw_.token_file, "file with the cluster's access token")
        ->type_name("PATH")->envname("SKUA_TOKEN_FILE");
    app_.add_option("--timeout", raw_.timeout, "for the connection, and for each operation")
        ->type_name("DURATION")->capture_default_str();
    app_.add_flag("--read-only", arguments_.read_only, "ask for sessions that cannot change anything");
    app_.add_flag("--json", arguments_.json, "print JSON");
    app_.add_flag("--key-hex", raw_.key_hex, "KEY is hexadecimal");
    app_.add_flag("-e,--escapes", raw_.escapes, "KEY and VALUE hold escapes")->excludes("--key-hex");
  }

  void add_key_commands() {
    CLI::App* get = add(Command::kGet, "get", "Write a key's value to standard output");
    add_key(get);
    get->add_option("-o,--output", arguments_.file, "write the value to a file")->type_name("PATH");
    get->add_flag("--version-only", arguments_.version_only, "print the version, for cas, not the value");
    add_key(add(Command::kExists, "exists", "End with 0 if the key is there, with 1 if not"));
    add_key(add(Command::kRemove, "rm", "Remove a key; ends with 1 if it was not there"));
  }

  void add_change_commands() {
    CLI::App* put = add(Command::kPut, "put", "Store a value under a key");
    add_key(put);
    add_value(put);
    put->add_flag("--if-absent", arguments_.if_absent, "end with 1, and change nothing, if the key is there");
    CLI::App* increment = add(Command::kIncrement, "incr", "Add to a decimal value, and print the sum");
    add_key(increment);
    increment->add_option("DELTA", raw_.delta, "what to add")->capture_default_str();
    CLI::App* swap = add(Command::kCompareAndSwap, "cas", "Store a value if the key still has the given version");
    add_key(swap);
    swap->add_option("VERSION", arguments_.version, "as `get --version-only` prints it")->required();
    add_value(swap);
  }

  void add_bulk_commands() {
    CLI::App* load = add(Command::kLoad, "load", "Store every key of a file; - reads standard input");
    CLI::App* dump = add(Command::kDump, "dump", "Write every key to a file; - writes standard output");
    for (CLI::App* sub : {load, dump}) {
      sub->add_option("FILE", arguments_.file, "one key a line")->required();
      sub->add_option("--format", raw_.format, "tsv, or jsonl for JSON lines")
          ->check(CLI::IsMember({"tsv", "jsonl"}))->type_name("NAME")->capture_default_str();
      sub->footer(kFileFooter);
      auto* on = sub->add_flag("--progress", raw_.progress, "show a bar even if standard error is no terminal");
      sub->add_flag("--no-progress", raw_.no_progress, "show none")->excludes(on);
    }
  }

  void add_cluster_commands() {
    add(Command::kStatistics, "stats", "Print every server's statistics");
    add(Command::kNodes, "nodes", "List the servers");
    add(Command::kPing, "ping", "Measure a round trip to every server");
    CLI::App* doctor = add(Command::kDoctor, "doctor", "Say whether RDMA works here, over which device, and why");
    doctor->add_option("--address", arguments_.address, "take the device with this IP address, as a server's "
                                                        "--rdma-listen does")->type_name("IP");
    doctor->footer(kDoctorFooter);
    add(Command::kCompletion, "completion", "Print a completion script")
        ->add_option("SHELL", arguments_.shell, "bash, zsh or fish")
        ->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  }

  // What CLI11 does not check. Nothing: all is well.
  std::optional<Finished> check() {
    if (auto failure = check_connection()) return failure;
    if (auto failure = check_key_and_value()) return failure;
    if (!arguments_.address.empty() && !is_ip_address(arguments_.address)) {
      return failed(kExitConfiguration, "--address '" + arguments_.address +
                                            "' is no IP address; write one as 10.0.0.1 or fe80::1%eth0");
    }
    // CLI11 has seen to it that it is a number.
    if (raw_.rdma_mtu != "auto") arguments_.rdma_mtu = static_cast<uint32_t>(std::stoul(raw_.rdma_mtu));
    arguments_.format = *parse_record_format(raw_.format);
    if (raw_.progress || raw_.no_progress) arguments_.progress = raw_.progress;
    return std::nullopt;
  }

  std::optional<Finished> check_connection() {
    std::istringstream list(raw_.cluster);
    for (std::string seed; std::getline(list, seed, ',');) {
      const auto address = parse_net_address(seed);
      if (!address) return failed(kExitConfiguration, "--cluster: " + address.error().message());
      if (address->port == 0) {
        return failed(kExitConfiguration, "--cluster: address '" + seed + "': port 0 cannot be reached");
      }
      arguments_.seeds.push_back(seed);
    }
    if (arguments_.seeds.empty()) return failed(kExitConfiguration, "--cluster is empty; write --cluster HOST:PORT");
    const auto timeout = parse_duration(raw_.timeout);
    if (!timeout) return failed(kExitUsage, "--timeout: " + timeout.error().message());
    if (*timeout < kMillisecond) return failed(kExitUsage, "--timeout '" + raw_.timeout + "': at least 1ms");
    arguments_.timeout = *timeout;
    if (raw_.token_file.empty()) return std::nullopt;
    auto token = read_token_file(raw_.token_file);
    if (!token) return failed(kExitConfiguration, "--token-file: " + token.error().message());
    arguments_.token = *std::move(token);
    return std::nullopt;
  }

  std::optional<Finished> check_key_and_value() {
    auto key = raw_.key_hex ? hex_decode(raw_.key) : raw_.escapes ? unescape(raw_.key) : Result<std::string>(raw_.key);
    if (!key) return failed(kExitUsage, "KEY '" + raw_.key + "', " + key.error().message());
    arguments_.key = *std::move(key);
    if (!raw_.ttl.empty()) {
      const auto ttl = parse_duration(raw_.ttl);
      if (!ttl) return failed(kExitUsage, "--ttl: " + ttl.error().message());
      if (*ttl < kMillisecond) return failed(kExitUsage, "--ttl '" + raw_.ttl + "': at least 1ms");
      arguments_.ttl = *ttl;
    }
    const char* const delta_end = raw_.delta.data() + raw_.delta.size();
    const auto [end, error] = std::from_chars(raw_.delta.data(), delta_end, arguments_.delta);
    if (error != std::errc() || end != delta_end) {
      return failed(kExitUsage, "DELTA '" + raw_.delta + "' is not a whole number of 64 bits");
    }
    if (arguments_.command != Command::kPut && arguments_.command != Command::kCompareAndSwap) return std::nullopt;
    if (!arguments_.file.empty()) return std::nullopt;
    if (!value_given()) return failed(kExitUsage, "no VALUE; give it, or --file PATH, or - for standard input");
    if (raw_.value == "-") {
      arguments_.file = "-";
      return std::nullopt;
    }
    auto value = raw_.escapes ? unescape(raw_.value) : Result<std::string>(raw_.value);
    if (!value) return failed(kExitUsage, "VALUE, " + value.error().message());
    arguments_.value = *std::move(value);
    return std::nullopt;
  }

  bool value_given() const { return app_.get_subcommands().front()->get_option("VALUE")->count() != 0; }

  static bool is_ip_address(const std::string& text) {
    in6_addr ignored{};
    return ::inet_pton(AF_INET, text.c_str(), &ignored) == 1 ||
           ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &ignored) == 1;
  }

  static Finished failed(int exit_code, const std::string& why) { return {exit_code, "skua: " + why + "\n"}; }

  CLI::App app_;
  Raw raw_;
  Arguments arguments_;
};

struct Words {
  std::string commands;  // separated by blanks
  std::string options;
};

Words words_of(const CLI::App& app) {
  Words words;
  std::vector<std::string> options;
  const auto collect = [&options](const CLI::App& from) {
    for (const CLI::Option* option : from.get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  };
  collect(app);
  for (const CLI::App* sub : app.get_subcommands({})) {
    words.commands += (words.commands.empty() ? "" : " ") + sub->get_name();
    collect(*sub);
  }
  std::sort(options.begin(), options.end());
  options.erase(std::unique(options.begin(), options.end()), options.end());
  for (const std::string& option : options) words.options += (words.options.empty() ? "" : " ") + option;
  return words;
}

std::string bash_script(const Words& words) {
  return "# Load with: eval \"$(skua completion bash)\"\n"
         "_skua() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} commands=\"" + words.commands + "\" given=\"\" other\n"
         "  for other in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    [[ \" $commands \" == *\" $other \"* ]] && { given=$other; break; }\n"
         "  done\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"" + words.options + "\" -- \"$word\"))\n"
         "  elif [[ -z $given ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))\n"
         "  elif [[ $given == completion ]]; then\n"
         "    COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -F _skua skua\n";
}

std::string zsh_script(const Words& words) {
  return "#compdef skua\n"
         "# Load with: source <(skua completion zsh)\n"
         "_skua() {\n"
         "  local -a commands=(" + words.commands + ") options=(" + words.options + ")\n"
         "  if [[ $words[CURRENT] == -* ]]; then\n"
         "    compadd -- $options\n"
         "  elif (( ${#${words[2,CURRENT-1]}:*commands} == 0 )); then\n"
         "    compadd -- $commands\n"
         "  elif [[ $words[CURRENT-1] == completion ]]; then\n"
         "    compadd -- bash zsh fish\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "compdef _skua skua\n";
}

std::string fish_script(const CLI::App& app) {
  std::string out = "# Load with: skua completion fish | source\n";
  for (const CLI::App* sub : app.get_subcommands({})) {
    out += "complete -c skua -f -n __fish_use_subcommand -a " + sub->get_name() + " -d '" + sub->get_description() +
           "'\n";
  }
  const auto options = [&out](const CLI::App& from, const std::string& condition) {
    for (const CLI::Option* option : from.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        out += "complete -c skua " + condition + "-l " + name + " -d '" + option->get_description() + "'\n";
      }
    }
  };
  options(app, "");
  for (const CLI::App* sub : app.get_subcommands({})) {
    options(*sub, "-n '__fish_seen_subcommand_from " + sub->get_name() + "' ");
  }
  out += "complete -c skua -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n";
  return out;
}

}  // namespace

std::variant<Arguments, Finished> parse_arguments(const std::vector<std::string>& words) {
  return Parser().parse(words);
}

std::string completion_script(const std::string& shell) {
  const Parser parser;
  if (shell == "fish") return fish_script(parser.app());
  const Words words = words_of(parser.app());
  return shell == "zsh" ? zsh_script(words) : bash_script(words);
}

}  // namespace skua::cli
