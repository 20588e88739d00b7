"""Consent: nothing leaves this machine before its user has allowed the host, for the purpose.

A host is allowed at a question on the terminal, with ``kiwi consent allow``, in the web interface, or by the setting
``consent``. Answers are kept in a file that only the user can use. Each call leaves a record (`Record`) before its
connection is made: who, host, purpose, amount and outcome, never content. Embedding and stores make many requests in
one run; there the first one leaves the record, and the usage log has the amounts of all by the same run.

A server on this machine needs no consent.
"""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from kiwi_rag.errors import ConfigError, ConsentRequired, NotFound, StoreBusy, UsageError
from kiwi_rag.storage.atomic import acquire_lock, write_json
from kiwi_rag.storage.safe_open import read_regular
from kiwi_rag.system import is_open_to_others
from kiwi_rag.telemetry import current_run

PURPOSES: Mapping[str, str] = {
    "chat": "sends the question and passages to a chat model at",
    "embedding": "sends texts to an embedding model at",
    "download": "downloads documentation from",
    "store": "stores passages with their text, and searches them, in an index at",
}
"""Purpose → what Kiwi does then."""
_MANY_REQUESTS = ("embedding", "store")
BYTES_PER_TOKEN = 4
MAX_BYTES = 1 << 20
_HOST = re.compile(r"(?!-)[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f]*:[0-9a-f:.]+")
_Hosts = dict[str, dict[Literal["chat", "embedding", "download", "store"], str]]

ASK: ContextVar[Callable[[str], bool] | None] = ContextVar("ask", default=None)
"""Asks the user a question on the terminal; None where nobody can answer."""
Record = Callable[[Mapping[str, Any]], None]
Allow = Callable[[str, str, int, float | None], None]
"""`Consents.require`."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def is_local(host: str) -> bool:
    """Whether a host is this machine: a loopback address, a socket's folder, or none at all."""
    return not host or host.startswith("/") or is_loopback(host)


class Consents:
    """Which hosts the user has allowed, for which purposes.

    Parameters
    ----------
    path
        The file of the answers; it need not exist.
    setting
        ``HOST`` or ``HOST:PURPOSE``, separated by commas: allowed, too.
    record
        Takes the record of each call, and of each change.
    """

    def __init__(self, path: Path, setting: str = "", record: Record = lambda _: None) -> None:
        self._path, self._record = path, record
        self._set = {entry.strip().lower() for entry in setting.split(",")}
        self._runs: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def all(self) -> Mapping[str, Mapping[Any, str]]:
        """Return host → purpose → since when, as the file has it.

        Raises
        ------
        ConfigError
            When the file cannot be read, other users may use it, or it holds something else.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            data, about = read_regular(self._path, MAX_BYTES)
            if is_open_to_others(about.st_mode):
                raise ConfigError(f"other users may use {self._path}", hint=f"chmod 600 {self._path}")
            return TypeAdapter(_Hosts).validate_json(data, strict=True)
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            reason = getattr(error, "strerror", "") or "it is not a list of consents"
            hint = f"rm {self._path}, then allow the hosts again"
            raise ConfigError(f"{self._path} cannot be read: {reason}", hint=hint) from error

    def change(self, host: str, purposes: Sequence[str] = (), *, allowed: bool = True) -> None:
        """Allow a host for these purposes, or for all; or no longer.

        Raises
        ------
        UsageError
            When `host` is no name or address. One word, which any name in the local network is, needs a purpose.
        NotFound
            When it is not allowed, and should not be any longer.
        ConfigError, StoreBusy
            When the file cannot be read or written, or another process is changing it.
        """
        is_one_word = allowed and not purposes and not re.search("[.:]", host)
        if is_one_word or not _HOST.fullmatch(host := host.lower()):
            hint = "name it without scheme and port, as api.openai.com; one in the local network with --purpose"
            raise UsageError(f"{host[:100]!r} is not the name of a host", hint=hint)
        now, purposes = datetime.now(UTC).isoformat(timespec="seconds"), purposes or [*PURPOSES]
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with acquire_lock(self._path.with_suffix(".lock"), 10.0, lambda: StoreBusy("the consents are in use")):
            hosts = {**self.all()}
            held = hosts.pop(host, {})
            if not allowed and held.keys().isdisjoint(purposes):
                hint = "kiwi consent list shows who is; what the setting consent allows is revoked there"
                raise NotFound(f"{host} is not allowed for {', '.join(purposes)}, so nothing was revoked", hint=hint)
            others = {purpose: at for purpose, at in held.items() if purpose not in purposes}
            if kept := others | (dict.fromkeys(purposes, now) if allowed else {}):
                hosts[host] = kept
            write_json(self._path, hosts)
        outcome = "consent given" if allowed else "consent revoked"
        self._record({"host": host, "purpose": ", ".join(purposes), "outcome": outcome})

    def require(self, host: str, purpose: str, size: int = 0, cost: float | None = None) -> None:
        """Return if a connection may be made now; it is recorded.

        Parameters
        ----------
        host
            A name or an address, without port; empty, or a folder, for what is on this machine.
        purpose
            One of `PURPOSES`.
        size
            Bytes that are sent, or downloaded; 0 if that is not known.
        cost
            The estimated cost in US dollars, None if that is not known.

        Raises
        ------
        ConsentRequired
            When the user has not allowed it and does not allow it now.
        """
        host, run = host.lower().rstrip("."), current_run()
        if is_local(host):
            return
        with self._lock:  # one question at a time
            if run and self._runs.get((host, purpose)) == run:
                return
            what = f"Kiwi {PURPOSES[purpose]} {host} ({_amount(purpose, size, cost)})"
            allowed = not self._set.isdisjoint((host, f"{host}:{purpose}")) or purpose in self.all().get(host, {})
            if not allowed and (ask := ASK.get()) and ask(f"{what}. Allow this, until kiwi consent revoke {host}?"):
                self.change(host, [purpose])
                allowed = True
            about = {"host": host, "purpose": purpose, "bytes": size, "cost_usd": cost, "run": run}
            self._record({**about, "outcome": "allowed" if allowed else "refused"})
            if not allowed:
                hint = f"kiwi consent allow {host} --purpose {purpose}"
                message = f"{what}, and you have not allowed that; nothing was sent"
                raise ConsentRequired(message, hint=hint, host=host, purpose=purpose)
            if purpose in _MANY_REQUESTS:
                self._runs[host, purpose] = run


def _amount(purpose: str, size: int, cost: float | None) -> str:
    price = "at an unknown price" if cost is None else f"about ${cost:.4f}"
    tokens = f", about {size // BYTES_PER_TOKEN:,} tokens, {price}" if purpose in ("chat", "embedding") else ""
    more = ", and more in this run" if purpose == "embedding" else ""
    return f"{size:,} bytes{tokens}{more}" if size else "the amount is not known before"
