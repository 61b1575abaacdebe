// The hot half of the verbs queue pair: requests to the device, completions back.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/transport/verbs/verbs_queue_pair.h"

namespace skua {
namespace {

bool is_atomic(Verb verb) { return verb == Verb::kCompareAndSwap || verb == Verb::kFetchAndAdd; }

CompletionStatus status_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR: return CompletionStatus::kRemoteAccessError;
    default: return CompletionStatus::kPeerLost;
  }
}

thread_local VerbsCounts counts;

}  // namespace

VerbsCounts verbs_counts() { return counts; }

size_t VerbsQueuePair::post(std::span<const WorkRequest> requests) {
  if (state_ != QueuePairState::kReady) return 0;
  const size_t taken = std::min<size_t>(requests.size(), kQueueDepth - (tail_ - head_));
  if (taken == 0) return 0;
  if (head_ == tail_) last_progress_ = clock_.now();
  for (size_t i = 0; i < taken; ++i) {
    Entry& added = entry(tail_);
    added.request = requests[i];
    added.total = requests[i].bytes();
    added.issued = 0;
    added.sent_end = 0;
    added.answered = true;
    const bool atomic = is_atomic(requests[i].verb);
    const bool bad = added.total > kMaxMessageBytes ||
                     (atomic && (added.total != 8 || requests[i].remote_offset % 8 != 0));
    added.verdict = bad ? CompletionStatus::kBadRequest : CompletionStatus::kSuccess;
    ++tail_;
  }
  pump();
  return taken;
}

// Posts what can be posted, in order, with one doorbell a chain.
void VerbsQueuePair::pump() {
  while (next_ != tail_ && state_ == QueuePairState::kReady && issue(entry(next_))) ++next_;
  if (next_ != tail_ && entry(next_).verdict != CompletionStatus::kSuccess) settle_unsignaled();
  ring_doorbell();
}

// A request was refused here, and what goes before it may be unsignaled: a completion must tell its end.
void VerbsQueuePair::settle_unsignaled() {
  if (unsignaled_ == 0 || state_ != QueuePairState::kReady) return;
  if (chained_ != 0) {
    chain_[chained_ - 1].send_flags |= IBV_SEND_SIGNALED;
    unsignaled_ = 0;
    unsignaled_bytes_ = 0;
  } else if (has_send_room()) {
    ibv_send_wr& nothing = next_work_request();
    nothing.opcode = IBV_WR_RDMA_WRITE;  // of no byte: no key is looked at
    commit(nothing, {next_, 0, 0, false, nullptr, 0}, true);
  }
}

// True: all parts of the request are posted. False: it was refused here (its verdict says so), or it waits for room,
// for a slab's place or for a reply; what is behind it waits as well.
bool VerbsQueuePair::issue(Entry& entry) {
  if (entry.verdict != CompletionStatus::kSuccess) return false;
  const WorkRequest& request = entry.request;
  const RemoteRegion* region = regions_.find(request.key);
  if (region == nullptr) return locate(request, request.remote_offset / slab_bytes_);
  const bool forbidden = capabilities_.read_only && iwarp_ && request.verb != Verb::kRead;
  if (forbidden || entry.total > region->bytes || request.remote_offset > region->bytes - entry.total) {
    // iWARP reports a refusal of the peer's device as a lost connection: there rights are checked here as well.
    entry.verdict = CompletionStatus::kRemoteAccessError;
    return false;
  }
  if (request.verb == Verb::kRead && messages_out_ != 0) return false;  // CAS -> READ is ordered
  if (is_atomic(request.verb) && !device_atomics_) {
    if (capabilities_.read_only) {
      entry.verdict = CompletionStatus::kRemoteAccessError;
      return false;
    }
    const auto kind = request.verb == Verb::kCompareAndSwap ? VerbsCallKind::kCompareAndSwap
                                                            : VerbsCallKind::kFetchAndAdd;
    const VerbsCall call{static_cast<uint32_t>(kind), 0, static_cast<uint64_t>(request.key), request.remote_offset,
                         request.compare, request.swap_or_add};
    if (!send_call(call, {false, next_, request.key, 0}, request.signaled)) return false;
    entry.answered = false;
    entry.sent_end = sent_tail_;
    ++messages_out_;
    return true;
  }
  while (entry.issued < entry.total) {
    const uint64_t offset = request.remote_offset + entry.issued;
    const uint64_t slab = offset / slab_bytes_;
    if (slab >= region->slabs.size() || !region->slabs[slab].known) return locate(request, slab);
    const uint64_t in_slab = offset % slab_bytes_;
    if (!issue_part(entry, region->slabs[slab], in_slab, slab_bytes_ - in_slab)) return false;
  }
  if (entry.total != 0) entry.sent_end = sent_tail_;
  return true;
}

