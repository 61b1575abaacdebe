#pragma once
// The one table of settings; flags and configuration files are read by it.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/config.h"

namespace skua {

struct Setting {
  using Apply = std::function<Result<void>(ServerConfig&, const std::string&)>;
  std::string name;      // "data-dir"
  std::string argument;  // "DIR"
  std::string help;
  Apply apply;
  bool names_a_file = false;  // which is read: an error of it is one of the configuration
};

const std::vector<Setting>& settings();

// The known name that was probably meant; flags that no file has count when `with_command_line`.
std::optional<std::string> near_name(const std::string& name, bool with_command_line);

// Errors begin with `shown`: where the text stood.
Result<void> apply_named(const Setting& setting, const std::string& shown, const std::string& text,
                         ServerConfig& config);

}  // namespace skua
