#include "client/session_core.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "client/client_core.h"
#include "common/base/check.h"
#include "common/base/hooks.h"
#include "common/base/long_step.h"
#include "proto/key_hash.h"

namespace skua {
namespace {

constexpr Nanoseconds kLongestSleep = 50 * kMillisecond;
constexpr Nanoseconds kMapRequestInterval = 20 * kMillisecond;

}  // namespace

OperationCounters LiveCounters::read() const {
  const auto get = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  OperationCounters out;
  out.operations = get(operations);
  out.failed = get(failed);
  out.round_trips = get(round_trips);
  out.reads = get(reads);
  out.writes = get(writes);
  out.compare_and_swaps = get(compare_and_swaps);
  out.bytes = get(bytes);
  out.cas_lost = get(cas_lost);
  out.retries = get(retries);
  out.cache_hits = get(cache_hits);
  out.torn_reads = get(torn_reads);
  out.in_doubt = get(in_doubt);
  out.cut_off = get(cut_off);
  return out;
}

SessionCore::SessionCore(std::shared_ptr<ClientCore> client, const ClientOptions& options)
    : client_(std::move(client)),
      options_(options),
      clock_(client_->clock()),
      cache_(options.cache_entries),
      random_(client_->entropy().next()),
      cache_secret_(client_->entropy().next()),
      map_(client_->map()),
      wake_descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  SKUA_CHECK(wake_descriptor_ >= 0, "eventfd(2) failed: out of file descriptors");
}

SessionCore::~SessionCore() { ::close(wake_descriptor_); }

CounterTable SessionCore::counter_table() const {
  CounterTable table;
  for (size_t i = 0; i < kOperationKinds; ++i) table[i] = counters_[i].read();
  return table;
}

std::string SessionCore::transport_report() const {
  std::string report;
  for (const auto& link : links_) {
    if (!link) continue;
    if (!report.empty()) report += "; ";
    report += "server " + std::to_string(link->server()) + ": " + link->transport_report();
  }
  return report;
}

// --- Gate and reports

void SessionCore::enter() {
  if (!inside_) gate_.enter();
  inside_ = true;
  LongStep::watch(progress_);
}

void SessionCore::leave() {
  LongStep::forget(progress_);
  inside_ = false;
  gate_.leave();
}

void SessionCore::report_soon() { report_due_.store(true, std::memory_order_relaxed); }

void SessionCore::make_reports() {
  report_due_.store(false, std::memory_order_relaxed);
  take_announcements();
  bool left_over = false;
  for (const auto& link : links_) {
    if (!link || !link->report_due()) continue;
    if (link->has_operations() && !SKUA_PLANTED_BUG("report-within-operation")) {
      SKUA_PROBE("session.report-waits-for-operations");
      left_over = true;
      continue;
    }
    control::EpochReport report;
    link->make_report(report);
    client_->send_report(link->server(), std::move(report));
    for (const std::coroutine_handle<> waiter : link->admission()) make_ready(waiter);
    link->admission().clear();
  }
  if (left_over) report_due_.store(true, std::memory_order_relaxed);
}

void SessionCore::announce(uint32_t server, SessionId session, const control::EpochAdvance& advance) {
  const std::lock_guard lock(announced_mutex_);
  Announcement& news = announced_[server];
  if (news.session != session) {  // what an earlier session was told is void
    if (SKUA_PLANTED_BUG("first-announcement-lost") && news.session == SessionId{}) {
      news.session = session;
      return;
    }
    news = {};
    news.session = session;
  }
  news.reclaim_epoch = std::max(news.reclaim_epoch, advance.reclaim_epoch());
  news.return_unused |= advance.return_unused();
  has_announcements_.store(true, std::memory_order_release);
  report_due_.store(true, std::memory_order_release);
}

