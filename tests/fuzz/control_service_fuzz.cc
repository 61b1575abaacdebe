// Promises of a server's control plane (server/control_service.h over the real Store and Coordinator), for any sequence
// of messages, connections, breaks and time:
//   nothing crashes, and every request is answered exactly once as long as its connection lasts;
//   a block is granted to one session at a time, and its generation is above every one that it had;
//   the Store's counts add up and memory stays within its limit after every step;
//   the coordinator's map is always one that a client takes, and once all is over nothing is left.
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/control/manual_executor.h"
#include "common/placement/partition_map.h"
#include "server/control_service.h"
#include "tests/fuzz/control_service_model.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

class Driver {
 public:
  Driver() : model_(world_) {
    coordinator_ = *Coordinator::open({.partitions = 4, .initial_servers = 2}, maps_, world_.executor.clock(),
                                      world_.entropy);
    ControlService::Options options;
    options.terms.token = "token";
    options.instance = 88;
    service_ = std::make_unique<ControlService>(options, *world_.store, world_.executor);
    coordinator_->on_change([this] { service_->set_map(coordinator_->map(), 1); });
    service_->set_coordinator(coordinator_.get());
    service_->set_map(coordinator_->map(), 1);
    service_->set_serving();
    connect();
    hello(0, true, {});
  }

  void step(Input& input) {
    const uint8_t kind = input.byte() % 20;
    const size_t channel = input.byte() % channels_.size();
    switch (kind) {
      case 0: connect(); break;
      case 1: hello(input.byte() % channels_.size(), true, {}); break;
      case 2: hello(channel, false, input.bytes(8)); break;
      case 3: case 4: case 5: session_message(kind, channel, input); break;
      case 6: case 7: case 8: grant(channel, input); break;
      case 9: case 10: report(channel, input); break;
      case 11: case 12: report_all_used(input); break;
      case 13: channels_[channel]->break_off("fuzz"); break;
      case 14: world_.executor.advance(static_cast<Nanoseconds>(input.number() % 2000) * kMillisecond); break;
      case 15: case 16: server_message(kind, channel, input); break;
      case 17: raw(channel, input); break;
      case 18: world_.target.hold = !world_.target.hold; break;
      default: world_.target.confirm(); break;
    }
    settle();
  }

  // All that waits is answered in time; without connections no session stays, and their memory comes back.
  void finish() {
    world_.target.hold = false;
    for (int i = 0; i < 3; ++i) {
      world_.target.confirm();
      world_.executor.advance(6 * Model::kLease);
      settle();
    }
    for (size_t i = 0; i < channels_.size(); ++i) {
      SKUA_CHECK(channels_[i]->closed || model_.unanswered(i) == 0, "every request is answered");
      channels_[i]->break_off("end");
    }
    for (int i = 0; i < 3; ++i) world_.executor.advance(6 * Model::kLease);
    const control::ServerStats stats = world_.stats();
    SKUA_CHECK(stats.sessions() == 0 && world_.target.tickets.empty(), "no session without a connection");
    SKUA_CHECK(stats.used_bytes() == 0, "all blocks came back");
    SKUA_CHECK(service_->connections() == 0, "no connection");
  }

 private:
  void connect() {
    if (channels_.size() >= 4) return;
    channels_.push_back(std::make_shared<testing::FakeChannel>());
    channels_.back()->events = service_->accept(channels_.back());
  }

  void send(size_t channel, control::Envelope request) {
    if (channels_[channel]->closed) return;
    request.set_id(++last_id_);
    model_.asked(channel, request);
    channels_[channel]->receive(request);
  }

  void hello(size_t channel, bool right, std::string_view spoil) {
    control::Envelope request;
    *request.mutable_hello() = make_hello({"token", 0});
    if (!right) {
      request.mutable_hello()->set_token("token" + std::to_string(spoil.size()));
      request.mutable_hello()->set_control_version(spoil.empty() ? 0 : static_cast<unsigned char>(spoil[0]));
    }
    send(channel, request);
  }

  // A session that was opened, mostly.
  uint64_t session(Input& input) const {
    const uint8_t index = input.byte();
    const auto& sessions = model_.sessions();
    if (index >= 240 || sessions.empty()) return input.number();
    return sessions[index % sessions.size()].id;
  }

