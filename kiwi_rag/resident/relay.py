"""``kiwi mcp`` through the service: this process only carries bytes between its client and the service's session."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kiwi_rag.resident import calls

if TYPE_CHECKING:
    from threading import Event

_STDIN, _STDOUT = 0, 1
_CHUNK = 1 << 16


def relay(folder: str, message: dict[str, Any]) -> int:
    """Open a session and carry it until one side ends; return the exit code.

    Raises
    ------
    NotServed
        When the service opens none. Nothing was read from stdin.
    """
    with calls.connected(folder) as line:
        calls.exchange(line, message)
        line.settimeout(None)
        return _carry(line)


def _carry(line: socket.socket) -> int:
    import threading

    client_ended = threading.Event()
    # A daemon: it may wait for stdin for ever, and the process ends all the same.
    threading.Thread(target=_forth, args=(line, client_ended), daemon=True).start()
    with suppress(ConnectionError):
        while chunk := line.recv(_CHUNK):
            _write(_STDOUT, chunk)
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


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
