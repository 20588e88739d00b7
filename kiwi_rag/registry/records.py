"""What the registry's SQL functions return, as frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kiwi_rag.model import Envelope, Passage
from kiwi_rag.signing.trust import Signer

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

ClaimState = Literal["claimed", "busy", "later", "done"]
"""The states of `kiwi_rag.stores.postgres.RegistryClaim`."""


@dataclass(frozen=True, slots=True)
class EnrolledSigner:
    """A signer as the registry has it, with the time of its last change of status."""

    signer: Signer
    status_changed_at: datetime

    def as_dict(self) -> dict[str, object]:
        """Return the signer as JSON-ready data."""
        signer = self.signer
        return {
            "key_id": signer.key_id,
            "principal": signer.principal,
            "patterns": list(signer.patterns),
            "types": [kind.value for kind in signer.types],
            "valid_after": signer.valid_after.isoformat() if signer.valid_after else None,
            "valid_before": signer.valid_before.isoformat() if signer.valid_before else None,
            "status": signer.status.value,
            "status_changed_at": self.status_changed_at.isoformat(),
            "public_key": signer.public_key.hex(),
        }


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim: its state, and when it was granted what was published and when it arrived."""

    state: ClaimState
    received_at: datetime | None = None
    envelope: Envelope | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """A model's collection: its ``state`` (``active``, ``building`` or ``superseded``) and counts.

    ``items`` are in it, ``waiting`` are not yet, and ``refused`` are those of the waiting that failed.
    """

    fingerprint: str
    state: str
    passages: int
    items: int
    waiting: int
    refused: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredPassage:
    """A passage as the registry has it. ``vector`` has shape ``(dimension,)``, ``float32``; ``terms`` → frequency."""

    passage: Passage
    terms: dict[str, int]
    length: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class IndexedItem:
    """An item that has vectors, with its time of arrival in the registry and its files."""

    digest: str
    received_at: datetime
    envelope: Envelope
    files: Mapping[str, bytes] = field(default_factory=dict)
