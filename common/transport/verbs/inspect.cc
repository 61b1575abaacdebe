#include "common/transport/verbs/inspect.h"

#include <infiniband/verbs.h>

#include <algorithm>

#include "common/transport/verbs/ibv_queries.h"

namespace skua {
namespace {

constexpr uint32_t kMostInline = 4096;  // no provider takes so much
constexpr uint32_t kStep = 4;           // how exactly it is looked for

template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const { Destroy(object); }
};
using Context = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using Domain = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using Completions = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using QueuePairHandle = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;

Context open(const std::string& name) {
  int count = 0;
  ibv_device** const list = ::ibv_get_device_list(&count);
  Context context;
  for (int i = 0; i < count; ++i) {
    if (name == ::ibv_get_device_name(list[i])) context.reset(::ibv_open_device(list[i]));
  }
  if (list != nullptr) ::ibv_free_device_list(list);
  return context;
}

// The most that a queue pair was given: devices say so only by refusing more. 0: none could be made.
uint32_t probe_inline(const std::string& name) {
  const Context context = open(name);
  if (context == nullptr) return 0;
  const Domain domain(::ibv_alloc_pd(context.get()));
  const Completions completions(::ibv_create_cq(context.get(), 2, nullptr, nullptr, 0));
  if (domain == nullptr || completions == nullptr) return 0;
  uint32_t most = 0;
  uint32_t refused = kMostInline;
  while (refused > most + kStep) {
    const uint32_t wanted = (most + refused) / 2;
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {1, 1, 1, 1, wanted};
    const QueuePairHandle made(::ibv_create_qp(domain.get(), &attributes));
    if (made == nullptr) {
      refused = wanted;
    } else {
      most = std::max(wanted, attributes.cap.max_inline_data);
    }
  }
  return most;
}

class InspectingQueries final : public DeviceQueries {
 public:
  Result<std::vector<DeviceFacts>> devices() override {
    auto found = make_ibv_queries()->devices();
    if (!found) return found;
    for (DeviceFacts& device : *found) device.max_inline = probe_inline(device.name);
    return found;
  }
};

}  // namespace

std::unique_ptr<DeviceQueries> make_inspecting_queries() { return std::make_unique<InspectingQueries>(); }

}  // namespace skua
