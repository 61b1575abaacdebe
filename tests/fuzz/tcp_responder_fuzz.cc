// Promises of the TCP data plane's server side (common/transport/tcp/tcp_responder.h), for any stream of requests:
//   nothing outside the region is read or written (AddressSanitizer), and nothing at all is written read-only;
//   memory and answers are those of a plain executor that does one whole request after the other, however the stream
//   is cut and the output is taken; of a WRITE that never comes whole, any of its bytes may be there;
//   the first answer that is no success is the last.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/transport/tcp/tcp_responder.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

constexpr RegionKey kKey{9};
constexpr size_t kMaxStream = 64 << 10;
constexpr size_t kMaxPieces = 256;  // that a stream or its output is cut into

// A stream of requests that are mostly right.
std::string make_stream(Input& input) {
  std::string stream;
  for (int i = 0; i < 64 && !input.empty() && stream.size() < kMaxStream; ++i) {
    const uint8_t kind = input.byte();
    if (kind == 255) return stream += input.rest();  // as it comes
    WireRequest request{};
    request.verb = kind % 8 < 6 ? kind % 4 : kind;
    request.key = kind < 248 ? static_cast<uint64_t>(kKey) : input.number();
    request.bytes = request.verb < 2 || kind % 16 == 2 ? input.number() : 8;
    request.offset = kind < 128 ? input.byte() * uint64_t{8} : input.number();
    request.compare = kind % 32 < 16 ? 0 : input.number();
    request.swap_or_add = request.verb < 2 ? 0 : input.number();
    stream.append(reinterpret_cast<const char*>(&request), sizeof request);
    if (request.verb != 1) continue;
    const size_t payload = std::min<size_t>(request.bytes, 40 << 10);
    std::string bytes(input.bytes(std::min<size_t>(payload, 64)));
    bytes.resize(payload, static_cast<char>('a' + i % 26));
    stream += bytes;
  }
  return stream;
}

struct Outcome {
  std::vector<std::byte> memory;
  std::string output;
  size_t half_written = 0;  // where a WRITE that never comes whole begins
  size_t half_bytes = 0;
};

bool equal_memory(Outcome a, const Outcome& b) {
  const auto from = static_cast<ptrdiff_t>(b.half_written);
  std::copy_n(b.memory.begin() + from, b.half_bytes, a.memory.begin() + from);
  return a.memory == b.memory;
}

// The plain executor.
class Model {
 public:
  Model(size_t bytes, bool read_only) : read_only_(read_only) { outcome_.memory.resize(bytes); }

  Outcome run(std::string_view stream) {
    while (stream.size() >= sizeof(WireRequest) && !failed_) {
      WireRequest request;
      std::memcpy(&request, stream.data(), sizeof request);
      stream.remove_prefix(sizeof request);
      const CompletionStatus status = judge(request);
      if (status != CompletionStatus::kSuccess) {
        answer(status, {});
        failed_ = true;
      } else if (!execute(request, stream)) {
        break;  // its payload never comes whole
      }
    }
    return outcome_;
  }

 private:
  CompletionStatus judge(const WireRequest& request) const {
    const bool atomic = request.verb >= 2;
    const size_t size = outcome_.memory.size();
    if (request.verb > 3) return CompletionStatus::kBadRequest;
    if (request.key != static_cast<uint64_t>(kKey)) return CompletionStatus::kRemoteAccessError;
    if (read_only_ && request.verb != 0) return CompletionStatus::kRemoteAccessError;
    if (request.bytes > kMaxMessageBytes) return CompletionStatus::kBadRequest;
    if (atomic && (request.bytes != 8 || request.offset % 8 != 0)) return CompletionStatus::kBadRequest;
    const bool inside = request.offset <= size && request.bytes <= size && request.offset + request.bytes <= size;
    return inside ? CompletionStatus::kSuccess : CompletionStatus::kRemoteAccessError;
  }

