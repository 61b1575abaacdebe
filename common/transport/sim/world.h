#pragma once
// SimWorld is a whole cluster in one thread and virtual time: processes, their control connections and a data plane
// that is weaker than any device's. One seed gives one run.
//
//   SimWorld world(seed, FaultPlan::from_seed(seed));
//   SimProcess& server = world.add_process("server");
//   SimProcess& client = world.add_process("client");
//   auto target = server.make_target(arena);        // store.add_target(*target) ...
//   auto connector = client.make_connector();
//   world.run_for(kSecond);
//
// The data plane (transport.h) keeps what the seam promises and nothing else:
//  - every 64-byte line of a READ or WRITE takes effect at a moment of its own, among everybody else's;
//  - WRITE -> WRITE, WRITE -> CAS, CAS -> READ and CAS -> CAS of one queue pair are ordered, all other pairs are not
//    (FETCH_ADD counts as CAS);
//  - completions come in order, later; they are lost when a queue pair breaks, and what was posted may have landed in
//    part, may land much later, or never, until the server has fenced the session;
//  - local memory of a READ is filled right before its completion, that of a WRITE is read when it is posted and must
//    be the same at its completion (checked).
// Each process's clocks run at a rate of their own, and wall clocks jump.
// Control connections are FIFO, delay, stall while their ends are cut off from each other, and break.
//
// Owns:    processes. What make_ and listen return, and all who use them, end before the world.
// Threads: one.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/random.h"
#include "common/control/channel.h"
#include "common/transport/sim/fault_plan.h"
#include "common/transport/sim/trace.h"
#include "common/transport/target.h"
#include "common/transport/transport.h"

namespace skua::sim {

class SimWorld;
class Connection;
class Link;
struct ListenerState;
struct TargetState;

// SimProcess is one process of the world: an executor, clocks, entropy, and ways to others. Its functions run one at a
// time. It can crash (nothing that it had scheduled ever runs; its connections end), restart, and pause (its functions
// wait; what its data connections have posted goes on, and so does access to its memory).
// crash is called from outside the process's functions. Whoever owns the process's objects destroys them between crash
// and restart; until then they may be called, but cause nothing.
class SimProcess final : public Executor, public Dialer, public Entropy, private Clock {
 public:
  SimProcess(SimWorld& world, uint32_t id, std::string name);
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;

  uint32_t id() const { return id_; }
  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  uint64_t incarnation() const { return incarnation_; }

  // Executor. Functions posted run in order, a little later; timers are late by chance.
  void post(std::function<void()> function) override;
  TimerId after(Nanoseconds delay, std::function<void()> function) override;
  void cancel(TimerId timer) override;
  const Clock& clock() const override { return *this; }
  // Entropy.
  uint64_t next() override { return random_.next(); }

  // Control plane.
  void dial(const NetAddress& address, Nanoseconds timeout, std::function<void(Result<std::shared_ptr<Channel>>)> done,
            ChannelEvents events) override;
  // Port 0 becomes a free one. Error: kConfiguration when the address is taken.
  Result<std::unique_ptr<Listener>> listen(const NetAddress& address, AcceptFunction accept);

  // Data plane.
  std::unique_ptr<Connector> make_connector();
  std::unique_ptr<Target> make_target(const ArenaInfo& arena);
  // Runs as one of the process's functions some time after a queue pair got a completion or changed its state.
  void on_activity(std::function<void()> function) { activity_ = std::move(function); }

  void crash();
  void restart();
  void pause(Nanoseconds duration);
  Nanoseconds paused_until() const { return paused_until_; }
  // The wall clock is set, forward or back; what measures durations does not notice.
  void jump_wall_clock(Nanoseconds by);

 private:
  friend class SimWorld;
  friend class Connection;
  friend class Link;

  Nanoseconds now() const override;
  int64_t wall_ms() const override;
  void notify_activity();

