"""Documents for the registry: really signed and sealed; vectors from a seeded generator in place of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from kiwi_rag.model import Admission, Document, EmbeddingRecord, Filters, Passage, Section, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.signing import dsse
from kiwi_rag.signing.keys import Indexer, SigningKey
from kiwi_rag.signing.statement import digest_of
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.validation.admission import issue
from tests.conformance.items import FINGERPRINT, KEY, REGISTRY, SIGNED, unit_vector
from tests.sql.databases import database, template

WORKSPACE = "acme-web"


@contextmanager
def registry_of_documents() -> Iterator[str]:
    """Yield the URL of a fresh registry in which `KEY` may sign documents of every workspace."""
    with database(like=template()) as url:
        with psycopg.connect(url) as connection:
            enrol(connection, KEY, "ada@acme", "*")
        yield url


def enrol(connection: psycopg.Connection, key: SigningKey, principal: str, *patterns: str) -> None:
    """Let a key sign documents, and items, too."""
    types = [kind.value for kind in ItemType]
    call = "select public.enrol_signer(%s, %s, %s, %s)"
    connection.execute(call, [key.public_key.hex(), principal, list(patterns), types])


def passages(texts: Sequence[str], path: str = "docs/a.md") -> list[Passage]:
    """One passage a text, each on a line of its own."""
    return [Passage(n, text, path, ("Top", "Sub"), n + 1, n + 1, "section") for n, text in enumerate(texts)]


def admitted(path: str, texts: Sequence[str], **changes: Any) -> Admission:
    """A signed, sealed admission; `changes`: workspace, key, after (seconds later), metadata, source, principal."""
    at = SIGNED + timedelta(seconds=changes.pop("after", 0))
    key = changes.pop("key", KEY)
    metadata = {"file_type": "markdown", "title": path, "service": "", "domain": ""} | changes.pop("metadata", {})
    content = "\n".join(texts)
    document = Document(
        ref=ItemRef(ItemType.DOCUMENT, path),
        files={path: content.encode()},
        main=path,
        metadata=metadata,
        sections=(Section("section", content, 1, len(texts)),),
        source_sha256=sha256_hex(changes.pop("source", content).encode()),
    )
    indexer = Indexer(key, REGISTRY, changes.pop("workspace", WORKSPACE))
    envelope = indexer.sign(document, passages(texts, path), at)
    principal = changes.pop("principal", "ada@acme")
    assert not changes, changes
    now = datetime.now(UTC)
    digest = digest_of(envelope)
    return issue(Admission(document, envelope, digest, key.key_id, principal, "shared", at, now))


def records(
    path: str,
    texts: Sequence[str] = ("restart the service",),
    seed: int = 0,
    fingerprint: str = FINGERPRINT,
    **changes: Any,
) -> list[EmbeddingRecord]:
    """What a store takes of a document: one passage a text, with vectors from `seed` on; `changes` as `admitted`."""
    admission = admitted(path, texts, **changes)
    return [
        EmbeddingRecord(admission, passage, unit_vector(seed + passage.ordinal), fingerprint)
        for passage in passages(texts, path)
    ]


def arguments(found: Sequence[EmbeddingRecord]) -> list[Any]:
    """What ``put_document`` takes: envelope, fingerprint, passages."""
    from psycopg.types.json import Jsonb

    objects = [rows.passage_object(record) for record in found]
    return [Jsonb(dsse.encode(found[0].admission.envelope)), found[0].fingerprint, Jsonb(objects)]


async def paths(store: RegistryVectorStore) -> list[str]:
    """The paths of the documents that a store lists."""
    return [stored.ref.item_id for stored in await store.list(Filters())]
