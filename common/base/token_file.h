#pragma once
// The file that holds a cluster's access token, as every program reads it.
#include <string>

#include "common/base/status.h"

namespace skua {

// Its first line, without the white space behind it. Error: kConfiguration, with path and remedy.
Result<std::string> read_token_file(const std::string& path);

}  // namespace skua
