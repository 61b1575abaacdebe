#pragma once
// The first message each way on a data connection, and the tickets that it is checked against; shm and tcp share them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/transport/target.h"

namespace skua {

inline constexpr size_t kSecretBytes = 16;
inline constexpr size_t kMaxReasonBytes = 1024;
inline constexpr uint32_t kDataReadOnly = 1;  // bit of `flags`

//   0        4          8           16        32       36         40
//   +--------+----------+-----------+---------+--------+----------+
//   | magic  | version  | session   | secret  | flags  | reserved |   client -> server, once
//   +--------+----------+-----------+---------+--------+----------+
// A server decides on magic and version as soon as it has them; the rest may differ in another version.
struct DataHello {
  uint32_t magic;
  uint32_t version;
  uint64_t session;
  uint8_t secret[kSecretBytes];
  uint32_t flags;
  uint32_t reserved;
};
inline constexpr size_t kHelloPrefixBytes = 8;
static_assert(sizeof(DataHello) == 40 && alignof(DataHello) == 8);
static_assert(offsetof(DataHello, magic) == 0 && offsetof(DataHello, version) == 4);
static_assert(offsetof(DataHello, session) == 8 && offsetof(DataHello, secret) == 16);
static_assert(offsetof(DataHello, flags) == 32 && offsetof(DataHello, reserved) == 36);
static_assert(std::has_unique_object_representations_v<DataHello> && std::is_trivially_copyable_v<DataHello>);

//   0        4          8         12       16             24         28             32
//   +--------+----------+---------+--------+--------------+----------+--------------+---------------------+
//   | magic  | version  | status  | flags  | arena_bytes  | regions  | reason_bytes | reason | region ... |
//   +--------+----------+---------+--------+--------------+----------+--------------+---------------------+
// status: 0, or a StatusCode, and then the reason as text. arena_bytes and the regions: shm only, else 0.
struct DataWelcome {
  uint32_t magic;
  uint32_t version;
  uint32_t status;
  uint32_t flags;
  uint64_t arena_bytes;
  uint32_t regions;
  uint32_t reason_bytes;
};
static_assert(sizeof(DataWelcome) == 32 && alignof(DataWelcome) == 8);
static_assert(offsetof(DataWelcome, magic) == 0 && offsetof(DataWelcome, version) == 4);
static_assert(offsetof(DataWelcome, status) == 8 && offsetof(DataWelcome, flags) == 12);
static_assert(offsetof(DataWelcome, arena_bytes) == 16 && offsetof(DataWelcome, regions) == 24);
static_assert(offsetof(DataWelcome, reason_bytes) == 28);
static_assert(std::has_unique_object_representations_v<DataWelcome> && std::is_trivially_copyable_v<DataWelcome>);

// Error: kInvalidArgument, a secret that is not 16 bytes.
Result<DataHello> make_hello(const ConnectTarget& target);
// Error: kIncompatible with both versions. `prefix`: at least kHelloPrefixBytes are there.
Result<void> check_hello_prefix(const DataHello& prefix);
DataWelcome make_welcome();
// The whole refusal, reason included.
std::string make_refusal(const Status& status);
// Error: what the server refused with, or kIncompatible. `welcome` without its reason: see status_of_refusal.
Result<void> check_welcome(const DataWelcome& welcome);
Status status_of_refusal(const DataWelcome& welcome, std::string_view reason);

// TicketTable is who may connect. Every admission has a serial, so that what ends the connections of an earlier
// ticket leaves those of a later one alone.
// Threads: none of its own; its owner's lock.
class TicketTable {
 public:
  struct Admitted {
    SessionTicket ticket;
    uint64_t serial = 0;
  };
  // Returns the ticket's serial; earlier tickets of the session have lower ones.
  uint64_t admit(SessionTicket ticket);
  // Returns a serial above all that were handed out.
  uint64_t remove(SessionId session);
  // Error: kUnauthenticated; it does not say whether session or secret was wrong.
  Result<Admitted> check(const DataHello& hello) const;

 private:
  std::unordered_map<uint64_t, Admitted> tickets_;
  uint64_t next_serial_ = 1;
};

}  // namespace skua
