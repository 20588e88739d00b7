"""Addresses, keys and messages of servers that hold shared indexes."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from kiwi_rag.errors import ConfigError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LONGEST_QUOTE = 400


def check_url(variable: str, url: str, api_key: str, example: str) -> SplitResult:
    """Return the parts of a server's URL that `variable` sets.

    Raises
    ------
    ConfigError
        When it is none, or an API key would be sent in the clear to another machine.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        usable = usable and "@" not in parts.netloc and not (parts.query or parts.fragment)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{variable} is not the address of a server", hint=example)
    if api_key and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ConfigError("an API key is only sent over TLS, or to this machine", hint=f"{variable}=https://…")
    return parts


def check_key(variable: str, key: str) -> str:
    """Return `key` if it can be a header; an HTTP library's own error for one that cannot would quote it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{variable} holds characters that no key has", hint="set it again, without quotes")
    return key


def quoted(text: str, secret: str = "") -> str:
    """Return `text` as one line of bounded length, without the key."""
    line = " ".join(text.split())
    return (line.replace(secret, "(hidden)") if secret else line)[:_LONGEST_QUOTE]
