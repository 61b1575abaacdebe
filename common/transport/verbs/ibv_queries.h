#pragma once
// Private to transport/verbs: DeviceQueries by libibverbs.
#include <memory>

#include "common/transport/verbs/device_select.h"

namespace skua {

std::unique_ptr<DeviceQueries> make_ibv_queries();

}  // namespace skua