bool VerbsQueuePair::issue_part(Entry& entry, const RemoteSlab& slab, uint64_t slab_offset, uint64_t most) {
  if (!has_send_room()) return false;
  const WorkRequest& request = entry.request;
  if (is_atomic(request.verb)) return issue_atomic(entry, slab, slab_offset);
  const uint64_t left = entry.total - entry.issued;
  const bool write = request.verb == Verb::kWrite;
  const bool inlined = write && entry.issued == 0 && left <= most && left <= max_inline_;
  uint64_t bytes = std::min(left, most);
  Part made{next_, entry.issued, 0, !write, nullptr, 0};
  if (!inlined) {
    bytes = std::min({bytes, kPartBytes, max_message_});
    // A part ends at an aligned word of the remote side, so that no word travels in two of them.
    if (bytes < left) bytes -= (request.remote_offset + entry.issued + bytes) & 7;
    const BounceRing::Piece piece = bounce_.take(bytes);
    if (piece.data == nullptr) return false;
    made.bounce = piece.data;
    made.bounce_end = piece.end;
    unsignaled_bytes_ += bytes;
    if (write) copy_locals(request, entry.issued, piece.data, bytes, true);
  }
  made.bytes = static_cast<uint32_t>(bytes);
  ibv_send_wr& work = next_work_request();
  work.opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  work.wr.rdma.remote_addr = slab.address + slab_offset;
  work.wr.rdma.rkey = slab.remote_key;
  if (inlined) {
    work.send_flags = IBV_SEND_INLINE;
    for (size_t i = 0; i < request.local_count; ++i) {
      if (request.local[i].bytes == 0) continue;
      work.sg_list[work.num_sge++] = {reinterpret_cast<uint64_t>(request.local[i].data), request.local[i].bytes, 0};
    }
  } else {
    work.sg_list[work.num_sge++] = {reinterpret_cast<uint64_t>(made.bounce), made.bytes, memory_region_->lkey};
  }
  entry.issued += bytes;
  commit(work, made, request.signaled && entry.issued == entry.total);
  return true;
}

bool VerbsQueuePair::issue_atomic(Entry& entry, const RemoteSlab& slab, uint64_t slab_offset) {
  const BounceRing::Piece piece = bounce_.take(8);
  if (piece.data == nullptr) return false;
  const WorkRequest& request = entry.request;
  const bool compares = request.verb == Verb::kCompareAndSwap;
  ibv_send_wr& work = next_work_request();
  work.opcode = compares ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
  work.wr.atomic.remote_addr = slab.address + slab_offset;
  work.wr.atomic.rkey = slab.remote_key;
  work.wr.atomic.compare_add = compares ? request.compare : request.swap_or_add;
  work.wr.atomic.swap = compares ? request.swap_or_add : 0;
  work.sg_list[work.num_sge++] = {reinterpret_cast<uint64_t>(piece.data), 8, memory_region_->lkey};
  entry.issued = 8;
  commit(work, {next_, 0, 8, true, piece.data, piece.end}, request.signaled);
  return true;
}

// Always false: the request waits for the answer.
bool VerbsQueuePair::locate(const WorkRequest& request, uint64_t slab) {
  if (locating_) return false;
  const VerbsCall call{static_cast<uint32_t>(VerbsCallKind::kLocate), 0, static_cast<uint64_t>(request.key),
                       slab * slab_bytes_, 0, 0};
  locating_ = send_call(call, {true, 0, request.key, slab}, true);
  return false;
}

