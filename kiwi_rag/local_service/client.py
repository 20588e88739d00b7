"""The client of the local service: HTTP over its Unix socket, without a library, because that takes 20 ms to import."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any, BinaryIO

from kiwi_rag import local_service as service
from kiwi_rag.local_service import Declined

CONNECT_SECONDS = 0.2
FIRST_SIGN_SECONDS = 2.0
"""A running service begins its answer at once; a stopped or hung one does not."""
SILENCE_SECONDS = 10.0
_STDIN, _STDOUT = 0, 1
_CHUNK = 1 << 16


def socket_exists(folder: str) -> bool:
    """Whether there is a socket in `folder`. Usually there is none, so this is checked before anything else."""
    return hasattr(socket, "AF_UNIX") and os.path.lexists(service.socket_in(folder))


def call(folder: str, path: str, message: dict[str, Any] | None = None) -> dict[str, Any]:
    """Request `path` of the service, by POST if there is a message, and return its answer.

    Raises
    ------
    Declined
        When the service does not answer, for any reason, or declines.
    """
    body = b"" if message is None else json.dumps(message).encode("ascii")
    if len(body) > service.MAX_REQUEST:
        raise Declined("the request is over 1 MB")
    # In HTTP/1.0 the end of the connection is the end of the answer.
    head = f"{'GET' if message is None else 'POST'} {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(folder) as line, translate_errors():
        line.sendall(head.encode() + body)
        received = bytearray()
        while chunk := line.recv(_CHUNK):
            line.settimeout(SILENCE_SECONDS)
            received += chunk
            if len(received) > service.MAX_ANSWER:
                raise Declined("its answer is over 64 MB")
        return _parse_answer(received.partition(b"\r\n\r\n")[2])


def state(folder: str) -> dict[str, Any]:
    """Return ``state`` (running, not running, not answering), with the service's own report when it runs."""
    if not socket_exists(folder):
        return {"state": "not running"}
    try:
        return {"state": "running", **call(folder, service.SERVICE)}
    except Declined as reason:
        return {"state": "not answering", "problem": str(reason)}


@contextmanager
def connected(folder: str) -> Iterator[socket.socket]:
    """Connect to the service, if its folder and process are this user's; `Declined` otherwise."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        with translate_errors():
            if why := service.unsafe_reason(folder):
                raise Declined(why)
            line.settimeout(CONNECT_SECONDS)
            line.connect(service.socket_in(folder))
            if not service.is_own(line):
                raise Declined("the socket belongs to a process of another user")
            line.settimeout(FIRST_SIGN_SECONDS)
        yield line


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise `Declined` for errors of files, sockets and JSON."""
    try:
        yield
    except TimeoutError:
        raise Declined("it does not answer") from None
    except OSError as error:
        raise Declined(error.strerror or str(error)) from None
    except (ValueError, RecursionError):  # includes the errors of JSON and UTF-8
        raise Declined("its answer is not readable") from None


def _parse_answer(text: bytes | bytearray) -> dict[str, Any]:
    if not text or text.isspace():
        raise Declined("the connection ended within its answer")
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise Declined("its answer is not readable")
    if "declined" in answer:
        raise Declined(str(answer["declined"]))
    return answer


def proxy(folder: str, message: dict[str, Any]) -> int:
    """Open an MCP session and copy stdin and stdout until one side ends; return the exit code.

    Raises
    ------
    Declined
        When the service opens no session. Nothing was read from stdin.
    """
    import threading

    client_ended = threading.Event()
    with connected(folder) as line, line.makefile("rb") as answer:
        with translate_errors():
            head = f"POST {service.SESSION} HTTP/1.1\r\nHost: kiwi\r\nTransfer-Encoding: chunked\r\n\r\n"
            line.sendall(head.encode() + _chunked(json.dumps(message).encode("ascii") + b"\n"))
            while answer.readline().strip():  # the head
                line.settimeout(SILENCE_SECONDS)
            _parse_answer(_read_chunk(answer))
            line.settimeout(None)
        # A daemon thread, because it may wait for stdin when the process should end.
        threading.Thread(target=_send_stdin, args=(line, client_ended), daemon=True).start()
        with suppress(ConnectionError, ValueError), open(_STDOUT, "wb", closefd=False) as stdout:
            while chunk := _read_chunk(answer):
                stdout.write(chunk)
                stdout.flush()
    if not client_ended.is_set():
        sys.stderr.write("kiwi: the session in the local service has ended; start kiwi mcp again\n")
        return 1
    return 0


