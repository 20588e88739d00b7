"""`kiwi` in a process of its own that need not import its libraries first.

A fork server has imported them once a test run. Each command is a fork of it, with the caller's environment, folder and
streams: a process with its own id, signals and end, started in a hundredth of a second instead of one or two. What is
about the start of Python or about imports starts a new Python (`Kiwi.start_python`).
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any

import kiwi_rag
from kiwi_rag import entry

_LIBRARIES = (
    "alembic.command", "jsonschema", "mcp.server.stdio", "mcp.server.streamable_http_manager",
    "numpy", "psycopg", "rfc8785", "tokenizers", "uvicorn",
)  # fmt: skip
_LEFT_OUT = ("qdrant", "weaviate")  # no command is run with them, and their import takes longer than all others
_ROOT = Path(__file__).resolve().parents[2]
NO_NETWORK = Path(__file__).parent / "no_network"
"""The folder that closes the network in every Python whose PYTHONPATH it is."""
_turn = threading.Lock()


class ForkedProcess:
    """A running command; the part of `subprocess.Popen` that tests use, as text or as bytes.

    `server` is the module that is run as the fork server.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        *,
        server: str = __name__,
        text: bool = True,
        **streams: int,
    ) -> None:
        self.args, self.returncode = list(arguments), None
        theirs, ours = zip(*(_ends(number, streams.get(name)) for number, name in enumerate(_STREAMS)), strict=True)
        told, self._status = socket.socketpair()
        request = {"arguments": self.args, "environment": dict(environment), "cwd": str(cwd)}
        with _turn, told:
            connection = _server(server)
            socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [*theirs, told.fileno()])
            self.pid = int(_line(connection))
        for descriptor in theirs:
            os.close(descriptor)
        mode = "" if text else "b"
        self.stdin, self.stdout, self.stderr = (
            None if end is None else os.fdopen(end, ("w" if number == 0 else "r") + mode)
            for number, end in enumerate(ours)
        )
        self._read: dict[str, Any] = {}
        self._readers: list[threading.Thread] = []

    def poll(self) -> int | None:
        """Return how it ended, as `subprocess` does; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            # A timeout of 0 would make the socket fail at once instead of looking whether there is anything.
            self._status.settimeout(timeout if timeout is None else max(timeout, 1e-3))
            try:
                told = _line(self._status)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self.returncode = os.waitstatus_to_exitcode(int(told))
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Close stdin, read both streams to their ends and wait; after a timeout it can be called again."""
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.close()
        if not self._readers:
            self._readers = [self._start_reading(name) for name in ("stdout", "stderr")]
        deadline = None if timeout is None else time.monotonic() + timeout
        for reader in self._readers:
            reader.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._read.get("stdout"), self._read.get("stderr")

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _start_reading(self, name: str) -> threading.Thread:
        stream: IO[Any] | None = getattr(self, name)

        def read() -> None:
            if stream is not None:
                with stream:
                    self._read[name] = stream.read()

        thread = threading.Thread(target=read, name=f"read {name}", daemon=True)
        thread.start()
        return thread


_STREAMS = ("stdin", "stdout", "stderr")


def _ends(number: int, wanted: int | None) -> tuple[int, int | None]:
    """Return the descriptor for the command, and that for its starter if it is a pipe."""
    if wanted == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if wanted == subprocess.PIPE:
        read, write = os.pipe()
        return (read, write) if number == 0 else (write, read)
    return os.dup(number if wanted is None else wanted), None


def _line(connection: socket.socket) -> bytes:
    """Read up to the line feed, a byte at a time: what follows is not ours."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        assert byte, "the fork server has ended"
        line += byte
    return line


@cache
def _server(module: str) -> socket.socket:
    """Start a fork server; return the connection for requests, whose end is the server's end."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-X", "warn_default_encoding", "-m", module, str(theirs.fileno())]
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        environment |= {"PYTHONPATH": str(NO_NETWORK), "PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(command, cwd=_ROOT, env=environment, pass_fds=[theirs.fileno()])
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request; return it, with its descriptors, in the process that is to carry it out."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, len(_STREAMS) + 1)
        while data and not data.endswith(b"\n"):
            data += connection.recv(1 << 16)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not data:
            sys.exit()
        if os.fork() == 0:
            *streams, status = descriptors
            if (command := os.fork()) == 0:
                connection.close()
                os.close(status)
                return json.loads(data), streams
            _tell_end(connection, status, command, streams)
        for descriptor in descriptors:
            os.close(descriptor)


def _tell_end(connection: socket.socket, status: int, command: int, streams: list[int]) -> None:
    for descriptor in (0, 1, 2, *streams):
        os.close(descriptor)
    connection.sendall(b"%d\n" % command)
    connection.close()
    _, ended = os.waitpid(command, 0)
    with suppress(BrokenPipeError):
        os.write(status, b"%d\n" % ended)
    os._exit(0)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Give this process what a new one would have been started with."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = os.fdopen(0, encoding=encoding, errors="surrogateescape")
    sys.stdout = os.fdopen(1, "w", encoding=encoding, errors="surrogateescape")
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding=encoding, errors="backslashreplace")
    sys.argv = [str(Path(kiwi_rag.__file__).parent / "cli/__main__.py"), *request["arguments"]]


def main(libraries: Sequence[str] = _LIBRARIES, left_out: Sequence[str] = _LEFT_OUT) -> None:
    """Import the libraries and Kiwi's modules, serve requests, and run the command of one in each fork."""
    modules = (module.name for module in walk_packages(kiwi_rag.__path__, "kiwi_rag."))
    skipped = ("__main__", *left_out)
    for name in (*libraries, *(module for module in modules if not any(part in module for part in skipped))):
        import_module(name)
    # ONNX Runtime starts a thread when it is imported, and a fork, which does not have it, waits for it at its end.
    assert "onnxruntime" not in sys.modules and threading.active_count() == 1
    gc.freeze()
    become(*serve(socket.socket(fileno=int(sys.argv[1]))))
    entry.main()


if __name__ == "__main__":
    main()
