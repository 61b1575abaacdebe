#!/bin/bash
# Soft-iWARP, a device without atomics, with 80 bytes inline and one piece a READ: conformance, YCSB's workloads with
# checked values, and what is killed.
#   siw.sh BIN_DIR             on this host: boots a virtual machine (rxe-vm) that runs the programs of BIN_DIR
#   siw.sh --inside BIN_DIR    in the machine
# Exit code: 0, 1 when something failed, 77 (skipped) where the machine cannot be had; the last line says why.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

if [ "${1-}" != --inside ]; then
  bin=$(cd "${1:?usage: siw.sh BIN_DIR}" && pwd)
  if ! reason=$("$here/rxe-vm" --device siw --prepare 2>&1); then
    echo "skipped: no virtual machine with soft-iWARP: $(tail -1 <<<"$reason")"
    exit 77
  fi
  exec "$here/rxe-vm" --device siw --timeout 500 --mem 3000 -- "$here/siw.sh" --inside "$bin"
fi

bin=$2
. "$here/suite_functions.sh"

doctor() {
  local log=$scratch/doctor.log
  if "$bin/skua" doctor --json >"$log" 2>&1 && grep -q '"device":"siw0"' "$log" &&
      grep -q '"device_atomics":false' "$log" && grep -q '"max_inline":80,' "$log" &&
      grep -q '"retries":null' "$log"; then
    echo "ok   skua doctor"
  else
    echo "FAIL skua doctor"; cat "$log"; failed+=(doctor)
  fi
}

doctor
for program in verbs sessions hostile allocation; do
  tests skua_conformance_${program}_test '*/verbs'
done
for workload in a b c d f; do
  ycsb "workload$workload" -P "$workloads/workload$workload"
done
start_server
sweep
kill_client
check waits
stop_server
kill_server
end_suite
