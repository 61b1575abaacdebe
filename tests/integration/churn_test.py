#!/usr/bin/env python3
"""Updates without end in a bounded heap, and clients that die in the middle of them.

    churn_test.py PROGRAMS [--seconds S] [--victims N] [--transport T]

One server with 256 MiB, 100 MiB of them live. Two clients update at full speed for S seconds: no failed operation, and
the memory in use stays under the limit. Then N clients start to update and are ended with SIGKILL: the used bytes
return to what the live set needs, and every key can be changed.
"""

import argparse
import json
import subprocess
import sys
import time

from skua_cluster import Cluster

MIB = 1 << 20
RECORDS = 93_000          # of 1,000 bytes of value: in blocks of 1,280 B or less, some 110 MiB; 100 MiB with their keys
SETTLE_SECONDS = 40


def properties(seconds):
    return ["-p", f"recordcount={RECORDS}", "-p", "fieldcount=10", "-p", "fieldlength=100",
            "-p", "readproportion=0", "-p", "updateproportion=1", "-p", "scanproportion=0", "-p", "insertproportion=0",
            "-p", "requestdistribution=uniform", "-p", "operationcount=2000000000",
            "-p", f"maxexecutiontime={seconds}"]


def server_statistics(cluster):
    result = cluster.skua("stats", "--json")
    if result.returncode != 0:
        sys.exit(f"skua stats: {result.stderr.decode(errors='replace')}")
    return json.loads(result.stdout)["servers"][0]["values"]


def used_bytes(cluster):
    return int(server_statistics(cluster)["used_bytes"])


def settle(cluster, limit):
    end = time.monotonic() + SETTLE_SECONDS
    while used_bytes(cluster) > limit and time.monotonic() < end:
        time.sleep(0.25)
    return used_bytes(cluster)


def bench(programs, cluster, transport, words, **keywords):
    command = [f"{programs}/skua-bench", "--cluster", cluster.address, "--transport", transport, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)


def finish(process, what):
    out, err = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{what} ended with {process.returncode}\n{out[-3000:]}\n{err[-3000:]}")
    return out


def churn(programs, cluster, transport, seconds):
    clients = [bench(programs, cluster, transport, ["-run", *properties(seconds)]) for _ in range(2)]
    peaks = []
    while any(client.poll() is None for client in clients):
        statistics = server_statistics(cluster)
        peaks.append(int(statistics["memory_used_bytes"]))
        time.sleep(0.5)
    operations = 0
    for client in clients:
        out = finish(client, "an updating client")
        for line in out.splitlines():
            if line.startswith("[UPDATE], Operations,"):
                operations += int(line.split(",")[2])
            if "Return=" in line and "Return=OK" not in line:
                sys.exit(f"an update failed: {line}")
    statistics = server_statistics(cluster)
    if int(statistics["out_of_memory_replies"]) != 0:
        sys.exit(f"{statistics['out_of_memory_replies']} requests were refused for want of memory")
    half = len(peaks) // 2
    print(f"{transport}: {operations} updates in {seconds} s, none failed; "
          f"memory used at most {max(peaks) / MIB:.1f} MiB, "
          f"first half {max(peaks[:half + 1]) / MIB:.1f}, second half {max(peaks[half:]) / MIB:.1f}")


def kill_clients(programs, cluster, transport, victims, live):
    left = victims
    while left > 0:
        group = [bench(programs, cluster, transport, ["-run", *properties(60)]) for _ in range(min(left, 4))]
        time.sleep(0.7)
        for client in group:
            if client.poll() is not None:
                sys.exit(f"a client ended by itself: {client.communicate()[1][-2000:]}")
            client.kill()
            client.communicate()
        left -= len(group)
    used = settle(cluster, live * 1.001)
    print(f"{transport}: used bytes after {victims} clients were killed: {used / MIB:.2f} MiB, "
          f"before: {live / MIB:.2f} MiB")
    if used > live * 1.001:
        sys.exit("memory of dead clients did not come back")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--victims", type=int, default=8)
    parser.add_argument("--transport", default="shm")
    options = parser.parse_args()
    cluster = Cluster(options.programs, count=1, flags=["--memory", "256MiB", "--expected-keys", str(RECORDS)])
    try:
        words = ["-load", *properties(0), "-threads", "2"]
        finish(bench(options.programs, cluster, options.transport, words), "loading")
        live = settle(cluster, 128 * MIB)
        print(f"live set: {live / MIB:.1f} MiB in blocks")
        churn(options.programs, cluster, options.transport, options.seconds)
        live = settle(cluster, live * 1.01)
        kill_clients(options.programs, cluster, options.transport, options.victims, live)
        # Nothing is locked: every key is written once more, and read back right.
        words = ["-load", *properties(0), "-threads", "2"]
        finish(bench(options.programs, cluster, options.transport, words), "writing every key again")
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
