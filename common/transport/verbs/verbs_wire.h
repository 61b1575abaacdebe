#pragma once
// What two ends of a verbs connection tell each other, byte for byte, little-endian, under proto::kDataVersion.
//
//   client                                   server
//     | rdma_connect: DataHello, VerbsOffer     |   common/transport/handshake.h
//     |---------------------------------------->|
//     |     rdma_accept: DataWelcome, VerbsTerms |   or rdma_reject: DataWelcome, and the reason as far as it fits
//     |<----------------------------------------|
//     | SEND VerbsCall ...                       |   at most kCallWindow unanswered
//     |---------------------------------------->|
//     |                     SEND VerbsReply ... |   one for each call, in order
//     |<----------------------------------------|
//
// READ, WRITE and, where the terms say so, atomics go to the memory itself.
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace skua {

// Calls that may be unanswered, at most. Both sides have receive buffers for the window that they agree on: a call is a
// credit spent and its reply the credit back, so that no message ever finds the other side without a buffer.
inline constexpr uint32_t kCallWindow = 64;
// What rdma_reject carries on InfiniBand and RoCE; the reason behind the welcome is cut to fit.
inline constexpr size_t kMaxRefusalBytes = 148;

//   0          4         8
//   +----------+---------+
//   | path_mtu | window  |   behind the DataHello; zeros, or nothing, from a client that does not know it
//   +----------+---------+
// path_mtu: bytes that the client's port and path carry; 0 on iWARP. window: replies that it has buffers for
// (0: kCallWindow).
// What the connection manager of InfiniBand and RoCE carries leaves 16 bytes behind the hello.
struct VerbsOffer {
  uint32_t path_mtu;
  uint32_t window;
};
static_assert(sizeof(VerbsOffer) == 8 && alignof(VerbsOffer) == 4);
static_assert(offsetof(VerbsOffer, path_mtu) == 0 && offsetof(VerbsOffer, window) == 4);
static_assert(std::has_unique_object_representations_v<VerbsOffer> && std::is_trivially_copyable_v<VerbsOffer>);

//   0          4         8            16         20         24
//   +----------+---------+------------+----------+----------+
//   | atomics  | window  | slab_bytes | path_mtu | reserved |   behind the DataWelcome
//   +----------+---------+------------+----------+----------+
// atomics: 0 the server's CPU executes them, as calls; 1 the device does. path_mtu: what both use, at most what the
// client offered; 0 on iWARP, and from a server that uses the connection request's. window: of calls, from 1 to the
// client's.
struct VerbsTerms {
  uint32_t atomics;
  uint32_t window;
  uint64_t slab_bytes;
  uint32_t path_mtu;
  uint32_t reserved;
};
static_assert(sizeof(VerbsTerms) == 24 && alignof(VerbsTerms) == 8);
static_assert(offsetof(VerbsTerms, atomics) == 0 && offsetof(VerbsTerms, window) == 4);
static_assert(offsetof(VerbsTerms, slab_bytes) == 8 && offsetof(VerbsTerms, path_mtu) == 16);
static_assert(offsetof(VerbsTerms, reserved) == 20);
static_assert(std::has_unique_object_representations_v<VerbsTerms> && std::is_trivially_copyable_v<VerbsTerms>);

enum class VerbsCallKind : uint32_t {
  kLocate = 0,          // where the slab that holds `offset` lies
  kCompareAndSwap = 1,
  kFetchAndAdd = 2,
};

//   0      4          8     16       24        32            40
//   +------+----------+-----+--------+---------+-------------+
//   | kind | sequence | key | offset | compare | swap_or_add |
//   +------+----------+-----+--------+---------+-------------+
struct VerbsCall {
  uint32_t kind;
  uint32_t sequence;  // counts calls from 0
  uint64_t key;
  uint64_t offset;
  uint64_t compare;
  uint64_t swap_or_add;
};
static_assert(sizeof(VerbsCall) == 40 && alignof(VerbsCall) == 8);
static_assert(offsetof(VerbsCall, kind) == 0 && offsetof(VerbsCall, sequence) == 4);
static_assert(offsetof(VerbsCall, key) == 8 && offsetof(VerbsCall, offset) == 16);
static_assert(offsetof(VerbsCall, compare) == 24 && offsetof(VerbsCall, swap_or_add) == 32);
static_assert(std::has_unique_object_representations_v<VerbsCall> && std::is_trivially_copyable_v<VerbsCall>);

//   0          4        8        16             24     28
//   +----------+--------+--------+--------------+------+----------+
//   | sequence | status | value  | region_bytes | rkey | reserved |
//   +----------+--------+--------+--------------+------+----------+
// status: a CompletionStatus; kPeerLost: the server could not register the slab. value: the old value; of kLocate the
// address of the slab's first byte. region_bytes, rkey: of kLocate; an offset past the end has no slab and rkey 0.
struct VerbsReply {
  uint32_t sequence;
  uint32_t status;
  uint64_t value;
  uint64_t region_bytes;
  uint32_t rkey;
  uint32_t reserved;
};
static_assert(sizeof(VerbsReply) == 32 && alignof(VerbsReply) == 8);
static_assert(offsetof(VerbsReply, sequence) == 0 && offsetof(VerbsReply, status) == 4);
static_assert(offsetof(VerbsReply, value) == 8 && offsetof(VerbsReply, region_bytes) == 16);
static_assert(offsetof(VerbsReply, rkey) == 24 && offsetof(VerbsReply, reserved) == 28);
static_assert(std::has_unique_object_representations_v<VerbsReply> && std::is_trivially_copyable_v<VerbsReply>);

}  // namespace skua
