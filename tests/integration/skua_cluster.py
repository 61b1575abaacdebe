"""Starts and stops servers for the integration tests. Every wait is for an event and has a limit."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile

READY_SECONDS = 60
STOP_SECONDS = 30
COMMAND_SECONDS = 120


class Server:
    """One skua-server on loopback. Its ready line arrives over a pipe; `control` is the address it listens on."""

    def __init__(self, programs, data_dir, *flags, join=None, listen="127.0.0.1:0"):
        reader, writer = os.pipe()
        command = [os.path.join(programs, "skua-server"), "--listen", listen, "--data-dir", data_dir]
        command += ["--ready-fd", str(writer), *flags]
        if join:
            command += ["--join", join]
        self.log = open(data_dir + ".log", "ab")
        self.process = subprocess.Popen(
            command, pass_fds=[writer], stdout=subprocess.DEVNULL, stderr=self.log, start_new_session=True
        )
        os.close(writer)
        try:
            self.ready = json.loads(self._line(reader))
        finally:
            os.close(reader)
        self.control = self.ready["control"]

    def _line(self, reader):
        text = b""
        while not text.endswith(b"\n"):
            readable, _, _ = select.select([reader], [], [], READY_SECONDS)
            piece = os.read(reader, 65536) if readable else b""
            if not piece:
                self.kill()
                raise RuntimeError(f"the server did not become ready; its log:\n{self.log_text()}")
            text += piece
        return text

    def log_text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self):
        """Drains the server. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"the server did not end; its log:\n{self.log_text()}") from None
        self.log.close()
        return self.process.returncode

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Cluster:
    """`count` servers that know each other; a context manager."""

    def __init__(self, programs, count=1, flags=("--memory", "512MiB", "--expected-keys", "20000")):
        self.programs = programs
        self.folder = tempfile.mkdtemp(prefix="skua-test-")
        self.servers = []
        try:
            first = Server(programs, self.path("server-1"), "--initial-servers", str(count), *flags)
            self.servers.append(first)
            for number in range(2, count + 1):
                data = self.path(f"server-{number}")
                self.servers.append(Server(programs, data, *flags, join=first.control))
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    @property
    def address(self):
        return self.servers[0].control

    def skua(self, *words, stdin=b"", env=None, stdout=subprocess.PIPE):
        """Runs the command line against this cluster, as bytes."""
        return run_skua(self.programs, "--cluster", self.address, *words, stdin=stdin, env=env, stdout=stdout)

    def close(self):
        codes = []
        try:
            for server in reversed(self.servers):
                codes.append(server.stop())
        finally:
            for server in self.servers:
                server.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        return codes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_skua(programs, *words, stdin=b"", env=None, stdout=subprocess.PIPE):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SKUA_")}
    environment.update(env or {})
    command = [os.path.join(programs, "skua"), *words]
    return subprocess.run(
        command, input=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=COMMAND_SECONDS, env=environment,
        check=False,
    )
