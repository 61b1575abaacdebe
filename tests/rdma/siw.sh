#!/bin/bash
# The conformance suite on soft-iWARP: a device without atomics, with 80 bytes inline and one piece a READ.
#   siw.sh BIN_DIR             on this host: boots a virtual machine (rxe-vm) that runs the programs of BIN_DIR
#   siw.sh --inside BIN_DIR    in the machine
# Exit code: 0, 1 when something failed, 77 (skipped) where the machine cannot be had; the last line says why.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${1-}" != --inside ]; then
  bin=$(cd "${1:?usage: siw.sh BIN_DIR}" && pwd)
  if ! reason=$("$here/rxe-vm" --device siw --prepare 2>&1); then
    echo "skipped: no virtual machine with soft-iWARP: $(tail -1 <<<"$reason")"
    exit 77
  fi
  exec "$here/rxe-vm" --device siw --timeout 500 -- "$here/siw.sh" --inside "$bin"
fi

bin=$2
failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# All of a gtest program's tests must have run: a skipped one says that the device was not found.
tests() {  # NAME
  local began=$SECONDS
  if timeout 240 "$bin/$1" --gtest_color=no --gtest_filter='*/verbs' >"$log" 2>&1 &&
      ! grep -q '^\[  SKIPPED' "$log" && grep -q '^\[  PASSED  \] [1-9]' "$log"; then
    echo "ok   $1: $(sed -n 's/^\[  PASSED  \] //p' "$log")  ($((SECONDS - began)) s)"
    sed -n 's/^\[ *OK \] \(.*\) (\([0-9]\{4,\} ms\))$/       slow: \1 \2/p' "$log"
  else
    echo "FAIL $1"; grep -v '^\[ *\(RUN\|OK\)' "$log" | tail -40; failed+=("$1")
  fi
}

doctor() {
  if "$bin/skua" doctor --json >"$log" 2>&1 && grep -q '"device":"siw0"' "$log" &&
      grep -q '"device_atomics":false' "$log" && grep -q '"max_inline":80,' "$log"; then
    echo "ok   skua doctor"
  else
    echo "FAIL skua doctor"; cat "$log"; failed+=(doctor)
  fi
}

# siw connects by TCP inside the kernel, and to give a connection up waits for the last SYN: two minutes where nobody
# is at the address. Two SYNs again instead of six, so that the suite does not spend them.
echo 2 >/proc/sys/net/ipv4/tcp_syn_retries
doctor
tests skua_conformance_verbs_test
tests skua_conformance_sessions_test
tests skua_conformance_hostile_test
tests skua_conformance_allocation_test
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
