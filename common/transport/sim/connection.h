#pragma once
// Connection is one simulated data connection: the queue pair's and the responder's side of it. Targets and queue
// pairs share it; verbs that are under way keep it alive.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/transport/sim/world.h"

namespace skua::sim {

struct Admission {
  SessionTicket ticket;
  bool open = true;  // false: being fenced; its keys hold for the old connection until that is certain
};

struct TargetState {
  SimProcess* process = nullptr;
  uint64_t id = 0;
  bool alive = true;
  std::map<SessionId, Admission> admitted;
  std::vector<std::weak_ptr<Connection>> connections;
  // Words between the read and the write-back of an atomic that failed, and until when.
  std::map<const std::byte*, Nanoseconds> busy;

  void end();  // its memory is not reachable any more
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(SimWorld& world, SimProcess& client, ConnectTarget target);

  // Queue pair's side.
  void connect(std::shared_ptr<TargetState> responder);
  QueuePairState state() const { return state_; }
  const Status& error() const { return *error_; }
  size_t post(std::span<const WorkRequest> requests);
  size_t poll(std::span<Completion> completions);
  void close();
  const Capabilities& capabilities() const { return capabilities_; }

  // Responder's side and the world's.
  SessionId session() const { return target_.session; }
  bool connected() const { return responder_ != nullptr && !fenced_ && state_ != QueuePairState::kError; }
  void fence();             // from now on nothing of it takes effect
  void responder_ended();
  void client_ended(const SimProcess& process);
  void break_now();
  bool joins(const SimProcess& a, const SimProcess& b) const;

 private:
  // One request under way.
  struct Flight {
    uint64_t sequence = 0;
    WorkRequest request;
    std::vector<std::byte> data;      // WRITE: what is written; READ: what was read
    std::vector<uint64_t> pieces;     // boundaries; piece i is [pieces[i], pieces[i + 1])
    size_t pieces_left = 0;
    bool handed_over = false;         // an atomic that the server's process executes: it has the message
    uint64_t found = 0;               // by an atomic
    bool answered = false;
    CompletionStatus status = CompletionStatus::kSuccess;
  };
  using FlightPtr = std::shared_ptr<Flight>;
  struct Access {
    std::byte* address = nullptr;
    CompletionStatus status = CompletionStatus::kRemoteAccessError;
  };
  struct Effect {
    Nanoseconds at;
    size_t piece;
    Nanoseconds shift;  // put off by so much in all, when this was scheduled
  };

  bool client_here() const;
  void launch(const WorkRequest& request);
  void cut_into_pieces(Flight& flight);
  void effects_of(const FlightPtr& flight, Nanoseconds earliest);
  void schedule_effect(const FlightPtr& flight, const Effect& effect);
  void take_effect(const FlightPtr& flight, const Effect& effect);
  void copy_piece(Flight& flight, size_t piece, std::byte* memory);
  bool run_atomic(const FlightPtr& flight, std::byte* word);
  void put_off(const FlightPtr& flight, Nanoseconds wait);
  void write_back(std::byte* word, uint64_t value);
  Access access(const Flight& flight) const;
  void answer(const FlightPtr& flight, CompletionStatus status);
  void answered(const FlightPtr& flight);
  void complete(const Flight& flight);
  void doom(uint64_t first_lost);
  void fail_at(Nanoseconds delay, StatusCode code, const std::string& why);
  void fail_now(CompletionStatus first, Status why);
  void abandon();
  void shift_what_is_under_way(Nanoseconds by);
  void trace(std::string_view what, const Flight& flight, size_t piece, const std::byte* memory, uint64_t before);

  SimWorld& world_;
  SimProcess& client_;
  uint64_t incarnation_;
  ConnectTarget target_;
  uint32_t id_;
  Capabilities capabilities_;

  // Queue pair.
  QueuePairState state_ = QueuePairState::kConnecting;
  std::optional<Status> error_;
  bool closed_ = false;
  uint64_t sequence_ = 0;
  std::deque<FlightPtr> outstanding_;  // in the order posted
  std::deque<Completion> completions_;

  // On the way.
  Nanoseconds writes_done_ = 0;        // when the last WRITE posted so far takes effect
  Nanoseconds atomics_done_ = 0;
  uint64_t first_lost_ = ~uint64_t{0};      // from this request on no answer arrives
  uint64_t first_vanished_ = ~uint64_t{0};  // from this request on nothing takes effect,
  bool vanishes_in_part_ = false;           // but of its first WRITE some lines may
  Nanoseconds vanish_at_ = INT64_MAX;       // from this time on nothing takes effect
  Nanoseconds shift_ = 0;                // what is under way was put off by so much in all

  // Responder.
  std::shared_ptr<TargetState> responder_;
  bool fenced_ = false;
  uint64_t first_refused_ = ~uint64_t{0};  // behind a request that failed
};

}  // namespace skua::sim
