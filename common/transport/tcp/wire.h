#pragma once
// The TCP data plane, byte for byte, little-endian, under proto::kDataVersion.
//
//   client                                server
//     | DataHello                            |   common/transport/handshake.h
//     |------------------------------------->|
//     |                          DataWelcome |   status != 0: reason, then the server closes
//     |<-------------------------------------|
//     | WireRequest [WRITE's payload] ...    |   as many as the client likes, up to kQueueDepth unanswered
//     |------------------------------------->|
//     |   WireResponse [READ's payload, old] |   one for each request, in order
//     |<-------------------------------------|
//
// The first response that is no success is the last: the server closes behind it, and requests that follow are not
// executed. A request that claims more than kMaxMessageBytes is answered so before any payload is taken.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/transport/transport.h"

namespace skua {

//   0      1          8       16    24       32        40             48
//   +------+----------+-------+-----+--------+---------+--------------+-------------------+
//   | verb | reserved | bytes | key | offset | compare | swap_or_add  | payload of WRITE  |
//   +------+----------+-------+-----+--------+---------+--------------+-------------------+
// bytes: of READ and WRITE; 8 for atomics. Unused fields and reserved bytes are zero.
struct WireRequest {
  uint8_t verb;
  uint8_t reserved[7];
  uint64_t bytes;
  uint64_t key;
  uint64_t offset;
  uint64_t compare;
  uint64_t swap_or_add;
};
static_assert(sizeof(WireRequest) == 48 && alignof(WireRequest) == 8);
static_assert(offsetof(WireRequest, verb) == 0 && offsetof(WireRequest, bytes) == 8);
static_assert(offsetof(WireRequest, key) == 16 && offsetof(WireRequest, offset) == 24);
static_assert(offsetof(WireRequest, compare) == 32 && offsetof(WireRequest, swap_or_add) == 40);
static_assert(std::has_unique_object_representations_v<WireRequest> && std::is_trivially_copyable_v<WireRequest>);

//   0        4       8
//   +--------+-------+---------------------------------------+
//   | status | bytes | payload of READ; old value of atomics |
//   +--------+-------+---------------------------------------+
// status: a CompletionStatus. bytes: of the payload; as asked for on success, else 0.
struct WireResponse {
  uint32_t status;
  uint32_t bytes;
};
static_assert(sizeof(WireResponse) == 8 && alignof(WireResponse) == 4);
static_assert(offsetof(WireResponse, status) == 0 && offsetof(WireResponse, bytes) == 4);
static_assert(std::has_unique_object_representations_v<WireResponse> && std::is_trivially_copyable_v<WireResponse>);

// The verbs as the wire numbers them.
static_assert(static_cast<int>(Verb::kRead) == 0 && static_cast<int>(Verb::kWrite) == 1);
static_assert(static_cast<int>(Verb::kCompareAndSwap) == 2 && static_cast<int>(Verb::kFetchAndAdd) == 3);

}  // namespace skua
