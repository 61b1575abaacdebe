# Shared by the scripts of this folder. Sourced, after `set -euo pipefail`.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n=== %s\n' "$*"; }

# Compilers that run at once: as many as there are cores, but 1.5 GiB of memory each.
build_jobs() {
  local cores memory_kib by_memory
  cores=$(nproc)
  memory_kib=$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)
  by_memory=$((memory_kib / 1572864))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# build PRESET [TARGET...]: configures build/PRESET and builds the targets (all of them when none is named).
build() {
  local preset=$1
  shift
  cmake -S "$root" --preset "$preset" >"$root/build/$preset.configure.log" 2>&1 || {
    tail -n 40 "$root/build/$preset.configure.log" >&2
    echo "configuring the preset '$preset' failed; whole log: build/$preset.configure.log" >&2
    return 1
  }
  ninja -C "$root/build/$preset" -j "$(build_jobs)" "$@"
}
