#include "client/link.h"

#include <algorithm>
#include <utility>

#include "client/client_core.h"
#include "client/session_core.h"
#include "common/base/check.h"
#include "common/base/hooks.h"

namespace skua {
namespace {

constexpr Nanoseconds kFirstRetryDelay = kMillisecond;
constexpr Nanoseconds kLastRetryDelay = 200 * kMillisecond;
constexpr uint64_t kUnsignaledTag = 1;  // Batches are 8-aligned, so the low bit of a context is free
constexpr uint64_t kDeadlineCheckMask = 63;

}  // namespace

uint64_t Link::cluster_time_ms() {
  latest_time_ms_ = std::max(latest_time_ms_, time_->now_ms(core_.clock().now()));
  return latest_time_ms_;
}

std::string Link::transport_report() const {
  return transport_.empty() ? "not connected (" + last_error_.message() + ")" : transport_ + transport_notes_;
}

// --- From closed to ready

void Link::ensure_open() {
  if (state_ != LinkState::kClosed && state_ != LinkState::kBroken) return;
  if (retry_at_ != 0 && core_.clock().now() < retry_at_) return;
  retry_at_ = 0;
  auto self = core_.shared_from_this();
  if (SKUA_PLANTED_BUG("no-fence") && state_ == LinkState::kBroken) return start_connect();
  if (state_ == LinkState::kClosed) {
    state_ = LinkState::kOpening;
    core_.client().open_session(self, server_, [this](Result<control::SessionOpened> opened,
                                                     std::shared_ptr<const ServerTime> time) {
      on_opened(std::move(opened), std::move(time));
    });
    return;
  }
  state_ = LinkState::kFencing;
  control::FenceSession request;
  request.set_session_id(static_cast<uint64_t>(session_));
  request.set_secret(secret_);
  core_.client().fence_session(self, server_, request, [this, serial = serial_](Result<control::SessionFenced> fenced) {
    if (serial == serial_) on_fenced(std::move(fenced));
  });
}

void Link::on_opened(Result<control::SessionOpened> opened, std::shared_ptr<const ServerTime> time) {
  if (state_ != LinkState::kOpening) return;
  if (!opened) {
    state_ = LinkState::kClosed;
    back_off(opened.error());
    return;
  }
  ++serial_;
  session_ = SessionId{opened->session_id()};
  secret_ = opened->secret();
  data_secret_ = opened->data_secret();
  epoch_ = opened->reclaim_epoch();
  announced_epoch_ = epoch_;
  core_.report_soon();  // an epoch may have been announced already
  return_unused_ = false;
  if (time_ != time) latest_time_ms_ = 0;  // another life of the server
  time_ = std::move(time);
  endpoints_.clear();
  for (const control::Endpoint& endpoint : opened->endpoints()) {
    endpoints_.push_back({endpoint.transport(), endpoint.address()});
  }
  forget_session();
  partitions_.resize(core_.partitions());
  for (const control::PartitionKey& key : opened->keys()) {
    if (key.partition() >= partitions_.size()) continue;
    auto state = std::make_unique<PartitionState>();
    state->partition = key.partition();
    state->key = RegionKey{key.region_key()};
    state->bytes = key.region_bytes();
    partitions_[key.partition()] = std::move(state);
  }
  start_connect();
}

void Link::on_fenced(Result<control::SessionFenced> fenced) {
  if (state_ != LinkState::kFencing) return;
  if (!fenced) {
    if (fenced.error().code() == StatusCode::kStaleEpoch) {
      on_session_gone(fenced.error());
    } else {
      state_ = LinkState::kBroken;
      back_off(fenced.error());
    }
    return;
  }
  data_secret_ = fenced->data_secret();
  start_connect();
}

void Link::on_session_gone(const Status& why) {
  if (state_ == LinkState::kClosed || state_ == LinkState::kOpening) return;
  SKUA_PROBE("link.session-gone");
  if (queue_pair_) {
    queue_pair_->close();
    queue_pair_.reset();
  }
  fail_outstanding();
  ++serial_;
  session_ = SessionId{};
  forget_session();
  state_ = LinkState::kClosed;
  last_error_ = why;
  core_.wake_all();
}

void Link::forget_session() {
  if (!SKUA_PLANTED_BUG("blocks-of-a-lost-session")) pool_.clear();
  core_.forget_server(server_);
  without_transport_ = false;
  if (active_ != 0) {
    SKUA_PROBE("link.session-gone-under-operations");
    for (auto& state : partitions_) left_behind_.push_back(std::move(state));
  }
  partitions_.clear();
}

void Link::start_connect() {
  untried_.clear();
  transport_notes_.clear();
  const std::string& wanted = core_.options().transport;
  for (const auto& connector : core_.client().connectors()) {
    if (wanted != "auto" && wanted != connector->name()) continue;
    const auto endpoint = std::find_if(endpoints_.begin(), endpoints_.end(),
                                       [&](const auto& e) { return e.transport == connector->name(); });
    if (endpoint != endpoints_.end()) {
      untried_.push_back(*endpoint);
    } else {
      transport_notes_ += " (" + std::string(connector->name()) + ": not offered by the server)";
    }
  }
  without_transport_ = untried_.empty();
  connect_next();
}

void Link::connect_next() {
  while (!untried_.empty()) {
    const Endpoint endpoint = untried_.front();
    untried_.erase(untried_.begin());
    const auto& connectors = core_.client().connectors();
    const auto connector = std::find_if(connectors.begin(), connectors.end(),
                                        [&](const auto& c) { return c->name() == endpoint.transport; });
    ConnectTarget target;
    target.address = endpoint.address;
    target.session = session_;
    target.secret = data_secret_;
    target.read_only = core_.options().read_only;
    target.response_timeout = core_.options().response_timeout;
    for (const auto& state : partitions_) {
      if (state) target.regions.push_back({state->partition, state->key, state->bytes});
    }
    auto connected = (*connector)->connect(target);
    if (!connected) {
      transport_notes_ += " (" + endpoint.transport + ": " + connected.error().message() + ")";
      continue;
    }
    queue_pair_ = std::move(*connected);
    transport_ = endpoint.transport;
    state_ = LinkState::kConnecting;
    if (queue_pair_->state() == QueuePairState::kReady) became_ready();
    return;
  }
  transport_.clear();
  state_ = LinkState::kBroken;
  back_off(Status(StatusCode::kUnavailable, "no way to server " + std::to_string(server_) + " with transport '" +
                                                core_.options().transport + "'" + transport_notes_));
}

void Link::became_ready() {
  state_ = LinkState::kReady;
  retry_delay_ = 0;
  retry_at_ = 0;
  for (auto& state : partitions_) {
    if (state) state->stale = true;
  }
  core_.wake_all();
}

void Link::back_off(const Status& why) {
  last_error_ = why;
  retry_delay_ = std::clamp(retry_delay_ * 2, kFirstRetryDelay, kLastRetryDelay);
  const auto jitter = static_cast<Nanoseconds>(core_.random().below(static_cast<uint64_t>(retry_delay_)));
  retry_at_ = core_.clock().now() + retry_delay_ / 2 + jitter / 2;
  core_.wake_all();
}

// --- Ready to broken

void Link::fail(Status why) {
  if (state_ != LinkState::kReady && state_ != LinkState::kConnecting) return;
  const bool connecting = state_ == LinkState::kConnecting;
  queue_pair_->close();
  queue_pair_.reset();
  state_ = LinkState::kBroken;
  if (connecting) {
    transport_notes_ += " (" + transport_ + ": " + why.message() + ")";
    transport_.clear();
    connect_next();
    return;
  }
  last_error_ = std::move(why);
  fail_outstanding();
  ensure_open();
  core_.wake_all();
}

void Link::fail_outstanding() {
  staged_.clear();
  for (const std::coroutine_handle<> waiter : admission_) core_.make_ready(waiter);
  admission_.clear();
  while (outstanding_ != nullptr) {
    Batch& batch = *outstanding_;
    if (batch.status == CompletionStatus::kSuccess) batch.status = CompletionStatus::kPeerLost;
    finish(batch);
  }
}

void Link::close() {
  if (queue_pair_) {
    queue_pair_->close();
    queue_pair_.reset();
  }
  fail_outstanding();
  if (session_ != SessionId{}) core_.client().close_session(server_, std::exchange(session_, SessionId{}));
  state_ = LinkState::kClosed;
}

// --- Data path

bool Link::submit(Batch& batch, bool now) {
  for (uint32_t i = 0; i < batch.count; ++i) {
    WorkRequest& request = batch.requests[i];
    request.signaled = i + 1 == batch.count;
    request.context = reinterpret_cast<uint64_t>(&batch) | (request.signaled ? 0 : kUnsignaledTag);
  }
  if (state_ != LinkState::kReady) {
    batch.status = CompletionStatus::kFlushed;
    batch.done = true;
    return true;
  }
  batch.posted = true;
  batch.next = nullptr;
  batch.previous = newest_;
  (newest_ != nullptr ? newest_->next : outstanding_) = &batch;
  newest_ = &batch;
  if (!now || !staged_.empty()) {
    staged_.insert(staged_.end(), batch.requests, batch.requests + batch.count);
    return false;
  }
  const size_t taken = queue_pair_->post({batch.requests, batch.count});
  staged_.insert(staged_.end(), batch.requests + taken, batch.requests + batch.count);
  take_completions();
  return batch.done;
}

bool Link::poll() {
  if (!queue_pair_) return false;
  if (state_ == LinkState::kConnecting) {
    Completion none[1];
    queue_pair_->poll(none);
    const QueuePairState state = queue_pair_->state();
    if (state == QueuePairState::kConnecting) return false;
    if (state == QueuePairState::kReady) {
      became_ready();
    } else {
      fail(queue_pair_->error());
    }
    return true;
  }
  bool happened = false;
  if (!staged_.empty()) {
    const size_t taken = queue_pair_->post(staged_);
    staged_.erase(staged_.begin(), staged_.begin() + static_cast<std::ptrdiff_t>(taken));
    happened = taken != 0;
  }
  happened |= take_completions();
  if (queue_pair_ && queue_pair_->state() == QueuePairState::kError) {
    fail(queue_pair_->error());
    return true;
  }
  if ((++polls_ & kDeadlineCheckMask) == 0 || !happened) check_deadlines();
  return happened;
}

bool Link::take_completions() {
  Completion completions[64];
  const size_t count = queue_pair_->poll(completions);
  for (size_t i = 0; i < count; ++i) {
    auto* batch = reinterpret_cast<Batch*>(completions[i].context & ~kUnsignaledTag);
    if (batch->status == CompletionStatus::kSuccess) batch->status = completions[i].status;
    if ((completions[i].context & kUnsignaledTag) == 0) finish(*batch);
  }
  return count != 0;
}

void Link::finish(Batch& batch) {
  (batch.previous != nullptr ? batch.previous->next : outstanding_) = batch.next;
  (batch.next != nullptr ? batch.next->previous : newest_) = batch.previous;
  batch.done = true;
  if (batch.waiter) core_.make_ready(batch.waiter);
}

void Link::check_deadlines() {
  if (outstanding_ == nullptr || outstanding_->deadline == 0 || core_.clock().now() < outstanding_->deadline) return;
  fail(Status(StatusCode::kPeerLost, "server " + std::to_string(server_) + " did not answer within the operation's " +
                                         "deadline"));
}

// --- Blocks and reports

size_t Link::stale_partitions(PartitionState& first, std::span<PartitionState*> out) {
  size_t count = 0;
  out[count++] = &first;
  for (size_t i = 1; i < partitions_.size() && count < out.size(); ++i) {
    PartitionState* other = partitions_[(first.partition + i) % partitions_.size()].get();
    if (other != nullptr && other->loaded && other->stale) out[count++] = other;
  }
  return count;
}

void Link::announce(uint64_t reclaim_epoch, bool return_unused) {
  announced_epoch_ = std::max(announced_epoch_, reclaim_epoch);
  return_unused_ |= return_unused;
}

void Link::request_blocks(BlockPool::Shelf& shelf) {
  if (!pool_.should_request(shelf)) return;
  pool_.want_report();
  core_.report_soon();
  control::GrantRequest request;
  request.set_session_id(static_cast<uint64_t>(session_));
  request.set_partition(shelf.partition);
  request.set_size_class(shelf.size_class);
  request.set_blocks(shelf.want);
  const uint64_t serial = serial_;
  core_.client().request_grant(
      core_.shared_from_this(), server_, request,
      [this, serial, partition = shelf.partition, size_class = shelf.size_class](Result<control::Grant> grant) {
        if (serial != serial_) return;
        BlockPool::Shelf& asked = pool_.shelf(partition, size_class);
        if (grant) {
          pool_.add(asked, *grant);
        } else {
          pool_.refused(asked, grant.error());
        }
        core_.wake_all();
      });
}

void Link::request_growth(PartitionState& partition, proto::KeyHash hash, proto::TableRef table) {
  if (partition.growing) return;
  partition.growing = true;
  control::GrowTable request;
  request.set_session_id(static_cast<uint64_t>(session_));
  request.set_partition(partition.partition);
  request.set_hash(hash.bits());
  request.set_table(table.bits());
  core_.client().grow_table(core_.shared_from_this(), server_, request,
                            [this, serial = serial_, index = partition.partition](const Result<void>& grown) {
    if (serial != serial_) return;
    PartitionState& asked = *this->partition(index);
    asked.growing = false;
    ++asked.growth_answers;
    asked.growth_refusal = grown ? std::nullopt : std::optional(grown.error());
    asked.stale = true;
    core_.wake_all();
  });
}

void Link::make_report(control::EpochReport& report) {
  const bool between_operations = active_ == 0 && outstanding_ == nullptr;
  SKUA_CHECK(state_ == LinkState::kReady && (between_operations || SKUA_PLANTED_BUG("report-within-operation")),
             "report within an operation");
  if (announced_epoch_ > epoch_) {
    epoch_ = announced_epoch_;
    for (auto& state : partitions_) {
      if (state) state->stale = true;
    }
  }
  report.set_session_id(static_cast<uint64_t>(session_));
  report.set_reclaim_epoch(epoch_);
  pool_.report(report, std::exchange(return_unused_, false));
}

}  // namespace skua
