// The hot half of the TCP queue pair: requests out, responses in.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/transport/tcp/tcp_queue_pair.h"

namespace skua {

size_t TcpQueuePair::post(std::span<const WorkRequest> requests) {
  if (state_ != QueuePairState::kReady) return 0;
  const size_t taken = std::min<size_t>(requests.size(), kQueueDepth - (tail_ - head_));
  if (taken == 0) return 0;
  if (head_ == tail_) last_progress_ = clock_.now();
  for (size_t i = 0; i < taken; ++i) {
    const WorkRequest& request = requests[i];
    const uint64_t bytes = request.bytes();
    const bool atomic = request.verb == Verb::kCompareAndSwap || request.verb == Verb::kFetchAndAdd;
    const bool bad = bytes > kMaxMessageBytes || (atomic && bytes != 8);
    entry(tail_) = {request, bad ? CompletionStatus::kBadRequest : CompletionStatus::kSuccess};
    if (bad) refused_at_ = std::min(refused_at_, tail_);
    (*headers_)[tail_ % kQueueDepth] = {static_cast<uint8_t>(request.verb),
                                        {},
                                        bytes,
                                        static_cast<uint64_t>(request.key),
                                        request.remote_offset,
                                        atomic ? request.compare : 0,
                                        atomic ? request.swap_or_add : 0};
    ++tail_;
  }
  send_posted();
  return taken;
}

// Segments from the first byte that was not sent.
size_t TcpQueuePair::gather(std::span<iovec> segments) const {
  size_t count = 0;
  uint64_t skip = sent_bytes_;
  const auto add = [&](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    const size_t part = std::min<uint64_t>(skip, bytes);
    skip -= part;
    if (part == bytes) return;
    from += part;
    if (count != 0 && static_cast<std::byte*>(segments[count - 1].iov_base) + segments[count - 1].iov_len == from) {
      segments[count - 1].iov_len += bytes - part;
    } else {
      segments[count++] = {const_cast<std::byte*>(from), bytes - part};
    }
  };
  for (uint64_t i = sent_; i < send_end() && count + 1 + WorkRequest::kMaxLocal <= segments.size(); ++i) {
    add(&(*headers_)[i % kQueueDepth], sizeof(WireRequest));
    const WorkRequest& request = entry(i).request;
    if (request.verb != Verb::kWrite) continue;
    for (size_t s = 0; s < request.local_count; ++s) add(request.local[s].data, request.local[s].bytes);
  }
  return count;
}

void TcpQueuePair::advance_sent(size_t bytes) {
  uint64_t left = sent_bytes_ + bytes;
  while (sent_ < send_end()) {
    const WorkRequest& request = entry(sent_).request;
    const uint64_t whole = sizeof(WireRequest) + (request.verb == Verb::kWrite ? request.bytes() : 0);
    if (left < whole) break;
    left -= whole;
    ++sent_;
  }
  sent_bytes_ = left;
}

void TcpQueuePair::send_posted() {
  std::array<iovec, kMaxSegments> segments;
  while (sent_ < send_end() && !send_broken_) {
    msghdr message{};
    message.msg_iov = segments.data();
    message.msg_iovlen = gather(segments);
    const ssize_t done = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done >= 0) {
      advance_sent(static_cast<size_t>(done));
      if (sent_bytes_ != 0) last_progress_ = clock_.now();  // long enough to be sent in parts
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      send_broken_ = true;
    }
  }
  watch(sent_ < send_end() && !send_broken_);
}

size_t TcpQueuePair::poll(std::span<Completion> completions) {
  if (state_ == QueuePairState::kConnecting) advance_handshake();
  size_t count = 0;
  if (state_ == QueuePairState::kReady) {
    if (sent_ < send_end()) send_posted();
    count = take_responses(completions);
    if (state_ == QueuePairState::kReady && count < completions.size() && wants_receive() && receive()) {
      count += take_responses(completions.subspan(count));
    }
  }
  if (state_ == QueuePairState::kError) count += flush(completions.subspan(count));
  return count;
}

bool TcpQueuePair::wants_receive() {
  if (head_ == refused_at_) {
    break_off(CompletionStatus::kBadRequest, "a request of more bytes than the transport takes, or an atomic whose "
                                             "local memory is not 8 bytes");
    return false;
  }
  if (head_ != tail_) return true;
  if (++idle_polls_ < kIdlePolls) return false;
  idle_polls_ = 0;
  return true;
}