bool VerbsQueuePair::send_call(const VerbsCall& call, const Call& what, bool signaled) {
  if (call_tail_ - call_head_ == call_window_ || !has_send_room()) return false;
  // What an inline send takes is copied by ibv_post_send; without inline it goes through the bounce ring.
  VerbsCall message = call;
  message.sequence = static_cast<uint32_t>(call_tail_);
  const BounceRing::Piece piece = bounce_.take(sizeof(message));
  if (piece.data == nullptr) return false;
  std::memcpy(piece.data, &message, sizeof(message));
  ibv_send_wr& work = next_work_request();
  work.opcode = IBV_WR_SEND;
  if (sizeof(message) <= max_inline_) work.send_flags = IBV_SEND_INLINE;
  work.sg_list[work.num_sge++] = {reinterpret_cast<uint64_t>(piece.data), sizeof(message), memory_region_->lkey};
  calls_[call_tail_ % kCallWindow] = what;
  ++call_tail_;
  commit(work, {next_, 0, 0, false, piece.data, piece.end}, signaled);
  return true;
}

ibv_send_wr& VerbsQueuePair::next_work_request() {
  if (chained_ == kChain) ring_doorbell();
  ibv_send_wr& work = chain_[chained_];
  work = {};
  work.sg_list = segments_[chained_].data();
  return work;
}

void VerbsQueuePair::commit(ibv_send_wr& work, const Part& made, bool signaled) {
  part(sent_tail_) = made;
  ++counts.work_requests;
  if ((work.send_flags & IBV_SEND_INLINE) != 0) ++counts.inlined;
  work.wr_id = sent_tail_++;
  ++unsignaled_;
  if (signaled || !options_.settings.selective_signaling || unsignaled_ >= kSignalEvery ||
      unsignaled_bytes_ >= kBounceBytes / 4) {
    work.send_flags |= IBV_SEND_SIGNALED;
    unsignaled_ = 0;
    unsignaled_bytes_ = 0;
  }
  if (chained_ != 0) chain_[chained_ - 1].next = &work;
  ++chained_;
  if (!options_.settings.doorbell_batching) ring_doorbell();
}

void VerbsQueuePair::ring_doorbell() {
  if (std::exchange(chained_, 0) == 0 || state_ != QueuePairState::kReady) return;
  ++counts.doorbells;
  ibv_send_wr* bad = nullptr;
  const int error = ::ibv_post_send(connection_.queue_pair(), chain_.data(), &bad);
  if (error != 0 && state_ == QueuePairState::kReady) {
    break_off(CompletionStatus::kPeerLost, bad != nullptr ? part(bad->wr_id).entry : head_,
              "the device takes no request: " + errno_text(error > 0 ? error : errno));
  }
}

// Between the caller's pieces and the bounce ring; `gather`: from the caller's.
void VerbsQueuePair::copy_locals(const WorkRequest& request, uint64_t offset, std::byte* bounce, uint64_t bytes,
                                 bool gather) {
  uint64_t skip = offset;
  for (size_t i = 0; i < request.local_count && bytes != 0; ++i) {
    const uint64_t before = std::min<uint64_t>(skip, request.local[i].bytes);
    skip -= before;
    const uint64_t piece = std::min<uint64_t>(bytes, request.local[i].bytes - before);
    if (piece == 0) continue;
    auto* const local = static_cast<std::byte*>(request.local[i].data) + before;
    std::memcpy(gather ? bounce : local, gather ? local : bounce, piece);
    bounce += piece;
    bytes -= piece;
  }
}

size_t VerbsQueuePair::poll(std::span<Completion> completions) {
  if (state_ == QueuePairState::kConnecting) advance_connect();
  size_t count = 0;
  if (state_ == QueuePairState::kReady) {
    if (woken_ || armed_) consume_wake();
    if (sent_head_ != sent_tail_ || call_head_ != call_tail_) drain();
    count = take(completions);
    if (count == 0 && state_ == QueuePairState::kReady) {
      ++idle_polls_;
      if (armed_ || idle_polls_ % kTimeoutPolls == 0) check_timeout();
      if (armed_ || idle_polls_ % kIdlePolls == 0) check_connection();
    }
  }
  if (state_ == QueuePairState::kError) count += flush(completions.subspan(count));
  return count;
}

