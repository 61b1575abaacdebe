#pragma once
// Private to transport/tcp: executes one connection's requests on the arena. Bytes in, bytes out; no sockets.
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/remote_memory.h"
#include "common/transport/region_table.h"
#include "common/transport/tcp/wire.h"

namespace skua {

// Cost:    no allocation after construction. A READ of more than kGatherBytes is sent from where it lies: what changes
//          meanwhile tears it, which its reader must expect anyway.
// Bounds:  at most kOutputBytes + kMaxSegments large READs wait to be sent; execute stops until they are.
// Threads: one at a time.
class TcpResponder {
 public:
  static constexpr size_t kOutputBytes = 64 << 10;
  static constexpr size_t kMaxSegments = 64;
  static constexpr uint64_t kGatherBytes = kThreadSanitizer ? UINT64_MAX : 16 << 10;

  TcpResponder() : output_(std::make_unique<std::byte[]>(kOutputBytes)) { segments_.reserve(kMaxSegments + 2); }
  void assign(std::span<const MappedRegion> regions, bool read_only) { regions_.assign(regions, read_only); }

  // Executes requests from `input` until it is used up, a request is not complete, or the output is full. Returns the
  // bytes that were used; the rest is to be shown again with more behind it.
  size_t execute(std::span<const std::byte> input);

  // A request, or its payload, is half there.
  bool mid_request() const { return write_left_ != 0; }
  // A request failed: its response is the last output, and nothing more is executed.
  bool failed() const { return failed_; }

  // What is to be sent, and how much of it was.
  std::span<iovec> output() { return std::span(segments_).subspan(first_segment_); }
  void sent(size_t bytes);

 private:
  bool room() const;
  void start(const WireRequest& request);
  void answer(CompletionStatus status, const void* payload, uint32_t bytes);
  void start_read(const std::byte* from, uint64_t bytes);
  void continue_read();
  size_t continue_write(std::span<const std::byte> input);
  void append(const void* data, size_t bytes);
  std::byte* grow(size_t bytes);

  RegionTable regions_;
  std::unique_ptr<std::byte[]> output_;
  size_t output_used_ = 0;
  std::vector<iovec> segments_;
  size_t first_segment_ = 0;
  bool failed_ = false;

  std::byte* write_to_ = nullptr;
  uint64_t write_left_ = 0;
  const std::byte* read_from_ = nullptr;  // of a READ that is copied piece by piece
  uint64_t read_left_ = 0;
};

}  // namespace skua
