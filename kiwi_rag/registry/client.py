"""The registry's SQL functions as methods of one class, over psycopg or Supabase's API."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kiwi_rag.errors import RegistryError
from kiwi_rag.model import (
    Admission,
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Envelope,
    Filters,
    StoredItem,
    StoreQuery,
    Visibility,
)
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import Caller, Transport, call, raise_refusal
from kiwi_rag.registry.checkpoint import Checkpoint
from kiwi_rag.registry.records import Claimed, EnrolledSigner, IndexedItem, Progress, StoredPassage
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.signing import dsse
from kiwi_rag.signing.statement import ITEMS
from kiwi_rag.signing.trust import Signer

INDEXER = "kiwi_indexer"
ONCE: tuple[float, ...] = ()
"""Calls whose answer would be another the second time: a repetition could not tell what the first one did."""


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
    async def session(self, role: str = "") -> AsyncIterator[RegistryClient]:
        """Yield a client whose calls are one transaction, acting as `role` when one is named.

        Raises
        ------
        RegistryError
            For what fails inside the block too, translated.
        """
        async with self.transport.session(role) as caller:
            yield RegistryClient(self.transport, caller=caller)

    async def set_role(self, role: str) -> None:
        """Act as `role` until the session ends.

        Raises
        ------
        RegistryRefused
            When this transport cannot change the role, or this connection may not.
        """
        if self._caller is None:
            raise RegistryError("a role is set within a session")
        await self._caller.set_role(role)

    # Items and documents

    async def publish_item(self, admission: Admission, visibility: Visibility | None = None) -> Mapping[str, Any]:
        """Publish an item with its files; return the answer, which is a receipt or a refusal.

        `parse_receipt` raises a refusal. Not raised here: inside a session it would roll back the refusal's own record
        in the registry's audit log. Without a `visibility` a new item is public, and that of an existing one stays.
        """
        files = {name: base64.b64encode(content).decode() for name, content in admission.item.files.items()}
        arguments: dict[str, Any] = {"envelope": dsse.encode(admission.envelope), "files": files}
        if visibility:
            arguments["visibility"] = visibility
        return rows.parse_object(await self._value("publish_item", arguments, WRITING))

    async def put_document(self, records: Sequence[EmbeddingRecord]) -> Mapping[str, Any]:
        """Store a signed document with all its passages, at least one; return the answer, as `publish_item` does."""
        arguments = {
            "envelope": dsse.encode(records[0].admission.envelope),
            "model_fingerprint": records[0].fingerprint,
            "passages": [rows.passage_object(record) for record in records],
        }
        return rows.parse_object(await self._value("put_document", arguments, WRITING, INDEXER))

    async def delete_document(self, collection: str, path: str) -> bool:
        """Remove a document; return whether it was there. The role must be ``kiwi_indexer``."""
        arguments = {"collection": collection, "path": path}
        return rows.parse_boolean(await self._value("delete_document", arguments, WRITING, INDEXER))

    async def clear_documents(self, collection: str, limit: int) -> int:
        """Remove up to `limit` documents; fewer means that none are left, and another model may be used."""
        arguments = {"collection": collection, "max_documents": limit}
        return rows.parse_integer(await self._value("clear_documents", arguments, WRITING, INDEXER))

    async def get_item(
        self, ref: ItemRef, files: Sequence[str] | None = None, collection: str = ITEMS, *, yanked_too: bool = False
    ) -> StoredItem | None:
        """Return the version that `ref` names or the newest one that was not yanked, or a document.

        `files` are the names of those to return with it, None for all.
        """
        arguments: dict[str, Any] = {
            "item_type": ref.item_type.value,
            "item_id": ref.item_id,
            "version": ref.version,
            "files": None if files is None else list(files),
            "collection": collection,
        }
        found = await self._rows("get_item", arguments)
        found = [row for row in found if yanked_too or row.get("yanked_at") is None]
        return rows.parse_item(found[0]) if found else None

    async def list_items(self, filters: Filters, collection: str = ITEMS) -> Sequence[StoredItem]:
        """Return the newest version of every item that matches, or documents, by type and id, without files."""
        arguments = {"filter": rows.filter_object(filters), "collection": collection}
        return [rows.parse_item_or_problem(row) for row in await self._rows("list_items", arguments)]

    async def item_status(self, ref: ItemRef) -> Sequence[Mapping[str, Any]]:
        """Return the state of each version, newest first.

        Each has version, digest, content_sha256, key_id, signer_status, yanked_at, passages, searchable, visibility.
        """
        # As patient as writing: the indexer reads the history before it writes.
        arguments = {"item_id": ref.item_id, "item_type": ref.item_type.value}
        return [rows.parse_version_status(row) for row in await self._rows("item_status", arguments, WRITING)]

    async def yank_item(self, ref: ItemRef, reason: str = "") -> int:
        """Yank the version that `ref` names, or all versions; return how many were yanked."""
        arguments = {"item_type": ref.item_type.value, "item_id": ref.item_id, "version": ref.version, "reason": reason}
        return rows.parse_integer(await self._value("yank_item", arguments, ONCE))

    # Search

    async def search_hybrid(self, query: StoreQuery, collection: str = ITEMS) -> Candidates:
        """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
        arguments = rows.search_arguments(query) | {"collection": collection}
        return rows.parse_candidates(await self._rows("search_hybrid", arguments), query.depth)

    async def collection_statistics(
        self, terms: Sequence[str], fingerprint: str = "", collection: str = ITEMS
    ) -> CollectionStatistics:
        """Return the statistics of a model's collection, or of the active one when no `fingerprint` is named."""
        return rows.parse_statistics(await self._terms("collection_statistics", terms, fingerprint, collection))

    async def similar_terms(
        self, terms: Sequence[str], fingerprint: str = "", collection: str = ITEMS
    ) -> Mapping[str, Sequence[str]]:
        """Return for each term the indexed terms that share its first or its second half, the most frequent first."""
        return rows.parse_similar_terms(await self._terms("similar_terms", terms, fingerprint, collection))

    async def _terms(self, function: str, terms: Sequence[str], fingerprint: str, collection: str) -> Any:
        arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None, "collection": collection}
        return await self._value(function, arguments)

    # The state of the registry

    async def registry_status(self) -> Mapping[str, Any]:
        """Return counts, versions and health."""
        return rows.parse_registry_status(await self._value("registry_status", {}))

    async def collection_status(self, collection: str) -> Mapping[str, Any]:
        """Return the state of a collection of documents.

        It has ``documents``, ``passages``, ``fingerprint``, ``file_types`` (type → documents), ``last_received_at``,
        and ``audience`` (the registry's name).
        """
        return rows.parse_collection_status(await self._value("collection_status", {"collection": collection}))

    async def registry_checkpoint(self, known_seq: int, signers_since: int, name: str) -> Checkpoint:
        """Return the head of the audit log, its hash at record `known_seq`, and what was revoked after `signers_since`.

        `name` is the registry's, for the notices.
        """
        arguments = {"known_seq": known_seq, "signers_since": signers_since}
        return rows.parse_checkpoint(await self._value("registry_checkpoint", arguments), name)

    # The indexer, whose role must be `kiwi_indexer`

    async def pending_items(self, fingerprint: str, limit: int = 100, after: int = 0) -> Sequence[tuple[int, Envelope]]:
        """Return what waits for the indexer, as ``(sequence, envelope)``, oldest first.

        An envelope that cannot be decoded comes without a payload, so that it does not hold up the others.
        """
        arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
        found = await self._rows("pending_items", arguments, WRITING, INDEXER)
        return [(rows.parse_integer(row.get("sequence")), rows.parse_envelope(row)) for row in found]

    async def claim_item(self, digest: str, fingerprint: str, *, patient: bool = False) -> Claimed:
        """Claim an item until the session ends. Only a `patient` indexer gets the state ``later``.

        Raises
        ------
        FingerprintMismatch
            When the registry has no collection of this model.
        """
        arguments = {"which_digest": digest, "model_fingerprint": fingerprint, "patient": patient}
        return rows.parse_claim(await self._value("claim_item", arguments, ONCE, INDEXER))

    async def store_passages(self, records: Sequence[EmbeddingRecord]) -> int:
        """Store the passages of one item, at least one; return how many."""
        arguments = {
            "which_digest": records[0].admission.digest,
            "model_fingerprint": records[0].fingerprint,
            "passages": [rows.passage_object(record) for record in records],
        }
        return rows.parse_integer(await self._value("store_passages", arguments, WRITING, INDEXER))

    async def requeue_item(self, digest: str, problem: str) -> None:
        """Record why a claimed item could not be indexed; patient indexers retry it later, after ever longer pauses."""
        await self._value("requeue_item", {"which_digest": digest, "problem": problem}, ONCE, INDEXER)

    async def begin_collection(self, fingerprint: str) -> str:
        """Start a model's collection if it has none, beside the active one; return its state."""
        arguments = {"model_fingerprint": fingerprint}
        return rows.parse_text(await self._value("begin_collection", arguments, WRITING, INDEXER))

    async def finish_collection(self, fingerprint: str, *, insist: bool = False) -> Progress:
        """Make a model's collection the active one if nothing waits for it; return its progress either way."""
        arguments = {"model_fingerprint": fingerprint, "insist": insist}
        return rows.parse_progress(await self._value("finish_collection", arguments, WRITING, INDEXER))

    async def drop_collection(self, fingerprint: str, limit: int) -> int:
        """Remove up to `limit` passages of a model that is not the active one; fewer means that none are left."""
        arguments = {"model_fingerprint": fingerprint, "max_passages": limit}
        return rows.parse_integer(await self._value("drop_collection", arguments, ONCE, INDEXER))

    async def index_status(self) -> Mapping[str, Any]:
        """Return, of public items, ``models`` (the progress of each) and ``queue`` (waiting, refused, oldest, …)."""
        return rows.parse_object(await self._value("index_status", {}))

    async def indexed_items(self, fingerprint: str, limit: int, after: str | None = None) -> Sequence[IndexedItem]:
        """Return up to `limit` items that have vectors of this model, with their files, in the order of their digests.

        They are a random sample; with `after`, the first ones after that digest (empty: from the beginning).

        Raises
        ------
        RegistryError
            When the registry returns items again that came before: paging would never end.
        """
        arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
        found = [rows.parse_indexed(row) for row in await self._rows("indexed_items", arguments, READING, INDEXER)]
        if any(one.digest <= (after or "") for one in found):
            raise RegistryError("the registry gave an indexed item for the second time")
        return found

    async def read_passages(self, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
        """Return an item's passages of one model as they are stored, in order."""
        arguments = {"which_digest": digest, "model_fingerprint": fingerprint}
        return [rows.parse_stored(row) for row in await self._rows("read_passages", arguments, READING, INDEXER)]

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
            "valid_after": signer.valid_after.isoformat() if signer.valid_after else None,
            "valid_before": signer.valid_before.isoformat() if signer.valid_before else None,
        }
        return rows.parse_text(await self._value("enrol_signer", arguments, ONCE))

    async def retire_signer(self, key_id: str, reason: str = "") -> bool:
        """Retire a key: what it signed before stays valid. Return whether that changed anything."""
        return rows.parse_boolean(await self._value("retire_signer", {"key_id": key_id, "reason": reason}, ONCE))

    async def revoke_signer(self, key_id: str, reason: str = "") -> bool:
        """Revoke a key: nothing that it signed is found any more. Return whether that changed anything."""
        return rows.parse_boolean(await self._value("revoke_signer", {"key_id": key_id, "reason": reason}, ONCE))

    async def list_signers(self) -> Sequence[EnrolledSigner]:
        """Return every signer, by principal; for readers, too."""
        return [rows.parse_signer(row) for row in await self._rows("list_signers", {})]

    async def set_audience(self, name: str) -> None:
        """Name the registry; refused once something was published under another name."""
        await self._value("set_audience", {"name_of_registry": name}, ONCE)

    async def verify_audit(self) -> int | None:
        """Return the number of the first audit record that breaks the chain; None when none does."""
        broken = await self._value("verify_audit", {})
        return None if broken is None else rows.parse_integer(broken)

    async def audit_records(self, since: int, limit: int) -> Sequence[dict[str, Any]]:
        """Return up to `limit` audit records with a number above `since`, in order; ``details`` is JSON as text.

        Raises
        ------
        RegistryRefused
            When the role may not read them.
        RegistryError
            When a record cannot be parsed.
        """
        return rows.parse_audit_records(await self._rows("audit_records", {"since": since, "max_count": limit}))

    async def _value(
        self, function: str, arguments: Mapping[str, Any], pauses: Sequence[float] = READING, role: str = ""
    ) -> Any:
        if self._caller is not None:  # in a session, which has a role and is repeated as a whole or not at all
            return await self._caller.value(function, arguments)
        return await call(self.transport, lambda caller: caller.value(function, arguments), pauses, role)

    async def _rows(
        self, function: str, arguments: Mapping[str, Any], pauses: Sequence[float] = READING, role: str = ""
    ) -> list[dict[str, Any]]:
        if self._caller is not None:
            return await self._caller.rows(function, arguments)
        return await call(self.transport, lambda caller: caller.rows(function, arguments), pauses, role)


def parse_receipt(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the receipt of ``publish_item``.

    It has ``sequence``, ``digest``, ``audit_head``, ``visibility``, ``already_published``, ``made_public`` (it was
    private until now) and two times, ``received_at`` and ``yanked_at``.

    Raises
    ------
    RegistryRefused
        When the registry's own checks refused the item.
    RegistryError
        When the answer is neither.
    """
    raise_refusal(answer)
    return rows.check_receipt(answer)


def parse_document_receipt(answer: Mapping[str, Any]) -> bool:
    """Return whether the registry had this very statement of a document already.

    Raises
    ------
    RegistryRefused
        When the registry's own checks refused it; ``state`` is ``KW018`` when it holds one that was signed later.
    FingerprintMismatch
        When the collection holds vectors of another model.
    RegistryError
        When the answer is neither.
    """
    raise_refusal(answer)
    return rows.check_document_receipt(answer)
