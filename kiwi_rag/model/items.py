"""Items on their way from file to store: parsed, admitted, embedded, stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from kiwi_rag.model.refs import ItemRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the gate has to say about a candidate.

    ``code`` is stable and dotted (``structure.two-directives``); ``line`` is 1-based, 0 when no line is meant;
    ``hint`` says what mends it.
    """

    code: str
    message: str
    line: int = 0
    path: str = ""
    hint: str = ""
    severity: Severity = "error"

    @property
    def is_error(self) -> bool:
        """Whether this finding alone refuses the candidate."""
        return self.severity == "error"

    @property
    def where(self) -> str:
        """``file:line``, or as much of it as is known."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def as_dict(self) -> dict[str, object]:
        """Return the finding as JSON-ready data."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "path": self.path,
            "line": self.line,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a file that belongs together.

    ``start_line`` and ``end_line`` are 1-based and inclusive, and true: they are where ``text`` stands in the
    file. ``heading`` is the path of headings above it. An item's sections are of the kinds ``body`` and ``summary``;
    the latter is composed from metadata, so that an item is found by what it says of itself, and its lines are those
    of the block the metadata came from. A document's are named by what they are: ``section``, ``endpoint``,
    ``schema``, ``method`` and others that `kiwi_rag.formats.documents` lists.
    """

    kind: str
    text: str
    start_line: int
    end_line: int
    heading: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A parsed directive, script or knowledge entry. ``content`` is the whole file, as text.

    ``metadata`` is the part that gets signed beside the content: JSON-ready, and the same for the same content.
    Keys: ``name``, ``description``, ``category``, ``author``, ``tags`` (list), and, where the format has them,
    ``title``, ``model``, ``limits``, ``permissions``, ``context``, ``inputs``, ``outputs``, ``steps``, ``imports``.
    ``findings`` holds what parsing noticed without being stopped by it.
    """

    ref: ItemRef
    content: str
    metadata: Mapping[str, Any]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def title(self) -> str:
        """Title of a knowledge entry, name of anything else."""
        return str(self.metadata.get("title") or self.metadata.get("name") or self.ref.item_id)

    @property
    def content_sha256(self) -> str:
        """Hex SHA-256 of the content's UTF-8 bytes."""
        return sha256_hex(self.content.encode())


@dataclass(frozen=True, slots=True)
class Document(Item):
    """A file of a workspace that is no item. ``content`` is what was kept of it as text; a line feed ends its lines.

    ``ref`` names it by its path below the workspace's root, with slashes. Keys of ``metadata``, all texts:
    ``file_type`` (`kiwi_rag.formats.documents` lists them), ``title``, ``service``, ``domain``, ``last_modified``
    (ISO 8601, UTC) and ``git_commit`` (empty where it is not known). ``source_sha256`` is of the file's own bytes.
    """

    source_sha256: str = ""

    @property
    def content_sha256(self) -> str:
        """Hex SHA-256 of the file's bytes, before anything was decoded or taken out."""
        return self.source_sha256

    @property
    def path(self) -> str:
        """Its path below the workspace's root."""
        return self.ref.item_id


@dataclass(frozen=True, slots=True)
class Passage:
    """The piece of an item that is embedded and found.

    ``context`` (what item it is of, and its headings) goes in front of ``text``, but is not part of the lines.
    ``ordinal`` counts from 0 within the item. ``kind`` is that of a document's section, empty for items.
    """

    ordinal: int
    text: str
    context: str
    heading: tuple[str, ...]
    start_line: int
    end_line: int
    kind: str = ""

    @property
    def indexed_text(self) -> str:
        """What the words leg sees; `kiwi_rag.wordpieces.embedded_text` is what the model sees."""
        return f"{self.context}\n{self.text}" if self.context else self.text


@dataclass(frozen=True, slots=True)
class Envelope:
    """A DSSE v1.0.2 envelope, decoded: payload type, payload bytes, ``(keyid, signature bytes)`` pairs."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """What the gate hands out: the proof that an item was admitted, by whom and under which policy.

    ``digest`` is the hex SHA-256 of the signed payload. ``seal`` is made by the gate alone; a store checks it
    (``kiwi_rag.validation.seal.require_sealed``) before it writes anything.
    """

    item: Item
    envelope: Envelope
    digest: str
    key_id: str
    principal: str
    findings: tuple[Finding, ...]
    policy: str
    signed_at: datetime
    admitted_at: datetime
    seal: bytes = field(default=b"", repr=False)

    @property
    def ref(self) -> ItemRef:
        """The admitted item, with its version."""
        return self.item.ref


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingRecord:
    """One passage of an admitted item, with its vector and the fingerprint of the model that made it.

    ``vector`` has shape ``(dimension,)``, ``float32``, L2-normalised.
    """

    admission: Admission
    passage: Passage
    vector: Vector
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as a store gives it back: the signed bytes, and what was known when it was admitted.

    Nothing in here is trusted on its own; ``search`` verifies ``envelope`` again before a door shows any of it.
    ``yanked_at`` and ``yank_reason`` tell that it was taken back, ``private`` that only its owner sees it. ``problem``
    says why what a store gave cannot be read; such an item never verifies.
    """

    ref: ItemRef
    envelope: Envelope
    digest: str
    content_sha256: str
    admitted_at: datetime
    policy: str
    path: str = ""
    passages: int = 0
    yanked_at: datetime | None = None
    yank_reason: str = ""
    private: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ItemState:
    """What is not now as it was when an item was signed and admitted, though its statement verifies.

    ``changed`` says how the file differs from what was signed, empty where it does not. ``yanked`` tells that the
    version was yanked, as far as this client knows.
    """

    changed: str = ""
    yanked: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """``yanked`` and ``changed``, as far as they hold."""
        return (*(("yanked",) if self.yanked else ()), *(("changed",) if self.changed else ()))

    @property
    def verified(self) -> bool:
        """Whether neither holds: the file is the one that was signed, and its version stands."""
        return not self.labels


Visibility = Literal["public", "private"]


def sha256_hex(data: bytes) -> str:
    """Return the hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def has_errors(findings: Sequence[Finding]) -> bool:
    """Whether any finding refuses."""
    return any(f.is_error for f in findings)
