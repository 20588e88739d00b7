"""The statement that an author signs about an item, and its signature file ``<file>.sig``.

The payload is RFC 8785 canonical JSON of ``registry`` (the audience), ``item_type``, ``item_id``, ``version``,
``content``, ``metadata`` and ``signed_at``. The signature file has the same members except ``content``, which is read
from the file itself: if one byte of it changes, the signature no longer matches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kiwi_rag.errors import InvalidItemId, MalformedEnvelope
from kiwi_rag.model import Envelope, Item, sha256_hex
from kiwi_rag.model.refs import ITEM_TYPES, ItemRef, ItemType, check_item_id
from kiwi_rag.signing import dsse

_MEMBERS = {"registry", "item_type", "item_id", "version", "content", "metadata", "signed_at"}
_SIDE_FIELDS = {"payloadType", "statement", "signatures"}
MAX_PAYLOAD_BYTES = 1 << 20
MAX_NESTING = 64  # the limit of kiwi.canonical_json in the registry, too
MAX_SIDE_FILE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Statement:
    """The parsed payload of an item's envelope."""

    registry: str
    ref: ItemRef
    content: str
    metadata: Mapping[str, Any]
    signed_at: datetime


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


def payload(item: Item, registry: str, signed_at: datetime) -> bytes:
    """Return the canonical payload of `item`, for the audience `registry`."""
    members = {**_head(item.ref, registry, signed_at), "metadata": dict(item.metadata), "content": item.content}
    check_storable(members)
    return canonical(members)


def parse(data: bytes) -> Statement:
    """Parse a payload, strictly: its bytes must be the canonical form of what they parse to.

    Raises
    ------
    MalformedEnvelope
        When it is too large, not strict JSON, not canonical, or not an item statement.
    """
    if len(data) > MAX_PAYLOAD_BYTES:
        raise MalformedEnvelope(f"the payload is over {MAX_PAYLOAD_BYTES} bytes")
    members = dsse.strict_json(data, "the payload")
    if not isinstance(members, dict) or set(members) != _MEMBERS:
        raise MalformedEnvelope("the payload does not have exactly the members of an item statement")
    check_storable(members)
    if canonical(members) != data:
        raise MalformedEnvelope("the payload is not in canonical form")
    return _statement(members)


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


def side_file(envelope: Envelope) -> bytes:
    """Return the bytes of ``<file>.sig`` for a signed item: its envelope without the content."""
    members = json.loads(envelope.payload)
    del members["content"]
    document = {
        "payloadType": envelope.payload_type,
        "statement": members,
        "signatures": dsse.encode_signatures(envelope),
    }
    return json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True).encode() + b"\n"


def envelope_of(content: str, side: bytes) -> Envelope:
    """Return the full envelope, made from a file's content and its ``.sig``; nothing is verified yet.

    Raises
    ------
    MalformedEnvelope
        When the signature file is malformed.
    Unsigned
        When it has no signature.
    """
    if len(side) > MAX_SIDE_FILE_BYTES:
        raise MalformedEnvelope(f"the signature file is over {MAX_SIDE_FILE_BYTES} bytes")
    document = dsse.strict_json(_text(side), "the signature file")
    if not isinstance(document, dict) or set(document) != _SIDE_FIELDS or not isinstance(document["statement"], dict):
        raise MalformedEnvelope("the signature file does not have exactly payloadType, statement and signatures")
    if document["payloadType"] != dsse.PAYLOAD_TYPE or set(document["statement"]) != _MEMBERS - {"content"}:
        raise MalformedEnvelope("the signature file does not hold an item statement")
    data = canonical({**document["statement"], "content": content})
    return Envelope(dsse.PAYLOAD_TYPE, data, dsse.decode_signatures(document["signatures"]))


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


def _head(ref: ItemRef, registry: str, signed_at: datetime) -> dict[str, str]:
    return {
        "registry": registry,
        "item_type": ref.item_type.value,
        "item_id": ref.item_id,
        "version": ref.version or "",
        "signed_at": format_time(signed_at),
    }


def _statement(members: Mapping[str, Any]) -> Statement:
    texts = ("registry", "item_type", "item_id", "version", "content", "signed_at")
    if not all(isinstance(members[name], str) for name in texts) or not isinstance(members["metadata"], dict):
        raise MalformedEnvelope("a member of the payload has the wrong type")
    try:
        ref = ItemRef(_item_type(members["item_type"]), check_item_id(members["item_id"]), members["version"])
    except (ValueError, InvalidItemId) as error:
        raise MalformedEnvelope(f"the payload names no valid item: {error}") from error
    return Statement(
        members["registry"], ref, members["content"], members["metadata"], parse_time(members["signed_at"])
    )


def _item_type(name: str) -> ItemType:
    if name not in ITEM_TYPES:
        raise ValueError(f"{name[:40]!r} is not an item type")
    return ItemType(name)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedEnvelope("the signature file is not UTF-8") from error
