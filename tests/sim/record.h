#pragma once
// Record is what a run's clients did and saw, and what the observer of its verbs saw: histories for the checker, and
// the promises that can be judged at once.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "client/client.h"
#include "tests/sim/history_checker.h"

namespace skua::sim {

class Record {
 public:
  struct Key {
    std::string name;
    bool counter = false;
    bool expires = false;
    size_t server = 0;  // index of its primary
  };
  // An operation under way. A server that forgets its memory ends the keys' lives: an operation that was under way
  // then may belong to either life.
  struct Ticket {
    uint64_t id = 0;
  };

  void add_key(Key key) { keys_.push_back(std::move(key)); }
  const std::vector<Key>& keys() const { return keys_; }

  uint64_t new_number() { return ++numbers_; }

  Ticket begin(size_t key, const Operation& operation);
  void finish(Ticket ticket, const Operation& operation);
  // It answered that nothing was changed.
  void refused(Ticket ticket);
  // The client's process died: what it had under way may take effect as long as its verbs can land.
  void client_died(uint32_t client) {
    std::erase_if(open_, [client](const auto& entry) { return entry.second.operation.client == client; });
  }
  void server_forgot(size_t server);

  // The operation was shown this version. A token names one value for ever (rule 6).
  void saw_version(Ticket ticket, VersionToken version, uint64_t number);

  void violation(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  const std::string& violation() const { return violation_; }

  CheckResult check() const { return history_.check(); }

  struct Counts {
    uint64_t done = 0;
    uint64_t refused = 0;
    uint64_t in_doubt = 0;
  };
  Counts counts;

 private:
  struct Open {
    size_t key = 0;
    Operation operation;
    std::vector<History::Ticket> tickets;
  };
  std::string life(size_t key) const;

  std::vector<Key> keys_;
  History history_;
  std::map<size_t, uint64_t> lives_;  // of servers
  std::map<uint64_t, Open> open_;
  uint64_t tickets_ = 0;
  uint64_t numbers_ = 0;
  std::map<std::pair<size_t, uint64_t>, uint64_t> versions_;  // (key, version token) -> value
  std::string violation_;
};

}  // namespace skua::sim