void SessionCore::take_announcements() {
  if (!has_announcements_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(announced_mutex_);
  std::erase_if(announced_, [this](const auto& entry) {
    const auto& [server, news] = entry;
    if (server >= links_.size() || !links_[server]) return true;
    Link& link = *links_[server];
    if (link.session() == news.session) link.announce(news.reclaim_epoch, news.return_unused);
    // The session's opening may still lie in the mailbox: nobody announces an epoch twice, so this one waits for it.
    return link.session() == news.session || link.state() != LinkState::kOpening;
  });
  has_announcements_.store(!announced_.empty(), std::memory_order_relaxed);
}

bool SessionCore::epoch_announced() {
  if (!report_due_.load(std::memory_order_acquire)) return true;
  if (gate_.try_enter_control()) {
    if (!closed()) make_reports();
    gate_.leave();
    return true;
  }
  if (sleeping_.load(std::memory_order_seq_cst)) eventfd_write(wake_descriptor_, 1);
  return false;
}

// --- Map and links

uint32_t SessionCore::partitions() const { return map_ ? map_->partitions() : 0; }

Link& SessionCore::link(uint32_t server) {
  if (server >= links_.size()) links_.resize(server + 1);
  if (!links_[server]) links_[server] = std::make_unique<Link>(*this, server);
  return *links_[server];
}

Result<Link*> SessionCore::link_for(uint32_t partition) {
  if (map_->forming()) {
    return fail(StatusCode::kUnavailable, "partition " + std::to_string(partition) +
                                              " has no server yet: the cluster is still forming (`skua nodes` shows "
                                              "which servers have joined)");
  }
  return &link(map_->primary(partition).id);
}

void SessionCore::refresh_map() {
  const Nanoseconds now = clock_.now();
  if (map_requested_at_ != 0 && now - map_requested_at_ < kMapRequestInterval) return;
  map_requested_at_ = now;
  client_->refresh_map([weak = weak_from_this()](const Result<void>&) {
    if (const auto self = weak.lock()) {
      self->deliver([core = self.get()] {
        core->map_ = core->client_->map();
        core->wake_all();
      });
    }
  });
}

void SessionCore::forget_server(uint32_t server) {
  if (map_->forming()) return;
  cache_.forget_if([&](const SlotCacheEntry& entry) {
    return map_->primary(proto::KeyHash(entry.hash).partition(map_->partitions())).id == server;
  });
}

// --- Loop

void SessionCore::wake_all() {
  for (Waiter* waiter : waiters_) {
    waiter->woken = true;
    make_ready(waiter->handle);
  }
  waiters_.clear();
}

bool SessionCore::run_mail() {
  if (!has_mail_.load(std::memory_order_acquire)) return false;
  {
    const std::lock_guard lock(mail_mutex_);
    mail_taken_.swap(mail_);
    has_mail_.store(false, std::memory_order_relaxed);
  }
  for (const auto& mail : mail_taken_) mail();
  mail_taken_.clear();
  return true;
}

bool SessionCore::run_ready() {
  if (ready_.empty()) return false;
  running_.swap(ready_);
  for (const std::coroutine_handle<> handle : running_) handle.resume();
  running_.clear();
  return true;
}

bool SessionCore::run_timers() {
  if (waiters_.empty()) return false;
  const Nanoseconds now = clock_.now();
  bool happened = false;
  for (size_t i = 0; i < waiters_.size();) {
    if (waiters_[i]->deadline > now) {
      ++i;
      continue;
    }
    make_ready(waiters_[i]->handle);
    waiters_[i] = waiters_.back();
    waiters_.pop_back();
    happened = true;
  }
  return happened;
}

bool SessionCore::poll() {
  enter();
  polling_ = true;
  LiveCounters::add(progress_, 1);
  bool happened = run_mail();
  for (const auto& link : links_) {
    if (link) happened |= link->poll();
  }
  happened |= run_timers();
  happened |= run_ready();
  if (report_due_.load(std::memory_order_relaxed)) make_reports();
  polling_ = false;
  if (operations_ == 0) leave();
  return happened;
}

void SessionCore::poll_or_wait() {
  if (poll() || !ready_.empty()) {
    idle_since_ = 0;
    return;
  }
  if (options_.wait_mode == WaitMode::kSpin) return;
  const Nanoseconds now = clock_.now();
  if (idle_since_ == 0) idle_since_ = now;
  if (options_.wait_mode == WaitMode::kAdaptive && now - idle_since_ < options_.spin_time) return;
  // Only the transports that wake a descriptor can be slept on; the others make progress inside poll alone.
  for (const auto& link : links_) {
    if (link && link->busy() && link->wait_descriptor() < 0) return;
  }
  sleep(std::min(kLongestSleep, next_deadline() - now));
}

Nanoseconds SessionCore::next_deadline() const {
  Nanoseconds next = clock_.now() + kLongestSleep;
  for (const Waiter* waiter : waiters_) next = std::min(next, waiter->deadline);
  return next;
}

void SessionCore::sleep(Nanoseconds limit) {
  if (limit <= 0) return;
  descriptors_.clear();
  descriptors_.push_back({wake_descriptor_, POLLIN, 0});
  for (const auto& link : links_) {
    if (link && link->busy() && link->wait_descriptor() >= 0) {
      descriptors_.push_back({link->wait_descriptor(), POLLIN, 0});
    }
  }
  sleeping_.store(true, std::memory_order_seq_cst);
  if (!has_mail_.load(std::memory_order_seq_cst) && !report_due_.load(std::memory_order_seq_cst)) {
    const timespec time{limit / kSecond, limit % kSecond};
    ppoll(descriptors_.data(), descriptors_.size(), &time, nullptr);
  }
  sleeping_.store(false, std::memory_order_seq_cst);
  eventfd_t ignored = 0;
  eventfd_read(wake_descriptor_, &ignored);
}

void SessionCore::deliver(std::function<void()> mail) {
  {
    const std::lock_guard lock(mail_mutex_);
    mail_.push_back(std::move(mail));
    has_mail_.store(true, std::memory_order_seq_cst);
  }
  if (sleeping_.load(std::memory_order_seq_cst)) eventfd_write(wake_descriptor_, 1);
}

void SessionCore::shut_down() {
  SKUA_CHECK(operations_ == 0, "a session was closed while an operation ran");
  enter();
  closed_.store(true, std::memory_order_release);
  for (const auto& link : links_) {
    if (link) link->close();
  }
  leave();
}

}  // namespace skua
