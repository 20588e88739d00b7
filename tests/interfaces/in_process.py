"""Runs a `kiwi` command inside the test process, as a process of its own would: faster by the start of Python.

What a process has to itself is given to the command and put back after it: environment, folder, arguments, streams,
umask, log handlers, warning filters, what it registered for its end, and locks on embedded registries. What is only
costly to make is shared by all commands: modules, the ONNX model of each weights file, the first state of a registry.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kiwi_rag import entry
from kiwi_rag.embedding import onnx
from kiwi_rag.embedding.weights import ModelFiles
from kiwi_rag.registry import server
from tests.interfaces.embedded_registry import copy_cluster
from tests.interfaces.no_network import closed_network

SECONDS = 300.0
_one_at_a_time = threading.Lock()
_session, _tokenizer = onnx._session, onnx._tokenizer
_ready = server._await_ready


def run(
    arguments: tuple[str, ...], environment: Mapping[str, str], cwd: Path, stdin: bytes = b""
) -> tuple[int, str, str]:
    """Run `kiwi` with `arguments`, and `stdin` to read; return its exit code and what it wrote to stdout and stderr."""
    assert _one_at_a_time.acquire(blocking=False), "a command runs in this process already: start a process instead"
    try:
        with _as_a_process(arguments, environment, cwd, stdin) as (out, err):
            code = _in_a_thread(lambda: entry.main(None))
        return code, _text_of(out), _text_of(err)
    finally:
        _one_at_a_time.release()


def _in_a_thread(main: Callable[[], None]) -> int:
    """Call `main` in a thread of its own: it has no context variables and no event loop yet, as a new process."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(_exit_code(main)), name="kiwi", daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert codes, f"the command has not ended after {SECONDS:.0f} s"
    return codes[0]


def _exit_code(main: Callable[[], None]) -> int:
    """Return what the process would have ended with; the traceback of what nobody caught goes to stderr."""
    try:
        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - whatever it is, a process would end with it
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _as_a_process(
    arguments: tuple[str, ...], environment: Mapping[str, str], cwd: Path, stdin: bytes
) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Give the block what a new process has, and take all of it back."""
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    out, err = _stream(encoding, "surrogateescape"), _stream(encoding, "backslashreplace")
    with ExitStack() as stack:
        stack.callback(os.chdir, Path.cwd())
        os.chdir(cwd)
        stack.callback(os.umask, _umask())
        for place, name, value in (
            (sys, "argv", [str(Path(entry.__file__).parent / "cli/__main__.py"), *arguments]),
            (
                sys,
                "stdin",
                io.TextIOWrapper(io.BytesIO(stdin)) if stdin else stack.enter_context(Path(os.devnull).open()),
            ),
            (sys, "stdout", out),
            (sys, "stderr", err),
            (socket.socket, "connect", closed_network.connect),
            (socket.socket, "connect_ex", closed_network.connect_ex),
            (socket, "getaddrinfo", closed_network.getaddrinfo),
            (onnx, "_session", _shared_session),
            (onnx, "_tokenizer", _shared_tokenizer),
            (server, "_initialise", copy_cluster),
            (server, "_await_ready", _await_ready),
        ):
            stack.enter_context(patch.object(place, name, value))
        stack.enter_context(patch.dict(os.environ, environment, clear=True))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(_own_logging())
        stack.enter_context(_own_end())
        yield out, err


def _stream(encoding: str, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding, errors, write_through=True)


def _text_of(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@contextmanager
def _own_logging() -> Iterator[None]:
    """Let the block begin with no handlers, as a process does, so that warnings go to its stderr."""
    root = logging.getLogger()
    handlers, own = root.handlers[:], logging.getLogger("kiwi_rag")
    levels = root.level, own.level
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    own.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        own.setLevel(levels[1])


@contextmanager
def _own_end() -> Iterator[None]:
    """Do at the end of the block what Kiwi registered for the end of its process, and close what it left open."""
    registered: list[Callable[[], object]] = []
    register = atexit.register

    def remember(function: Callable[..., Any], *given: Any, **named: Any) -> Callable[..., Any]:
        if not function.__module__.startswith("kiwi_rag"):
            return register(function, *given, **named)
        registered.append(lambda: function(*given, **named))
        return function

    with patch.object(atexit, "register", remember), patch.object(server, "_user_locks", {}):
        try:
            yield
        finally:
            for call in reversed(registered):
                call()
            _close_chroma()


def _close_chroma() -> None:
    """Stop Chroma's clients that were not closed: it keeps one a folder for the whole process."""
    if "chromadb" not in sys.modules:
        return
    from chromadb.api.shared_system_client import SharedSystemClient

    for system in SharedSystemClient._identifier_to_system.values():
        system.stop()
    SharedSystemClient.clear_system_cache()


def _await_ready(root: Path, process: subprocess.Popen[bytes], logged: int) -> None:
    """Reap the server when it ends, as init does for one whose starter has ended.

    Postgres does not start again where the process id in its pid file is that of a zombie.
    """
    threading.Thread(target=process.wait, name="reap postgres", daemon=True).start()
    _ready(root, process, logged)


def _shared_session(files: ModelFiles) -> Any:
    return _session_of(files, files.onnx.stat().st_mtime_ns)


def _shared_tokenizer(files: ModelFiles) -> Any:
    return _tokenizer_of(files, files.tokenizer.stat().st_mtime_ns)


@cache
def _session_of(files: ModelFiles, _changed: int) -> Any:
    return _session(files)


@cache
def _tokenizer_of(files: ModelFiles, _changed: int) -> Any:
    return _tokenizer(files)