def _chunked(data: bytes) -> bytes:
    """Return a chunk of RFC 9112, section 7.1; the last one is empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _read_chunk(answer: BinaryIO) -> bytes:
    """Return the next chunk; no bytes at the end. Raise `ValueError` for anything else."""
    chunk = answer.read(int(answer.readline(20) or b"0", 16))
    answer.readline(2)
    return chunk


def _send_stdin(line: socket.socket, client_ended: Event) -> None:
    with suppress(OSError):
        while data := os.read(_STDIN, _CHUNK):
            line.sendall(_chunked(data))
        client_ended.set()  # set before the last chunk, so that the end that follows is not reported as an error
        line.sendall(_chunked(b""))


_FLAGS = frozenset({"--json", "--quiet", "--verbose"})
_LOCAL = ("--help", "--version", "--weights", "--project", "--root")
"""Options after the command that click prints itself, or that name a path of the caller."""


def answer(arguments: list[str]) -> int | None:
    """Let the service run a command line; return the exit code, or None for a command that it does not run.

    Raises
    ------
    Declined
        When a service runs but does not answer. Nothing was written.
    """
    flags, project, words = _parse(arguments)
    command, *rest = words or [""]
    if not service.is_served(words) and command != service.MCP:
        return None
    folder = service.run_folder(os.environ)
    if os.environ.get("KIWI_SERVICE") == "off" or "_KIWI_COMPLETE" in os.environ or not socket_exists(folder):
        return None
    if os.environ.get("OTEL_TRACES_EXPORTER", "none") != "none":
        raise Declined("this process is traced")
    with translate_errors():
        message = _message(project)
    if command == service.MCP:
        return proxy(folder, {**message, "toolsets": _toolsets(rest)})
    return _write(call(folder, service.COMMAND, {**message, **_command_fields(flags, command, rest)}))


def is_verbose(arguments: list[str]) -> bool:
    """Whether the arguments contain --verbose or -v."""
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(word == "--verbose" or (_is_short(word) and "v" in word) for word in flags)


def _parse(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Return the global flags, the value of --project, and the words from the command on."""
    flags: list[str] = []
    project, words = None, iter(arguments)
    for word in words:
        name, has_value, value = word.partition("=")
        if name == "--project":
            project = value if has_value else next(words, "")
        elif word in _FLAGS or _is_short(word):
            flags.append(word)
        else:
            return flags, project, [word, *words]
    return flags, project, []


def _is_short(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1:].strip("qv")


def _message(project: str | None) -> dict[str, Any]:
    """Return the fields of every request: code, working directory, project and environment."""
    cwd = os.getcwd()  # noqa: PTH109 - pathlib costs five milliseconds
    folder = "" if project is None else os.path.join(cwd, project)  # noqa: PTH118
    if folder and not os.path.isdir(folder):  # noqa: PTH112
        raise Declined(f"{folder} is not a folder")
    return {
        "code": service.code_fingerprint(),
        "project": folder,
        "cwd": cwd,
        "environment": service.sent_environment(os.environ),
        "network": service.network_fingerprint(os.environ),
    }


def _command_fields(flags: list[str], command: str, rest: list[str]) -> dict[str, Any]:
    for word in rest:
        if word.startswith(_LOCAL) or (word[:1] == "-" and word[1:2] != "-" and "h" in word):
            raise Declined(f"it does not handle {word}")
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.encoding.lower().replace("_", "-") != "utf-8":
            raise Declined("the output is not UTF-8")
    return {
        "arguments": [*flags, command, *rest],
        "terminals": [sys.stdout.isatty(), sys.stderr.isatty()],
        "columns": service.terminal_columns(os.environ, sys.stdout),
    }


def _toolsets(rest: list[str]) -> str:
    """Return the value of ``--toolsets``, empty for the default ones; raise `Declined` for any other option."""
    match rest:
        case []:
            return ""
        case ["--toolsets", value]:
            return value
        case [word] if word.startswith("--toolsets="):
            return word.partition("=")[2]
    raise Declined(f"it does not handle kiwi mcp {' '.join(rest)}")


def _write(reply: dict[str, Any]) -> int:
    """Write the output of an answer to stdout and stderr; if a part cannot be encoded, write nothing."""
    try:
        code = int(reply["exit"])
        written = [(sys.stderr if number == 2 else sys.stdout, str(text)) for number, text in reply["output"]]
        for stream, text in written:
            text.encode(stream.encoding, stream.errors or "strict")
    except UnicodeError:
        raise Declined("its answer cannot be written here") from None
    except (LookupError, TypeError, ValueError):
        raise Declined("its answer is not readable") from None
    for stream, text in written:
        stream.write(text)
        stream.flush()
    return code
