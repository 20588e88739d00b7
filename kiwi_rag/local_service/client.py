"""A call of the service, by a caller that has no time: connect, send, wait for signs of life and the answer."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kiwi_rag.local_service import address, protocol
from kiwi_rag.local_service.protocol import Declined

if TYPE_CHECKING:
    from threading import Event

CONNECT_SECONDS = 0.2
FIRST_SIGN_SECONDS = 2.0
"""A service that is alive says at once that it works; a stopped or hung one does not."""
SILENCE_SECONDS = 10.0


def is_there(folder: str) -> bool:
    """Whether a socket stands in `folder`: usually none does, and nobody wants to hear of it."""
    return hasattr(socket, "AF_UNIX") and os.path.lexists(address.socket_in(folder))


def call(folder: str, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message to the service, and return its answer.

    Raises
    ------
    NotServed
        For whatever keeps the service from answering.
    """
    with connected(folder) as line:
        return exchange(line, message)


def state(folder: str) -> dict[str, Any]:
    """Return how the service stands: ``state``, and what it says of itself where it runs."""
    if not is_there(folder):
        return {"state": "not running"}
    try:
        return {"state": "running", **call(folder, {"ask": protocol.STATUS})}
    except Declined as reason:
        return {"state": "not answering", "problem": str(reason)}


@contextmanager
def connected(folder: str) -> Iterator[socket.socket]:
    """Connect to the service, if both ends are this user's.

    Raises
    ------
    NotServed
        When it cannot be reached or trusted.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        with troubles():
            if why := address.distrust(folder):
                raise Declined(why)
            line.settimeout(CONNECT_SECONDS)
            line.connect(address.socket_in(folder))
            if not address.is_own(line):
                raise Declined("another user answers in its place")
        yield line


def exchange(line: socket.socket, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message, and return its answer.

    Raises
    ------
    NotServed
        When none comes, or the service declines.
    """
    with troubles():
        request = json.dumps(message).encode("ascii")
        if len(request) > protocol.MAX_REQUEST:
            raise Declined("the request is over 1 MB")
        line.settimeout(FIRST_SIGN_SECONDS)
        line.sendall(protocol.head(len(request)) + request)
        while "working" in (answer := _receive(line)):
            line.settimeout(SILENCE_SECONDS)
    if "declined" in answer:
        raise Declined(str(answer["declined"]))
    return answer


@contextmanager
def troubles() -> Iterator[None]:
    """Raise `NotServed` for what can go wrong with a file, a socket or JSON."""
    try:
        yield
    except TimeoutError:
        raise Declined("it does not answer") from None
    except OSError as error:
        raise Declined(error.strerror or str(error)) from None
    except (ValueError, RecursionError):  # JSON's and UTF-8's errors are some
        raise Declined("its answer is not readable") from None


def _receive(line: socket.socket) -> dict[str, Any]:
    length = protocol.length_in(_exactly(line, 4), protocol.MAX_ANSWER)
    message = json.loads(_exactly(line, length))
    if not isinstance(message, dict):
        raise Declined("its answer is not readable")
    return message


