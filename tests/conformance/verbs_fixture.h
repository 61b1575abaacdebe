#pragma once
#include <memory>

#include "common/transport/verbs/verbs.h"
#include "tests/conformance/harness.h"

namespace skua::conformance {

// Over the RDMA device that a server would take by itself; `missing` where there is none.
std::unique_ptr<Fixture> make_verbs_fixture(VerbsAtomics atomics, const VerbsSettings& settings = {});

}  // namespace skua::conformance