void VerbsQueuePair::drain() {
  ibv_wc some[16];
  while (state_ == QueuePairState::kReady) {
    const int count = ::ibv_poll_cq(completions_.get(), 16, some);
    if (count <= 0) break;
    last_progress_ = clock_.now();
    counts.completions += static_cast<uint64_t>(count);
    for (int i = 0; i < count && state_ == QueuePairState::kReady; ++i) {
      if ((some[i].wr_id & kReceived) != 0) {
        on_reply(some[i]);
      } else {
        on_sent(some[i]);
      }
    }
    if (count < 16) break;
  }
  if (next_ != tail_ && state_ == QueuePairState::kReady) pump();
}

void VerbsQueuePair::on_sent(const ibv_wc& completion) {
  if (completion.status == IBV_WC_SUCCESS) return retire_through(completion.wr_id + 1);
  retire_through(completion.wr_id);
  const uint64_t failed = part(completion.wr_id).entry;
  const WorkRequest& request = entry(failed).request;
  const CompletionStatus status = status_of(completion.status);
  break_off(status, failed,
            std::string(to_string(status)) + " (" + ::ibv_wc_status_str(completion.status) + "): verb " +
                std::to_string(static_cast<int>(request.verb)) + " on " + std::to_string(request.bytes()) +
                " bytes at offset " + std::to_string(request.remote_offset) + " of a region");
}

void VerbsQueuePair::retire_through(uint64_t position) {
  while (sent_head_ < position) {
    const Part& done = part(sent_head_++);
    if (done.scatter) {
      copy_locals(entry(done.entry).request, done.offset, const_cast<std::byte*>(done.bounce), done.bytes, false);
    }
    if (done.bounce_end != 0) bounce_.release_through(done.bounce_end);
  }
}

void VerbsQueuePair::on_reply(const ibv_wc& completion) {
  const auto slot = static_cast<uint32_t>(completion.wr_id & ~kReceived);
  if (completion.status != IBV_WC_SUCCESS) {
    return break_off(CompletionStatus::kPeerLost, head_, std::string("the connection broke: ") +
                                                             ::ibv_wc_status_str(completion.status));
  }
  VerbsReply reply{};
  std::memcpy(&reply, memory_.get() + kBounceBytes + slot * sizeof(VerbsReply), sizeof(reply));
  post_receive(slot);
  if (completion.byte_len != sizeof(reply) || call_head_ == call_tail_ ||
      reply.sequence != static_cast<uint32_t>(call_head_) ||
      reply.status > static_cast<uint32_t>(CompletionStatus::kBadRequest)) {
    return break_off(CompletionStatus::kPeerLost, head_, "the server answered what was not asked");
  }
  const Call call = calls_[call_head_++ % kCallWindow];
  if (call.locate) return apply_location(call, reply);
  --messages_out_;
  Entry& answered = entry(call.entry);
  if (reply.status != 0) {
    const auto status = static_cast<CompletionStatus>(reply.status);
    return break_off(status, call.entry, std::string(to_string(status)) + ": an atomic at offset " +
                                             std::to_string(answered.request.remote_offset) + " of a region");
  }
  copy_locals(answered.request, 0, reinterpret_cast<std::byte*>(&reply.value), sizeof(reply.value), false);
  answered.answered = true;
}

// The request at next_ asked for it.
void VerbsQueuePair::apply_location(const Call& call, const VerbsReply& reply) {
  locating_ = false;
  Entry& asking = entry(next_);
  const auto status = static_cast<CompletionStatus>(reply.status);
  if (status == CompletionStatus::kRemoteAccessError) {
    asking.verdict = status;
    return;
  }
  if (status != CompletionStatus::kSuccess || reply.region_bytes > RemoteRegions::kMaxBytes) {
    return break_off(CompletionStatus::kPeerLost, next_,
                     "the server could not register the memory that was asked for; its log says why");
  }
  regions_.add_region(call.key, reply.region_bytes);
  if (call.slab * slab_bytes_ < reply.region_bytes) {
    regions_.add_slab(call.key, call.slab, {reply.value, reply.rkey, true});
  }
}

