#!/bin/bash
# Two virtual machines on one network: node 1 runs a server, node 0 the load, whose operations have a long deadline.
# The server's process is killed and started again, its network is cut, its port goes down, its machine stands still,
# and last its power is cut. Sessions must notice within 1 s each time, and work again after a return.
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
wait_for() { for _ in $(seq 600); do [ -e "$1" ] && return 0; sleep 0.1; done; echo "no $1"; return 1; }

# The lease is longer than any cut: what a server sends while its port is down breaks soft-RoCE (docs/verbs.md).
serve() {  # READY_FILE ARGUMENT...
  local ready=$1; shift
  "$bin/skua-server" --listen "$server_ip:7400" --transports verbs --memory 64MiB --partitions 8 \
    --expected-keys 10000 --lease-ms 6000 --data-dir /tmp/data --ready-file "$ready" "$@" &
  server=$!
}

if [ "$RXE_NODE" = 1 ]; then
  # A port that carries less than the other side's: the path MTU is 1,024 at one end and 4,096 at the other.
  ip link set "$RXE_NETDEV" mtu 1500
  said=$(timeout 20 "$bin/skua-server" --listen "$server_ip:7400" --transports verbs --memory 64MiB \
    --data-dir /tmp/no --rdma-mtu 4096 2>&1)
  if [[ $said != *'--rdma-mtu 4096: the active MTU of rxe0 port 1 is 1024; raise the MTU'* ]]; then
    echo "FAIL an MTU that the port does not carry is not refused: $said"
    touch "$RXE_SHARED/no_mtu_error"
  fi
  serve "$RXE_SHARED/ready.1"
  wait_for "$RXE_SHARED/restart" || exit 1
  kill -9 "$server"; wait "$server" 2>/dev/null
  serve "$RXE_SHARED/ready.2"
  wait_for "$RXE_SHARED/down" || exit 1
  ip link set "$RXE_NETDEV" down; sleep 1.5; ip link set "$RXE_NETDEV" up
  wait "$server"   # until the power is cut
  exit 1
fi

failed=0
fault() {  # FILE returns|gone WHAT
  echo "$3:"
  "$bin/skua_rdma_checks" fault "$server_ip:7400" "$RXE_SHARED/$1" "$2" || failed=1
}
when() {  # FILE COMMAND...: once FILE is there
  local file=$1; shift
  (wait_for "$RXE_SHARED/$file" && "$@") &
}
cut_network() {  # what goes to the other node reaches nobody
  ip neigh replace "$server_ip" lladdr 02:00:00:00:00:99 nud permanent dev "$RXE_NETDEV"
  sleep 1.5
  ip neigh del "$server_ip" dev "$RXE_NETDEV"
}
stand_still() { rxe-freeze 1; sleep 1.5; rxe-thaw 1; }

"$bin/skua" doctor | tail -4 || failed=1   # pipefail: its own exit code
wait_for "$RXE_SHARED/ready.1" || { rxe-kill 1; exit 1; }
head -c 1000000 /dev/urandom >/tmp/value
"$bin/skua" --cluster "$server_ip:7400" --transport verbs put large --file /tmp/value &&
  "$bin/skua" --cluster "$server_ip:7400" --transport verbs get large | cmp - /tmp/value &&
  echo "1 MB between an MTU of 4,096 and one of 1,024" || failed=1
fault restart returns "server process killed and started again"
wait_for "$RXE_SHARED/ready.2" || failed=1
when cut cut_network
fault cut returns "network cut"
fault down returns "port of the server's node down"
when frozen stand_still
fault frozen returns "server's node stands still"
fault kill.1 gone "power of the server's node cut"
[ -e "$RXE_SHARED/kill.1" ] || rxe-kill 1
[ -e "$RXE_SHARED/no_mtu_error" ] && failed=1
[ $failed = 0 ] && echo "all passed"
exit $failed