  bool execute(const WireRequest& request, std::string_view& stream) {
    char* const at = reinterpret_cast<char*>(outcome_.memory.data()) + request.offset;
    if (request.verb == 0) {
      answer(CompletionStatus::kSuccess, {at, request.bytes});
    } else if (request.verb == 1) {
      const std::string_view payload = stream.substr(0, request.bytes);
      stream.remove_prefix(payload.size());
      std::copy(payload.begin(), payload.end(), at);
      if (payload.size() < request.bytes) {
        outcome_.half_written = request.offset;
        outcome_.half_bytes = request.bytes;
        return false;
      }
      answer(CompletionStatus::kSuccess, {});
    } else {
      uint64_t found = 0;
      std::memcpy(&found, at, sizeof found);
      uint64_t next = found + request.swap_or_add;
      if (request.verb == 2) next = found == request.compare ? request.swap_or_add : found;
      std::memcpy(at, &next, sizeof next);
      answer(CompletionStatus::kSuccess, {reinterpret_cast<const char*>(&found), sizeof found});
    }
    return true;
  }

  void answer(CompletionStatus status, std::string_view payload) {
    const WireResponse response{static_cast<uint32_t>(status), static_cast<uint32_t>(payload.size())};
    outcome_.output.append(reinterpret_cast<const char*>(&response), sizeof response);
    outcome_.output += payload;
  }

  Outcome outcome_;
  const bool read_only_;
  bool failed_ = false;
};

struct Cuts {
  size_t shown = 0;  // bytes of the stream at a time; 0: all
  size_t taken = 0;  // of the output; 0: all
};

Outcome respond(std::string_view stream, Outcome outcome, bool read_only, Cuts cuts) {
  // Exactly so many bytes, so that AddressSanitizer sees the ends of the region.
  const size_t bytes = outcome.memory.size();
  const auto memory = std::make_unique<std::byte[]>(bytes);
  TcpResponder responder;
  responder.assign(std::vector<MappedRegion>{{kKey, memory.get(), bytes}}, read_only);
  size_t visible = 0;
  size_t used = 0;
  while (true) {
    const size_t step = cuts.shown == 0 ? stream.size() : cuts.shown;
    visible = std::min(stream.size(), std::max(visible, used) + step);
    const std::string shown(stream.substr(used, visible - used));
    const size_t now = responder.execute(std::as_bytes(std::span(shown)));
    SKUA_CHECK(now <= shown.size(), "no more is used than was shown");
    used += now;
    size_t sent = 0;
    for (const iovec& part : responder.output()) {
      const size_t take = std::min(part.iov_len, cuts.taken == 0 ? part.iov_len : cuts.taken - sent);
      outcome.output.append(static_cast<const char*>(part.iov_base), take);
      sent += take;
    }
    SKUA_CHECK(responder.output().size() <= TcpResponder::kMaxSegments + 2, "segments are limited");
    responder.sent(sent);
    if (now == 0 && sent == 0 && visible == stream.size()) break;
  }
  outcome.memory.assign(memory.get(), memory.get() + bytes);
  return outcome;
}

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  fuzz::Input input(data, size);
  const uint8_t mode = input.byte();
  const bool read_only = (mode & 1) != 0;
  // A READ that is sent from where it lies may show what was written later: with such, answers have the same length.
  const bool large = (mode & 2) != 0;
  fuzz::Outcome empty;
  empty.memory.resize(large ? 40000 : 4096);
  fuzz::Cuts cuts{size_t{1} + input.byte(), size_t{1} + input.byte() * size_t{16}};
  const std::string stream = fuzz::make_stream(input);

  const fuzz::Outcome expected = fuzz::Model(empty.memory.size(), read_only).run(stream);
  cuts.shown = std::max(cuts.shown, stream.size() / fuzz::kMaxPieces);
  cuts.taken = std::max(cuts.taken, expected.output.size() / fuzz::kMaxPieces);
  for (const fuzz::Cuts& one : {fuzz::Cuts{}, cuts}) {
    const fuzz::Outcome outcome = fuzz::respond(stream, empty, read_only, one);
    SKUA_CHECK(fuzz::equal_memory(outcome, expected), "memory");
    SKUA_CHECK(!read_only || outcome.memory == empty.memory, "read-only");
    SKUA_CHECK(outcome.output.size() == expected.output.size(), "length of the answers");
    SKUA_CHECK(large || outcome.output == expected.output, "answers");
  }
  return 0;
}
