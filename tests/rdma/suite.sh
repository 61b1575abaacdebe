#!/bin/bash
# What `ctest -L rdma` runs: everything that wants a real RDMA stack, in one boot of one virtual machine.
#   suite.sh BIN_DIR             on this host: boots the machine (rxe-vm), which runs the programs of BIN_DIR
#   suite.sh --inside BIN_DIR    in the machine, or on a host that has an RDMA device
# Exit code: 0, 1 when something failed, 77 (skipped) where the machine cannot be had; the last line says why.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

if [ "${1-}" != --inside ]; then
  bin=$(cd "${1:?usage: suite.sh BIN_DIR}" && pwd)
  if ! reason=$("$here/rxe-vm" --prepare 2>&1); then
    echo "skipped: no virtual machine with RDMA: $(tail -1 <<<"$reason")"
    exit 77
  fi
  exec "$here/rxe-vm" --timeout 660 --mem 3000 -- "$here/suite.sh" --inside "$bin"
fi

bin=$2
. "$here/suite_functions.sh"

# The device goes away under load, and comes back. There is another: soft-RoCE takes a device from nobody who has it
# open, and librdmacm does not see that the last one is missing.
remove_device() {
  ip link add dummy9 type dummy && ip link set dummy9 up && ip addr add 10.78.0.1/24 dev dummy9 &&
    rdma link add rxe9 type rxe netdev dummy9 || failed+=("second device")
  start_server --rdma-listen "$RXE_IP:0"
  (until [ -e "$scratch/removed" ]; do sleep 0.1; done
   timeout 20 rdma link delete "$RXE_DEV"; sleep 0.5; rdma link add "$RXE_DEV" type rxe netdev "$RXE_NETDEV") &
  local remover=$!
  check fault "$scratch/removed" returns
  wait $remover
  (until [ -e "$scratch/down" ]; do sleep 0.1; done
   ip link set "$RXE_NETDEV" down; timeout 20 rdma link delete "$RXE_DEV"; sleep 0.5
   ip link set "$RXE_NETDEV" up; rdma link add "$RXE_DEV" type rxe netdev "$RXE_NETDEV") &
  remover=$!
  check fault "$scratch/down" returns
  wait $remover
  skua put after removal >>"$log" 2>&1 && [ "$(skua get after 2>>"$log")" = removal ] || failed+=("after a removal")
  stop_server
}

tests skua_conformance_verbs_test '*/verbs*'
tests skua_conformance_sessions_test '*/verbs*'
tests skua_conformance_hostile_test '*/verbs*'
tests skua_conformance_allocation_test '*/verbs*'
tests skua_verbs_device_test '*'
for workload in a b c d f; do
  wait=adaptive; [ $workload = b ] && wait=busy; [ $workload = f ] && wait=event
  ycsb "workload$workload, atomics by the device, $wait" -P "$workloads/workload$workload" --rdma-atomics device \
    --wait $wait
done
ycsb "workloada, atomics by the CPU" -P "$workloads/workloada" --rdma-atomics cpu
start_server
sweep
kill_client
stop_server
start_server --rdma-atomics cpu
check waits
check fork
stop_server
if [ "${RXE_DEV-}" = rxe0 ]; then remove_device; fi  # not on a real device: others may use it

end_suite
