// The set-up half of the shm queue pair, and the connector.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_queue_pair.h"

namespace skua {
namespace {

constexpr uint32_t kMaxRegions = 65536;

class ShmConnector final : public Connector {
 public:
  explicit ShmConnector(const Clock& clock) : clock_(clock) {}
  std::string_view name() const override { return "shm"; }

  Result<std::unique_ptr<QueuePair>> connect(const ConnectTarget& target) override {
    auto hello = make_hello(target);
    if (!hello) return Error(std::move(hello).error());
    auto address = parse_unix_address(target.address);
    if (!address) return Error(std::move(address).error());
    ShmQueuePair::Options options{*hello, target.address, *address, clock_.now() + target.response_timeout};
    auto queue_pair = std::make_unique<ShmQueuePair>(std::move(options), mappings_, clock_);
    SKUA_RETURN_IF_ERROR(queue_pair->dial());
    return queue_pair;
  }

 private:
  const Clock& clock_;
  const std::shared_ptr<ShmMappings> mappings_ = std::make_shared<ShmMappings>();
};

}  // namespace

std::unique_ptr<Connector> make_shm_connector(const Clock& clock) { return std::make_unique<ShmConnector>(clock); }

Result<std::shared_ptr<MappedFile>> ShmMappings::map(int descriptor, size_t bytes, MappedFile::Access access) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) {
    return fail(StatusCode::kResourceExhausted, "fstat of the server's memory: " + errno_text(errno));
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(mappings_, [](const auto& item) { return item.second.expired(); });
  std::weak_ptr<MappedFile>& known = mappings_[{{info.st_dev, info.st_ino}, access}];
  if (auto mapping = known.lock()) return mapping;
  auto file = MappedFile::map(descriptor, bytes, access);
  if (!file) return Error(std::move(file).error());
  auto mapping = std::make_shared<MappedFile>(std::move(*file));
  known = mapping;
  return mapping;
}

ShmQueuePair::ShmQueuePair(Options options, std::shared_ptr<ShmMappings> mappings, const Clock& clock)
    : options_(std::move(options)),
      mappings_(std::move(mappings)),
      clock_(clock),
      capabilities_{"shm", kQueueDepth, kMaxMessageBytes, true, (options_.hello.flags & kDataReadOnly) != 0},
      ring_(std::make_unique<std::array<Entry, kQueueDepth>>()) {}

Result<void> ShmQueuePair::dial() {
  socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_) return fail(StatusCode::kResourceExhausted, "shm " + options_.address + ": " + errno_text(errno));
  auto connected = try_connect();
  if (!connected) return Error(std::move(connected).error());
  return {};
}

// False: the server's backlog is full; try again.
Result<bool> ShmQueuePair::try_connect() {
  const auto* address = reinterpret_cast<const sockaddr*>(options_.socket_address.bytes);
  if (::connect(socket_.get(), address, options_.socket_address.size) != 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    return fail(StatusCode::kUnavailable, "shm " + options_.address + ": " + errno_text(errno) +
                                              "; no server with this socket runs on this host");
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  const uid_t user = ::geteuid();
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      (user != 0 && peer.uid != 0 && peer.uid != user)) {
    return fail(StatusCode::kPermissionDenied, "shm " + options_.address + ": its server runs as user " +
                                                   std::to_string(peer.uid) + ", this process as user " +
                                                   std::to_string(user) + "; use tcp between users");
  }
  const ssize_t sent = ::send(socket_.get(), &options_.hello, sizeof(options_.hello), MSG_NOSIGNAL);
  const bool answered_already = sent < 0 && (errno == EPIPE || errno == ECONNRESET);  // a refusal waits to be read
  if (sent != static_cast<ssize_t>(sizeof(options_.hello)) && !answered_already) {
    return fail(StatusCode::kUnavailable, "shm " + options_.address + ": hello was not taken: " + errno_text(errno));
  }
  connected_ = true;
  return true;
}

void ShmQueuePair::advance_handshake() {
  Result<bool> step = connected_ ? Result<bool>(true) : try_connect();
  if (step && *step) step = receive_welcome();
  if (!step) {
    fail_with(step.error());
  } else if (*step) {
    if (auto accepted = accept_welcome(); !accepted) {
      fail_with(accepted.error());
    } else {
      state_ = QueuePairState::kReady;
      received_ = {};
      descriptors_.clear();
    }
  } else if (clock_.now() > options_.deadline) {
    fail_with(Status(StatusCode::kUnavailable, "the server did not answer the handshake in time"));
  }
}

