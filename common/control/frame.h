#pragma once
// Frames of the control plane: how envelopes follow each other on a byte stream.
//
//   0        4        8
//   | magic  | length | length bytes: one serialized control::Envelope |      both numbers little-endian, 32 bits
//
// A frame that cannot be right is refused by what is wrong with it, before memory is taken for it; the stream is then
// of no further use.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "proto/control.pb.h"

namespace skua {

inline constexpr size_t kFrameHeaderBytes = 8;
inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;  // of the envelope, without the header

// Appends one frame to `out`. Error: kInvalidArgument when the envelope is longer than kMaxFrameBytes or empty; `out`
// is unchanged.
Result<void> encode_frame(const control::Envelope& envelope, std::string& out);

// FrameDecoder turns a byte stream, in pieces of any size, into envelopes.
// Cost:    holds the unfinished frame; grows with bytes received, never with a length that was merely claimed.
// Threads: one owner.
// Errors:  kCorruption: wrong magic, length zero or over the limit, bytes that are no Envelope. It stays: every later
//          next() repeats it.
class FrameDecoder {
 public:
  explicit FrameDecoder(size_t max_frame_bytes = kMaxFrameBytes) : max_frame_bytes_(max_frame_bytes) {}

  // Holds for headers not looked at yet.
  void set_max_frame_bytes(size_t bytes) { max_frame_bytes_ = bytes; }
  void feed(std::string_view bytes);
  // The next whole envelope, or nothing until more bytes are fed.
  Result<std::optional<control::Envelope>> next();
  // Bytes of a frame that is not whole yet.
  size_t pending_bytes() const { return buffer_.size() - consumed_; }

 private:
  Error refuse(std::string why);

  size_t max_frame_bytes_;
  std::string buffer_;
  size_t consumed_ = 0;  // of buffer_, by frames handed out
  std::optional<Status> failure_;
};

}  // namespace skua
