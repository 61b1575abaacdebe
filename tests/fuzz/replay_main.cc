// Runs a target over files, for builds without libFuzzer: skua_TARGET_fuzz FOLDER|FILE...
// Exit code 0: every file was run and no promise broke. The last name on standard output is the file that broke one.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "tests/fuzz/input.h"

int main(int count, char** arguments) {
  std::set<std::filesystem::path> files;
  for (int i = 1; i < count; ++i) {
    std::error_code error;
    if (std::filesystem::is_regular_file(arguments[i], error)) files.insert(arguments[i]);
    for (const auto& entry : std::filesystem::directory_iterator(arguments[i], error)) {
      if (entry.is_regular_file()) files.insert(entry.path());
    }
  }
  for (const auto& path : files) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    std::ifstream file(path, std::ios::binary);
    if (!file) return EXIT_FAILURE;
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    // Exactly as much memory as there are bytes, so that AddressSanitizer sees a read behind them.
    const auto exact = std::make_unique<uint8_t[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), exact.get());
    LLVMFuzzerTestOneInput(exact.get(), bytes.size());
  }
  std::printf("%zu files\n", files.size());
  return files.empty() ? EXIT_FAILURE : EXIT_SUCCESS;
}
