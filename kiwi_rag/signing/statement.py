"""What a signer says about files: in-toto Statements v1, of an item by its author and of a document by its indexer.

Format: https://github.com/in-toto/attestation, ``spec/v1/statement.md``. ``subject`` lists files by name and digest, in
the order of their names; contents are not in the payload. The predicate ``urn:kiwi:item:v1`` names the item, its
version, its main file and the files that may be executed; ``urn:kiwi:index:v1`` names a document of a collection and
the digest of each of its passages, so that no store has to keep whole files. A payload is RFC 8785 canonical JSON, and
is accepted only if its bytes are the canonical form of what they parse to. The SQL function ``kiwi.check_payload``
holds the same rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from kiwi_rag.errors import InvalidItemId, MalformedEnvelope, OldSignature, UsageError
from kiwi_rag.model import (
    ITEM_TYPES,
    Document,
    Envelope,
    Item,
    ItemRef,
    ItemType,
    Passage,
    check_item_id,
    content_digest,
    sha256_hex,
)
from kiwi_rag.signing import dsse

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
ITEM_PREDICATE = "urn:kiwi:item:v1"
INDEX_PREDICATE = "urn:kiwi:index:v1"

MAX_PAYLOAD_BYTES = 1 << 20
MAX_INDEX_PAYLOAD_BYTES = 4 << 20
"""Enough for the digests of 60,000 passages."""
_LIMITS = {ITEM_PREDICATE: MAX_PAYLOAD_BYTES, INDEX_PREDICATE: MAX_INDEX_PAYLOAD_BYTES}
MAX_METADATA_BYTES = 64 << 10
MAX_FILES = 200
_MAX_REMEMBERED = 16 << 10
MAX_NESTING = 64  # the limit of kiwi.canonical_json in the registry, too
MAX_SIGNATURE_FILE_BYTES = 2 << 20
MAX_PATH_CHARACTERS = 1024
ITEMS = "items"
"""The collection of a tier's items, whose name no other collection may have."""

_MEMBERS = {"_type", "predicateType", "subject", "predicate"}
_COMMON_MEMBERS: dict[str, type] = dict.fromkeys(("registry", "signed_at"), str) | {"metadata": dict}
_ITEM_MEMBERS = (
    _COMMON_MEMBERS | dict.fromkeys(("main", "item_type", "item_id", "version"), str) | {"executables": list}
)
_INDEX_MEMBERS = _COMMON_MEMBERS | {"collection": str, "path": str, "passages": list}
_PASSAGE_MEMBERS = ("context", "end_line", "file", "heading", "kind", "start_line", "text")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COLLECTION = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_OLD_PAYLOAD_TYPE = "application/vnd.kiwi.item.v1+json"


@dataclass(frozen=True, slots=True)
class Statement:
    """What both statements have: the part that the signer's authority depends on, metadata, and the files' digests.

    ``registry`` is the audience, ``digests`` is file name → hex SHA-256, and ``signed_at`` the time according to the
    signer. A signer's patterns are matched against the id of ``ref``, of a document collection and path.
    """

    registry: str
    ref: ItemRef
    digests: Mapping[str, str]
    metadata: Mapping[str, Any]
    signed_at: datetime

    @property
    def content_sha256(self) -> str:
        """The content digest of all files, of a document after redaction."""
        return content_digest(self.digests)

    @property
    def content_key(self) -> str:
        """What copies under other names have in common: of a document, its content."""
        return self.content_sha256


@dataclass(frozen=True, slots=True)
class ItemStatement(Statement):
    """An author's statement about the files of an item."""

    main: str
    executables: tuple[str, ...]

    @property
    def content_key(self) -> str:
        """A digest of the files that does not depend on the main file's name, which is from the id."""
        digests = {"" if name == self.main else name: digest for name, digest in self.digests.items()}
        return f"{content_digest(digests)} {self.executables}"

    @property
    def given(self) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
        """The values for metadata that files of knowledge and of skills need not declare."""
        if self.ref.item_type not in (ItemType.KNOWLEDGE, ItemType.SKILL):
            return ()
        texts = [(name, value) for name in ("category", "author") if isinstance(value := self.metadata.get(name), str)]
        tags = self.metadata.get("tags")
        are_words = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        return (("version", self.ref.version or ""), *texts, ("tags", tuple(tags) if tags and are_words else ()))


