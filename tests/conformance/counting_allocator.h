#pragma once
// Links counting operators new and delete into the program.
#include <cstdint>

namespace skua::conformance {

// So far, by all threads.
uint64_t allocations();

}  // namespace skua::conformance
