#include "tests/sim/record.h"

#include <algorithm>

namespace skua::sim {

std::string Record::life(size_t key) const {
  const auto found = lives_.find(keys_[key].server);
  return keys_[key].name + " (life " + std::to_string(found == lives_.end() ? 1 : found->second + 1) + ")";
}

Record::Ticket Record::begin(size_t key, const Operation& operation) {
  Open open;
  open.key = key;
  open.operation = operation;
  open.tickets.push_back(history_.begin(life(key), operation));
  open_.emplace(++tickets_, std::move(open));
  return {tickets_};
}

void Record::finish(Ticket ticket, const Operation& operation) {
  ++(operation.outcome == Outcome::kDone ? counts.done : counts.in_doubt);
  const auto found = open_.find(ticket.id);
  if (found == open_.end()) return;
  if (found->second.tickets.size() == 1) history_.at(found->second.tickets[0]) = operation;
  open_.erase(found);
}

void Record::refused(Ticket ticket) {
  ++counts.refused;
  const auto found = open_.find(ticket.id);
  if (found == open_.end()) return;
  if (found->second.tickets.size() == 1) {
    // Nothing was changed, so it is as good as a read whose answer nobody knows.
    Operation& operation = history_.at(found->second.tickets[0]);
    operation.kind = OperationKind::kGet;
    operation.outcome = Outcome::kPending;
  }
  open_.erase(found);
}

void Record::server_forgot(size_t server) {
  ++lives_[server];
  for (auto& [id, open] : open_) {
    if (keys_[open.key].server != server) continue;
    open.tickets.push_back(history_.begin(life(open.key), open.operation));
  }
}

void Record::saw_version(Ticket ticket, VersionToken version, uint64_t number) {
  const auto open = open_.find(ticket.id);
  if (open == open_.end()) return;
  const size_t key = open->second.key;
  const auto [place, fresh] = versions_.emplace(std::pair{key, version.write_id}, number);
  if (!fresh && place->second != number) {
    violation("version " + version.to_string() + " of " + keys_[key].name + " names value " +
              std::to_string(place->second) + " and value " + std::to_string(number));
  }
}

}  // namespace skua::sim
