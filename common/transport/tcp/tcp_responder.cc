#include "common/transport/tcp/tcp_responder.h"

#include <algorithm>
#include <cstring>

namespace skua {
namespace {

constexpr size_t kSmallestRoom = 1 << 10;  // for a response header and a fair piece of payload

}  // namespace

bool TcpResponder::room() const {
  return kOutputBytes - output_used_ >= kSmallestRoom && segments_.size() < kMaxSegments;
}

size_t TcpResponder::execute(std::span<const std::byte> input) {
  size_t used = 0;
  while (!failed_ && room()) {
    if (read_left_ != 0) {
      continue_read();
    } else if (write_left_ != 0) {
      const size_t taken = continue_write(input.subspan(used));
      if (taken == 0) break;
      used += taken;
    } else {
      if (input.size() - used < sizeof(WireRequest)) break;
      WireRequest request;
      std::memcpy(&request, input.data() + used, sizeof(request));
      used += sizeof(request);
      start(request);
    }
  }
  return used;
}

void TcpResponder::start(const WireRequest& request) {
  if (request.verb > static_cast<uint8_t>(Verb::kFetchAndAdd)) {
    return answer(CompletionStatus::kBadRequest, nullptr, 0);
  }
  const auto verb = static_cast<Verb>(request.verb);
  const auto access = regions_.resolve({verb, RegionKey{request.key}, request.offset, request.bytes});
  if (access.status != CompletionStatus::kSuccess) return answer(access.status, nullptr, 0);
  switch (verb) {
    case Verb::kRead: return start_read(access.address, request.bytes);
    case Verb::kWrite:
      write_to_ = access.address;
      write_left_ = request.bytes;
      if (write_left_ == 0) answer(CompletionStatus::kSuccess, nullptr, 0);
      return;
    case Verb::kCompareAndSwap: {
      const uint64_t found = compare_and_swap_word(access.address, {request.compare, request.swap_or_add});
      return answer(CompletionStatus::kSuccess, &found, sizeof(found));
    }
    case Verb::kFetchAndAdd: {
      const uint64_t found = fetch_add_word(access.address, request.swap_or_add);
      return answer(CompletionStatus::kSuccess, &found, sizeof(found));
    }
  }
}

void TcpResponder::answer(CompletionStatus status, const void* payload, uint32_t bytes) {
  const WireResponse response{static_cast<uint32_t>(status), bytes};
  append(&response, sizeof(response));
  if (bytes != 0) append(payload, bytes);
  failed_ = status != CompletionStatus::kSuccess;
}

void TcpResponder::start_read(const std::byte* from, uint64_t bytes) {
  const WireResponse response{static_cast<uint32_t>(CompletionStatus::kSuccess), static_cast<uint32_t>(bytes)};
  append(&response, sizeof(response));
  if (bytes > kGatherBytes) {
    segments_.push_back({const_cast<std::byte*>(from), bytes});
    return;
  }
  read_from_ = from;
  read_left_ = bytes;
  if (read_left_ != 0) continue_read();
}

void TcpResponder::continue_read() {
  uint64_t piece = std::min<uint64_t>(read_left_, kOutputBytes - output_used_);
  // Pieces end at aligned words, so that no word is loaded in two halves.
  if (piece < read_left_) piece -= std::min<uint64_t>(piece, reinterpret_cast<uintptr_t>(read_from_ + piece) & 7);
  copy_from_remote(grow(piece), read_from_, piece);
  read_from_ += piece;
  read_left_ -= piece;
}

size_t TcpResponder::continue_write(std::span<const std::byte> input) {
  uint64_t piece = std::min<uint64_t>(write_left_, input.size());
  // The same for stores: a word waits until all of it is there.
  if (piece < write_left_) piece -= std::min<uint64_t>(piece, reinterpret_cast<uintptr_t>(write_to_ + piece) & 7);
  copy_to_remote(write_to_, input.data(), piece);
  write_to_ += piece;
  write_left_ -= piece;
  if (write_left_ == 0) answer(CompletionStatus::kSuccess, nullptr, 0);
  return piece;
}

std::byte* TcpResponder::grow(size_t bytes) {
  std::byte* at = output_.get() + output_used_;
  output_used_ += bytes;
  const bool extends = segments_.size() > first_segment_ &&
                       static_cast<std::byte*>(segments_.back().iov_base) + segments_.back().iov_len == at;
  if (extends) {
    segments_.back().iov_len += bytes;
  } else {
    segments_.push_back({at, bytes});
  }
  return at;
}

void TcpResponder::append(const void* data, size_t bytes) { std::memcpy(grow(bytes), data, bytes); }

void TcpResponder::sent(size_t bytes) {
  while (bytes != 0) {
    iovec& segment = segments_[first_segment_];
    const size_t part = std::min(bytes, segment.iov_len);
    segment.iov_base = static_cast<std::byte*>(segment.iov_base) + part;
    segment.iov_len -= part;
    bytes -= part;
    if (segment.iov_len == 0) ++first_segment_;
  }
  if (first_segment_ == segments_.size()) {
    segments_.clear();
    first_segment_ = 0;
    output_used_ = 0;
  }
}

}  // namespace skua