  SimWorld& world_;
  uint32_t id_;
  std::string name_;
  Random random_;
  Nanoseconds clock_skew_ = 0;
  double clock_rate_ = 1;  // against the world's clock
  bool alive_ = true;
  uint64_t incarnation_ = 1;
  Nanoseconds paused_until_ = 0;
  std::deque<std::function<void()>> posted_;
  TimerId next_timer_ = 1;
  std::unordered_set<TimerId> timers_;
  std::function<void()> activity_;
  bool activity_scheduled_ = false;
};

// What a verb did at the responder: a piece of a READ or WRITE, or an atomic.
struct VerbEffect {
  SimProcess* client = nullptr;
  Verb verb = Verb::kRead;
  std::byte* region = nullptr;   // begin of the partition's memory
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  uint64_t before = 0;  // atomics: the word found
  uint64_t after = 0;   // atomics: the word left
};

class SimWorld {
 public:
  SimWorld(uint64_t seed, const FaultPlan& plan);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  SimProcess& add_process(const std::string& name);

  // Takes the next event. False: there is none.
  bool step();
  // All events up to then; now() is then `now() + duration`.
  void run_for(Nanoseconds duration);
  // Until `done` holds, checked after every event. False: not within `limit`, or nothing is left to happen.
  bool run_until(const std::function<bool()>& done, Nanoseconds limit);

  Nanoseconds now() const { return now_; }
  FaultPlan& plan() { return plan_; }   // may be changed at any time
  Random& random() { return random_; }
  Trace& trace() { return trace_; }

  // Nothing passes between the two, either way, until heal. Control messages wait; verbs are lost.
  void cut(const SimProcess& a, const SimProcess& b);
  void heal(const SimProcess& a, const SimProcess& b);
  bool is_cut(const SimProcess& a, const SimProcess& b) const;
  // Control connections between them break now; both ends learn of it.
  void break_control(const SimProcess& a, const SimProcess& b);
  // Data connections between them break now; what is under way lands as the plan has it.
  void break_data(const SimProcess& a, const SimProcess& b);

  // Called behind every effect, before anything else happens. It may schedule, and must not crash a process itself.
  void observe(std::function<void(const VerbEffect&)> observer) { observer_ = std::move(observer); }
  // Called behind every control message that a process has sent or has been given, under the same conditions.
  void observe_messages(std::function<void(SimProcess&)> observer) { message_observer_ = std::move(observer); }

  // For the parts of the world. An event with a process runs only in the incarnation that it was scheduled for, and
  // not while the process is paused.
  void schedule(Nanoseconds delay, std::function<void()> function, SimProcess* process = nullptr);
  Nanoseconds between(Nanoseconds low, Nanoseconds high);
  uint32_t next_connection_id() { return ++connection_ids_; }

 private:
  friend class SimProcess;
  friend class SimConnector;
  friend class SimTarget;
  friend class Connection;
  friend class Link;

  struct Event {
    Nanoseconds at;
    uint64_t sequence;
    SimProcess* process;
    uint64_t incarnation;
    std::function<void()> function;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };
  using Pair = std::pair<uint32_t, uint32_t>;
  static Pair pair_of(const SimProcess& a, const SimProcess& b);
  void push(Event event);
  void end_connections_of(SimProcess& process);

  FaultPlan plan_;
  Random random_;
  Nanoseconds now_ = kSecond;
  uint64_t sequence_ = 0;
  uint32_t connection_ids_ = 0;
  std::vector<Event> events_;  // a heap
  Trace trace_;
  std::function<void(const VerbEffect&)> observer_;
  std::function<void(SimProcess&)> message_observer_;
  std::vector<std::unique_ptr<SimProcess>> processes_;
  std::map<Pair, bool> cuts_;
  std::map<std::string, std::shared_ptr<ListenerState>> listeners_;  // by address
  uint16_t next_port_ = 20'000;
  std::vector<std::weak_ptr<Link>> links_;
  std::map<uint64_t, std::shared_ptr<TargetState>> targets_;
  uint64_t target_ids_ = 0;
  std::vector<std::weak_ptr<Connection>> connections_;
  bool ending_ = false;
};

}  // namespace skua::sim
