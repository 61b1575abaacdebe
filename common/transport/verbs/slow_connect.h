#pragma once
// Private to transport/verbs: rdma_connect where it waits for the peer.
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/transport/descriptor.h"
#include "common/transport/verbs/verbs_handles.h"

namespace skua {

// SlowConnect calls rdma_connect on a thread of its own. Soft-iWARP connects by TCP inside that call, and it returns
// when the last SYN was in vain: after two minutes where nobody answers. What is given up meanwhile goes to the thread.
// Threads: one owner beside its own thread.
class SlowConnect {
 public:
  // All that the connection is made of; ended in the order that the device wants.
  struct Parts {
    VerbsHandle<rdma_event_channel> events;
    VerbsHandle<ibv_comp_channel> completion_channel;
    VerbsHandle<ibv_cq> completions;
    std::unique_ptr<std::byte[]> memory;
    VerbsHandle<ibv_mr> memory_region;
    VerbsConnection connection;
    void end();
  };

  // `wake`: an eventfd, set when the call has returned. Error: kResourceExhausted, no thread or descriptor.
  static Result<std::shared_ptr<SlowConnect>> start(rdma_cm_id* id, const rdma_conn_param& parameters, int wake);

  // Nothing: it has not returned. Else its errno, 0 for success.
  std::optional<int> result();
  // True: the call goes on, and `parts` are ended after it. False: it has returned, nothing was taken.
  bool leave_behind(Parts& parts);

 private:
  SlowConnect(const rdma_conn_param& parameters, Descriptor wake);
  void run(rdma_cm_id* id);

  rdma_conn_param parameters_;
  const std::string private_data_;
  const Descriptor wake_;
  std::mutex mutex_;
  std::optional<int> result_;    // guarded by mutex_
  std::optional<Parts> left_;    // guarded by mutex_
};

}  // namespace skua
