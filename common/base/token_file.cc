#include "common/base/token_file.h"

#include <cctype>
#include <fstream>

namespace skua {

Result<std::string> read_token_file(const std::string& path) {
  std::ifstream file(path);
  std::string token;
  std::getline(file, token);
  if (!file.is_open() || file.bad()) {
    return fail(StatusCode::kConfiguration, "'" + path + "' cannot be read; name a file whose first line is the token");
  }
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) token.pop_back();
  if (token.empty()) return fail(StatusCode::kConfiguration, "'" + path + "' is empty; its first line is the token");
  return token;
}

}  // namespace skua
