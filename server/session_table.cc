#include "server/session_table.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/hooks.h"
#include "common/base/log.h"
#include "common/base/units.h"

namespace skua {
namespace {

constexpr int kLatePart = 4;    // of a lease: a check that is later than this says that the server itself stood still
constexpr size_t kNameBytes = 64;  // of a client's name that are kept
constexpr int kLagLeases = 10;  // a session that keeps its lease but reports no epoch for so long is given up as well

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

Error stale(uint64_t id) {
  return fail(StatusCode::kStaleEpoch, "session " + hex(id) + " is not known here: it was given up or closed, or the " +
                                           "server restarted; open another");
}

std::string printable_name(const std::string& name) {
  std::string text = name.substr(0, kNameBytes);
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

bool same_secret(const std::string& a, const std::string& b) {  // in time that does not depend on where they differ
  if (a.size() != b.size() || a.empty()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]) & 0xffU;
  return difference == 0;
}

}  // namespace

SessionTable::SessionTable(const Options& options, Executor& executor, Entropy& entropy, SessionHost& host)
    : options_(options), executor_(executor), entropy_(entropy), host_(host) {}

SessionTable::~SessionTable() {
  if (armed_) executor_.cancel(timer_);
}

SessionTable::Session* SessionTable::find(SessionId id) {
  const auto it = sessions_.find(static_cast<uint64_t>(id));
  return it == sessions_.end() || it->second->ending ? nullptr : it->second.get();
}

Result<SessionTable::Session*> SessionTable::authenticate(uint64_t id, const std::string& secret) {
  Session* session = find(SessionId{id});
  if (session == nullptr) return stale(id);
  if (!same_secret(secret, session->secret)) {
    return fail(StatusCode::kUnauthenticated, "wrong secret for session " + hex(id));
  }
  return session;
}

std::string SessionTable::new_secret() {
  const uint64_t words[2] = {entropy_.next(), entropy_.next()};
  std::string secret(sizeof words, '\0');
  std::memcpy(secret.data(), words, sizeof words);
  return secret;
}

void SessionTable::admit(const Session& session) {
  SessionTicket ticket;
  ticket.session = session.id;
  ticket.secret = session.data_secret;
  ticket.read_only = session.read_only;
  for (size_t i = 0; i < session.keys.size(); ++i) {
    const Partition& partition = *(*partitions_)[i];
    ticket.regions.push_back(
        {session.keys[i], partition.data(), partition.region_bytes(), partition.arena_offset()});
  }
  for (Target* target : targets_) target->admit(ticket);
}

void SessionTable::renew(Session& session) {
  if (!session.detached) session.deadline = executor_.clock().now() + options_.lease;
}

Result<control::SessionOpened> SessionTable::open(const control::OpenSession& request, PushFunction push,
                                                  Moment moment,
                                                  const std::vector<std::unique_ptr<Partition>>& partitions) {
  partitions_ = &partitions;
  uint64_t id = entropy_.next();
  while (id == 0 || sessions_.contains(id)) id = entropy_.next();
  auto session = std::make_unique<Session>();
  session->id = SessionId{id};
  session->secret = new_secret();
  session->data_secret = new_secret();
  session->read_only = request.access() == control::ACCESS_READ_ONLY;
  session->client_name = printable_name(request.client_name());
  session->push = std::move(push);
  session->reported = moment.reclaim_epoch;
  renew(*session);
  control::SessionOpened opened;
  for (const auto& partition : partitions) {
    session->keys.push_back(RegionKey{entropy_.next()});
    control::PartitionKey* key = opened.add_keys();
    key->set_partition(partition->id());
    key->set_region_key(static_cast<uint64_t>(session->keys.back()));
    key->set_region_bytes(partition->region_bytes());
  }
  for (const Target* target : targets_) {
    control::Endpoint* endpoint = opened.add_endpoints();
    endpoint->set_transport(std::string(target->name()));
    endpoint->set_address(target->endpoint());
  }
  opened.set_session_id(id);
  opened.set_secret(session->secret);
  opened.set_data_secret(session->data_secret);
  opened.set_reclaim_epoch(moment.reclaim_epoch);
  opened.set_lease_ms(static_cast<uint32_t>(options_.lease / kMillisecond));
  opened.set_cluster_time_ms(moment.cluster_time_ms);
  admit(*session);
  if (!session->read_only) ++writers_;
  sessions_.emplace(id, std::move(session));
  update_oldest();
  arm();
  return opened;
}

Result<void> SessionTable::check(const Session& session, const control::EpochReport& report,
                                 uint64_t reclaim_epoch) const {
  const std::string who = "report of session " + hex(report.session_id());
  if (report.reclaim_epoch() > reclaim_epoch) {
    return fail(StatusCode::kInvalidArgument, who + ": epoch " + std::to_string(report.reclaim_epoch()) +
                                                  " has not begun, this is " + std::to_string(reclaim_epoch));
  }
  for (const control::GrantUse& use : report.grants()) {
    const auto grant = session.grants.find(use.grant_id());
    const bool known = grant != session.grants.end();
    if (use.grant_id() == 0 || use.grant_id() >= session.next_grant ||
        (known && use.consumed() > grant->second.blocks.size())) {
      return fail(StatusCode::kInvalidArgument, who + ": grant " + std::to_string(use.grant_id()) + " with " +
                                                    std::to_string(use.consumed()) + " blocks was never given");
    }
  }
  return {};
}

Result<void> SessionTable::report(const control::EpochReport& report, uint64_t reclaim_epoch) {
  Session* session = find(SessionId{report.session_id()});
  if (session == nullptr) return stale(report.session_id());
  SKUA_RETURN_IF_ERROR(check(*session, report, reclaim_epoch));
  renew(*session);
  for (const control::GrantUse& use : report.grants()) apply_use(*session, use);
  if (report.reclaim_epoch() > session->reported) {
    const bool was_oldest = session->reported == oldest_;
    session->reported = report.reclaim_epoch();
    if (session->reported == reclaim_epoch) session->behind_since = 0;
    if (was_oldest) update_oldest();
  }
  return {};
}

// What is reported again, or less than before, was counted before.
void SessionTable::apply_use(Session& session, const control::GrantUse& use) {
  const auto it = session.grants.find(use.grant_id());
  if (it == session.grants.end()) return;
  GrantRecord& grant = it->second;
  const auto size = static_cast<uint32_t>(grant.blocks.size());
  const uint32_t end = use.returned() ? size : use.consumed();
  if (end <= grant.consumed && end < size) return;
  for (; grant.consumed < end; ++grant.consumed) grant.partition->heap().use(grant.blocks[grant.consumed]);
  Partition& partition = *grant.partition;
  if (end == size) session.grants.erase(it);
  host_.blocks_used(partition);
}

Result<void> SessionTable::may_write(SessionId id) const {
  const auto it = sessions_.find(static_cast<uint64_t>(id));
  if (it == sessions_.end() || it->second->ending) return stale(static_cast<uint64_t>(id));
  if (it->second->detached) {
    return fail(StatusCode::kUnavailable,
                "session " + hex(static_cast<uint64_t>(id)) + " is detached: resume it first");
  }
  if (it->second->read_only) {
    return fail(StatusCode::kPermissionDenied, "session " + hex(static_cast<uint64_t>(id)) + " is read-only: it gets " +
                                                   "no blocks");
  }
  return {};
}

uint64_t SessionTable::record_grant(SessionId id, Partition& partition, std::vector<BlockRef> blocks) {
  Session* session = find(id);
  SKUA_CHECK(session != nullptr, "grants are given to open sessions");
  const uint64_t grant = session->next_grant++;
  session->grants.emplace(grant, GrantRecord{&partition, std::move(blocks), 0});
  return grant;
}

void SessionTable::announce(const control::EpochAdvance& advance) {
  const Nanoseconds now = executor_.clock().now();
  for (auto& [id, session] : sessions_) {
    if (session->behind_since == 0) session->behind_since = now;
    if (!session->ending && !session->detached && session->push) session->push(advance);
  }
}

void SessionTable::fence(const control::FenceSession& request,
                         std::function<void(Result<control::SessionFenced>)> done) {
  auto session = authenticate(request.session_id(), request.secret());
  if (!session) return done(Error(session.error()));
  renew(**session);
  (*session)->fence_waits.push_back(std::move(done));
  if ((*session)->fence_waits.size() == 1) start_fence(**session);
}

void SessionTable::start_fence(Session& session) {
  const SessionId id = session.id;
  session.fences_left = targets_.size() + 1;
  const std::weak_ptr<char> alive = alive_;
  const auto confirmed = [this, alive, id, executor = &executor_] {
    executor->post([this, alive, id] {
      if (!alive.expired()) fence_confirmed(id);
    });
  };
  if (SKUA_PLANTED_BUG("fence-not-awaited")) {
    for (Target* target : targets_) target->fence(id, [] {});
    for (size_t i = 0; i < targets_.size(); ++i) confirmed();
  } else {
    for (Target* target : targets_) target->fence(id, confirmed);
  }
  confirmed();
}

void SessionTable::fence_confirmed(SessionId id) {
  const auto it = sessions_.find(static_cast<uint64_t>(id));
  SKUA_CHECK(it != sessions_.end(), "a session stays until its fence is confirmed");
  Session& session = *it->second;
  if (--session.fences_left > 0) return;
  if (!session.fence_waits.empty()) ++fenced_;
  if (session.ending) return forget(id);
  session.data_secret = new_secret();
  if (SKUA_PLANTED_BUG("control-secret-changes")) session.secret = session.data_secret;
  renew(session);
  admit(session);
  control::SessionFenced fenced;
  fenced.set_data_secret(session.data_secret);
  const auto waits = std::exchange(session.fence_waits, {});
  for (const auto& done : waits) done(fenced);
}

Result<void> SessionTable::resume(const control::ResumeSession& request, PushFunction push) {
  auto session = authenticate(request.session_id(), request.secret());
  if (!session) return Error(session.error());
  (*session)->push = std::move(push);
  (*session)->detached = false;
  renew(**session);
  return {};
}

void SessionTable::detach(SessionId id) {
  Session* session = find(id);
  if (session == nullptr) return;
  SKUA_PROBE("server.session-detached");
  session->detached = true;
  session->push = nullptr;
  session->deadline = executor_.clock().now() + options_.resume_grace;
  arm();
  host_.session_lost(id);
}

void SessionTable::close(SessionId id) {
  if (Session* session = find(id)) end(*session);
}

void SessionTable::end(Session& session) {
  session.ending = true;
  session.push = nullptr;
  host_.session_lost(session.id);
  if (SKUA_PLANTED_BUG("given-up-without-fence")) return forget(session.id);
  if (session.fences_left == 0) start_fence(session);  // else the fence under way serves
}

// All its verbs have had their effect or never will.
void SessionTable::forget(SessionId id) {
  auto node = sessions_.extract(static_cast<uint64_t>(id));
  Session& session = *node.mapped();
  if (!session.read_only) --writers_;
  for (auto& [number, grant] : session.grants) {
    for (; grant.consumed < grant.blocks.size(); ++grant.consumed) {
      grant.partition->heap().use(grant.blocks[grant.consumed]);
    }
    host_.blocks_used(*grant.partition);
  }
  for (const auto& done : session.fence_waits) done(stale(static_cast<uint64_t>(id)));
  update_oldest();
}

void SessionTable::update_oldest() {
  uint64_t oldest = UINT64_MAX;
  for (const auto& [id, session] : sessions_) {
    if (session->detached && SKUA_PLANTED_BUG("detached-holds-nothing")) continue;
    oldest = std::min(oldest, session->reported);
  }
  if (oldest == oldest_) return;
  oldest_ = oldest;
  host_.epoch_reported();
}

Nanoseconds SessionTable::lost_at(const Session& session) const {
  const Nanoseconds lags = session.behind_since == 0 ? INT64_MAX : session.behind_since + kLagLeases * options_.lease;
  return std::min(session.deadline, lags);
}

// Looks when the first lease may have run out, and no earlier: most are renewed by then, and an idle server sleeps.
void SessionTable::arm() {
  Nanoseconds due = INT64_MAX;
  for (const auto& [id, session] : sessions_) {
    if (!session->ending) due = std::min(due, lost_at(*session));
  }
  if (due == INT64_MAX || (armed_ && check_due_ <= due)) return;
  if (armed_) executor_.cancel(timer_);
  armed_ = true;
  check_due_ = std::max(due, executor_.clock().now() + kMillisecond);
  timer_ = executor_.after(check_due_ - executor_.clock().now(), [this] {
    armed_ = false;
    check_leases();
    arm();
  });
}

void SessionTable::check_leases() {
  const Nanoseconds now = executor_.clock().now();
  const Nanoseconds late = now - check_due_;
  std::vector<Session*> lost;
  for (auto& [id, session] : sessions_) {
    if (session->ending) continue;
    // This server itself stood still; what its sessions sent meanwhile is still to be read.
    if (late > options_.lease / kLatePart) session->deadline += late;
    if (now >= lost_at(*session)) lost.push_back(session.get());
  }
  for (Session* session : lost) {
    SKUA_PROBE("server.session-expired");
    ++expired_;
    if (const auto more = expired_limit_.admit(now)) {
      const bool silent = now >= session->deadline;
      log_info("session " + hex(static_cast<uint64_t>(session->id)) + " of client '" + session->client_name +
               "' is given up: " + (silent ? "it was silent" : "it held its reclaim epoch back") +
               " for too long (lease " + format_duration(options_.lease) + ")" + *more);
    }
    end(*session);
  }
}

}  // namespace skua
