#include "client/doctor/loopback.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace skua::doctor {
namespace {

constexpr Nanoseconds kPatience = 5 * kSecond;  // longer than a device's own retries
constexpr RegionKey kKey{1};
constexpr uint64_t kWordOffset = 1024;  // behind what is written

std::string random_secret(Entropy& entropy) {
  std::string secret(16, '\0');
  for (size_t at = 0; at < secret.size(); at += sizeof(uint64_t)) {
    const uint64_t word = entropy.next();
    std::memcpy(secret.data() + at, &word, sizeof(word));
  }
  return secret;
}

class Loopback {
 public:
  Loopback(std::unique_ptr<QueuePair> queue_pair, const Clock& clock)
      : queue_pair_(std::move(queue_pair)), clock_(clock) {}

  Result<void> wait_until_ready() {
    const Nanoseconds end = clock_.now() + kPatience;
    while (queue_pair_->state() == QueuePairState::kConnecting && clock_.now() < end) {
      queue_pair_->poll({});
      std::this_thread::yield();
    }
    if (queue_pair_->state() == QueuePairState::kReady) return {};
    if (queue_pair_->state() == QueuePairState::kError) return Error(queue_pair_->error());
    return fail(StatusCode::kUnavailable, "no answer while connecting for " + std::to_string(kPatience / kSecond) +
                                              " s");
  }

  bool device_atomics() const { return queue_pair_->capabilities().remote_atomics; }

  // How long it took.
  Result<Nanoseconds> run(const char* name, const WorkRequest& request) {
    const Nanoseconds began = clock_.now();
    if (queue_pair_->post({&request, 1}) != 1) return broken(name, "is not taken");
    Completion completion;
    while (queue_pair_->poll({&completion, 1}) == 0) {
      if (clock_.now() - began > kPatience) return broken(name, "does not complete");
      std::this_thread::yield();  // the target's thread may need this processor
    }
    if (completion.status != CompletionStatus::kSuccess) return broken(name, to_string(completion.status));
    return clock_.now() - began;
  }

 private:
  Error broken(const char* name, std::string_view how) const {
    std::string why = std::string(name) + ": " + std::string(how);
    if (queue_pair_->state() == QueuePairState::kError) why += ": " + queue_pair_->error().message();
    return fail(StatusCode::kUnavailable, why);
  }

  const std::unique_ptr<QueuePair> queue_pair_;
  const Clock& clock_;
};

WorkRequest request_for(Verb verb, uint64_t offset, void* local, uint32_t bytes) {
  WorkRequest request;
  request.verb = verb;
  request.key = kKey;
  request.remote_offset = offset;
  request.local_count = 1;
  request.local[0] = {local, bytes};
  return request;
}

Nanoseconds median(std::vector<Nanoseconds> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

Result<void> run_rounds(Loopback& loopback, LoopbackTimes& result) {
  std::array<std::byte, kLoopbackBytes> sent;
  std::array<std::byte, kLoopbackBytes> received;
  std::vector<Nanoseconds> writes;
  std::vector<Nanoseconds> reads;
  std::vector<Nanoseconds> swaps;
  for (uint32_t round = 0; round < kLoopbackRounds; ++round) {
    sent.fill(std::byte(round + 1));
    received.fill(std::byte{0});
    const auto write = loopback.run("WRITE", request_for(Verb::kWrite, 0, sent.data(), kLoopbackBytes));
    if (!write) return Error(write.error());
    const auto read = loopback.run("READ", request_for(Verb::kRead, 0, received.data(), kLoopbackBytes));
    if (!read) return Error(read.error());
    if (sent != received) return fail(StatusCode::kCorruption, "READ: not the bytes that were written");
    uint64_t found = UINT64_MAX;
    WorkRequest swap = request_for(Verb::kCompareAndSwap, kWordOffset, &found, sizeof(found));
    swap.compare = round;
    swap.swap_or_add = round + 1;
    const auto swapped = loopback.run("CAS", swap);
    if (!swapped) return Error(swapped.error());
    if (found != round) {
      return fail(StatusCode::kCorruption, "CAS: found " + std::to_string(found) + " where " + std::to_string(round) +
                                               " was stored");
    }
    writes.push_back(*write);
    reads.push_back(*read);
    swaps.push_back(*swapped);
  }
  result.write = median(std::move(writes));
  result.read = median(std::move(reads));
  result.compare_and_swap = median(std::move(swaps));
  return {};
}

}  // namespace

Result<LoopbackTimes> time_loopback(Target& target, Connector& connector, const ArenaInfo& memory,
                                    const Clock& clock, Entropy& entropy) {
  SessionTicket ticket;
  ticket.session = SessionId{1};
  ticket.secret = random_secret(entropy);
  ticket.regions.push_back({kKey, memory.data, memory.bytes, 0});
  ConnectTarget peer;
  peer.address = target.endpoint();
  peer.session = ticket.session;
  peer.secret = ticket.secret;
  peer.regions.push_back({0, kKey, memory.bytes});
  peer.response_timeout = kPatience;
  target.admit(std::move(ticket));

  LoopbackTimes times;
  const Nanoseconds began = clock.now();
  auto queue_pair = connector.connect(peer);
  if (!queue_pair) return Error(std::move(queue_pair).error());
  Loopback loopback(std::move(*queue_pair), clock);
  SKUA_RETURN_IF_ERROR(loopback.wait_until_ready());
  times.connect = clock.now() - began;
  times.device_atomics = loopback.device_atomics();
  uint64_t word = 0;
  const auto first = loopback.run("the first READ", request_for(Verb::kRead, kWordOffset, &word, sizeof(word)));
  if (!first) return Error(first.error());
  times.first_access = *first;
  SKUA_RETURN_IF_ERROR(run_rounds(loopback, times));
  return times;
}

Result<LoopbackTimes> time_verbs_loopback(const DeviceChoice& choice, const std::string& address,
                                          const VerbsSettings& settings, const Clock& clock) {
  constexpr uint64_t kMemoryBytes = 64 * 1024;
  if (choice.address.empty() && address.empty()) {
    return fail(StatusCode::kConfiguration, "the GID of an InfiniBand port is no IP address: name the one of its "
                                            "IPoIB interface with --address");
  }
  std::vector<uint64_t> words(kMemoryBytes / sizeof(uint64_t));
  const ArenaInfo memory{reinterpret_cast<std::byte*>(words.data()), kMemoryBytes, -1};
  VerbsTargetOptions options;
  options.settings = settings;
  options.settings.device = choice.device;
  options.settings.port = choice.port;
  options.settings.gid_index = choice.gid_index;
  options.listen_host = address.empty() ? choice.address : address;
  options.listener_name = "loopback listener";
  options.atomics = choice.remote_atomics ? VerbsAtomics::kDevice : VerbsAtomics::kCpu;
  options.slab_bytes = kMemoryBytes;
  auto target = make_verbs_target(options, memory);
  if (!target) return Error(std::move(target).error());
  const auto connector = make_verbs_connector(options.settings, clock);
  return time_loopback(**target, *connector, memory, clock, system_entropy());
}

}  // namespace skua::doctor