@dataclass(frozen=True, slots=True)
class IndexStatement(Statement):
    """An indexer's statement about a document, as it is after redaction. ``passages`` are hex digests, in order."""

    collection: str
    path: str
    passages: tuple[str, ...]


def item_payload(item: Item, registry: str, signed_at: datetime) -> bytes:
    """Return the canonical payload of `item`, for the audience `registry`.

    Raises
    ------
    MalformedEnvelope
        When no statement can name it: its files, its metadata or its size.
    """
    named = {"item_type": item.ref.item_type.value, "item_id": item.ref.item_id, "version": item.ref.version or ""}
    files = {"main": item.main, "executables": list(item.executables)}
    data = _payload(ITEM_PREDICATE, item, named | files, registry, signed_at)
    parse_item(data)
    return data


def index_payload(
    document: Document, passages: Sequence[Passage], registry: str, collection: str, signed_at: datetime
) -> bytes:
    """Return the canonical payload of a document that was split into `passages`.

    Raises
    ------
    MalformedEnvelope
        When canonical JSON cannot represent it, or it has too many passages.
    """
    named = {"collection": check_collection(collection), "path": check_path(document.path)}
    split = {"passages": [passage_digest(passage) for passage in passages]}
    return _payload(INDEX_PREDICATE, document, named | split, registry, signed_at)


def _payload(predicate_type: str, item: Item, own: Mapping[str, Any], registry: str, signed_at: datetime) -> bytes:
    """Return a payload whose predicate has the members that both have in common, and its `own`."""
    predicate = {"registry": registry, "metadata": dict(item.metadata), "signed_at": format_time(signed_at), **own}
    subject = [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(item.digests.items())]
    members = {"_type": STATEMENT_TYPE, "predicateType": predicate_type, "subject": subject, "predicate": predicate}
    check_storable(members)
    data, limit = canonical(members), _LIMITS[predicate_type]
    if len(data) > limit:
        hint = "split it; a line in .kiwiignore leaves a file out of a workspace's index"
        raise MalformedEnvelope(f"{item.ref}: the statement would be over {limit >> 20} MiB", hint=hint)
    return data


def parse_item(data: bytes) -> ItemStatement:
    """Parse an item's payload, strictly. What small ones say is remembered: it depends on the bytes alone.

    Raises
    ------
    MalformedEnvelope
        When it is too large, not strict JSON, not canonical, or not an item's statement.
    """
    return _parse_small_item(data) if len(data) <= _MAX_REMEMBERED else _parse_item(data)


def _parse_item(data: bytes) -> ItemStatement:
    digests, predicate = _parse(data, ITEM_PREDICATE, _ITEM_MEMBERS)
    try:
        ref = ItemRef(_item_type(predicate["item_type"]), check_item_id(predicate["item_id"]), predicate["version"])
    except (ValueError, InvalidItemId) as error:
        raise MalformedEnvelope(f"the payload names no valid item: {error}") from error
    main, executables = predicate["main"], predicate["executables"]
    if main not in digests or f"{main}.sig" in digests:
        raise MalformedEnvelope("'main' is not one of the files, or its signature is")
    if executables != [name for name in digests if name in executables]:
        raise MalformedEnvelope("'executables' are not distinct names of files in order")
    common = predicate["registry"], ref, digests, predicate["metadata"], parse_time(predicate["signed_at"])
    return ItemStatement(*common, main, tuple(executables))


_parse_small_item = lru_cache(maxsize=1024)(_parse_item)


