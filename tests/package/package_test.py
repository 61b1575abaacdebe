#!/usr/bin/env python3
"""Installs the development files, and configures, builds and runs tests/package/outside against them: once with a
server to talk to, once without."""

import argparse
import os
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from skua_cluster import Cluster  # noqa: E402


def run(*command):
    print("+", *command, flush=True)
    subprocess.run(command, check=True, timeout=200)


def unused_port():
    """A port that was just free: nothing listens there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def expect(program, address, exit_code, says):
    result = subprocess.run([program, address], capture_output=True, text=True, timeout=30, check=False)
    print(result.stdout)
    if result.returncode == exit_code and result.stdout.startswith(says):
        return True
    print(f"expected exit code {exit_code} and '{says}', got {result.returncode}; stderr: {result.stderr}")
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--compiler", required=True)
    options = parser.parse_args()

    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outside")
    work = os.path.join(options.build, "tests", "package", "work")
    prefix = os.path.join(work, "prefix")
    build = os.path.join(work, "build")
    shutil.rmtree(work, ignore_errors=True)

    run(options.cmake, "--install", options.build, "--component", "development", "--prefix", prefix)
    configure = ["-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={options.compiler}"]
    run(options.cmake, "-S", source, "-B", build, *configure)
    run(options.cmake, "--build", build)

    program = os.path.join(build, "outside")
    with Cluster(os.path.join(options.build, "bin")) as cluster:
        served = expect(program, cluster.address, exit_code=0, says="name = skua\n")
    return 0 if expect(program, f"127.0.0.1:{unused_port()}", exit_code=3, says="kUnavailable: ") and served else 1


if __name__ == "__main__":
    sys.exit(main())
