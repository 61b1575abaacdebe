// Promises of the control plane's frames (common/control/frame.h), for any bytes:
//   however the stream is cut, the same envelopes come out, and the same refusal, which then stays;
//   what is kept is never more than what was fed;
//   an envelope that came out goes in again: encode_frame and a decoder give an equal one.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/control/frame.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

struct Decoded {
  std::vector<std::string> envelopes;  // serialized with maps in order
  std::string refusal;                 // empty: none
};

std::string serialized(const control::Envelope& envelope) {
  std::string out;
  {
    google::protobuf::io::StringOutputStream stream(&out);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    envelope.SerializeToCodedStream(&coded);
  }
  return out;
}

void drain(FrameDecoder& decoder, Decoded& decoded, size_t fed) {
  while (decoded.refusal.empty()) {
    const auto next = decoder.next();
    if (!next) {
      decoded.refusal = next.error().message();
      SKUA_CHECK(next.error().code() == StatusCode::kCorruption && !decoded.refusal.empty(), "kind of refusal");
      SKUA_CHECK(!decoder.next(), "a refusal stays");
    } else if (*next) {
      decoded.envelopes.push_back(serialized(**next));
      std::string frame;
      if (!encode_frame(**next, frame)) continue;  // an envelope with nothing in it
      FrameDecoder again;
      again.feed(frame);
      const auto same = again.next();
      SKUA_CHECK(same && *same && serialized(**same) == decoded.envelopes.back(), "encoded again");
      SKUA_CHECK(again.pending_bytes() == 0 && frame.size() > kFrameHeaderBytes, "one frame, nothing behind it");
    } else {
      break;
    }
  }
  SKUA_CHECK(decoder.pending_bytes() <= fed, "no more is kept than was fed");
}

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  fuzz::Input input(data, size);
  const size_t limit = input.byte() % 2 == 0 ? kMaxFrameBytes : size_t{input.byte()};
  const std::string_view cuts = input.bytes(input.byte() % 16);
  const std::string_view stream = input.rest();

  fuzz::Decoded whole;
  FrameDecoder at_once(limit);
  at_once.feed(stream);
  fuzz::drain(at_once, whole, stream.size());

  fuzz::Decoded cut;
  FrameDecoder in_pieces(limit);
  size_t fed = 0;
  for (size_t i = 0; fed < stream.size(); ++i) {
    const size_t piece = 1 + (cuts.empty() ? size_t{0} : static_cast<unsigned char>(cuts[i % cuts.size()]));
    in_pieces.feed(stream.substr(fed, piece));
    fed += std::min(piece, stream.size() - fed);
    fuzz::drain(in_pieces, cut, fed);
  }
  fuzz::drain(in_pieces, cut, stream.size());
  SKUA_CHECK(whole.envelopes == cut.envelopes, "cutting the stream changes no envelope");
  SKUA_CHECK(whole.refusal == cut.refusal, "nor the refusal");
  SKUA_CHECK(at_once.pending_bytes() == in_pieces.pending_bytes(), "nor what is left");
  return 0;
}
