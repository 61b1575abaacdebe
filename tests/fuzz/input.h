#pragma once
// Input takes a fuzzer's bytes apart into numbers and pieces; what is used up reads as zeros and empty pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace skua::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    const std::string_view one = bytes(1);
    return one.empty() ? uint8_t{0} : static_cast<uint8_t>(one[0]);
  }
  // One byte below 248 is itself; from there on it says how many bytes follow, 1 to 8, lowest first.
  uint64_t number() {
    const uint8_t first = byte();
    if (first < 248) return first;
    uint64_t value = 0;
    int shift = 0;
    for (const char c : bytes(first - 247U)) {
      value |= uint64_t{static_cast<unsigned char>(c)} << shift;
      shift += 8;
    }
    return value;
  }
  uint32_t number32() { return static_cast<uint32_t>(number()); }
  // Fewer when there are fewer.
  std::string_view bytes(size_t count) {
    const std::string_view piece = rest_.substr(0, std::min(count, rest_.size()));
    rest_.remove_prefix(piece.size());
    return piece;
  }
  std::string_view rest() { return bytes(rest_.size()); }

 private:
  std::string_view rest_;
};

}  // namespace skua::fuzz

// A target. Promises are checked with SKUA_CHECK, which aborts; libFuzzer or the replay driver names the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
