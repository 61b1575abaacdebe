#pragma once
// Private to transport/verbs: one client's connection at the server.
#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/transport/handshake.h"
#include "common/transport/region_table.h"
#include "common/transport/verbs/verbs.h"
#include "common/transport/verbs/verbs_handles.h"
#include "common/transport/verbs/verbs_wire.h"

namespace skua {

// VerbsSession lets one session's queue pair reach its regions, and answers its calls.
//
// Rights:  its own protection domain; its registrations have what the session may do and no more.
// Cost:    a slab is registered when it is first asked for. A call: one receive and one send, no allocation.
// Threads: the target's.
class VerbsSession {
 public:
  struct Terms {
    VerbsSettings settings;
    VerbsAtomics atomics;
    uint64_t slab_bytes;
    uint32_t path_mtu;  // 0 on iWARP
    uint32_t window;    // of calls
    ibv_comp_channel* completions;  // what its completion queue wakes; its context is the session
  };
  // Makes queue pair and receive buffers on `id`, which stays the caller's until accept. Error: kResourceExhausted.
  static Result<std::unique_ptr<VerbsSession>> create(rdma_cm_id* id, const TicketTable::Admitted& admitted,
                                                      bool read_only, const Terms& terms);
  ~VerbsSession() { end(); }

  // Tells the client yes. The session owns the connection from here on, whatever is returned.
  Result<void> accept(const VerbsEvent& request);
  // Handles what has arrived. False: the connection broke or the peer breaks the rules; end it.
  bool serve();
  // Readable completions were announced.
  bool on_completion_event();
  // When it returns no verb of the session takes effect any more.
  void end();

  SessionId session() const { return admitted_.ticket.session; }
  uint64_t serial() const { return admitted_.serial; }
  const rdma_cm_id* id() const { return connection_.id(); }
  const ibv_qp* queue_pair() const { return connection_.queue_pair(); }

 private:
  struct Region {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
    std::vector<VerbsHandle<ibv_mr>> slabs;
  };

  VerbsSession(const TicketTable::Admitted& admitted, bool read_only, const Terms& terms)
      : admitted_(admitted), read_only_(read_only), terms_(terms) {}
  Result<void> make_queues(rdma_cm_id* id);
  bool post_receive(uint32_t slot);
  bool answer(uint32_t slot);
  VerbsReply execute(const VerbsCall& call);
  VerbsReply locate(const VerbsCall& call);
  int access() const;
  std::byte* calls() const { return memory_.get(); }
  std::byte* replies() const { return memory_.get() + kCallWindow * sizeof(VerbsCall); }

  const TicketTable::Admitted admitted_;
  const bool read_only_;
  const Terms terms_;
  rdma_cm_id* raw_id_ = nullptr;   // not owned; the caller's until accept
  VerbsHandle<ibv_pd> domain_;
  VerbsHandle<ibv_cq> completions_;
  std::unique_ptr<std::byte[]> memory_;  // calls, then replies
  VerbsHandle<ibv_mr> memory_region_;
  RegionTable table_;
  std::unordered_map<uint64_t, Region> regions_;
  bool iwarp_ = false;
  uint32_t max_inline_ = 0;
  uint32_t next_reply_ = 0;
  uint32_t replies_out_ = 0;       // whose sends have not completed
  bool registration_failed_ = false;  // was logged
  VerbsConnection connection_;
};

}  // namespace skua
