#pragma once
// LocalCluster runs servers inside the test's process: real sockets, real shared memory, no files.
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/client.h"
#include "server/node.h"

namespace skua::testing {

// ThreadSanitizer takes seconds to copy the largest value.
#if defined(__SANITIZE_THREAD__)
inline constexpr int64_t kSlowness = 10;
#else
inline constexpr int64_t kSlowness = 1;
#endif

struct LocalClusterOptions {
  size_t servers = 1;
  uint32_t partitions = 16;
  uint64_t memory_bytes = uint64_t{256} << 20;
  uint64_t expected_keys = 100'000;
  Nanoseconds lease = 3 * kSlowness * kSecond;
};

class LocalCluster {
 public:
  explicit LocalCluster(const LocalClusterOptions& options = {});
  ~LocalCluster();

  // Options that reach this cluster over `transport`.
  ClientOptions client_options(const std::string& transport) const;
  std::unique_ptr<Client> connect(const ClientOptions& options) const;
  Node& node(size_t index) { return *nodes_[index]; }
  std::string address(size_t index) const { return nodes_[index]->control_address(); }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
};

// What an operation returned. Throws, and so fails the test with the operation's own words, when it is an error.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().to_string());
  return std::move(*result);
}

// A value that says what it should be: key, length and number decide every byte, so that one check judges any read.
std::string described_value(std::string_view key, size_t bytes, uint64_t number);
// The number of the value, or nothing when its bytes are not what described_value makes.
bool is_described_value(std::string_view key, std::string_view value);

}  // namespace skua::testing
