#pragma once
// Membership keeps a server in a cluster whose coordinator is another one.
//
// It dials the coordinator, joins, and sends a heartbeat every `heartbeat_interval`. A broken connection is dialled
// anew with a back-off up to `retry_max`, for ever once it has joined.
// Threads: the executor's. Borrows Dialer and Executor, which outlive it.
// Errors:  of the first join: the coordinator's refusal, or the last reason when `join_timeout` is over. Later:
//          `evicted`, once, when the coordinator gave this server's place to another instance or refuses it for good.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/executor.h"
#include "common/base/net_address.h"
#include "common/base/status.h"
#include "common/control/channel.h"
#include "common/control/hello.h"
#include "common/control/rpc.h"
#include "proto/control.pb.h"

namespace skua {

struct MembershipOptions {
  NetAddress coordinator;
  HelloTerms terms;
  control::Join self;
  Nanoseconds heartbeat_interval = kSecond;
  Nanoseconds call_timeout = 2 * kSecond;
  Nanoseconds retry_min = 50 * kMillisecond;
  Nanoseconds retry_max = kSecond;
  Nanoseconds join_timeout = 30 * kSecond;
};

struct MembershipEvents {
  std::function<void(Result<control::Joined>)> joined;  // once
  std::function<void(const control::ClusterMap&)> map;  // a newer one
  std::function<void(uint64_t)> cluster_time_ms;
  std::function<void(const Status&)> evicted;
};

class Membership : public std::enable_shared_from_this<Membership> {
 public:
  Membership(MembershipOptions options, MembershipEvents events, Dialer& dialer, Executor& executor);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  void start();
  // Says goodbye, waits for the answer up to `timeout`, and stops. `done` runs once.
  void leave(Nanoseconds timeout, std::function<void()> done);
  void stop();  // calls nobody any more

 private:
  void connect();
  void retry(const Status& why);
  void join();
  void taken_in(const control::Joined& joined);
  void beat();
  void beat_answered(Result<control::Envelope> reply);
  void pushed(const control::Envelope& push);
  void offered(const control::ClusterMap& map);
  void lost(const Status& why);
  static bool final_refusal(StatusCode code);

  MembershipOptions options_;
  MembershipEvents events_;
  Dialer& dialer_;
  Executor& executor_;
  std::shared_ptr<ControlConnection> connection_;
  Executor::TimerId timer_ = 0;  // next dial or next heartbeat; 0: none
  Nanoseconds back_off_ = 0;
  Nanoseconds deadline_ = 0;     // of the first join
  bool joined_once_ = false;
  bool stopped_ = false;
  uint32_t server_id_ = 0;
  uint64_t map_epoch_ = 0;
};

}  // namespace skua
