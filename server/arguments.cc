#include <sysexits.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "common/control/hello.h"
#include "server/config.h"
#include "server/settings.h"

namespace skua {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 ended by a signal, when its clients were served; 64 usage; 69 unavailable: the coordinator cannot\n"
    "be reached, or the data directory is in use; 70 internal; 71 memory or other system resources; 73 the ready file\n"
    "cannot be written; 77 not permitted: a wrong token; 78 configuration.";

CommandLine leave(int exit_code, std::string text) {
  CommandLine result;
  result.exit_code = exit_code;
  result.text = std::move(text);
  return result;
}

CommandLine usage_error(const std::string& why) {
  return leave(EX_USAGE, "skua-server: " + why + "\nskua-server --help lists the flags\n");
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app{"skua-server: one server of a Skua cluster. The first becomes the coordinator, others --join it."};
  app.name("skua-server");
  app.footer(kFooter);
  app.allow_extras();
  std::vector<std::string> values(settings().size());
  std::vector<CLI::Option*> options;
  for (size_t i = 0; i < settings().size(); ++i) {
    const Setting& setting = settings()[i];
    options.push_back(app.add_option("--" + setting.name, values[i], setting.help)->type_name(setting.argument));
  }
  std::string config_path;
  app.add_option("--config", config_path, "TOML file with the same names; a flag beats it")->type_name("FILE");
  bool version = false;
  app.add_flag("--version", version, "show the version");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    return leave(0, app.help());
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  if (version) return leave(0, software_text() + "\n");
  for (const std::string& extra : app.remaining()) {
    const std::string name = extra.substr(0, extra.find('='));
    if (name.rfind("--", 0) != 0) return usage_error("unexpected argument '" + extra + "'");
    const auto near = near_name(name.substr(2), true);
    return usage_error("unknown flag '" + name + "'" + (near ? "; did you mean --" + *near + "?" : ""));
  }
  CommandLine result;
  result.config.node.data_dir = "./skua-data";
  result.config.node.report_process_cpu = true;
  if (!config_path.empty()) {
    if (const auto loaded = load_config_file(config_path, result.config); !loaded) {
      return leave(EX_CONFIG, "skua-server: " + loaded.error().message() + "\n");
    }
  }
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i]->count() == 0) continue;
    const auto applied = apply_named(settings()[i], "--" + settings()[i].name, values[i], result.config);
    if (applied) continue;
    if (settings()[i].names_a_file) return leave(EX_CONFIG, "skua-server: " + applied.error().message() + "\n");
    return usage_error(applied.error().message());
  }
  result.run = true;
  return result;
}

}  // namespace skua
