"""A registry's checkpoint: the head of its audit log, the keys that lost trust, and the versions that were yanked.

Not in `kiwi_rag.registry.rows`, so that a client reads its pinned state without importing pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass

from kiwi_rag.errors import RegistryError
from kiwi_rag.signing.trust import RevocationNotice
from kiwi_rag.validation.audit import GENESIS, AuditHead


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The registry's present state, as it reports it.

    ``known_hash`` is the hash of its record with the number that the client had pinned, None when it has none;
    ``yanked`` are digests of what was yanked after that record.
    """

    head: AuditHead
    known_hash: str | None
    notices: tuple[RevocationNotice, ...] = ()
    yanked: tuple[str, ...] = ()


def parse_head(text: object) -> AuditHead:
    """Return an audit head from its text, ``seq:hash``; ``0:`` for an empty log.

    Raises
    ------
    RegistryError
        When the text is not one.
    """
    seq, _, digest = str(text).partition(":")
    if text == "0:":
        return AuditHead()
    # 18 digits fit a bigint, which is what the registry counts with.
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19 and int(seq)) or not is_hash(digest):
        raise RegistryError(f"the registry gave {str(text)[:40]!r} for the head of its audit log")
    return AuditHead(int(seq), digest)


def is_hash(text: object) -> bool:
    """Whether `text` is a hex SHA-256."""
    return isinstance(text, str) and len(text) == len(GENESIS) and set(text) <= set("0123456789abcdef")