  void session_message(uint8_t kind, size_t channel, Input& input) {
    const uint8_t choice = input.byte();
    control::Envelope request;
    if (kind == 3 || choice % 4 == 0) {
      const bool read_only = choice % 8 == 7;
      request.mutable_open_session()->set_access(read_only ? control::ACCESS_READ_ONLY : control::ACCESS_READ_WRITE);
      request.mutable_open_session()->set_client_name("fuzz");
      return send(channel, request);
    }
    const uint64_t id = session(input);
    const std::string secret = choice < 200 ? model_.secret_of(id) : "wrong";
    if (choice % 4 == 1) {
      request.mutable_resume_session()->set_session_id(id);
      request.mutable_resume_session()->set_secret(secret);
    } else if (choice % 4 == 2) {
      request.mutable_fence_session()->set_session_id(id);
      request.mutable_fence_session()->set_secret(secret);
    } else {
      request.mutable_close_session()->set_session_id(id);
    }
    send(channel, request);
  }

  void grant(size_t channel, Input& input) {
    control::Envelope request;
    if (input.byte() % 8 == 0) {
      request.mutable_grow_table()->set_session_id(session(input));
      request.mutable_grow_table()->set_partition(input.number32());
      request.mutable_grow_table()->set_hash(input.number());
      request.mutable_grow_table()->set_table(input.number());
      return send(channel, request);
    }
    request.mutable_grant_request()->set_session_id(session(input));
    request.mutable_grant_request()->set_partition(input.number32());
    request.mutable_grant_request()->set_size_class(input.number32());
    request.mutable_grant_request()->set_blocks(input.number32());
    send(channel, request);
  }

  void report(size_t channel, Input& input) {
    control::Envelope request;
    control::EpochReport& message = *request.mutable_epoch_report();
    message.set_session_id(session(input));
    message.set_reclaim_epoch(input.number());
    for (int uses = input.byte() % 5; uses > 0; --uses) {
      control::GrantUse& use = *message.add_grants();
      use.set_grant_id(input.number());
      use.set_consumed(input.number32());
      use.set_returned(input.byte() % 2 == 0);
    }
    send(channel, request);
  }

  // What a correct client would say: the newest epoch, and everything that it was granted is used.
  void report_all_used(Input& input) {
    const uint64_t id = session(input);
    control::Envelope request;
    model_.fill_report(id, *request.mutable_epoch_report());
    send(model_.channel_of(id), request);
  }

  void server_message(uint8_t kind, size_t channel, Input& input) {
    control::Envelope request;
    const uint32_t number = input.number32();
    if (kind == 15) {
      request.mutable_join()->set_name("s" + std::to_string(number));
      request.mutable_join()->set_control_address(number % 8 == 7 ? "nowhere" : "h:" + std::to_string(number % 70000));
      request.mutable_join()->set_instance(input.byte());
    } else if (number % 2 == 0) {
      request.mutable_server_heartbeat()->set_server_id(number / 2);
      request.mutable_server_heartbeat()->set_instance(input.byte());
      request.mutable_server_heartbeat()->set_map_epoch(input.number());
    } else {
      request.mutable_leave()->set_server_id(number / 2);
      request.mutable_leave()->set_instance(input.byte());
    }
    send(channel, request);
  }

  void raw(size_t channel, Input& input) {
    control::Envelope request;
    const std::string_view bytes = input.bytes(input.byte());
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    if (request.id() != 0) return send(channel, request);
    channels_[channel]->receive(request);
  }

  void settle() {
    world_.executor.run();
    for (size_t i = 0; i < channels_.size(); ++i) {
      for (const control::Envelope& envelope : std::exchange(channels_[i]->sent, {})) model_.answered(i, envelope);
    }
    model_.check_counts();
    SKUA_CHECK(PartitionMap::create(coordinator_->map()).has_value(), "a map that a client takes");
  }

  testing::World world_{Model::options(), 2};
  MemoryMapStore maps_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ControlService> service_;
  std::vector<std::shared_ptr<testing::FakeChannel>> channels_;
  Model model_;
  uint64_t last_id_ = 0;
};

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  set_log_level(LogLevel::kOff);
  fuzz::Input input(data, size);
  fuzz::Driver driver;
  for (int i = 0; i < 200 && !input.empty(); ++i) driver.step(input);
  driver.finish();
  return 0;
}
