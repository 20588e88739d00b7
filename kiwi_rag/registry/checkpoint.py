"""What a registry says of its present state: the head of its audit log, keys that lost trust, yanked versions.

Apart from `kiwi_rag.registry.rows`, so that what a client remembers of a registry is read without pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass

from kiwi_rag.errors import RegistryError
from kiwi_rag.signing.trust import RevocationNotice
from kiwi_rag.validation.audit import GENESIS, AuditHead


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the registry says now of itself.

    ``known_hash`` is the hash of its record with the number that the client remembered, None when it has none;
    ``yanked`` are digests of what was yanked after that record.
    """

    head: AuditHead
    known_hash: str | None
    notices: tuple[RevocationNotice, ...] = ()
    yanked: tuple[str, ...] = ()


def head_of(text: object) -> AuditHead:
    """Read a head as the registry writes it, ``seq:hash``; ``0:`` for an empty log.

    Raises
    ------
    RegistryError
        When it is none.
    """
    seq, _, digest = str(text).partition(":")
    if text == "0:":
        return AuditHead()
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19 and int(seq)) or not is_hash(digest):
        raise RegistryError(f"the registry gave {str(text)[:40]!r} for the head of its audit log")
    return AuditHead(int(seq), digest)


def is_hash(text: object) -> bool:
    """Whether `text` is a hex SHA-256."""
    return isinstance(text, str) and len(text) == len(GENESIS) and set(text) <= set("0123456789abcdef")
