#pragma once
// Private to transport/verbs: where an iWARP device is reached. Its GID is made of the hardware address, which nobody
// can connect to.
#include <string>
#include <vector>

#include "common/transport/verbs/device_select.h"

namespace skua {

// The IP addresses of `device`'s network interface, numbered from 0 in the system's order. Empty: it has none, or the
// connection manager cannot be asked.
std::vector<GidEntry> iwarp_addresses(const std::string& device);

}  // namespace skua
