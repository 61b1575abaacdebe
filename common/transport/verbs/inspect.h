#pragma once
// What can be told of this system's RDMA devices, for a person to read. There as well when built without libibverbs.
#include <memory>

#include "common/transport/verbs/device_select.h"

namespace skua {

// Queries that know max_inline too: they make a queue pair on each device to see it, and destroy it.
// Without libibverbs: devices() fails with kConfiguration and says so.
std::unique_ptr<DeviceQueries> make_inspecting_queries();

}  // namespace skua
