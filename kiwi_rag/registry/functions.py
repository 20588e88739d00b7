"""One typed caller for each of the registry's SQL functions that readers, publishers and the indexer use.

Every caller takes an open connection (inside `Connections.transaction`) and binds its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import Candidate, CollectionStatistics, EmbeddingRecord, Envelope, Filters, StoredItem, StoreQuery
from kiwi_rag.refs import ItemRef
from kiwi_rag.registry import rows
from kiwi_rag.signing import dsse

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of an item: ``content_sha256`` hex, ``yanked`` whether it was taken back."""

    ref: ItemRef
    digest: str
    content_sha256: str
    key_id: str
    yanked: bool


async def publish_item(connection: Connection, envelope: Envelope) -> Mapping[str, Any]:
    """Hand in an envelope; return the receipt: ``sequence``, ``digest``, ``audit_head``, ``known``, ``received_at``."""
    receipt = await _value(connection, "select public.publish_item(%s)", [_json(dsse.encode(envelope))])
    return dict(receipt)


async def store_passages(connection: Connection, records: Sequence[EmbeddingRecord]) -> int:
    """Store the passages of one item, at least one; return how many. The role must be ``kiwi_indexer``."""
    first, passages = records[0], [rows.passage_object(record) for record in records]
    arguments = [first.admission.digest, first.fingerprint, _json(passages)]
    return int(await _value(connection, "select public.store_passages(%s, %s, %s)", arguments))


async def pending_items(
    connection: Connection, fingerprint: str, limit: int, after: int
) -> Sequence[tuple[int, Envelope]]:
    """Return what waits for the indexer, as ``(sequence, envelope)``, oldest first."""
    found = await _rows(connection, "select * from public.pending_items(%s, %s, %s)", [fingerprint, limit, after])
    return [(row["sequence"], dsse.decode(row["envelope"])) for row in found]


async def collection_statistics(
    connection: Connection, terms: Sequence[str], fingerprint: str = ""
) -> CollectionStatistics:
    """Return the statistics of a model's collection, of the largest one when none is named."""
    query = "select public.collection_statistics(%s::text[], %s)"
    return rows.statistics(await _value(connection, query, [list(terms), fingerprint or None]))


async def search_hybrid(connection: Connection, query: StoreQuery) -> Sequence[Candidate]:
    """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
    terms, weights = rows.bm25_inputs(bm25_weights(query.statistics, query.terms))
    arguments = [
        rows.vector_text(query.vector),
        terms,
        weights,
        query.statistics.average_length,
        query.depth,
        _json(rows.filter_object(query.filters)),
        query.fingerprint,
    ]
    call = """
        select * from public.search_hybrid(
            %s::extensions.vector, %s::text[], %s::float8[], %s::float8, %s::integer, %s::jsonb, %s
        )
    """
    return [rows.candidate(row) for row in await _rows(connection, call, arguments)]


async def get_item(connection: Connection, ref: ItemRef, *, yanked_too: bool = False) -> StoredItem | None:
    """Return one version, the newest that was not yanked when `ref` names none."""
    call = "select * from public.get_item(%s, %s, %s)"
    found = await _rows(connection, call, [ref.item_id, ref.version, ref.item_type.value])
    found = [row for row in found if yanked_too or row["yanked_at"] is None]
    return rows.stored_item(found[0]) if found else None


async def list_items(connection: Connection, filters: Filters) -> Sequence[StoredItem]:
    """Return the newest version of every item that the filters let through, by type and id."""
    found = await _rows(connection, "select * from public.list_items(%s)", [_json(rows.filter_object(filters))])
    return [rows.stored_item(row) for row in found]


async def list_versions(connection: Connection, ref: ItemRef) -> Sequence[VersionRow]:
    """Return every version of an item that was ever taken, oldest first."""
    call = "select * from public.list_versions(%s, %s)"
    found = await _rows(connection, call, [ref.item_id, ref.item_type.value])
    return [
        VersionRow(
            ItemRef(ref.item_type, ref.item_id, row["version"]),
            row["digest"],
            row["content_sha256"],
            row["key_id"],
            row["yanked_at"] is not None,
        )
        for row in found
    ]


async def item_status(connection: Connection, ref: ItemRef) -> Sequence[Mapping[str, Any]]:
    """Return what became of each version: version, signer_status, yanked_at, passages, searchable."""
    call = "select * from public.item_status(%s, %s)"
    return await _rows(connection, call, [ref.item_id, ref.item_type.value])


async def registry_status(connection: Connection) -> Mapping[str, Any]:
    """Return counts, versions and health."""
    return dict(await _value(connection, "select public.registry_status()", []))


def _json(value: object) -> Any:
    from psycopg.types.json import Jsonb

    return Jsonb(value)


async def _value(connection: Connection, query: Any, arguments: Sequence[Any]) -> Any:
    row = await (await connection.execute(query, arguments)).fetchone()
    return row[0] if row else None


async def _rows(connection: Connection, query: Any, arguments: Sequence[Any]) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row

    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query, arguments)
        return await cursor.fetchall()