def _exactly(line: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        chunk = line.recv(min(length - len(received), 1 << 20))
        if not chunk:
            raise Declined("it broke off in mid-answer")
        received += chunk
    return bytes(received)


_STDIN, _STDOUT = 0, 1
_CHUNK = 1 << 16


def proxy(folder: str, message: dict[str, Any]) -> int:
    """Open a session and carry it until one side ends; return the exit code.

    Raises
    ------
    NotServed
        When the service opens none. Nothing was read from stdin.
    """
    with connected(folder) as line:
        exchange(line, message)
        line.settimeout(None)
        return _carry(line)


def _carry(line: socket.socket) -> int:
    import threading

    client_ended = threading.Event()
    # A daemon: it may wait for stdin for ever, and the process ends all the same.
    threading.Thread(target=_forth, args=(line, client_ended), daemon=True).start()
    with suppress(ConnectionError):
        while chunk := line.recv(_CHUNK):
            _write_bytes(_STDOUT, chunk)
    if not client_ended.is_set():
        sys.stderr.write("kiwi: the session in the resident service has ended; start kiwi mcp again\n")
        return 1
    return 0


def _forth(line: socket.socket, client_ended: Event) -> None:
    with suppress(OSError):
        while chunk := os.read(_STDIN, _CHUNK):
            line.sendall(chunk)
        client_ended.set()  # before the service can learn of it
        line.shutdown(socket.SHUT_WR)


def _write_bytes(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


_FLAGS = frozenset({"--json", "--quiet", "--verbose"})
_LOCAL = ("--help", "--version", "--weights", "--project")
"""Options after the command that print through click itself, or name a file or folder of the caller's."""


def answer(arguments: list[str]) -> int | None:
    """Let the service run a command line; return the exit code, or None where it is not one for the service.

    Raises
    ------
    NotServed
        When there is a service, and it does not answer. Nothing was written.
    """
    place_of_command = _command(arguments)
    flags, command, rest = arguments[:place_of_command], *_first(arguments[place_of_command:])
    if command not in protocol.SERVED and command != protocol.MCP:
        return None
    folder = address.run_folder(os.environ)
    if os.environ.get("KIWI_SERVICE") == "off" or "_KIWI_COMPLETE" in os.environ or not is_there(folder):
        return None
    if os.environ.get("OTEL_TRACES_EXPORTER", "none") != "none":
        raise Declined("this process is to be traced")
    with troubles():
        message = _message(flags)
    if command == protocol.MCP:
        return proxy(folder, {**message, "ask": protocol.MCP, "toolsets": _toolsets(rest)})
    return _write(call(folder, {**message, **_asked(message["flags"], command, rest)}))


def is_verbose(arguments: list[str]) -> bool:
    """Whether the user wants to hear why the service was not used."""
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(word == "--verbose" or (_is_short(word) and "v" in word) for word in flags)


def _command(arguments: list[str]) -> int:
    """Return the place of the command: the first word that is no global flag, nor the value of one."""
    number = 0
    while number < len(arguments):
        word = arguments[number]
        if word == "--project":
            number += 1
        elif not (word.startswith("--project=") or word in _FLAGS or _is_short(word)):
            return number
        number += 1
    return len(arguments)


def _is_short(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1:].strip("qv")


def _first(words: list[str]) -> tuple[str, list[str]]:
    return (words[0], words[1:]) if words else ("", [])


def _message(flags: list[str]) -> dict[str, Any]:
    """Return what holds of every request: which code, where, and in which environment."""
    cwd = os.getcwd()  # noqa: PTH109 - pathlib costs five milliseconds
    others, project = _apart(flags, cwd)
    return {
        "code": protocol.code_fingerprint(),
        "flags": others,
        "project": project,
        "cwd": cwd,
        "environment": protocol.sent_environment(os.environ),
        "network": protocol.network_fingerprint(os.environ),
    }


def _apart(flags: list[str], cwd: str) -> tuple[list[str], str]:
    """Return the flags without the project's folder, and that folder in full; empty where it is to be found."""
    others: list[str] = []
    project = ""
    words = iter(flags)
    for word in words:
        name, _, value = word.partition("=")
        if name == "--project":
            project = os.path.join(cwd, value if "=" in word else next(words, ""))  # noqa: PTH118
            if not os.path.isdir(project):  # noqa: PTH112
                raise Declined(f"{project} is not a folder")
        else:
            others.append(word)
    return others, project


def _asked(flags: list[str], command: str, rest: list[str]) -> dict[str, Any]:
    for word in rest:
        if word.startswith(_LOCAL) or (word[:1] == "-" and word[1:2] != "-" and "h" in word):
            raise Declined(f"{word} is not for it")
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.encoding.lower().replace("_", "-") != "utf-8":
            raise Declined("the output is not UTF-8")
    return {
        "ask": protocol.COMMAND,
        "arguments": [*flags, command, *rest],
        "terminals": [sys.stdout.isatty(), sys.stderr.isatty()],
    }


def _toolsets(rest: list[str]) -> str:
    """Return what ``--toolsets`` says, empty for the usual ones; with any other option it is not for the service."""
    if len(rest) == 2 and rest[0] == "--toolsets":
        return rest[1]
    if len(rest) == 1 and rest[0].startswith("--toolsets="):
        return rest[0].partition("=")[2]
    if rest:
        raise Declined(f"kiwi mcp {' '.join(rest)} is not for it")
    return ""


def _write(given: dict[str, Any]) -> int:
    """Write the answer as the command line would have; where that cannot be, nothing of it."""
    code, output = given.get("exit"), given.get("output")
    if not isinstance(code, int) or not isinstance(output, list):
        raise Declined("its answer is not readable")
    try:
        written = [(sys.stderr if number == 2 else sys.stdout, str(text)) for number, text in output]
        for stream, text in written:
            text.encode(stream.encoding, stream.errors or "strict")
    except (TypeError, ValueError):
        raise Declined("its answer cannot be written here") from None
    for stream, text in written:
        stream.write(text)
        stream.flush()
    return code
