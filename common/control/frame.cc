#include "common/control/frame.h"

#include <array>
#include <cstring>

#include "common/base/units.h"
#include "proto/version.h"

namespace skua {
namespace {

constexpr size_t kCompactAfterBytes = size_t{64} << 10;

void append_u32(uint32_t value, std::string& out) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>((value >> shift) & 0xff));
}

uint32_t read_u32(const char* bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

Result<void> encode_frame(const control::Envelope& envelope, std::string& out) {
  const size_t bytes = envelope.ByteSizeLong();
  if (bytes == 0) return fail(StatusCode::kInvalidArgument, "control message without id and body");
  if (bytes > kMaxFrameBytes) {
    return fail(StatusCode::kInvalidArgument, "control message of " + std::to_string(bytes) + " bytes; a frame takes " +
                                                  std::to_string(kMaxFrameBytes));
  }
  append_u32(proto::kControlMagic, out);
  append_u32(static_cast<uint32_t>(bytes), out);
  envelope.AppendToString(&out);
  return {};
}

void FrameDecoder::feed(std::string_view bytes) {
  if (failure_) return;
  if (consumed_ == buffer_.size()) {
    buffer_.clear();
    consumed_ = 0;
  } else if (consumed_ > kCompactAfterBytes) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  buffer_.append(bytes);
}

Error FrameDecoder::refuse(std::string why) {
  failure_ = Status(StatusCode::kCorruption, std::move(why));
  buffer_.clear();
  consumed_ = 0;
  return Error(*failure_);
}

Result<std::optional<control::Envelope>> FrameDecoder::next() {
  if (failure_) return Error(*failure_);
  const char* frame = buffer_.data() + consumed_;
  const size_t bytes = pending_bytes();
  if (bytes >= 4 && read_u32(frame) != proto::kControlMagic) {
    return refuse("frame begins with " + hex_text(read_u32(frame)) + ", not with the control plane's magic " +
                  hex_text(proto::kControlMagic) + "; the peer speaks another protocol");
  }
  if (bytes < kFrameHeaderBytes) return std::nullopt;
  const uint32_t length = read_u32(frame + 4);
  if (length == 0) return refuse("frame of length zero");
  if (length > max_frame_bytes_) {
    return refuse("frame claims " + std::to_string(length) + " bytes; at most " + std::to_string(max_frame_bytes_) +
                  " are taken here");
  }
  if (bytes - kFrameHeaderBytes < length) return std::nullopt;
  control::Envelope envelope;
  if (!envelope.ParseFromArray(frame + kFrameHeaderBytes, static_cast<int>(length))) {
    return refuse("frame of " + std::to_string(length) + " bytes holds no control message");
  }
  consumed_ += kFrameHeaderBytes + length;
  return envelope;
}

}  // namespace skua
