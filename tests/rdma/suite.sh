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
workloads=$root/bench/workloads
failed=()
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
began=$SECONDS

# A gtest program: all its tests must have run.
tests() {  # NAME FILTER
  local log=$scratch/$1.log
  if timeout 240 "$bin/$1" --gtest_color=no --gtest_filter="$2" >"$log" 2>&1 &&
      ! grep -q '^\[  SKIPPED' "$log" && grep -q '^\[  PASSED  \] [1-9]' "$log"; then
    echo "ok   $1: $(sed -n 's/^\[  PASSED  \] //p' "$log")  ($((SECONDS - began)) s)"
  else
    echo "FAIL $1"; grep -v '^\[ *\(RUN\|OK\)' "$log" | tail -40; failed+=("$1")
  fi
}

# A YCSB run over verbs: exit code 0 says that every value was right.
ycsb() {  # NAME ARGUMENT...
  local name=$1 log=$scratch/$1.log; shift
  if timeout 180 "$bin/skua-bench" -load -run -threads 2 -p recordcount=300 -p operationcount=800 \
      -p dataintegrity=true --local 3 --memory 64MiB --transport verbs "$@" >"$log" 2>&1 &&
      grep -q 'server 3: verbs' "$log" && grep -q '^\[OVERALL\], Throughput' "$log"; then
    echo "ok   $name  ($((SECONDS - began)) s)"
  else
    echo "FAIL $name"; tail -30 "$log"; failed+=("$name")
  fi
}

# A server for the command line; sets `server` and `log`.
start_server() {  # ARGUMENT...
  log=$scratch/server.log
  rm -f "$scratch/ready"
  "$bin/skua-server" --listen 127.0.0.1:7400 --transports verbs --memory 64MiB --partitions 8 --expected-keys 10000 \
    --lease-ms 1000 --data-dir "$scratch/data" --ready-file "$scratch/ready" "$@" >"$log" 2>&1 &
  server=$!
  for _ in $(seq 300); do [ -s "$scratch/ready" ] && break; sleep 0.1; done
}
skua() { timeout 30 "$bin/skua" --transport verbs "$@"; }

# A removed value gives its memory back: the sweep renames its slot word, by the device as its clients do.
sweep() {
  local stats=
  head -c 3000000 /dev/urandom >"$scratch/value"
  skua put large --file "$scratch/value" >>"$log" 2>&1 && skua get large 2>>"$log" | cmp -s - "$scratch/value" &&
    skua rm large >>"$log" 2>&1
  for _ in $(seq 30); do
    stats=$(skua stats --json 2>>"$log")
    if grep -q '"blocks_reused":[1-9]' <<<"$stats" && grep -q '"used_bytes":0' <<<"$stats"; then
      echo "ok   sweep  ($((SECONDS - began)) s)"
      return
    fi
    sleep 0.5
  done
  echo "FAIL sweep: $stats"; tail -20 "$log"; failed+=(sweep)
}

# A client killed in the middle of its load: what others see of it.
kill_client() {
  local load
  skua put stays here >>"$log" 2>&1
  for _ in 1 2 3; do
    "$bin/skua-bench" -load -run -P "$workloads/workloada" -threads 2 -p recordcount=200 -p operationcount=1000000 \
      -s -p status.interval=1 --cluster 127.0.0.1:7400 --transport verbs >"$scratch/load.log" 2>&1 &
    load=$!
    for _ in $(seq 300); do grep -q 'UPDATE: Count=[1-9]' "$scratch/load.log" && break; sleep 0.1; done
    kill -9 "$load" 2>/dev/null; wait "$load" 2>/dev/null
    if ! grep -q 'UPDATE: Count=[1-9]' "$scratch/load.log" ||
        [ "$(skua get stays 2>>"$log")" != here ] || ! skua put goes on >>"$log" 2>&1; then
      echo "FAIL kill_client: others are not served"; tail -20 "$log"; failed+=(kill_client); return
    fi
  done
  echo "ok   kill_client  ($((SECONDS - began)) s)"
}

# What a session does while something happens to it.
check() {  # KIND ARGUMENT...
  if timeout 120 "$bin/skua_rdma_checks" "$1" 127.0.0.1:7400 "${@:2}" >"$scratch/check.log" 2>&1; then
    echo "ok   $*  ($((SECONDS - began)) s)"; sed 's/^/       /' "$scratch/check.log"
  else
    echo "FAIL $*"; cat "$scratch/check.log"; tail -20 "$log"; failed+=("$*")
  fi
}

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

stop_server() {
  kill "$server"; wait "$server"
  local code=$?
  [ $code = 0 ] || { echo "FAIL the server ended with $code"; tail -20 "$log"; failed+=(server); }
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

if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all passed in $((SECONDS - began)) s"
