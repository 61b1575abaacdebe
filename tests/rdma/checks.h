#pragma once
// What skua_rdma_checks does against a running cluster, on a real RDMA stack. Each prints what it saw.
#include <string>

namespace skua::rdma_checks {

// Load on two sessions while something between them and the server breaks.
struct Fault {
  std::string address;
  std::string file;      // created when it is time: somebody else makes the fault
  bool returns = false;  // and mends it: the sessions must work again
};
bool check_fault(const Fault& fault);

// Every way to wait for completions: right values, and the one that it says of sleeping. Requires: a server whose CPU
// executes CAS, so that there is something to wait for.
bool check_waits(const std::string& address);

// Children are forked in the middle of the load, and write over all memory that they have.
bool check_fork(const std::string& address);

}  // namespace skua::rdma_checks
