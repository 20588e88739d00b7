"""What stands in for a socket's own functions while the network is closed: anywhere but loopback is an error."""

import ipaddress
import socket

_connect, _connect_ex, _getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo


def _check(address):
    host = address[0] if isinstance(address, tuple) else None
    if host in (None, "localhost") or ipaddress.ip_address(host).is_loopback:
        return
    raise RuntimeError(f"the network is closed in tests: {address}")


def connect(self, address):
    _check(address)
    return _connect(self, address)


def connect_ex(self, address):
    _check(address)
    return _connect_ex(self, address)


def name_of(host):
    """Return a host's name as text; asyncio gives it as bytes."""
    return host.decode("ascii") if isinstance(host, bytes) else host


def getaddrinfo(host, *arguments, **options):
    if name_of(host) not in (None, "localhost", "127.0.0.1", "::1", "0.0.0.0"):  # the last to listen on
        raise RuntimeError(f"the network is closed in tests: {host}")
    return _getaddrinfo(host, *arguments, **options)
