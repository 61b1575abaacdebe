#pragma once
// What control_service_fuzz.cc knows of the answers that it got: open sessions, requests that are owed an answer, and
// which blocks are granted to whom.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "server/heap.h"
#include "server/store_testing.h"

namespace skua::fuzz {

class Model {
 public:
  static constexpr Nanoseconds kLease = 300 * kMillisecond;
  struct Session {
    uint64_t id = 0;
    std::string secret;
    size_t channel = 0;
  };

  static StoreOptions options() {
    StoreOptions options;
    options.memory_bytes = 6 << 20;
    options.pages = PagePolicy::kSmall;
    options.expected_keys = 100;
    options.lease = kLease;
    options.resume_grace = 200 * kMillisecond;
    options.sweep_interval = 50 * kMillisecond;
    return options;
  }

  explicit Model(testing::World& world) : world_(world) {}

  const std::vector<Session>& sessions() const { return sessions_; }
  std::string secret_of(uint64_t id) const {
    const Session* found = find(id);
    return found == nullptr ? "" : found->secret;
  }
  size_t channel_of(uint64_t id) const {
    const Session* found = find(id);
    return found == nullptr ? 0 : found->channel;
  }
  size_t unanswered(size_t channel) const {
    return static_cast<size_t>(std::count_if(
        asked_.begin(), asked_.end(), [channel](const auto& entry) { return entry.first.first == channel; }));
  }

  void asked(size_t channel, const control::Envelope& request) { asked_[{channel, request.id()}] = request; }

  void answered(size_t channel, const control::Envelope& answer) {
    if (answer.id() == 0) {
      SKUA_CHECK(answer.has_epoch_advance() || answer.has_cluster_map(), "pushes");
      if (answer.has_epoch_advance()) epoch_ = std::max(epoch_, answer.epoch_advance().reclaim_epoch());
      return;
    }
    const auto found = asked_.find({channel, answer.id()});
    SKUA_CHECK(found != asked_.end(), "an answer to what was asked, once");
    const control::Envelope request = std::move(found->second);
    asked_.erase(found);
    if (answer.has_session_opened()) opened(channel, answer.session_opened());
    if (answer.has_grant()) granted(request.grant_request(), answer.grant());
    if (answer.has_ack() && request.has_epoch_report()) reported(request.epoch_report());
    if (answer.has_ack() && request.has_resume_session()) {
      for (Session& session : sessions_) {
        if (session.id == request.resume_session().session_id()) session.channel = channel;
      }
    }
  }

  void fill_report(uint64_t session, control::EpochReport& report) const {
    report.set_session_id(session);
    report.set_reclaim_epoch(epoch_);
    for (const auto& [key, blocks] : grants_) {
      if (key.first != session) continue;
      control::GrantUse& use = *report.add_grants();
      use.set_grant_id(key.second);
      use.set_consumed(static_cast<uint32_t>(blocks.size()));
    }
  }

  void check_counts() const {
    const control::ServerStats stats = world_.stats();
    SKUA_CHECK(stats.memory_used_bytes() <= stats.memory_limit_bytes(), "limit");
    uint64_t bytes = 0;
    for (const control::ClassStats& one : stats.classes()) {
      const uint64_t taken = one.granted() + one.used() + one.retired();
      const SegmentShape shape = segment_shape(static_cast<int>(one.size_class()));
      SKUA_CHECK(one.free() + taken == one.segments() * shape.blocks, "blocks of a class");
      bytes += taken * one.block_bytes();
    }
    SKUA_CHECK(stats.used_bytes() == bytes && bytes <= stats.heap_bytes(), "bytes of all blocks");
    SKUA_CHECK(stats.sessions() >= world_.target.tickets.size(), "a ticket belongs to a session");
  }

 private:
  using Place = std::pair<uint32_t, uint64_t>;  // partition, block units
  struct Held {
    uint64_t units = 0;
    uint64_t session = 0;
  };

  const Session* find(uint64_t id) const {
    const auto found = std::find_if(sessions_.begin(), sessions_.end(), [id](const auto& s) { return s.id == id; });
    return found == sessions_.end() ? nullptr : &*found;
  }

  void opened(size_t channel, const control::SessionOpened& session) {
    SKUA_CHECK(find(session.session_id()) == nullptr && session.session_id() != 0, "a session of its own");
    sessions_.push_back({session.session_id(), session.secret(), channel});
    epoch_ = std::max(epoch_, session.reclaim_epoch());
  }

  void granted(const control::GrantRequest& request, const control::Grant& grant) {
    SKUA_CHECK(grant.block_units_size() > 0 && grant.block_units_size() == grant.generations_size(), "grant");
    SKUA_CHECK(static_cast<uint32_t>(grant.block_units_size()) <= request.blocks(), "no more than was asked for");
    const uint64_t units = proto::size_class_bytes(static_cast<int>(request.size_class())) / proto::kBlockUnit;
    std::vector<Place>& blocks = grants_[{request.session_id(), grant.grant_id()}];
    SKUA_CHECK(blocks.empty(), "a grant's number is used once");
    for (int i = 0; i < grant.block_units_size(); ++i) {
      const Place place{request.partition(), grant.block_units(i)};
      claim(place, {units, request.session_id()});
      uint64_t& last = generations_[place];
      SKUA_CHECK(grant.generations(i) != last, "a generation is another than the one before");
      last = grant.generations(i);
      blocks.push_back(place);
    }
  }

  // No live session holds a block that overlaps it.
  void claim(const Place& place, const Held& held) {
    for (auto at = held_.lower_bound(place); at != held_.end();) {
      if (at->first.first != place.first || at->first.second >= place.second + held.units) break;
      SKUA_CHECK(world_.target.tickets.count(at->second.session) == 0, "a block is granted to one session");
      at = held_.erase(at);
    }
    const auto next = held_.lower_bound(place);
    if (next != held_.begin()) {
      const auto before = std::prev(next);
      const bool overlaps = before->first.first == place.first &&
                            before->first.second + before->second.units > place.second;
      SKUA_CHECK(!overlaps || world_.target.tickets.count(before->second.session) == 0, "blocks do not overlap");
    }
    held_[place] = held;
  }

  void reported(const control::EpochReport& report) {
    for (const control::GrantUse& use : report.grants()) {
      const auto found = grants_.find({report.session_id(), use.grant_id()});
      SKUA_CHECK(use.grant_id() != 0, "only what was granted is taken as used");
      if (found == grants_.end()) continue;  // reported before, or its answer was lost with a connection
      SKUA_CHECK(use.consumed() <= found->second.size(), "no more than was granted");
      bool all = true;
      for (size_t i = 0; i < found->second.size(); ++i) {
        const auto held = held_.find(found->second[i]);
        const bool done = use.returned() || i < use.consumed();
        all &= done;
        if (done && held != held_.end() && held->second.session == report.session_id()) held_.erase(held);
      }
      if (all) grants_.erase(found);
    }
  }

  testing::World& world_;
  std::vector<Session> sessions_;
  uint64_t epoch_ = 0;
  std::map<std::pair<size_t, uint64_t>, control::Envelope> asked_;      // channel, id
  std::map<std::pair<uint64_t, uint64_t>, std::vector<Place>> grants_;  // session, grant
  std::map<Place, Held> held_;
  std::map<Place, uint64_t> generations_;
};

}  // namespace skua::fuzz
