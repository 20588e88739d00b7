"""Sockets to anywhere but loopback are an error: in the processes that door tests start, and in unit tests."""

import ipaddress
import socket

_connect, _connect_ex, _getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo
_LOCAL_NAMES = (None, "localhost", b"localhost", "0.0.0.0")  # the last to listen on


def _check(host):
    if host in _LOCAL_NAMES:
        return
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise RuntimeError(f"the network is closed in tests: {host}")


def _check_address(address):
    if isinstance(address, tuple):  # the address of a Unix socket is a path
        _check(address[0])


def connect(self, address):
    _check_address(address)
    return _connect(self, address)


def connect_ex(self, address):
    _check_address(address)
    return _connect_ex(self, address)


def getaddrinfo(host, *arguments, **options):
    _check(host)
    return _getaddrinfo(host, *arguments, **options)


def close_network(replace=setattr):
    """Refuse connections and look-ups; `replace` is `setattr`, or pytest's, which undoes it."""
    replace(socket.socket, "connect", connect)
    replace(socket.socket, "connect_ex", connect_ex)
    replace(socket, "getaddrinfo", getaddrinfo)
