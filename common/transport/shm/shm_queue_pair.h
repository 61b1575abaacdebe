#pragma once
// Private to transport/shm: the client's end of one connection.
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/descriptor.h"
#include "common/transport/handshake.h"
#include "common/transport/region_table.h"
#include "common/transport/shm/shm_pages.h"
#include "common/transport/transport.h"

namespace skua {

// One mapping of each arena for all queue pairs of a connector, for as long as one of them lives.
// Threads: any.
class ShmMappings {
 public:
  Result<std::shared_ptr<MappedFile>> map(int descriptor, size_t bytes, MappedFile::Access access);

 private:
  using Identity = std::pair<std::pair<uint64_t, uint64_t>, MappedFile::Access>;  // device, inode; rights
  std::mutex mutex_;
  std::map<Identity, std::weak_ptr<MappedFile>> mappings_;
};

// Cost:    post prefetches, poll copies: no allocation, lock or system call once ready.
// Threads: one owner thread.
// Errors:  kPeerLost: fenced by the server, or the server ended; found by the first poll after it.
class ShmQueuePair final : public QueuePair {
 public:
  struct Options {
    DataHello hello;
    std::string address;
    UnixAddress socket_address;
    Nanoseconds deadline;  // of the handshake
  };
  ShmQueuePair(Options options, std::shared_ptr<ShmMappings> mappings, const Clock& clock);
  ~ShmQueuePair() override { close(); }

  // Connects the socket and says hello. Error: there is no such socket here.
  Result<void> dial();

  QueuePairState state() const override { return state_; }
  const Status& error() const override { return error_; }
  size_t post(std::span<const WorkRequest> requests) override;
  size_t poll(std::span<Completion> completions) override;
  int wait_descriptor() const override { return state_ == QueuePairState::kConnecting ? socket_.get() : -1; }
  const Capabilities& capabilities() const override { return capabilities_; }
  void close() override;

 private:
  // The most that is copied in one armed section: what a fence waits for, ~10 us.
  static constexpr uint64_t kArmedBytes = 64 << 10;
  static constexpr uint64_t kStepBytes = 1 << 20;  // of a READ; a sign of life after each

  struct Entry {
    WorkRequest request;
    std::byte* remote = nullptr;
    CompletionStatus verdict = CompletionStatus::kSuccess;
  };

  // Handshake, shm_connect.cc.
  void advance_handshake();
  Result<bool> try_connect();
  Result<bool> receive_welcome();
  Result<void> accept_welcome();
  Result<void> map_regions(const DataWelcome& welcome);
  void collect_descriptors(const void* message);

  // Execution, shm_datapath.cc.
  void prepare(Entry& entry);
  CompletionStatus execute(Entry& entry);
  CompletionStatus execute_read(const Entry& entry);
  CompletionStatus execute_write(const Entry& entry);
  CompletionStatus execute_atomic(const Entry& entry);
  bool arm(uint64_t bytes);
  void disarm();
  bool revoked() const;
  size_t flush(std::span<Completion> completions);
  void break_off(CompletionStatus status, const Entry* entry);
  void fail_with(Status status);

  // Constant after the handshake.
  const Options options_;
  const std::shared_ptr<ShmMappings> mappings_;
  const Clock& clock_;
  Capabilities capabilities_;
  RegionTable regions_;
  std::shared_ptr<MappedFile> arena_;
  MappedFile session_file_;
  MappedFile life_file_;
  ShmSessionPage* session_ = nullptr;
  const ShmLifePage* life_ = nullptr;

  // Owner thread.
  QueuePairState state_ = QueuePairState::kConnecting;
  Status error_{StatusCode::kInternal, "no error"};
  bool failed_reported_ = false;  // the request that broke the queue pair has its completion
  uint64_t head_ = 0;             // next to execute
  uint64_t tail_ = 0;             // next free
  bool armed_ = false;
  uint64_t armed_bytes_left_ = 0;
  std::unique_ptr<std::array<Entry, kQueueDepth>> ring_;

  Descriptor socket_;
  bool connected_ = false;
  std::string received_;
  std::vector<Descriptor> descriptors_;
};

}  // namespace skua
