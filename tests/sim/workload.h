#pragma once
// Worker does operations of a scenario's mix on one session, one after the other, and records what it saw.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/data_path.h"
#include "common/base/random.h"
#include "common/base/task.h"
#include "tests/sim/cluster.h"
#include "tests/sim/record.h"
#include "tests/sim/scenario.h"

namespace skua::sim {

class Worker {
 public:
  struct Place {
    SimWorld& world;
    const Scenario& scenario;
    Record& record;
    SimClient& client;
    SessionCore& session;
    uint32_t number = 0;  // of the client
  };
  Worker(const Place& place, uint64_t operations, uint64_t seed);

  void start() { task_.start(); }
  void stop() { stopping_ = true; }  // after the operation under way
  bool done() const { return task_.done(); }
  std::string doing() const { return doing_; }

  // One operation at a time by hand, for the end of a run. Errors are violations, but kOutOfMemory of a put.
  Task<bool> read(size_t key);
  Task<bool> write(size_t key);

 private:
  enum class Choice : uint8_t { kGet, kExists, kPut, kPutIfAbsent, kCompareAndSwap, kRemove, kIncrement };
  struct Known {
    VersionToken version;
    uint64_t number = kAbsent;
  };
  struct Pause {
    Worker& worker;
    Nanoseconds duration;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() const {}
  };

  Task<bool> run(uint64_t operations);
  Task<bool> one_operation();
  Task<bool> get(size_t key);
  Task<bool> exists(size_t key);
  Task<bool> put(size_t key);
  Task<bool> put_if_absent(size_t key);
  Task<bool> compare_and_swap(size_t key);
  Task<bool> remove(size_t key);
  Task<bool> increment(size_t key);

  struct Write {
    Operation operation;
    std::string value;
    PutOptions options;
    Record::Ticket ticket;
  };
  Write begin_write(OperationKind kind, size_t key, uint64_t expected = 0);
  void end_write(size_t key, Write& write, const VersionToken* version);

  const std::string& name_of(size_t key) const { return place_.record.keys()[key].name; }
  Choice choose(bool counter);
  Operation called(sim::OperationKind kind) const;
  Record::Ticket begin(size_t key, const Operation& operation);
  void answered(Record::Ticket ticket, Operation operation);
  // An error: in doubt, refused, or one that should not be.
  void failed(Record::Ticket ticket, Operation operation, const Status& why);
  std::string new_value(size_t key, uint64_t number);
  PutOptions options_for(size_t key, Operation& operation);
  void must_read(size_t key, std::string_view value, Operation& operation);
  Nanoseconds time_slack() const;

  const Place place_;
  const uint64_t operations_;
  Random random_;
  std::vector<Known> known_;  // by key: the version last seen
  bool stopping_ = false;
  std::string doing_;
  Task<bool> task_;
};

}  // namespace skua::sim
