#!/usr/bin/env python3
"""The `skua` command against a real cluster: values of every size, keys of every byte, exit codes, load and dump.

    cli_test.py PROGRAMS      the folder with skua and skua-server
"""

import base64
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from skua_cluster import Cluster, run_skua

PROGRAMS = None
EVERY_BYTE = bytes(range(256))
TRANSPORTS = ("shm", "tcp")


class CliCase(unittest.TestCase):
    """Runs against `cluster`, which its subclasses start."""

    cluster = None

    def skua(self, *words, code=0, stdin=b""):
        result = self.cluster.skua(*words, stdin=stdin)
        self.assertEqual(result.returncode, code, f"skua {words[:3]}: {result.stderr.decode(errors='replace')}")
        return result


class CliTest(CliCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(PROGRAMS, count=2)

    @classmethod
    def tearDownClass(cls):
        codes = cls.cluster.close()
        assert codes == [0, 0], f"the servers ended with {codes}"

    def test_output_that_cannot_be_written_is_an_error_at_every_size(self):
        for size in (1, 1000, 4096, 65536, 1 << 20):
            with self.subTest(size):
                self.skua("put", "big", "--file", "-", stdin=b"x" * size)
                with open("/dev/full", "wb") as full:
                    self.assertEqual(self.cluster.skua("get", "big", stdout=full).returncode, 73)
        self.skua("rm", "big")
        with open("/dev/full", "wb") as full:
            for words in (("--help",), ("completion", "bash"), ("nodes",)):
                self.assertEqual(self.cluster.skua(*words, stdout=full).returncode, 73, words)

    def test_sigpipe_of_a_device_is_survived_and_that_of_a_pipe_still_ends_quietly(self):
        words = [os.path.join(PROGRAMS, "skua"), "--cluster", self.cluster.address, "put", "piped", "-"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as put:
            def ignored():
                with open(f"/proc/{put.pid}/status", encoding="ascii") as status:
                    mask = next(line for line in status if line.startswith("SigIgn:"))
                return int(mask.split()[1], 16) & (1 << (signal.SIGPIPE - 1))
            give_up = time.monotonic() + 20
            while not ignored() and time.monotonic() < give_up:
                pass
            put.send_signal(signal.SIGPIPE)
            self.assertEqual(put.communicate(b"x" * 300000)[1], b"")
        self.assertEqual(put.returncode, 0)
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as nobody:
            gone = self.cluster.skua("get", "piped", stdout=nobody)
        self.assertEqual((gone.returncode, gone.stderr), (-signal.SIGPIPE, b""))
        self.skua("rm", "piped")

    def test_closed_standard_descriptors_end_in_an_error(self):
        self.skua("put", "open", "v" * 5000)
        for redirection, words, code, says in (
            (">&-", ("get", "open"), 73, b"standard output"),
            ("<&-", ("put", "z", "-"), 66, b"standard input"),
            ("<&- >&- 2>&-", ("exists", "open"), 0, b""),
        ):
            with self.subTest(redirection):
                command = [os.path.join(PROGRAMS, "skua"), "--cluster", self.cluster.address, *words]
                shell = ["sh", "-c", f'"$0" "$@" {redirection}', *command]
                result = subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(says, result.stderr)
        self.skua("rm", "open")

    def test_read_only_session_changes_nothing(self):
        self.skua("put", "fixed", "v")
        self.assertEqual(self.skua("get", "fixed", "--read-only").stdout, b"v")
        self.skua("put", "fixed", "w", "--read-only", code=77)
        self.assertEqual(self.skua("get", "fixed").stdout, b"v")
        self.skua("rm", "fixed")

    def test_bench_looks_at_its_report_file_first(self):
        workload = self.cluster.path("workload")
        with open(workload, "w", encoding="ascii") as file:
            file.write("workload=site.ycsb.workloads.CoreWorkload\nrecordcount=10\noperationcount=10\n")
        words = ("-load", "-P", workload, "--cluster", self.cluster.address, "-p", "exportfile=/nodir/x")
        result = run_bench(*words)
        self.assertEqual(result.returncode, 73, result.stderr)
        self.assertIn(b"/nodir/x", result.stderr)
        self.assertNotIn(b"user", self.skua("dump", "-").stdout, "nothing was loaded")

    def test_put_get_exists_rm(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                on = ("--transport", transport)
                self.assertEqual(self.skua("get", "name", *on, code=1).stdout, b"")
                self.skua("exists", "name", *on, code=1)
                self.assertEqual(self.skua("put", "name", "skua", *on).stdout, b"")
                self.assertEqual(self.skua("get", "name", *on).stdout, b"skua")
                self.skua("exists", "name", *on)
                self.skua("put", "name", "other", "--if-absent", *on, code=1)
                self.assertEqual(self.skua("get", "name", *on).stdout, b"skua")
                self.skua("rm", "name", *on)
                self.skua("rm", "name", *on, code=1)
                self.skua("put", "name", "new", "--if-absent", *on)
                self.assertEqual(self.skua("get", "name", *on).stdout, b"new")
                self.skua("rm", "name", *on)

    def test_cas_and_incr(self):
        self.skua("put", "account", "1")
        version = self.skua("get", "--version-only", "account").stdout.decode().strip()
        self.skua("cas", "account", version, "2")
        self.skua("cas", "account", version, "3", code=1)
        self.assertEqual(self.skua("get", "account").stdout, b"2")
        self.skua("cas", "account", "not a version", "3", code=64)
        self.assertEqual(self.skua("incr", "account").stdout, b"3\n")
        self.assertEqual(self.skua("incr", "account", "-5").stdout, b"-2\n")
        self.assertEqual(self.skua("incr", "fresh", "41").stdout, b"41\n")
        self.skua("put", "account", "words")
        self.skua("incr", "account", code=64)
        self.assertEqual(self.skua("get", "account").stdout, b"words")

    def test_values_from_nothing_to_64_mib_by_file_and_by_stdin(self):
        generator = random.Random(20261201)
        for transport, size in (("shm", 0), ("tcp", 0), ("shm", 1 << 26), ("tcp", 1 << 26), ("shm", 100_001)):
            with self.subTest(transport=transport, size=size):
                value = generator.randbytes(size)
                source, target = self.cluster.path("value"), self.cluster.path("copy")
                with open(source, "wb") as file:
                    file.write(value)
                self.skua("put", "blob", "--file", source, "--transport", transport, "--timeout", "60s")
                self.skua("get", "blob", "--output", target, "--transport", transport, "--timeout", "60s")
                with open(target, "rb") as file:
                    self.assertEqual(file.read(), value)
                self.skua("put", "blob", "-", "--transport", transport, "--timeout", "60s", stdin=value)
                got = self.skua("get", "blob", "--transport", transport, "--timeout", "60s").stdout
                self.assertEqual(got, value)
                self.skua("rm", "blob")

    def test_limits_are_named_and_nothing_is_lost(self):
        self.skua("put", "kept", "old")
        over = self.skua("put", "kept", "-", stdin=bytes((1 << 26) + 1), code=64)
        self.assertIn(b"67108864", over.stderr)
        self.assertEqual(self.skua("get", "kept").stdout, b"old")
        self.assertIn(b"4096", self.skua("put", "k" * 4097, "v", code=64).stderr)
        self.skua("put", "k" * 4096, "v")
        self.assertEqual(self.skua("get", "k" * 4096).stdout, b"v")
        self.skua("rm", "k" * 4096)
        self.skua("put", "", "v", code=64)
        self.skua("get", "", code=64)
        self.skua("put", "kept", "--file", self.cluster.path("absent"), code=66)
        self.skua("get", "kept", "--output", self.cluster.path("absent/file"), code=73)

    def test_key_of_every_byte(self):
        self.skua("put", "--key-hex", EVERY_BYTE.hex(), "-", stdin=EVERY_BYTE)
        self.assertEqual(self.skua("get", "--key-hex", EVERY_BYTE.hex()).stdout, EVERY_BYTE)
        escaped = "".join(f"\\x{byte:02x}" for byte in EVERY_BYTE)
        self.assertEqual(self.skua("get", "-e", escaped).stdout, EVERY_BYTE)
        answer = json.loads(self.skua("get", "--json", "--key-hex", EVERY_BYTE.hex()).stdout)
        self.assertEqual(base64.b64decode(answer["key_base64"]), EVERY_BYTE)
        self.assertEqual(base64.b64decode(answer["value_base64"]), EVERY_BYTE)
        self.skua("rm", "--key-hex", EVERY_BYTE.hex())

    def test_bad_line_is_named_and_earlier_ones_are_stored(self):
        result = self.skua("load", "-", stdin=b"one\t1\ntwo\t2\nthree\n", code=65)
        self.assertIn(b"standard input:3: no tab", result.stderr)
        self.assertIn(b"2 keys are stored, all before line 3; resume from that line", result.stderr)
        result = self.skua("load", "-", stdin=b"k\tv\t1\0\n", code=65)
        self.assertIn(b"'1\\x00'", result.stderr)
        self.assertNotIn(b"\0", result.stderr)
        self.assertEqual(self.skua("get", "two").stdout, b"2")
        path = self.cluster.path("bad.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"key":"a","value":"b"}\n{"key":"a"}\n')
        result = self.skua("load", path, "--format", "jsonl", code=65)
        self.assertIn(f"{path}:2: no \"value\"".encode(), result.stderr)
        self.skua("load", self.cluster.path("absent"), code=66)
        self.skua("dump", self.cluster.path("absent/file"), code=73)
        self.assertIn(b"No space left", self.skua("dump", "/dev/full", code=73).stderr)

    def test_progress_bar_and_summary(self):
        result = self.skua("load", "-", "--progress", stdin=b"bar\t1\n")
        self.assertIn(b"load ", result.stderr)
        self.assertIn(b"loaded 1 keys", result.stderr)
        self.assertNotIn(b"\r", self.skua("load", "-", stdin=b"bar\t1\n").stderr)

    def test_json_answers(self):
        self.assertEqual(json.loads(self.skua("get", "--json", "nothing", code=1).stdout), {"found": False})
        stored = json.loads(self.skua("put", "--json", "j", "grüße").stdout)
        self.assertTrue(stored["stored"])
        got = json.loads(self.skua("get", "--json", "j").stdout)
        self.assertEqual((got["value"], got["version"]), ("grüße", stored["version"]))
        self.assertEqual(json.loads(self.skua("exists", "--json", "j").stdout), {"exists": True})
        self.assertEqual(json.loads(self.skua("rm", "--json", "j").stdout), {"removed": True})
        error = json.loads(self.skua("put", "--json", "", "v", code=64).stdout)["error"]
        self.assertEqual(error["exit_code"], 64)

    def test_nodes_stats_and_ping_show_both_servers(self):
        nodes = json.loads(self.skua("nodes", "--json").stdout)
        self.assertFalse(nodes["forming"])
        self.assertEqual([server["alive"] for server in nodes["servers"]], [True, True])
        self.assertEqual(sum(server["partitions"] for server in nodes["servers"]), nodes["partitions"])
        self.assertIn(nodes["servers"][1]["address"].encode(), self.skua("nodes").stdout)
        statistics = json.loads(self.skua("stats", "--json").stdout)["servers"]
        self.assertEqual(len(statistics), 2)
        self.assertTrue(all(server["values"] for server in statistics))
        self.assertIn(b"memory_used_bytes", self.skua("stats").stdout)
        pings = json.loads(self.skua("ping", "--json").stdout)["servers"]
        self.assertTrue(all(0 < server["microseconds"] < 5_000_000 for server in pings))

    def test_usage_and_addresses(self):
        self.assertIn(b"--frobnicate", self.skua("get", "k", "--frobnicate", code=64).stderr)
        self.assertIn(b"fetch", self.skua("fetch", code=64).stderr)
        self.assertTrue(self.skua("get", code=64).stderr.startswith(b"skua: "))
        self.skua("--help")
        self.assertIn(b"MILLISECONDS", self.skua("dump", "--help").stdout)
        for shell in ("bash", "zsh", "fish"):
            self.assertIn(b"skua", self.skua("completion", shell).stdout)
        for address in ("localhost", "::1", "fe80::1%eth0", "host:99999", "127.0.0.1:0", "http://127.0.0.1:7400",
                        "127.0.0.1:7400:7401"):
            result = run_skua(PROGRAMS, "ping", "--cluster", address)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(address.encode(), result.stderr)
        unresolvable = run_skua(PROGRAMS, "ping", "--cluster", "no-such-host.invalid:7400", "--timeout", "3s")
        self.assertEqual(unresolvable.returncode, 78, unresolvable.stderr)
        self.assertIn(b"no-such-host.invalid", unresolvable.stderr)

    def test_doctor_needs_no_server_and_says_whether_verbs_works(self):
        result = run_skua(PROGRAMS, "doctor", "--json")
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0 if report["usable"] else 69, result.stderr)
        self.assertEqual(report["usable"], bool(report["loopback"]) and report["loopback"]["works"])
        if not report["devices"]:
            self.assertIsNone(report["choice"])
            self.assertTrue(report["why_none"])
        self.assertEqual(report["retries"]["dead_peer_after_ms"], 469)
        text = run_skua(PROGRAMS, "doctor")
        self.assertEqual(text.returncode, result.returncode)
        for heading in (b"RDMA devices\n", b"RLIMIT_MEMLOCK", b"2 MiB pages", b"a dead peer shows after"):
            self.assertIn(heading, text.stdout)
        self.assertEqual(text.stderr, b"")
        with open("/dev/full", "wb") as full:
            self.assertEqual(run_skua(PROGRAMS, "doctor", stdout=full).returncode, 73)
        self.assertEqual(run_skua(PROGRAMS, "doctor", "--frobnicate").returncode, 64)
        self.assertIn(b"doctor", run_skua(PROGRAMS, "completion", "bash").stdout)

    def test_nobody_listens_and_second_seed_is_tried(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            silent = f"127.0.0.1:{probe.getsockname()[1]}"
            result = run_skua(PROGRAMS, "get", "k", "--cluster", silent, "--timeout", "1s")
            self.assertEqual(result.returncode, 69)
            self.assertIn(silent.encode(), result.stderr)
            both = f"{silent},{self.cluster.address}"
            self.assertEqual(run_skua(PROGRAMS, "ping", "--cluster", both).returncode, 0)
        by_environment = run_skua(PROGRAMS, "ping", env={"SKUA_CLUSTER": self.cluster.servers[1].control})
        self.assertEqual(by_environment.returncode, 0, by_environment.stderr)


class OneServerTest(unittest.TestCase):
    def test_wrong_token_is_not_permitted_whoever_shows_it(self):
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = os.path.join(folder, "right"), os.path.join(folder, "wrong")
            for path in (right, wrong):
                with open(path, "w", encoding="ascii") as file:
                    file.write(path + "\n")
            with Cluster(PROGRAMS, flags=("--memory", "256MiB", "--token-file", right)) as cluster:
                self.assertEqual(cluster.skua("ping", "--token-file", right).returncode, 0)
                self.assertEqual(cluster.skua("ping", "--token-file", wrong).returncode, 77)
                self.assertEqual(cluster.skua("ping", "--token-file", folder).returncode, 78)
                bench = ("-load", "-p", "recordcount=10", "-p", "workload=site.ycsb.workloads.CoreWorkload")
                on = ("--cluster", cluster.address, "--token-file")
                self.assertEqual(run_bench(*bench, *on, wrong).returncode, 77)
                self.assertEqual(run_bench(*bench, *on, folder).returncode, 78)
                done = run_bench(*bench, *on, right)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_transport_that_the_server_does_not_offer_is_an_error_at_once(self):
        with Cluster(PROGRAMS, flags=("--memory", "256MiB", "--transports", "tcp")) as cluster:
            begun = time.monotonic()
            result = cluster.skua("get", "k", "--transport", "shm", "--timeout", "60s")
            self.assertEqual(result.returncode, 69, result.stderr)
            self.assertIn(b"not offered by the server", result.stderr)
            self.assertLess(time.monotonic() - begun, 30)
            self.assertEqual(cluster.skua("get", "k").returncode, 1)


def run_bench(*words):
    command = [os.path.join(PROGRAMS, "skua-bench"), *words]
    return subprocess.run(command, capture_output=True, timeout=120, check=False)


class TransferTest(CliCase):
    """Each test has servers of its own, which begin empty."""

    def setUp(self):
        self.cluster = Cluster(PROGRAMS, count=2)
        self.addCleanup(self.cluster.close)
        self.folder = tempfile.mkdtemp(prefix="skua-transfer-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_load_and_dump_give_back_every_byte(self):
        generator = random.Random(7)
        expected = {EVERY_BYTE: b"all", b"empty": b"", b"large": generator.randbytes(3 << 20)}
        for number in range(3000):
            expected[b"key-%d" % number + generator.randbytes(number % 9)] = generator.randbytes(number % 700)
        source = self.cluster.path("source.jsonl")
        with open(source, "w", encoding="utf-8") as file:
            for key, value in expected.items():
                fields = (("key_base64", key), ("value_base64", value))
                member = {name: base64.b64encode(content).decode() for name, content in fields}
                file.write(json.dumps(member) + "\n")
        self.skua("load", source, "--format", "jsonl")

        first = os.path.join(self.folder, "first.tsv")
        self.skua("dump", first)
        self.cluster.close()
        self.setUp()
        self.assertEqual(self.skua("dump", "-").stdout, b"")
        summary = json.loads(self.skua("load", first, "--json").stdout)
        self.assertEqual(summary["keys"], len(expected))
        second = self.skua("dump", "-", "--format", "jsonl").stdout.decode()
        found = {}
        for line in second.splitlines():
            member = json.loads(line)
            key = base64.b64decode(member["key_base64"]) if "key_base64" in member else member["key"].encode()
            value = base64.b64decode(member["value_base64"]) if "value_base64" in member else member["value"].encode()
            self.assertNotIn(key, found)
            found[key] = value
        self.assertEqual(found, expected)

    def test_largest_value_survives_dump_and_load(self):
        value = random.Random(3).randbytes(1 << 26)
        self.skua("put", "largest", "-", "--timeout", "60s", stdin=value)
        dump = self.cluster.path("largest.tsv")
        self.skua("dump", dump, "--timeout", "60s")
        self.skua("rm", "largest")
        self.skua("load", dump, "--timeout", "60s")
        self.assertEqual(self.skua("get", "largest", "--timeout", "60s").stdout, value)
        self.skua("rm", "largest")

    def test_last_of_two_lines_with_one_key_wins_and_ttl_is_kept(self):
        self.skua("load", "-", stdin=b"twice\t1\ntwice\t2\nshort\tv\t3600000")
        self.assertEqual(self.skua("get", "twice").stdout, b"2")
        lines = dict(line.split(b"\t", 1) for line in self.skua("dump", "-").stdout.splitlines())
        self.assertEqual(lines[b"twice"], b"2")
        value, left = lines[b"short"].split(b"\t")
        self.assertEqual(value, b"v")
        self.assertTrue(3_000_000 < int(left) <= 3_600_000, left)


if __name__ == "__main__":
    PROGRAMS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