// True: there are new bytes.
bool TcpQueuePair::receive() {
  if (input_begin_ == input_end_) {
    input_begin_ = input_end_ = 0;
  } else if (input_end_ == kInputBytes) {
    std::memmove(input_.get(), input_.get() + input_begin_, input_end_ - input_begin_);
    input_end_ -= input_begin_;
    input_begin_ = 0;
  }
  std::array<iovec, WorkRequest::kMaxLocal + 1> segments;
  size_t count = 0;
  uint64_t direct = 0;
  if (in_payload_ && entry(head_).request.bytes() - payload_done_ >= kDirectBytes) {
    const WorkRequest& request = entry(head_).request;
    uint64_t skip = payload_done_;
    for (size_t i = 0; i < request.local_count; ++i) {
      const uint64_t part = std::min<uint64_t>(skip, request.local[i].bytes);
      skip -= part;
      if (part == request.local[i].bytes) continue;
      segments[count++] = {static_cast<std::byte*>(request.local[i].data) + part, request.local[i].bytes - part};
      direct += request.local[i].bytes - part;
    }
  }
  segments[count++] = {input_.get() + input_end_, kInputBytes - input_end_};
  msghdr message{};
  message.msg_iov = segments.data();
  message.msg_iovlen = count;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (got > 0) {
    const uint64_t in_place = std::min<uint64_t>(direct, static_cast<uint64_t>(got));
    payload_done_ += in_place;
    input_end_ += static_cast<size_t>(got) - in_place;
    last_progress_ = clock_.now();
    return true;
  }
  if (got == 0) {
    break_off(CompletionStatus::kPeerLost, "the server closed the connection");
  } else if (errno == EAGAIN || errno == EINTR) {
    check_timeout();
  } else {
    break_off(CompletionStatus::kPeerLost, "the connection broke: " + errno_text(errno));
  }
  return false;
}

void TcpQueuePair::check_timeout() {
  if (head_ == tail_) return;
  if (clock_.now() - last_progress_ <= options_.response_timeout) return;
  break_off(CompletionStatus::kPeerLost, "no answer for " +
                                             std::to_string(options_.response_timeout / kMillisecond) + " ms");
}

size_t TcpQueuePair::take_responses(std::span<Completion> completions) {
  size_t count = 0;
  while (count < completions.size() && head_ != tail_ && state_ == QueuePairState::kReady) {
    if (!in_payload_ && !take_header()) break;
    if (!take_payload()) break;
    in_payload_ = false;
    const WorkRequest& request = entry(head_).request;
    ++head_;
    if (request.signaled) completions[count++] = {request.context, CompletionStatus::kSuccess};
  }
  if (head_ == tail_ && input_begin_ != input_end_ && state_ == QueuePairState::kReady) {
    break_off(CompletionStatus::kPeerLost, "the server answered what was not asked");
  }
  return count;
}

// True: head_'s response is a success, and its payload is next.
bool TcpQueuePair::take_header() {
  WireResponse response{};
  if (head_ >= sent_ && input_begin_ != input_end_) {
    break_off(CompletionStatus::kPeerLost, "the server answered before it was asked");
    return false;
  }
  if (input_end_ - input_begin_ < sizeof(response)) return false;
  std::memcpy(&response, input_.get() + input_begin_, sizeof(response));
  input_begin_ += sizeof(response);
  const WorkRequest& request = entry(head_).request;
  if (response.status != 0) {
    const bool known = response.status <= static_cast<uint32_t>(CompletionStatus::kBadRequest);
    const auto status = known ? static_cast<CompletionStatus>(response.status) : CompletionStatus::kPeerLost;
    break_off(status, std::string(to_string(status)) + ": verb " + std::to_string(static_cast<int>(request.verb)) +
                          " on " + std::to_string(request.bytes()) + " bytes at offset " +
                          std::to_string(request.remote_offset) + " of a region");
    return false;
  }
  const uint64_t expected = request.verb == Verb::kWrite ? 0 : request.bytes();
  if (response.bytes != expected) {
    break_off(CompletionStatus::kPeerLost, "the server answered with " + std::to_string(response.bytes) +
                                               " bytes instead of " + std::to_string(expected));
    return false;
  }
  in_payload_ = true;
  payload_done_ = 0;
  return true;
}

// True: all of head_'s payload has been scattered.
bool TcpQueuePair::take_payload() {
  const WorkRequest& request = entry(head_).request;
  const uint64_t expected = request.verb == Verb::kWrite ? 0 : request.bytes();
  const uint64_t piece = std::min<uint64_t>(expected - payload_done_, input_end_ - input_begin_);
  scatter(input_.get() + input_begin_, piece);
  input_begin_ += piece;
  return payload_done_ == expected;
}

void TcpQueuePair::scatter(const std::byte* from, size_t bytes) {
  const WorkRequest& request = entry(head_).request;
  uint64_t skip = payload_done_;
  payload_done_ += bytes;
  for (size_t i = 0; i < request.local_count && bytes != 0; ++i) {
    const uint64_t before = std::min<uint64_t>(skip, request.local[i].bytes);
    skip -= before;
    const size_t part = std::min<uint64_t>(bytes, request.local[i].bytes - before);
    if (part == 0) continue;
    std::memcpy(static_cast<std::byte*>(request.local[i].data) + before, from, part);
    from += part;
    bytes -= part;
  }
}

void TcpQueuePair::break_off(CompletionStatus status, const std::string& why) {
  break_status_ = status;
  fail_with(Status(StatusCode::kPeerLost, why));
}

// The request at the head with the reason, then all behind it.
size_t TcpQueuePair::flush(std::span<Completion> completions) {
  size_t count = 0;
  for (; head_ != tail_ && count < completions.size(); ++head_) {
    const WorkRequest& request = entry(head_).request;
    if (!failed_reported_) {
      completions[count++] = {request.context, break_status_};
      failed_reported_ = true;
    } else if (request.signaled) {
      completions[count++] = {request.context, CompletionStatus::kFlushed};
    }
  }
  return count;
}

}  // namespace skua
