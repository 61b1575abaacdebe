#pragma once
// Private to transport/shm: the server's end. It hands out mappings and takes them back; it executes no verb.
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/transport/descriptor.h"
#include "common/transport/handshake.h"
#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_pages.h"
#include "common/transport/target.h"

namespace skua {

// One peer, from accept to the end of its fence.
struct ShmConnection {
  enum class Stage {
    kHello,      // its hello is awaited
    kAdmitting,  // admitted; waits until the session's earlier connection is fenced
    kAnswering,  // its welcome (or refusal) is being written
    kOpen,
    kFencing,    // `fenced` is set; waits for `armed` to be clear
    kGone,
  };
  Stage stage = Stage::kHello;
  Descriptor socket;
  Descriptor process;       // pidfd, where the peer's process is visible
  Nanoseconds deadline = 0;  // of the handshake
  std::string received;
  bool refused = false;     // ends when its answer is written
  SessionId session{};
  uint64_t serial = 0;      // of its ticket
  bool read_only = false;
  std::vector<ExposedRegion> regions;
  std::string answer;
  size_t answered = 0;
  Descriptor arena;         // what the welcome passes
  Descriptor session_read_only;
  Descriptor session_memory;
  MappedFile session_page;

  // It may hold the mapping: only a fence ends it.
  bool may_touch_memory() const { return session_page.data() != nullptr && stage != Stage::kGone; }
};

// Threads: one of its own runs everything but admit and fence, which leave it a command.
// Cost:    asleep in poll(2) but for handshakes, fences and ends of connections.
class ShmTarget final : public Target {
 public:
  ShmTarget(const ShmTargetOptions& options, const ArenaInfo& arena) : options_(options), arena_(arena) {}
  ~ShmTarget() override;

  // Opens socket and life page and starts the thread.
  Result<void> start();

  std::string_view name() const override { return "shm"; }
  std::string endpoint() const override { return options_.address; }
  void admit(SessionTicket ticket) override;
  void fence(SessionId session, std::function<void()> fenced) override;
  size_t connections() const override { return open_.load(std::memory_order_relaxed); }

 private:
  // End every connection of `session` whose ticket's serial is below `serial`; then call `done`.
  struct Ending {
    SessionId session{};
    uint64_t serial = 0;
    std::function<void()> done;
  };
  using Stage = ShmConnection::Stage;

  Result<void> listen();
  void wake();
  void run(std::promise<int> started);
  void serve_until_stopped();
  void wait();
  int wait_timeout_ms() const;
  void take_commands();
  void accept_all();
  size_t in_use() const;
  void read_from(ShmConnection& connection);
  void take_hello(ShmConnection& connection);
  void admit_waiting(ShmConnection& connection);
  Result<void> prepare_welcome(ShmConnection& connection);
  void refuse(ShmConnection& connection, const Status& status);
  void write_answer(ShmConnection& connection);
  void begin_fence(ShmConnection& connection);
  void check_fence(ShmConnection& connection);
  void finish_endings();
  bool is_ending(const ShmConnection& connection, const Ending& ending) const {
    return connection.session == ending.session && connection.serial != 0 && connection.serial < ending.serial;
  }

  // Constant after start.
  ShmTargetOptions options_;
  const ArenaInfo arena_;
  std::string unlink_path_;
  Descriptor listener_;
  Descriptor wake_;
  Descriptor life_memory_;  // read-only
  MappedFile life_page_;
  std::thread thread_;

  // Guarded by mutex_.
  std::mutex mutex_;
  TicketTable tickets_;
  std::vector<Ending> commands_;
  bool stopping_ = false;

  std::atomic<size_t> open_{0};

  // The thread's own.
  std::vector<std::unique_ptr<ShmConnection>> connections_;
  std::vector<Ending> endings_;
  Nanoseconds accept_pause_until_ = 0;  // out of descriptors
  bool any_waiting_ = false;            // a connection is kAdmitting or kFencing
};

}  // namespace skua
