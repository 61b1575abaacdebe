#!/bin/bash
# Runs skua-verbs-bench where there is a device, or in the virtual machine, with ib_read_lat's median of the same boot
# beside it.    run.sh BIN_DIR [ARGUMENT...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd); shift
if [ "${RXE_DEV-}" = "" ] && ! compgen -G '/sys/class/infiniband/*' >/dev/null; then
  shared=()
  for ((i = 1; i < $#; i++)); do
    if [ "${!i}" = --json ]; then j=$((i + 1)); shared=(--rw "$(dirname "$(realpath "${!j}")")"); fi
  done
  exec "$here/../../tests/rdma/rxe-vm" --timeout 500 "${shared[@]}" -- "$here/run.sh" "$bin" "$@"
fi
device=${RXE_DEV-$(basename "$(echo /sys/class/infiniband/* | cut -d' ' -f1)")}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
yardstick() {
  ib_read_lat -d "$device" -s 64 -n 2000 >/dev/null 2>&1 &
  local server=$!
  for _ in $(seq 50); do
    if ib_read_lat -d "$device" -s 64 -n 2000 127.0.0.1 >"$log" 2>/dev/null; then break; fi
    sleep 0.2
  done
  wait "$server" || true
  awk '$1 == 64 {print $5}' "$log"
}
lat=$(yardstick)
exec "$bin/skua-verbs-bench" ${lat:+--ib-read-lat "$lat"} "$@"
