"""Publishing by SQL: the arguments of ``publish_item``, and rows as a direct INSERT takes them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from kiwi_rag.model import Admission, Envelope, sha256_hex
from kiwi_rag.signing import dsse

CALL = "select public.publish_item(%s, %s, %s)"
INSERT = (
    "insert into kiwi.statements (payload_type, payload, signature, signer, public_key) values (%s, %s, %s, %s, %s)"
)


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files as ``publish_item`` takes them."""
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def arguments(item: Admission, visibility: str | None = None, envelope: Any = None) -> list[Any]:
    """What `CALL` takes of an admission; another `envelope`, as JSON, in place of its own."""
    document = dsse.encode(item.envelope) if envelope is None else envelope
    return [Jsonb(document), Jsonb(encoded(item.item.files)), visibility]


def published(
    connection: psycopg.Connection, item: Admission, visibility: str | None = None, envelope: Any = None
) -> dict[str, Any]:
    """Publish an admission; return the answer."""
    (answer,) = connection.execute(CALL, arguments(item, visibility, envelope)).fetchone() or ({},)
    return dict(answer)


def store_blobs(connection: psycopg.Connection, item: Admission) -> None:
    """Store an item's files, which a row of its statement needs."""
    for content in item.item.files.values():
        connection.execute(
            "insert into kiwi.blobs (holder, sha256, content) values (0, %s, %s) on conflict do nothing",
            [sha256_hex(content), content],
        )


def row_of(envelope: Envelope, public_key: bytes, **changes: Any) -> list[Any]:
    """What `INSERT` takes."""
    key_id, signature = envelope.signatures[0]
    row = {"payload_type": envelope.payload_type, "payload": envelope.payload, "signature": signature}
    return list((row | {"signer": key_id, "public_key": public_key} | changes).values())
