"""HTTP requests that end in time, whatever the server does.

A socket's time-out is of each read: a server that sends a byte now and then, in the status line, a header, ``100
Continue`` again and again (RFC 9110, section 15.2) or a body, is waited for as long as it likes. Here one timer runs
for all of a request, and shuts the connection down when its time is up.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import threading
import urllib.request
from typing import Any


class Deadline:
    """Context manager around one request; after `seconds` its connections are shut down, and `is_over` is True."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_over = False
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for watched in self._watched:
                watched.close()
            self._watched.clear()

    def watch(self, connected: socket.socket) -> None:
        """Shut this connection down, too, when the time is up; TLS may begin on it later."""
        with self._lock:
            # A second descriptor of it: TLS takes the first one over, and a closed one's number may be another's.
            self._watched.append(connected.dup())
            if self.is_over:
                self._shut_down()

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            self._shut_down()

    def _shut_down(self) -> None:
        for watched in self._watched:
            with contextlib.suppress(OSError):  # it is closed already
                watched.shutdown(socket.SHUT_RDWR)

    def opener(self, *handlers: type[urllib.request.BaseHandler]) -> urllib.request.OpenerDirector:
        """Return an opener whose connections this deadline watches."""
        return urllib.request.build_opener(_Plain(self), _Tls(self), *handlers)


class _Connection(http.client.HTTPConnection):
    deadline: Deadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock)


class _TlsConnection(http.client.HTTPSConnection, _Connection):
    """``HTTPSConnection`` connects as the class after it does, and only then shakes hands: that is watched, too."""


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._watched = functools.partial(_watched, _Connection, deadline)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._watched, req)


class _Tls(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._watched = functools.partial(_watched, _TlsConnection, deadline)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._watched, req)


def _watched(kind: type[_Connection], deadline: Deadline, host: str, **named: Any) -> _Connection:
    connection = kind(host, **named)
    connection.deadline = deadline
    return connection