def parse_index(data: bytes) -> IndexStatement:
    """Parse a document's payload, strictly.

    Raises
    ------
    MalformedEnvelope
        When it is too large, not strict JSON, not canonical, or not a document's statement.
    """
    digests, predicate = _parse(data, INDEX_PREDICATE, _INDEX_MEMBERS)
    collection, path, passages = predicate["collection"], predicate["path"], predicate["passages"]
    valid = all(isinstance(value, str) for value in predicate["metadata"].values()) and all(map(_is_digest, passages))
    if not valid or not is_collection(collection) or check_path(path) not in digests:
        raise MalformedEnvelope("a member of the predicate has the wrong type")
    ref = ItemRef(ItemType.DOCUMENT, f"{collection}/{path}")
    common = predicate["registry"], ref, digests, predicate["metadata"], parse_time(predicate["signed_at"])
    return IndexStatement(*common, collection, path, tuple(passages))


def _parse(data: bytes, predicate_type: str, members: Mapping[str, type]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return a payload's digests by file name, and its predicate with exactly these members."""
    if len(data) > _LIMITS[predicate_type]:
        raise MalformedEnvelope(f"the payload is over {_LIMITS[predicate_type]} bytes")
    payload = dsse.strict_json(data, "the payload")
    if not isinstance(payload, dict) or set(payload) != _MEMBERS or payload["_type"] != STATEMENT_TYPE:
        raise MalformedEnvelope("the payload does not have exactly the members of an in-toto statement")
    predicate = payload["predicate"]
    is_complete = isinstance(predicate, dict) and predicate.keys() == members.keys()
    if payload["predicateType"] != predicate_type or not is_complete:
        raise MalformedEnvelope(f"the predicate does not have exactly the members of {predicate_type}")
    check_storable(payload)
    if canonical(payload) != data:
        raise MalformedEnvelope("the payload is not in canonical form")
    if not all(isinstance(predicate[name], expected) for name, expected in members.items()):
        raise MalformedEnvelope("a member of the predicate has the wrong type")
    if len(canonical(predicate["metadata"])) > MAX_METADATA_BYTES:
        raise MalformedEnvelope(f"'metadata' is over {MAX_METADATA_BYTES >> 10} KiB")
    return _digests(payload["subject"]), predicate


def _digests(subject: object) -> dict[str, str]:
    if not isinstance(subject, list) or not 1 <= len(subject) <= MAX_FILES:
        raise MalformedEnvelope(f"'subject' is not a list of 1 to {MAX_FILES} files")
    digests: dict[str, str] = {}
    for entry in subject:
        digest = entry.get("digest") if isinstance(entry, dict) and set(entry) == {"name", "digest"} else None
        if not isinstance(digest, dict) or set(digest) != {"sha256"} or not _is_digest(digest["sha256"]):
            raise MalformedEnvelope("a file of 'subject' does not have exactly a name and a SHA-256")
        digests[check_path(entry["name"])] = digest["sha256"]
    # Case: some file systems would make one file of two such names. ASCII alone, as SQL's lower() does in "C".
    if len({name.encode().lower() for name in digests}) < len(subject) or list(digests) != sorted(digests):
        raise MalformedEnvelope("the files of 'subject' are not distinct names in order")
    return digests


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return the RFC 8785 canonical JSON of `value`.

    Raises
    ------
    MalformedEnvelope
        When JSON, or a double, cannot represent a value in it.
    """
    import rfc8785

    try:
        return rfc8785.dumps(dict(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise MalformedEnvelope(f"not representable as canonical JSON: {error}") from error


def check_storable(value: object, levels: int = MAX_NESTING) -> None:
    """Return if a registry can store `value`: Postgres' text has no U+0000, and SQL and Python recurse into it.

    Raises
    ------
    MalformedEnvelope
        When a text contains U+0000, or lists and objects are nested more than `levels` deep.
    """
    if isinstance(value, str) and "\0" in value:
        raise MalformedEnvelope("the payload contains U+0000")
    if not isinstance(value, Mapping | list | tuple):
        return
    if not levels:
        raise MalformedEnvelope(f"the payload is nested beyond {MAX_NESTING} levels")
    for part in [*value, *value.values()] if isinstance(value, Mapping) else value:
        check_storable(part, levels - 1)


@lru_cache(maxsize=1024)  # signing, the gate and the store need the same digests
def passage_digest(passage: Passage) -> str:
    """Return the hex SHA-256 of a passage's canonical JSON: its file and lines, its text and its context."""
    members = {name: getattr(passage, name) for name in _PASSAGE_MEMBERS}
    # For these members the same bytes as RFC 8785, and thirty times as fast as its library.
    return sha256_hex(json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def signature_file(envelope: Envelope) -> bytes:
    """Return the bytes of ``<file>.sig``: the DSSE envelope as JSON."""
    return json.dumps(dsse.encode(envelope), indent=2, sort_keys=True).encode() + b"\n"


def read_signature_file(data: bytes) -> Envelope:
    """Parse the bytes of ``<file>.sig``; nothing is verified yet.

    Raises
    ------
    OldSignature
        When a pre-release Kiwi wrote it.
    MalformedEnvelope
        When it is malformed.
    Unsigned
        When it has no signature.
    """
    if len(data) > MAX_SIGNATURE_FILE_BYTES:
        raise MalformedEnvelope(f"the signature file is over {MAX_SIGNATURE_FILE_BYTES >> 20} MiB")
    try:
        document = dsse.strict_json(data.decode(), "the signature file")
    except UnicodeDecodeError as error:
        raise MalformedEnvelope("the signature file is not UTF-8") from error
    if isinstance(document, dict) and document.get("payloadType") == _OLD_PAYLOAD_TYPE:
        raise OldSignature("signed by a pre-release Kiwi", hint="kiwi sign PATH")
    return dsse.decode(document)


def digest_of(envelope: Envelope) -> str:
    """Return the digest by which a signed statement is identified: hex SHA-256 of its payload."""
    return sha256_hex(envelope.payload)


def format_time(moment: datetime) -> str:
    """Return `moment` as RFC 3339 in UTC with whole seconds, the only form of ``signed_at``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: object) -> datetime:
    """Parse ``signed_at``.

    Raises
    ------
    MalformedEnvelope
        When it is not ``YYYY-MM-DDThh:mm:ssZ``.
    """
    try:
        moment = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        if format_time(moment) != text:  # strptime also accepts single digits, and digits of other scripts
            raise ValueError("not in this form")
    except ValueError as error:
        raise MalformedEnvelope(f"'signed_at' is not of the form YYYY-MM-DDThh:mm:ssZ: {str(text)[:40]!r}") from error
    return moment


def is_collection(name: str) -> bool:
    """Return whether `name` can name a collection of documents."""
    return bool(_COLLECTION.fullmatch(name)) and name != ITEMS


def check_collection(name: str) -> str:
    """Return `name` if it can name a collection of documents, such as a workspace.

    Raises
    ------
    UsageError
        When it cannot.
    """
    if not is_collection(name):
        hint = f"lower-case letters, digits, '-' and '_', 64 at most, and not {ITEMS!r}"
        raise UsageError(f"{name[:80]!r} cannot name a workspace", hint=hint)
    return name


def check_path(path: object) -> str:
    """Return `path` if it can name a file: relative, with slashes, without ``..``.

    Raises
    ------
    MalformedEnvelope
        When it cannot.
    """
    if not isinstance(path, str) or not is_nameable(path):
        raise MalformedEnvelope(f"{str(path)[:80]!r} cannot be the path of a file")
    return path


def is_nameable(path: str) -> bool:
    """Return whether `path` can name a file below a folder: it is printable and stays there."""
    steps = path.split("/")
    plain = path.isprintable() and "\\" not in path and len(path) <= MAX_PATH_CHARACTERS
    return plain and not any(step in ("", ".", "..") for step in steps)


def _item_type(name: str) -> ItemType:
    if name not in ITEM_TYPES:
        raise ValueError(f"{name[:40]!r} is not an item type")
    return ItemType(name)
