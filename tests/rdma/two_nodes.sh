#!/bin/bash
# Two virtual machines on one network: node 1 runs a server, node 0 the load. First the server's process is killed and
# started again, then the node's power is cut. Sessions must report errors within 1 s, and work again after a return.
#   two_nodes.sh BIN_DIR             on this host: boots the machines
#   two_nodes.sh --inside BIN_DIR    on each node
# Exit code: 0, 1 when something failed, 77 (skipped) where the machines cannot be had; the last line says why.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${1-}" != --inside ]; then
  bin=$(cd "${1:?usage: two_nodes.sh BIN_DIR}" && pwd)
  if ! reason=$("$here/rxe-vm" --prepare 2>&1); then
    echo "skipped: no virtual machine with RDMA: $(tail -1 <<<"$reason")"
    exit 77
  fi
  exec "$here/rxe-vm" --nodes 2 --smp 1 --timeout 240 -- "$here/two_nodes.sh" --inside "$bin"
fi

bin=$2
server_ip=${RXE_IPS##* }
wait_for() { for _ in $(seq 600); do [ -s "$1" ] && return 0; sleep 0.1; done; echo "no $1"; return 1; }

serve() {  # READY_FILE
  "$bin/skua-server" --listen "$server_ip:7400" --transports verbs --memory 64MiB --partitions 8 \
    --expected-keys 10000 --lease-ms 1000 --data-dir /tmp/data --ready-file "$1" &
  server=$!
}

if [ "$RXE_NODE" = 1 ]; then
  serve "$RXE_SHARED/ready.1"
  wait_for "$RXE_SHARED/restart" || exit 1
  kill -9 "$server"; wait "$server" 2>/dev/null
  serve "$RXE_SHARED/ready.2"
  wait "$server"   # until the power is cut
  exit 1
fi

failed=0
"$bin/skua" doctor | tail -4 || failed=1   # pipefail: its own exit code
wait_for "$RXE_SHARED/ready.1" || { rxe-kill 1; exit 1; }
echo "server process killed and started again:"
"$bin/skua_two_nodes_client" "$server_ip:7400" "$RXE_SHARED/restart" returns || failed=1
wait_for "$RXE_SHARED/ready.2" || failed=1
echo "power of the server's node cut:"
"$bin/skua_two_nodes_client" "$server_ip:7400" "$RXE_SHARED/kill.1" gone || failed=1
[ -e "$RXE_SHARED/kill.1" ] || rxe-kill 1
[ $failed = 0 ] && echo "all passed"
exit $failed
