"""The statement that the indexing key signs about a document: its path, its content's digest, and its passages.

There is one envelope for each document. Its payload is RFC 8785 canonical JSON of ``registry`` (the audience),
``workspace``, ``path``, ``content_sha256`` (hex), ``metadata`` (name → text), ``passages`` (a hex digest each, in
order) and ``signed_at``. Each passage can be verified by itself, so no store has to keep whole files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from kiwi_rag.errors import MalformedEnvelope, UsageError
from kiwi_rag.model import Document, Envelope, Passage, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import dsse
from kiwi_rag.signing.statement import canonical, check_storable, format_time, parse_time
from kiwi_rag.signing.trust import Signer, TrustPolicy, authorised

if TYPE_CHECKING:
    from kiwi_rag.signing.keys import SigningKey

PAYLOAD_TYPE = "application/vnd.kiwi.document.v1+json"
MAX_PAYLOAD_BYTES = 4 << 20
"""Enough for the digests of 60,000 passages."""
MAX_PATH_CHARACTERS = 1024

_MEMBERS = {"registry", "workspace", "path", "content_sha256", "metadata", "passages", "signed_at"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORKSPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class DocumentStatement:
    """The parsed payload of a document's envelope."""

    registry: str
    workspace: str
    path: str
    content_sha256: str
    metadata: Mapping[str, str]
    passages: tuple[str, ...]
    signed_at: datetime

    @property
    def ref(self) -> ItemRef:
        """The reference that a signer's patterns are matched against: workspace and path."""
        return ItemRef(ItemType.DOCUMENT, f"{self.workspace}/{self.path}")


@lru_cache(maxsize=1024)  # signing, the gate and the store need the same digests
def passage_digest(passage: Passage) -> str:
    """Return the hex SHA-256 of a passage's canonical JSON: its lines, its text and its context."""
    members = {
        "context": passage.context,
        "end_line": passage.end_line,
        "heading": list(passage.heading),
        "kind": passage.kind,
        "start_line": passage.start_line,
        "text": passage.text,
    }
    # For these members the same bytes as RFC 8785, and thirty times as fast as its library.
    return sha256_hex(json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Indexer:
    """Signs the documents of a workspace.

    ``registry`` is the audience, ``workspace`` the name of the workspace that the paths are relative to.
    """

    key: SigningKey
    registry: str
    workspace: str

    def sign(self, document: Document, passages: Sequence[Passage], at: datetime) -> Envelope:
        """Return the signed envelope of a document that was split into `passages`.

        Raises
        ------
        MalformedEnvelope
            When canonical JSON cannot represent it, or it has too many passages.
        """
        members = {
            "registry": self.registry,
            "workspace": check_workspace(self.workspace),
            "path": check_path(document.path),
            "content_sha256": document.content_sha256,
            "metadata": dict(document.metadata),
            "passages": [passage_digest(passage) for passage in passages],
            "signed_at": format_time(at),
        }
        check_storable(members)
        data = canonical(members)
        if len(data) > MAX_PAYLOAD_BYTES:
            hint = "split it, or leave it out with a line in .kiwiignore"
            raise MalformedEnvelope(
                f"{document.path} has {len(passages):,} passages, too many for one statement", hint=hint
            )
        return self.key.sign_payload(PAYLOAD_TYPE, data)


def parse(envelope: Envelope) -> DocumentStatement:
    """Parse a document's payload, strictly: its bytes must be the canonical form of what they parse to.

    Raises
    ------
    MalformedEnvelope
        When it is of another type, too large, not strict JSON, not canonical, or not a document's statement.
    """
    if envelope.payload_type != PAYLOAD_TYPE:
        raise MalformedEnvelope(f"the payload type is not {PAYLOAD_TYPE}")
    if len(envelope.payload) > MAX_PAYLOAD_BYTES:
        raise MalformedEnvelope(f"the payload is over {MAX_PAYLOAD_BYTES} bytes")
    members = dsse.strict_json(envelope.payload, "the payload")
    if not isinstance(members, dict) or set(members) != _MEMBERS:
        raise MalformedEnvelope("the payload does not have exactly the members of a document's statement")
    check_storable(members)
    if canonical(members) != envelope.payload:
        raise MalformedEnvelope("the payload is not in canonical form")
    _check_types(members)
    return DocumentStatement(
        members["registry"],
        members["workspace"],
        members["path"],
        members["content_sha256"],
        members["metadata"],
        tuple(members["passages"]),
        parse_time(members["signed_at"]),
    )


def verify(
    envelope: Envelope, trust: TrustPolicy, received_at: datetime | None = None
) -> tuple[DocumentStatement, Signer]:
    """Verify a document's envelope: canonical payload, strict signature, and the authority of the signer.

    Raises
    ------
    SignatureRefused
        One of its subclasses, which say what is wrong.
    """
    signed = parse(envelope)
    return signed, authorised(trust.signers_of(envelope), signed, trust.threshold, received_at)


def check_workspace(name: str) -> str:
    """Return `name` if it can name a workspace.

    Raises
    ------
    UsageError
        When it cannot.
    """
    if not _WORKSPACE.fullmatch(name):
        hint = "lower-case letters, digits, '-' and '_', 64 at most"
        raise UsageError(f"{name[:80]!r} cannot name a workspace", hint=hint)
    return name


def check_path(path: str) -> str:
    """Return `path` if it can name a document: relative, with slashes, without ``..``.

    Raises
    ------
    MalformedEnvelope
        When it cannot.
    """
    if not is_nameable(path):
        raise MalformedEnvelope(f"{path[:80]!r} cannot be the path of a document")
    return path


def is_nameable(path: str) -> bool:
    """Return whether `path` can name a document: it is printable and stays below the workspace's root."""
    steps = path.split("/")
    plain = path.isprintable() and "\\" not in path and len(path) <= MAX_PATH_CHARACTERS
    return plain and not any(step in ("", ".", "..") for step in steps)


def _check_types(members: Mapping[str, object]) -> None:
    texts = ("registry", "workspace", "path", "content_sha256", "signed_at")
    metadata, passages = members["metadata"], members["passages"]
    valid = all(isinstance(members[name], str) for name in texts)
    valid = valid and isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    valid = valid and isinstance(passages, list) and all(isinstance(p, str) and _DIGEST.fullmatch(p) for p in passages)
    valid = valid and bool(_WORKSPACE.fullmatch(str(members["workspace"])))
    if not valid or not _DIGEST.fullmatch(str(members["content_sha256"])):
        raise MalformedEnvelope("a member of the payload has the wrong type")
    check_path(str(members["path"]))
