"""`LocalVectorStore`: `VectorStore` and `LocalIndex` in one folder. Its methods run blocking code in worker threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.model import Candidates, CollectionStatistics, EmbeddingRecord, Filters, StoredItem, StoreQuery
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.storage.atomic import make_derived_folder
from kiwi_rag.storage.sqlite import transaction
from kiwi_rag.stores.base import Capabilities, StoreStatus, one_admission
from kiwi_rag.stores.local import catalog
from kiwi_rag.stores.local.audit import SqliteAuditLog
from kiwi_rag.stores.local.chroma import ChromaIndex
from kiwi_rag.stores.local.maintenance import Maintenance
from kiwi_rag.stores.local.ownership import WAIT_SECONDS, Ownership, WriterLock
from kiwi_rag.stores.local.planner import EXACT_LIMIT, search
from kiwi_rag.stores.local.session import CatalogSession
from kiwi_rag.stores.local.snapshot import Snapshot, similar_terms

Result = TypeVar("Result")


class LocalVectorStore:
    """A store in local files: a SQLite catalog, Chroma as its index, one writer at a time.

    Files are opened at first use. Reading never waits for a writer.

    Parameters
    ----------
    folder
        The folder of the derived data, for instance ``.ai/vectors``; made when missing.
    owner_token
        A secret of this user on this machine. A catalog or Chroma folder that was not made with it (one that came
        with a cloned repository) is moved aside unread, and the store starts empty.
    exact_limit
        Up to so many passages an unfiltered search is a matrix product, above it a query of Chroma.
    wait_seconds
        How long a second writer waits before `StoreBusy`.
    index_from
        From so many passages on Chroma is written; a store whose searches are all exact needs no index.
    """

    def __init__(
        self,
        folder: Path,
        owner_token: str,
        *,
        exact_limit: int = EXACT_LIMIT,
        wait_seconds: float = WAIT_SECONDS,
        index_from: int = 0,
    ) -> None:
        self.folder = folder
        self._index_from = index_from
        self._exact_limit = exact_limit
        ownership = Ownership(folder, owner_token)
        self._lock = WriterLock(folder, wait_seconds)
        self._session = CatalogSession(folder, ownership, self._lock)
        self._chroma = ChromaIndex(ownership)
        self._audit = SqliteAuditLog(lambda: self._session.borrow("audit"))
        self._snapshot: Snapshot | None = None
        self._maintenance = Maintenance(self._session, self._lock, self._chroma, exact_limit, index_from)
        self._wrote = False

    @property
    def capabilities(self) -> Capabilities:
        """Durable; it keeps one version of an item."""
        return Capabilities(kind="local", keeps_versions=False, durable=True)

    @property
    def audit(self) -> SqliteAuditLog:
        """The audit log; blocking, and independent of the writer's lock."""
        return self._audit

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        """Store admitted items and documents in their order, all of them in one transaction.

        Raises
        ------
        NotAdmitted, UsageError, EmbeddingError, FingerprintMismatch
            When the records are not those of one admitted item in this collection's model.
        StoreBusy, StoreFull, StoreCorrupt
            When the catalog cannot be written; the transaction is rolled back.
        """
        if not self._index_from:
            self._chroma.import_ahead()
        await asyncio.to_thread(self._put, entries)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove an item; its versions stay recorded. Return whether it was there."""
        return await asyncio.to_thread(self._write, lambda c: catalog.remove_item(c, ref))

    async def get(self, ref: ItemRef, files: Sequence[str] | None = None) -> StoredItem | None:
        """Return an item with all or some of its files; None when it is not there in that version."""
        return await asyncio.to_thread(self._read, lambda c: catalog.get_item(c, ref, files))

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the items that match, ordered by type and id."""
        return await asyncio.to_thread(self._read, lambda c: catalog.list_items(c, filters))

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever admitted here as version → content sha256 (hex)."""
        return await asyncio.to_thread(self._read, lambda c: catalog.history(c, ref))

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return the statistics for BM25 of these terms."""
        return await asyncio.to_thread(self._statistics, terms)

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the indexed terms that each term may be a misspelling of, the most frequent first."""
        return await asyncio.to_thread(self._read, lambda c: similar_terms(c, terms))

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best passages, each with both scores, and the plan."""
        return await asyncio.to_thread(self._search, query)

    async def status(self) -> StoreStatus:
        """Return counts, and the problems that are found without a full check."""
        return await asyncio.to_thread(self._maintenance.status)

    async def digests(self) -> Mapping[ItemRef, str]:
        """Return the statement's digest of everything that is stored; the references have no versions."""
        return await asyncio.to_thread(self._read, catalog.digests)

    async def clear(self) -> None:
        """Remove everything, for a change of model; versions and audit stay."""
        await asyncio.to_thread(self._write, catalog.clear)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Hold the writer's lock for a whole run, and update Chroma at its end.

        Raises
        ------
        StoreBusy
            Naming the process that is writing.
        """
        await asyncio.to_thread(self._acquire)
        try:
            yield
        finally:
            await asyncio.to_thread(self._finish)

    async def flush(self) -> None:
        """Update Chroma from the catalog. When Chroma fails, `status` reports it and searches stay exact."""
        await asyncio.to_thread(self._flush)

    async def check(self) -> tuple[str, ...]:
        """Return a message for every problem that a full check finds."""
        return await asyncio.to_thread(self._maintenance.check)

    async def repair(self) -> Sequence[str]:
        """Repair what a full check finds, without embedding; return what was done.

        Raises
        ------
        StoreBusy
            When another process is writing.
        """
        return await asyncio.to_thread(self._repair)

    async def close(self) -> None:
        """Update Chroma if this store wrote, and close all files."""
        await asyncio.to_thread(self._close)

    def _search(self, query: StoreQuery) -> Candidates:
        with self._reading() as connection:
            nearest = partial(self._chroma.nearest, connection)
            return search(connection, self._current(connection), query, nearest, self._exact_limit)

    def _statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        with self._reading() as connection:
            return self._current(connection).statistics(connection, terms)

    def _current(self, connection: Connection) -> Snapshot:
        if self._snapshot is None or not self._snapshot.is_current(connection):
            self._snapshot = Snapshot(connection)
        return self._snapshot

    def _read(self, function: Callable[[Connection], Result]) -> Result:
        with self._reading() as connection:
            return function(connection)

    def _put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        checked = [(one_admission(records), records) for records in entries]

        def put(connection: Connection) -> None:
            for admission, records in checked:
                catalog.put_item(connection, admission, records)

        self._write(put)

    def _write(self, function: Callable[[Connection], Result]) -> Result:
        with self._maintenance.writing() as connection, transaction(connection):
            self._wrote = True
            return function(connection)

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

    def _acquire(self) -> None:
        make_derived_folder(self.folder)
        self._lock.acquire()

    def _finish(self) -> None:
        try:
            self._flush()
        finally:
            self._lock.release()

    def _flush(self) -> None:
        self._maintenance.flush()
        self._wrote = False

    def _repair(self) -> Sequence[str]:
        self._snapshot = None
        return self._maintenance.repair()

    def _close(self) -> None:
        try:
            if self._wrote:
                self._maintenance.flush_if_free()
        finally:
            self._wrote = False
            self._snapshot = None
            self._maintenance.close()