void ShmQueuePair::collect_descriptors(const void* message) {
  const auto* header = static_cast<const msghdr*>(message);
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(header), part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int value = -1;
      std::memcpy(&value, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors_.emplace_back(value);
    }
  }
}

// True: the welcome is there as a whole, with its reason or regions.
Result<bool> ShmQueuePair::receive_welcome() {
  char buffer[4096];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kShmDescriptors)];
  while (true) {
    size_t wanted = sizeof(DataWelcome);
    if (received_.size() >= wanted) {
      DataWelcome welcome{};
      std::memcpy(&welcome, received_.data(), sizeof(welcome));
      SKUA_RETURN_IF_ERROR(check_welcome(welcome));
      if (welcome.regions > kMaxRegions) return fail(StatusCode::kCorruption, "the welcome names too many regions");
      wanted += welcome.reason_bytes + size_t{welcome.regions} * sizeof(ShmRegion);
      if (received_.size() >= wanted) return true;
    }
    iovec part{buffer, std::min(sizeof(buffer), wanted - received_.size())};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      return fail(StatusCode::kUnavailable, "the server closed the socket during the handshake" +
                                                (got < 0 ? ": " + errno_text(errno) : std::string()));
    }
    collect_descriptors(&message);
    received_.append(buffer, static_cast<size_t>(got));
  }
}

Result<void> ShmQueuePair::accept_welcome() {
  DataWelcome welcome{};
  std::memcpy(&welcome, received_.data(), sizeof(welcome));
  if (welcome.status != 0) {
    return Error(status_of_refusal(welcome, std::string_view(received_).substr(sizeof(welcome), welcome.reason_bytes)));
  }
  if (descriptors_.size() != kShmDescriptors) {
    return fail(StatusCode::kResourceExhausted, "the server passed " + std::to_string(descriptors_.size()) +
                                                    " descriptors instead of 3; see ulimit -n");
  }
  using Access = MappedFile::Access;
  capabilities_.read_only = (welcome.flags & kDataReadOnly) != 0;
  const Access access = capabilities_.read_only ? Access::kRead : Access::kReadWrite;
  auto arena = mappings_->map(descriptors_[kArenaDescriptor].get(), welcome.arena_bytes, access);
  if (!arena) return Error(std::move(arena).error());
  arena_ = std::move(*arena);
  auto session = MappedFile::map(descriptors_[kSessionDescriptor].get(), sizeof(ShmSessionPage), access);
  if (!session) return Error(std::move(session).error());
  session_file_ = std::move(*session);
  session_ = session_file_.as<ShmSessionPage>();
  auto life = MappedFile::map(descriptors_[kLifeDescriptor].get(), sizeof(ShmLifePage), Access::kRead);
  if (!life) return Error(std::move(life).error());
  life_file_ = std::move(*life);
  life_ = life_file_.as<ShmLifePage>();
  return map_regions(welcome);
}

Result<void> ShmQueuePair::map_regions(const DataWelcome& welcome) {
  std::vector<MappedRegion> regions;
  const char* from = received_.data() + sizeof(welcome) + welcome.reason_bytes;
  for (uint32_t i = 0; i < welcome.regions; ++i, from += sizeof(ShmRegion)) {
    ShmRegion region{};
    std::memcpy(&region, from, sizeof(region));
    if (region.bytes > welcome.arena_bytes || region.arena_offset > welcome.arena_bytes - region.bytes) {
      return fail(StatusCode::kCorruption, "the server named a region outside its memory");
    }
    regions.push_back({RegionKey{region.key}, arena_->data() + region.arena_offset, region.bytes});
  }
  regions_.assign(regions, capabilities_.read_only);
  return {};
}

void ShmQueuePair::fail_with(Status status) {
  if (state_ == QueuePairState::kError) return;
  state_ = QueuePairState::kError;
  error_ = Status(status.code(), "shm " + options_.address + ": " + status.message());
  socket_.reset();
}

void ShmQueuePair::close() {
  disarm();
  fail_with(Status(StatusCode::kPeerLost, "closed by this side"));
  socket_.reset();
  head_ = tail_;
}

}  // namespace skua
