"""Keeping a tier folder sound: Chroma up to date, the full check, the repair. Blocking."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from kiwi_rag.errors import StoreBusy, StoreError
from kiwi_rag.storage.sqlite import transaction
from kiwi_rag.stores.base import StoreStatus
from kiwi_rag.stores.local.catalog import meta
from kiwi_rag.stores.local.checks import catalog_problems, mend
from kiwi_rag.stores.local.chroma import ChromaFailed, ChromaIndex, is_behind
from kiwi_rag.stores.local.lock import WriterLock
from kiwi_rag.stores.local.schema import SCHEMA_VERSION
from kiwi_rag.stores.local.session import CatalogSession, is_damaged


class Maintenance:
    """What keeps one tier folder sound. Shares the store's connections, lock and Chroma client."""

    def __init__(  # a folder's parts
        self, session: CatalogSession, lock: WriterLock, chroma: ChromaIndex, exact_limit: int, index_from: int = 0
    ) -> None:
        self._index_from = index_from
        self._session = session
        self._lock = lock
        self._chroma = chroma
        self._exact_limit = exact_limit
        self._chroma_failure = ""

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection under the writer lock."""
        self._session.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, self._session.borrow("write") as connection:
            yield connection

    def flush(self) -> None:
        """Bring Chroma up to the catalog; a failure is kept for `status`, the catalog answers meanwhile."""
        with self.writing() as connection:
            if int(meta(connection, "passages")) < self._index_from:
                return
            try:
                self._chroma.synchronise(connection)
                self._chroma_failure = ""
            except ChromaFailed as error:
                self._chroma_failure = f"chroma cannot be written, searching stays exact: {error}"

    def flush_if_free(self) -> None:
        """Flush, unless another process is writing: that one will do it."""
        try:
            self.flush()
        except StoreBusy:
            return

    def status(self) -> StoreStatus:
        """Return counts and the problems that can be told without a full check."""
        with self._session.borrow("read") as connection, transaction(connection, "BEGIN"):
            passages = int(meta(connection, "passages"))
            problems = [self._chroma_failure] if self._chroma_failure else []
            return StoreStatus(
                items=connection.execute("SELECT count(*) FROM items").fetchone()[0],
                passages=passages,
                fingerprint=str(meta(connection, "fingerprint")) if passages else "",
                problems=tuple(problems),
                details={
                    "path": str(self._session.path),
                    "schema": SCHEMA_VERSION,
                    "generation": meta(connection, "generation"),
                    "chroma": "behind" if is_behind(connection) else "current",
                    "plan": "exact" if passages <= self._exact_limit else "chroma",
                },
            )

    def check(self) -> tuple[str, ...]:
        """Return every problem in plain words; a catalog that cannot be read is one of them."""
        damage = is_damaged(self._session)
        if damage:
            return (damage,)
        with self._session.borrow("audit") as connection:
            problems = tuple(self._catalog_problems(connection))
            needed = int(meta(connection, "passages")) >= self._index_from
            chroma = self._chroma.problem(connection) if needed else ""
        return (*problems, chroma) if chroma else problems

    def repair(self) -> list[str]:
        """Mend what `check` finds; what cannot be mended without the signed files is moved aside or removed."""
        self._session.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            return [*self._repair_file(), *self._repair_rows(), *self._repair_chroma()]

    def _catalog_problems(self, connection: sqlite3.Connection) -> list[str]:
        # FTS5's own check is written as an INSERT; nothing of it is kept.
        connection.execute("BEGIN IMMEDIATE")
        try:
            return list(catalog_problems(connection))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _repair_file(self) -> list[str]:
        damage = is_damaged(self._session)
        if not damage:
            return []
        self._chroma.close()
        moved = self._session.move_aside("corrupt")
        name = moved.name if moved else "nothing"
        return [f"{damage}; moved it aside as {name} and started empty: index again to bring the items back"]

    def _repair_rows(self) -> list[str]:
        with self._session.borrow("write") as connection:
            problems = self._catalog_problems(connection)
            # An audit chain that was broken stays broken: that is what it is for.
            if not any("audit chain" not in problem for problem in problems):
                return []
            return mend(connection)

    def _repair_chroma(self) -> list[str]:
        with self._session.borrow("write") as connection:
            if not self._chroma.problem(connection):
                return []
            try:
                self._chroma.rebuild(connection)
            except ChromaFailed as error:
                raise StoreError(f"chroma cannot be rebuilt: {error}", hint="is the disk full?") from error
            return ["rebuilt the Chroma index from the catalog's vectors"]

    def close(self) -> None:
        """Close Chroma and the catalog."""
        self._chroma.close()
        self._session.close()
