"""`LocalVectorStore`: a `VectorStore` in one folder. Its methods run blocking code in worker threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError
from kiwi_rag.model.items import Admission, EmbeddingRecord, Passage, StoredItem, Vector
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.model.search import Candidates, CollectionStatistics, Filters, StoreQuery
from kiwi_rag.storage.sqlite import transaction, truncate_log
from kiwi_rag.stores.base import (
    Capabilities,
    StoreStatus,
    UnembeddedDocument,
    one_admission,
    require_document,
    require_unit_vectors,
)
from kiwi_rag.stores.local import catalog, maintenance
from kiwi_rag.stores.local.audit import SqliteAuditLog
from kiwi_rag.stores.local.catalog import meta
from kiwi_rag.stores.local.chroma import ChromaFailed, ChromaIndex, is_behind
from kiwi_rag.stores.local.ownership import WAIT_SECONDS, Ownership, WriterLock
from kiwi_rag.stores.local.search import EXACT_LIMIT, search
from kiwi_rag.stores.local.session import CatalogSession, SharedReader, find_damage
from kiwi_rag.stores.local.snapshot import Snapshot, similar_terms
from kiwi_rag.validation.admission import require_passages, require_sealed

Result = TypeVar("Result")


class LocalVectorStore:
    """A store in local files: a SQLite catalog, Chroma as the index of a large one, one writer at a time.

    Files are opened at first use. Reading never waits for a writer.

    Parameters
    ----------
    folder
        The folder of the derived data, for instance ``.ai/vectors``; made when missing.
    owner_token
        A secret of this user on this machine. A catalog or Chroma folder that was not made with it (one that came
        with a cloned repository) is moved aside unread, and the store starts empty.
    exact_limit
        Up to so many passages every search is a matrix product, and there is no Chroma index. Above it Chroma answers
        unfiltered searches.
    wait_seconds
        How long a second writer waits before `StoreBusy`.
    audit_digests
        Whether the audit log names the digests of statements.
    """

    capabilities = Capabilities("local")
    """It keeps one version of an item."""

    def __init__(
        self, folder: Path, owner_token: str, *, exact_limit: int = EXACT_LIMIT, wait_seconds: float = WAIT_SECONDS,
        audit_digests: bool = True,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._exact_limit = exact_limit
        ownership = Ownership(folder, owner_token)
        self._lock = WriterLock(folder, wait_seconds)
        self._session = CatalogSession(folder, ownership, self._lock)
        self._chroma = ChromaIndex(ownership)
        self._chroma_failure, self._wrote = "", False
        self._snapshot: Snapshot | None = None
        self._reader = SharedReader(self._reading)
        audit, verify = (partial(self._session.borrow, lane) for lane in ("audit", "verify"))
        self.audit = SqliteAuditLog(audit, verify, digests=audit_digests)
        """The audit log; blocking, and independent of the writer's lock."""

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        """Store admitted items and documents in their order, all of them in one transaction.

        Raises
        ------
        NotAdmitted, UsageError, EmbeddingError, FingerprintMismatch
            When the records are not those of one admitted item in this collection's model.
        StoreBusy, StoreFull, StoreCorrupt
            When the catalog cannot be written; the transaction is rolled back.
        """
        await asyncio.to_thread(self._put, entries)

    async def put_words(self, entries: Sequence[tuple[Admission, Sequence[Passage]]], fingerprint: str) -> None:
        """Store admitted documents as `put` does, but without vectors: they are found by words at once.

        `fingerprint` is of the model that makes their vectors later. Raises as `put`.
        """
        await asyncio.to_thread(self._put_words, entries, fingerprint)

    async def unembedded(self) -> Sequence[UnembeddedDocument]:
        """Return the documents with passages that have no vector yet."""
        return await _in_thread(self._reading, catalog.unembedded)

    async def passages(self, keys: Sequence[int]) -> Mapping[int, Passage]:
        """Return those of some passages that are stored, by their keys; raises as `put_vectors`."""
        return await _in_thread(partial(self._existing, self._reading), lambda c: catalog.read_passages(c, keys))

    async def put_vectors(self, passages: Mapping[int, Passage], found: Mapping[int, Vector], fingerprint: str) -> None:
        """Store vectors of passages, by their keys, in one transaction; passages that are gone get none.

        Raises
        ------
        EmbeddingError, FingerprintMismatch, StoreBusy, StoreFull, StoreCorrupt
            As `put`.
        StoreError
            When the catalog was deleted. It is not made anew, for the workspace around it may be gone.
        """
        require_unit_vectors(found)
        existing = partial(self._existing, self._writing)
        await _in_thread(existing, lambda c: catalog.put_vectors(c, passages, found, fingerprint))

    async def update_chroma(self) -> None:
        """Bring Chroma up to date after `put_vectors`, unless another process is writing: it does that at its end."""
        await asyncio.to_thread(self._update_chroma)

    async def has_vectors(self) -> bool:
        """Whether any passage has a vector; without one a search does not need the query's vector."""
        return await self._reader.read(lambda c: bool(meta(c, "vectors")))

    async def delete(self, ref: ItemRef) -> bool:
        """Remove an item; its versions stay recorded. Return whether it was there."""
        return await _in_thread(self._writing, lambda c: catalog.remove_item(c, ref))

    async def erase(self, refs: Sequence[ItemRef]) -> None:
        """Remove documents and leave no byte of them on the disk: of texts, words and vectors.

        Chroma's index is removed; a store that has one makes it anew at the end of the next run that writes.

        Raises
        ------
        StoreBusy
            When another process writes, or reads for half a minute.
        StoreError
            When the catalog cannot be written. It may be repeated.
        """
        await asyncio.to_thread(self._erase, refs)

    async def get(self, ref: ItemRef, files: Sequence[str] | None = None) -> StoredItem | None:
        """Return an item with all or some of its files; None when it is not there in that version."""
        return await self._reader.read(lambda c: catalog.get_item(c, ref, files))

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the items that match, ordered by type and id."""
        return await _in_thread(self._reading, lambda c: catalog.list_items(c, filters))

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever admitted here as version → content sha256 (hex)."""
        return await self._reader.read(lambda c: catalog.history(c, ref))

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return the statistics for BM25 of these terms."""
        return await self._reader.read(lambda c: self._current(c).statistics(c, terms))

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the indexed terms that each term may be a misspelling of, the most frequent first."""
        return await self._reader.read(lambda c: similar_terms(c, terms))

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best passages, each with both scores, and the plan."""
        return await self._reader.read(lambda c: search(c, self._current(c), query, self._chroma_for(c)))

    async def status(self) -> StoreStatus:
        """Return counts, and the problems that are found without a full check."""
        return await _in_thread(self._reading, self._status)

    async def digests(self) -> Mapping[ItemRef, str]:
        """Return the statement's digest of everything that is stored; the references have no versions."""
        return await _in_thread(self._reading, catalog.digests)

    async def clear(self) -> None:
        """Remove everything, for a change of model; versions and audit stay."""
        await _in_thread(self._writing, catalog.clear)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Hold the writer's lock for a whole run, and update Chroma at its end.

        When Chroma fails, `status` reports it and searches stay exact.

        Raises
        ------
        StoreBusy
            Naming the process that is writing.
        """
        await asyncio.to_thread(self._lock.acquire)
        try:
            yield
        finally:
            await asyncio.to_thread(self._finish)

    async def check(self) -> tuple[str, ...]:
        """Return a message for every problem that a full check finds."""
        if damage := await asyncio.to_thread(find_damage, self._session):
            return (damage,)
        return await _in_thread(partial(self._session.borrow, "audit"), self._check)

    async def repair(self) -> Sequence[str]:
        """Repair what `check` finds, without embedding; what only the signed files can restore is removed.

        Raises
        ------
        StoreBusy
            When another process is writing.
        """
        return await asyncio.to_thread(self._repair)

    async def close(self) -> None:
        """Update Chroma if this store wrote, and close all files."""
        await asyncio.to_thread(self._close)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._session.borrow("read") as connection, transaction(connection, "BEGIN"):
                yield connection
        except StoreCorrupt:
            # The next use opens the file anew: a repair in another process may have replaced it by an empty catalog.
            self._session.close()
            self._snapshot = None
            raise

    @contextmanager
    def _locked(self) -> Iterator[Connection]:
        with self._lock, self._session.borrow("write") as connection:
            yield connection

    @contextmanager
    def _existing(self, opened: Callable[[], AbstractContextManager[Connection]]) -> Iterator[Connection]:
        if not self._session.path.exists():
            raise StoreError(f"{self._session.path} was deleted", hint="run the command again")
        with opened() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._locked() as connection, transaction(connection):
            self._wrote = True
            yield connection

    def _put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        checked = [(one_admission(records), records) for records in entries]
        with self._writing() as connection:
            for admission, records in checked:
                passages, found = zip(*((record.passage, record.vector) for record in records), strict=True)
                catalog.put_item(connection, admission, passages, records[0].fingerprint, found)

    def _put_words(self, entries: Sequence[tuple[Admission, Sequence[Passage]]], fingerprint: str) -> None:
        for admission, passages in entries:
            require_passages(require_document(require_sealed(admission)), passages)
        with self._writing() as connection:
            for admission, passages in entries:
                catalog.put_item(connection, admission, passages, fingerprint)

    def _erase(self, refs: Sequence[ItemRef]) -> None:
        with self._lock:
            with self._writing() as connection:
                catalog.remove_items(connection, refs)
                catalog.merge_postings(connection)
            with self._session.borrow("write") as connection:
                self._chroma.remove()
                truncate_log(connection, self._session.path)

    def _update_chroma(self) -> None:
        with self._existing(self._reading) as connection:
            has_chroma = self._chroma_for(connection) is not None
        if has_chroma:
            with suppress(StoreBusy):
                self._flush()

    def _current(self, connection: Connection) -> Snapshot:
        snapshot, self._snapshot = self._snapshot, None  # one that fails half-way is not used again
        if snapshot is None or not (snapshot.is_current(connection) or snapshot.extend(connection)):
            snapshot = Snapshot(connection)
        self._snapshot = snapshot
        return snapshot

    def _finish(self) -> None:
        try:
            self._flush()
        finally:
            self._lock.release()

    def _chroma_for(self, connection: Connection) -> ChromaIndex | None:
        """Return the Chroma index if the catalog is so large that it has one."""
        return self._chroma if int(meta(connection, "vectors")) > self._exact_limit else None

    def _flush(self) -> None:
        with self._locked() as connection:
            self._wrote, self._chroma_failure = False, ""
            try:
                if chroma := self._chroma_for(connection):
                    chroma.synchronise(connection)
            except ChromaFailed as error:
                self._chroma_failure = f"chroma cannot be written, so searches stay exact: {error}"

    def _status(self, connection: Connection) -> StoreStatus:
        passages = int(meta(connection, "passages"))
        return StoreStatus(
            items=connection.execute("SELECT count(*) FROM items").fetchone()[0],
            passages=passages,
            fingerprint=str(meta(connection, "fingerprint")) if passages else "",
            problems=(self._chroma_failure,) if self._chroma_failure else (),
            details={"path": str(self._session.path), "chroma": "behind" if is_behind(connection) else "current"},
            unembedded=passages - int(meta(connection, "vectors")),
        )

    def _check(self, connection: Connection) -> tuple[str, ...]:
        problems, chroma = maintenance.find_problems(connection), self._chroma_for(connection)
        return (*problems, *filter(None, [chroma.problem(connection) if chroma else ""]))

    def _repair(self) -> Sequence[str]:
        self._snapshot, done = None, []
        with self._lock:
            if damage := find_damage(self._session):
                self._chroma.close()
                moved = self._session.move_aside()
                aside = f"moved it aside as {moved.name}" if moved else "it was missing"
                done = [f"{damage}; {aside} and made an empty one: run kiwi index to store the items again"]
            with self._session.borrow("write") as connection:
                done += maintenance.repair(connection)
                if (chroma := self._chroma_for(connection)) and chroma.problem(connection):
                    self._rebuild_chroma(connection)
                    done.append("rebuilt the Chroma index from the catalog's vectors")
        return done

    def _rebuild_chroma(self, connection: Connection) -> None:
        try:
            self._chroma.rebuild(connection)
        except ChromaFailed as error:
            hint = "searches stay exact until it can be; check the disk's free space, or what the message names"
            raise StoreError(f"chroma cannot be rebuilt: {error}", hint=hint) from error

    def _close(self) -> None:
        try:
            if self._wrote:
                with suppress(StoreBusy):  # another writer flushes by itself
                    self._flush()
        finally:
            self._wrote, self._snapshot = False, None
            self._chroma.close()
            self._session.close()


async def _in_thread(
    opened: Callable[[], AbstractContextManager[Connection]], function: Callable[[Connection], Result]
) -> Result:
    """Return what `function` returns for a connection, both in a worker thread."""

    def run() -> Result:
        with opened() as connection:
            return function(connection)

    return await asyncio.to_thread(run)
