"""The registry's SQL functions as methods of one class, over psycopg or Supabase's API."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from kiwi_rag.errors import RegistryError, RegistryUnreachable
from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model.items import Admission, EmbeddingRecord, Envelope, StoredItem, Visibility
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.model.search import Candidates, CollectionStatistics, Filters, StoreQuery
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import ANSWER_SECONDS, Caller, Transport, raise_refusal, time_limit
from kiwi_rag.registry.rows import Checkpoint, Claimed, IndexedItem, Progress, Row, StoredPassage
from kiwi_rag.retry import READING, WRITING, attempts
from kiwi_rag.signing import dsse
from kiwi_rag.signing.statement import ITEMS
from kiwi_rag.signing.trust import Signer

_T = TypeVar("_T")
Parse = Callable[[Any], _T]
INDEXER = "kiwi_indexer"
ONCE: tuple[float, ...] = ()
"""Calls whose answer would be another the second time: a repetition could not tell what the first one did."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A registry's answer to a publication.

    ``sequence`` counts publications; ``audit_head`` is the audit log's after it. ``already_published``: the registry
    had this very statement before. ``private``: only its owner can see it; ``made_public``: it was private until now.
    """

    sequence: int
    digest: str
    audit_head: str
    already_published: bool
    made_public: bool
    private: bool
    yanked: bool


class RegistryClient:
    """A registry, one method for each of its SQL functions, of the same name.

    Each call is a transaction of its own, repeated where the connection was lost; those of `session` are in one.
    Functions of items also serve the documents of a collection: a workspace's name in place of ``items``.

    Parameters
    ----------
    transport
        `kiwi_rag.registry.pool.Connections`, or Supabase's API.
    """

    def __init__(self, transport: Transport, *, caller: Caller | None = None) -> None:
        self.transport = transport
        self._caller = caller

    @asynccontextmanager
    async def session(self, role: str = "", *, atomic: bool = True) -> AsyncIterator[RegistryClient]:
        """Yield a client whose calls are one transaction, acting as `role` when one is named.

        Without `atomic` each is one by itself; a role needs `atomic`.

        Raises
        ------
        RegistryRefused
            When this transport cannot change the role, or this connection may not.
        RegistryError
            For what fails inside the block too, translated.
        """
        async with self.transport.session(atomic=atomic) as caller:
            session = RegistryClient(self.transport, caller=caller)
            await session.set_role(role)
            yield session

    async def set_role(self, role: str) -> None:
        """Act as `role` until the session ends; raises as `session` does."""
        if self._caller is None:
            raise RegistryError("a role is set within a session")
        if role:
            await self._caller.set_role(role)

    # Items and documents

    async def publish_item(self, admission: Admission, visibility: Visibility | None = None) -> Row:
        """Publish an item with its files; return the answer, which is a receipt or a refusal.

        `parse_receipt` raises a refusal. Not raised here: inside a session it would roll back the refusal's own record
        in the registry's audit log. Without a `visibility` a new item is public, and that of an existing one stays.
        """
        files = {name: base64.b64encode(content).decode() for name, content in admission.item.files.items()}
        arguments = {"envelope": dsse.encode(admission.envelope), "files": files}
        given = {"visibility": visibility} if visibility else {}
        return await self._value("publish_item", rows.OBJECT, {**arguments, **given}, WRITING)

    async def put_document(self, records: Sequence[EmbeddingRecord]) -> None:
        """Store a signed document with all its passages, at least one.

        Raises
        ------
        RegistryRefused
            When the registry's own checks refused it; ``state`` is ``KW018`` when it holds one that was signed later.
        FingerprintMismatch
            When the collection holds vectors of another model.
        """
        arguments = {"envelope": dsse.encode(records[0].admission.envelope), **_passage_arguments(records)}
        raise_refusal(await self._value("put_document", rows.OBJECT, arguments, WRITING, INDEXER))

    async def delete_document(self, collection: str, path: str) -> bool:
        """Remove a document; return whether it was there. The role must be ``kiwi_indexer``."""
        arguments = {"collection": collection, "path": path}
        return await self._value("delete_document", rows.BOOLEAN, arguments, WRITING, INDEXER)

    async def clear_documents(self, collection: str, limit: int) -> int:
        """Remove up to `limit` documents; fewer means that none are left, and another model may be used."""
        arguments = {"collection": collection, "max_documents": limit}
        return await self._value("clear_documents", rows.INTEGER, arguments, WRITING, INDEXER)

    async def get_item(
        self, ref: ItemRef, files: Sequence[str] | None = None, collection: str = ITEMS, *, yanked_too: bool = False
    ) -> StoredItem | None:
        """Return the version that `ref` names or the newest one that was not yanked, or a document.

        `files` are the names of those to return with it, None for all.
        """
        wanted = None if files is None else list(files)
        arguments = {**asdict(ref), "files": wanted, "collection": collection}
        found = await self._rows("get_item", rows.parse_item, arguments)
        return next((item for item in found if yanked_too or item.yanked_at is None), None)

    async def list_items(self, filters: Filters, collection: str = ITEMS) -> Sequence[StoredItem]:
        """Return the newest version of every item that matches, or documents, by type and id, without files."""
        arguments = {"filter": _filter_object(filters), "collection": collection}
        return await self._rows("list_items", rows.parse_item_or_problem, arguments)

    async def item_status(self, ref: ItemRef) -> Sequence[Row]:
        """Return the state of each version, newest first.

        Each has version, digest, content_sha256, key_id, signer_status, received_at, yanked_at, passages, visibility.
        """
        # As patient as writing: the indexer reads the history before it writes.
        arguments = {"item_id": ref.item_id, "item_type": ref.item_type}
        return await self._rows("item_status", rows.VERSION_STATUS, arguments, WRITING)

    async def yank_item(self, ref: ItemRef, reason: str = "") -> int:
        """Yank the version that `ref` names, or all versions; return how many were yanked."""
        return await self._value("yank_item", rows.INTEGER, {**asdict(ref), "reason": reason}, ONCE)

    # Search

    async def search_hybrid(self, query: StoreQuery, collection: str = ITEMS) -> Candidates:
        """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
        weights = bm25_weights(query.statistics, query.terms)
        arguments = {
            "query_embedding": rows.vector_text(query.vector),
            "terms": list(weights),
            "weights": list(weights.values()),
            "average_length": query.statistics.average_length,
            "average_item_length": query.statistics.average_item_length,
            "depth": query.depth,
            "filter": _filter_object(query.filters),
            "model_fingerprint": query.fingerprint,
            "collection": collection,
        }
        return rows.parse_candidates(await self._rows("search_hybrid", dict, arguments), query.depth)

    async def collection_statistics(
        self, terms: Sequence[str], fingerprint: str = "", collection: str = ITEMS
    ) -> CollectionStatistics:
        """Return the statistics of a model's collection, or of the active one when no `fingerprint` is named."""
        arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None, "collection": collection}
        return await self._value("collection_statistics", rows.parse_statistics, arguments)

    async def similar_terms(
        self, terms: Sequence[str], fingerprint: str = "", collection: str = ITEMS
    ) -> Mapping[str, Sequence[str]]:
        """Return for each term the indexed terms that share its first or its second half, the most frequent first."""
        arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None, "collection": collection}
        return await self._value("similar_terms", rows.SIMILAR_TERMS, arguments)

    # The state of the registry

    async def registry_status(self) -> dict[str, Any]:
        """Return counts, versions and health."""
        return await self._value("registry_status", rows.parse_registry_status, {})

    async def collection_status(self, collection: str) -> dict[str, Any]:
        """Return the state of a collection of documents.

        It has ``documents``, ``passages``, ``fingerprint``, ``file_types`` (type → documents), ``last_received_at``,
        and ``audience`` (the registry's name).
        """
        return await self._value("collection_status", rows.parse_collection_status, {"collection": collection})

    async def registry_checkpoint(self, known_seq: int, signers_since: int, name: str) -> Checkpoint:
        """Return the head of the audit log, its hash at record `known_seq`, and what was revoked after `signers_since`.

        `name` is the registry's, for the notices.
        """
        arguments = {"known_seq": known_seq, "signers_since": signers_since}
        return await self._value("registry_checkpoint", partial(rows.parse_checkpoint, name), arguments)

    # The indexer, whose role must be `kiwi_indexer`

    async def pending_items(self, fingerprint: str, limit: int = 100, after: int = 0) -> Sequence[tuple[int, Envelope]]:
        """Return up to `limit` published items without vectors of this model, ``(sequence, envelope)``, oldest first.

        An envelope that cannot be decoded comes without a payload, so that it does not hold up the others.
        """
        arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
        return await self._rows("pending_items", rows.parse_pending, arguments, WRITING, INDEXER)

    async def claim_item(self, digest: str, fingerprint: str, *, patient: bool = False) -> Claimed:
        """Claim an item until the session ends. Only a `patient` indexer gets the state ``later``.

        Raises
        ------
        FingerprintMismatch
            When the registry has no collection of this model.
        """
        arguments = {"which_digest": digest, "model_fingerprint": fingerprint, "patient": patient}
        return await self._value("claim_item", rows.parse_claim, arguments, ONCE, INDEXER)

    async def store_passages(self, records: Sequence[EmbeddingRecord]) -> int:
        """Store the passages of one item, at least one; return how many."""
        arguments = {"which_digest": records[0].admission.digest, **_passage_arguments(records)}
        return await self._value("store_passages", rows.INTEGER, arguments, WRITING, INDEXER)

    async def requeue_item(self, digest: str, problem: str) -> None:
        """Record why a claimed item could not be indexed; patient indexers retry it later, after ever longer pauses."""
        await self._value("requeue_item", str, {"which_digest": digest, "problem": problem}, ONCE, INDEXER)

    async def begin_collection(self, fingerprint: str) -> str:
        """Start a model's collection beside the active one if it has none; return its state."""
        return await self._value("begin_collection", rows.TEXT, {"model_fingerprint": fingerprint}, WRITING, INDEXER)

    async def finish_collection(self, fingerprint: str, *, insist: bool = False) -> Progress:
        """Make a model's collection the active one if nothing waits for it; return its progress either way."""
        arguments = {"model_fingerprint": fingerprint, "insist": insist}
        return await self._value("finish_collection", rows.parse_progress, arguments, WRITING, INDEXER)

    async def drop_collection(self, fingerprint: str, limit: int) -> int:
        """Remove up to `limit` passages of a model that is not the active one; fewer means that none are left."""
        arguments = {"model_fingerprint": fingerprint, "max_passages": limit}
        return await self._value("drop_collection", rows.INTEGER, arguments, ONCE, INDEXER)

    async def index_status(self) -> dict[str, Any]:
        """Return, of public items, ``models`` (the progress of each) and ``queue`` (waiting, refused, oldest, …).

        The role must be ``kiwi_indexer`` or ``kiwi_admin``.
        """
        return await self._value("index_status", rows.OBJECT, {})

    async def indexed_items(self, fingerprint: str, limit: int, after: str | None = None) -> Sequence[IndexedItem]:
        """Return up to `limit` items that have vectors of this model, with their files, in the order of their digests.

        They are a random sample; with `after`, the first ones after that digest (empty: from the beginning).

        Raises
        ------
        RegistryError
            When the registry returns items again that came before: paging would never end.
        """
        arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
        found = await self._rows("indexed_items", rows.parse_indexed, arguments, READING, INDEXER)
        if any(one.digest <= (after or "") for one in found):
            raise RegistryError("the registry gave an indexed item for the second time")
        return found

    async def read_passages(self, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
        """Return an item's passages of one model as they are stored, in order."""
        arguments = {"which_digest": digest, "model_fingerprint": fingerprint}
        return await self._rows("read_passages", rows.parse_stored, arguments, READING, INDEXER)

    # Administration, for which the role must be `kiwi_admin`

    async def enrol_signer(self, signer: Signer) -> str:
        """Enrol a key, or change what an enrolled key may sign; return its key id.

        Raises
        ------
        RegistryRefused
            When the registry retired or revoked the key, or the role is not ``kiwi_admin``.
        """
        arguments = {
            "public_key": signer.public_key.hex(),
            "principal": signer.principal,
            "item_patterns": list(signer.patterns),
            "item_types": [kind.value for kind in signer.types],
            "valid_after": signer.valid_after and signer.valid_after.isoformat(),
            "valid_before": signer.valid_before and signer.valid_before.isoformat(),
        }
        return await self._value("enrol_signer", rows.TEXT, arguments, ONCE)

    async def retire_signer(self, key_id: str, reason: str = "") -> bool:
        """Retire a key: what it signed before stays valid. Return whether that changed anything."""
        return await self._value("retire_signer", rows.BOOLEAN, {"key_id": key_id, "reason": reason}, ONCE)

    async def revoke_signer(self, key_id: str, reason: str = "") -> bool:
        """Revoke a key: nothing that it signed is found any more. Return whether that changed anything."""
        return await self._value("revoke_signer", rows.BOOLEAN, {"key_id": key_id, "reason": reason}, ONCE)

    async def list_signers(self) -> Sequence[Signer]:
        """Return every signer, by principal; for readers, too."""
        return await self._rows("list_signers", rows.parse_signer, {})

    async def audit_records(self, since: int, limit: int) -> Sequence[dict[str, Any]]:
        """Return up to `limit` audit records with a number above `since`, in order; ``details`` is JSON as text.

        Raises
        ------
        RegistryRefused
            When the role may not read them.
        """
        return await self._rows("audit_records", rows.AUDIT_RECORD, {"since": since, "max_count": limit})

    async def _value(
        self, function: str, parse: Parse[_T], arguments: Row, pauses: Sequence[float] = READING, role: str = ""
    ) -> _T:
        answer = await self._call(lambda caller: caller.value(function, arguments), pauses, role)
        with rows.parse_as(f"answer to {function}"):
            return parse(answer)

    async def _rows(
        self, function: str, parse: Parse[_T], arguments: Row, pauses: Sequence[float] = READING, role: str = ""
    ) -> list[_T]:
        found = await self._call(lambda caller: caller.rows(function, arguments), pauses, role)
        with rows.parse_as(f"row of {function}"):
            return [parse(row) for row in found]

    async def _call(self, function: Callable[[Caller], Awaitable[_T]], pauses: Sequence[float], role: str) -> _T:
        """Call `function` in this session, which has a role and is repeated as a whole or not at all, or in a new one.

        It is called again where the connection was lost, so it must be safe to repeat.
        """
        if self._caller is not None:
            return await function(self._caller)
        for attempt in attempts(pauses):
            async with attempt, time_limit(ANSWER_SECONDS), self.session(role, atomic=bool(role)) as session:
                return await session._call(function, pauses, role)
        raise RegistryUnreachable("no attempt was made")


def parse_receipt(answer: Row) -> Receipt:
    """Return the receipt of ``publish_item``.

    Raises
    ------
    RegistryRefused
        When the registry's own checks refused the item.
    RegistryError
        When the answer is neither.
    """
    raise_refusal(answer)
    with rows.parse_as("receipt"):
        columns = rows.RECEIPT(answer)
    is_private, is_yanked = columns["visibility"] == "private", columns["yanked_at"] is not None
    return rows.make_record(Receipt, columns, private=is_private, yanked=is_yanked)


def _passage_arguments(records: Sequence[EmbeddingRecord]) -> dict[str, Any]:
    """Return what ``store_passages`` and ``put_document`` take for the passages of one item or document."""
    passages = [rows.passage_object(record) for record in records]
    return {"model_fingerprint": records[0].fingerprint, "passages": passages}


def _filter_object(filters: Filters) -> dict[str, Any]:
    """Return the filters as the SQL functions take them, without those that are not set."""
    since = filters.since.isoformat() if filters.since else None
    given = asdict(filters) | {"file_type": filters.file_types, "since": since}
    return {name: value for name, value in given.items() if value}
