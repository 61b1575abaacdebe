# What the suites share, for the programs of $bin in a virtual machine. Sets `began`, `scratch`, `failed`.
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
  server_arguments=(--listen 127.0.0.1:7400 --transports verbs --memory 64MiB --partitions 8 --expected-keys 10000
    --lease-ms 1000 --data-dir "$scratch/data" --ready-file "$scratch/ready")
  rm -f "$scratch/ready"
  "$bin/skua-server" "${server_arguments[@]}" "$@" >"$log" 2>&1 &
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

stop_server() {
  kill "$server"; wait "$server"
  local code=$?
  [ $code = 0 ] || { echo "FAIL the server ended with $code"; tail -20 "$log"; failed+=(server); }
}

# The server's process is killed under load, and started again.
kill_server() {  # ARGUMENT...
  start_server "$@"
  local first=$server
  (until [ -e "$scratch/killed" ]; do sleep 0.1; done; kill -9 "$first") &
  local killer=$!
  (wait_killed "$first"; exec "$bin/skua-server" "${server_arguments[@]}" "$@" >>"$log" 2>&1) &
  server=$!
  check fault "$scratch/killed" returns
  wait $killer
  stop_server
}
wait_killed() { while kill -0 "$1" 2>/dev/null && ! grep -qs '^State:.Z' "/proc/$1/status"; do sleep 0.1; done; }

end_suite() {
  if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
  fi
  echo "all passed in $((SECONDS - began)) s"
}