void VerbsQueuePair::post_receive(uint32_t slot) {
  ibv_sge segment{reinterpret_cast<uint64_t>(memory_.get() + kBounceBytes + slot * sizeof(VerbsReply)),
                  sizeof(VerbsReply), memory_region_->lkey};
  ibv_recv_wr work{};
  work.wr_id = kReceived | slot;
  work.sg_list = &segment;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (::ibv_post_recv(connection_.queue_pair(), &work, &bad) != 0 && state_ == QueuePairState::kReady) {
    break_off(CompletionStatus::kPeerLost, head_, "the device takes no receive request");
  }
}

size_t VerbsQueuePair::take(std::span<Completion> completions) {
  size_t count = 0;
  while (count < completions.size() && head_ != tail_ && state_ == QueuePairState::kReady) {
    const Entry& first = entry(head_);
    if (head_ == next_) {
      if (first.verdict != CompletionStatus::kSuccess) {
        break_off(first.verdict, head_,
                  std::string(to_string(first.verdict)) + ": verb " +
                      std::to_string(static_cast<int>(first.request.verb)) + " on " + std::to_string(first.total) +
                      " bytes at offset " + std::to_string(first.request.remote_offset) + " of a region");
      }
      break;
    }
    if (!is_complete(first)) break;
    ++head_;
    if (first.request.signaled) completions[count++] = {first.request.context, CompletionStatus::kSuccess};
  }
  return count;
}

// Nothing that was posted touches memory afterwards: the queue pair is destroyed here. `failed`: the request that the
// status is of.
void VerbsQueuePair::break_off(CompletionStatus status, uint64_t failed, const std::string& why) {
  break_status_ = status;
  failed_ = failed;
  fail_with(Status(StatusCode::kPeerLost, why));
}

// Those that were done before, the first that was not with the reason, then all behind it. Should a request before the
// one that failed be without its end, its fate is unknown, and it is the first.
size_t VerbsQueuePair::flush(std::span<Completion> completions) {
  size_t count = 0;
  for (; head_ != tail_ && count < completions.size(); ++head_) {
    const Entry& first = entry(head_);
    const bool done = !failed_reported_ && head_ != failed_ && head_ < next_ && is_complete(first);
    if (done) {
      if (first.request.signaled) completions[count++] = {first.request.context, CompletionStatus::kSuccess};
    } else if (!failed_reported_) {
      completions[count++] = {first.request.context, head_ == failed_ ? break_status_ : CompletionStatus::kPeerLost};
      failed_reported_ = true;
    } else if (first.request.signaled) {
      completions[count++] = {first.request.context, CompletionStatus::kFlushed};
    }
  }
  return count;
}

void VerbsQueuePair::check_timeout() {
  if (head_ == tail_ || clock_.now() - last_progress_ <= options_.response_timeout) return;
  break_off(CompletionStatus::kPeerLost, head_,
            "no answer for " + std::to_string(options_.response_timeout / kMillisecond) + " ms");
}

void VerbsQueuePair::consume_wake() {
  if (woken_) {
    eventfd_t ignored = 0;
    (void)::eventfd_read(wake_.get(), &ignored);
    woken_ = false;
  }
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (armed_ && ::ibv_get_cq_event(completion_channel_.get(), &queue, &context) == 0) {
    ::ibv_ack_cq_events(queue, 1);
    armed_ = false;
  }
}

// Asked for by whoever is about to sleep: the next completion makes it readable, and so does one that is there already.
int VerbsQueuePair::wait_descriptor() const {
  if (state_ == QueuePairState::kReady && !woken_) arm();
  return wait_.get();
}

void VerbsQueuePair::arm() const {
  if (armed_) return;
  armed_ = ::ibv_req_notify_cq(completions_.get(), 0) == 0;
  // A completion that came before the queue was armed raises no event: look once more, through the waker.
  auto* const self = const_cast<VerbsQueuePair*>(this);
  const uint64_t before = sent_head_ + call_head_;
  if (sent_head_ != sent_tail_ || call_head_ != call_tail_) self->drain();
  if (!armed_ || sent_head_ + call_head_ != before || state_ != QueuePairState::kReady) {
    woken_ = ::eventfd_write(wake_.get(), 1) == 0;
  }
}

}  // namespace skua
