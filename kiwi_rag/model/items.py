"""The records of the write path: items and documents as they are parsed, admitted, embedded and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from kiwi_rag.model.refs import ItemRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Vector: TypeAlias = "NDArray[np.float32]"

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of the gate's checks of a candidate.

    ``code`` is stable and dotted (``structure.two-directives``). ``line`` is 1-based, 0 for the whole file. ``hint``
    says how to correct it.
    """

    code: str
    message: str
    line: int = 0
    path: str = ""
    hint: str = ""
    severity: Severity = "error"

    @property
    def is_error(self) -> bool:
        """Whether this finding alone causes a rejection."""
        return self.severity == "error"

    @property
    def where(self) -> str:
        """``file:line``, or the file where there is no line."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def as_dict(self) -> dict[str, object]:
        """Return the finding as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a file that belongs together.

    ``start_line`` and ``end_line`` are 1-based and inclusive: the lines of ``text`` in the file. ``heading`` is the
    path of headings above it. The sections of an item have the kinds ``body`` and ``summary``. A summary is composed
    from metadata, so that searches match an item's description; its lines are those of the metadata block. The kinds
    of a document's sections are ``section``, ``endpoint``, ``schema``, ``method`` and others that
    `kiwi_rag.formats.documents` lists.
    """

    kind: str
    text: str
    start_line: int
    end_line: int
    heading: tuple[str, ...] = ()
    file: str = ""


class RenderedLine(NamedTuple):
    """A line of a file as a reader of the rendered page sees it, and the line of the file that it is from.

    Several may be from one line.
    """

    text: str
    number: int


@dataclass(frozen=True, slots=True)
class Item:
    """A parsed directive, script, knowledge entry or skill.

    ``files`` is file name → bytes, relative to the folder of the ``main`` file, which is one of them. Only a skill has
    several. ``executables`` are the names of those that may be executed.
    ``metadata`` is signed together with the content. It is JSON-ready, and the same for the same content. Keys:
    ``name``, ``description``, ``category``, ``author``, ``tags`` (list), and, where the format has them,
    ``title``, ``model``, ``limits``, ``permissions``, ``context``, ``inputs``, ``outputs``, ``steps``, ``imports``.
    ``findings`` holds the warnings of the parser, and of an admitted item those of the whole gate.
    """

    ref: ItemRef
    files: Mapping[str, bytes]
    main: str
    metadata: Mapping[str, Any]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...] = ()
    executables: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """The text of the main file."""
        return self.files[self.main].decode()

    def lines(self, file: str = "") -> list[str]:
        """Return the lines of a file of the item as sections and passages count them; "" is the main file."""
        text = self.files[file or self.main].decode().removeprefix("\ufeff")
        return (text.replace("\r\n", "\n") if file else text).split("\n")

    @property
    def digests(self) -> Mapping[str, str]:
        """File name → hex SHA-256 of the file."""
        return {name: sha256_hex(data) for name, data in self.files.items()}

    @property
    def title(self) -> str:
        """Title of a knowledge entry, name of anything else."""
        return str(self.metadata.get("title") or self.metadata.get("name") or self.ref.item_id)

    @property
    def content_sha256(self) -> str:
        """The content digest of all files."""
        return content_digest(self.digests)


@dataclass(frozen=True, slots=True)
class Document(Item):
    """A file of a workspace that is no item. Its main file is its text after redaction, with line feeds as line ends.

    The others are the files that it includes, by their paths below the root.

    ``ref`` names it by its path below the workspace's root, with slashes. Keys of ``metadata``, all strings:
    ``file_type`` (`kiwi_rag.formats.documents` lists them), ``title``, ``service``, ``domain``, ``last_modified``
    (ISO 8601, UTC) and ``git_commit`` (empty where unknown). ``source_sha256`` is the digest of the file's bytes
    before decoding and redaction, which stays on this machine. ``rendered`` are the lines of a format whose reader does
    not see the file's own lines; sections count these lines then, and passages say where they are from.
    """

    source_sha256: str = ""
    rendered: tuple[RenderedLine, ...] | None = None

    @property
    def path(self) -> str:
        """Its path below the workspace's root."""
        return self.ref.item_id


@dataclass(frozen=True, slots=True)
class Passage:
    """The piece of an item or document that is embedded and found.

    ``context`` (the title and the headings) is indexed in front of ``text``, but is not part of the lines. ``ordinal``
    counts from 0 within the item. ``kind`` is that of a document's section, empty for items. ``file`` is the file that
    has the lines, as a path in the item's folder; empty for the main file.
    """

    ordinal: int
    text: str
    context: str
    heading: tuple[str, ...]
    start_line: int
    end_line: int
    kind: str = ""
    file: str = ""

    @property
    def indexed_text(self) -> str:
        """The text of the lexical leg; that of the vector leg is `kiwi_rag.wordpieces.embedded_text`."""
        return f"{self.context}\n{self.text}" if self.context else self.text


@dataclass(frozen=True, slots=True)
class Envelope:
    """A DSSE v1.0.2 envelope, decoded: payload type, payload bytes, ``(keyid, signature bytes)`` pairs."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """The gate's proof that an item was admitted: who signed it, and under which policy it was admitted.

    ``digest`` is the hex SHA-256 of the signed payload. Only the gate can make the ``seal``; a store checks it
    (``kiwi_rag.validation.admission.require_sealed``) before it writes anything.
    """

    item: Item
    envelope: Envelope
    digest: str
    key_id: str
    principal: str
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
    """An item as a store returns it: the signed bytes, and the store's columns.

    Nothing in it is trusted: ``search`` verifies ``envelope`` again before an interface shows any of it. ``yanked_at``
    and ``yank_reason`` are set for a yanked version; only its owner sees a ``private`` one. ``problem`` says why the
    store's data cannot be read; such an item never verifies. ``files`` is file name → bytes, of an item those that were
    requested; a document has none.
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
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemState:
    """What changed since a verified item was signed and admitted.

    ``changed`` describes how the file differs from what was signed, empty where it does not. ``yanked``: the version
    was yanked, as far as this client knows. ``compared``: there was a file to compare with. ``newer`` is the version
    of a changed file that has a trusted signature and only has to be indexed.
    """

    changed: str = ""
    yanked: bool = False
    compared: bool = True
    newer: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """``yanked`` and ``changed``, those that apply."""
        return (*(("yanked",) if self.yanked else ()), *(("changed",) if self.changed else ()))

    @property
    def verified(self) -> bool:
        """Whether neither applies: the file is the one that was signed, and its version was not yanked."""
        return not self.labels


Visibility = Literal["public", "private"]


def content_digest(digests: Mapping[str, str]) -> str:
    """Return the digest of a content of one or several files (name → hex SHA-256).

    It is the hex SHA-256 of a statement's ``subject`` in canonical JSON, in the order of the names.
    """
    subject = [{"digest": {"sha256": digests[name]}, "name": name} for name in sorted(digests)]
    return sha256_hex(json.dumps(subject, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def sha256_hex(data: bytes) -> str:
    """Return the hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def has_errors(findings: Sequence[Finding]) -> bool:
    """Whether any finding causes a rejection."""
    return any(f.is_error for f in findings)
