// Promises of a server's configuration file (server/config.h), for any bytes:
//   it is taken, or refused as one of the configuration with the file's name; no exception leaves;
//   what was taken is within its limits, whichever way it was written.
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <string>

#include "common/base/check.h"
#include "proto/limits.h"
#include "server/config.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

// A file that is memory.
class File {
 public:
  explicit File(std::string_view text) : descriptor_(memfd_create("config", 0)) {
    SKUA_CHECK(descriptor_ >= 0, "memfd_create");
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    SKUA_CHECK(written == static_cast<ssize_t>(text.size()), "write");
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  const int descriptor_;
};

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("/dev") != std::string_view::npos) return 0;  // a token file that never ends
  const fuzz::File file(text);
  ServerConfig config;
  if (const auto loaded = load_config_file(file.path(), config); !loaded) {
    SKUA_CHECK(loaded.error().code() == StatusCode::kConfiguration, "kind of refusal");
    SKUA_CHECK(loaded.error().message().find(file.path()) != std::string::npos, "a refusal names the file");
    return 0;
  }
  const NodeOptions& node = config.node;
  SKUA_CHECK(node.partitions == 0 || std::has_single_bit(node.partitions), "partitions are a power of two");
  SKUA_CHECK(node.partitions <= proto::kMaxPartitions && node.initial_servers <= 4096, "limits of the cluster");
  SKUA_CHECK(node.store.memory_bytes > 0 && node.store.memory_bytes < uint64_t{1} << 63, "memory");
  SKUA_CHECK(node.store.lease > 0 && node.store.lease <= 3600 * kSecond, "lease");
  SKUA_CHECK(node.join_timeout >= 0 && config.ready_fd >= -1, "timeout and descriptor");
  return 0;
}
