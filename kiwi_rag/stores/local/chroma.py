"""Chroma as the catalog's vector index, which is checked before use and rebuilt from the catalog when it differs.

Chroma raises many undocumented exceptions. All of them become `ChromaFailed` here, because an exact search of the
catalog can always replace a query of Chroma.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import numpy as np

from kiwi_rag.embedding import batches
from kiwi_rag.model import Vector
from kiwi_rag.storage.sqlite import transaction
from kiwi_rag.stores.local.catalog import meta, set_meta, state
from kiwi_rag.stores.local.ownership import Ownership

COLLECTION = "items"
BATCH = 5_000  # Chroma takes 5,461 at most
SAMPLE = 8
# Chroma may lose rows after many deletes (chroma#7758). It is rebuilt after STALE_LEAST deletes or the STALE_SHARE-th
# part of the collection, whichever is more.
STALE_SHARE = 4
STALE_LEAST = 1_000

_VECTORS_OF = "SELECT passage_key, vector FROM vectors WHERE passage_key IN (SELECT value FROM json_each(?))"
# The next row from a random key: sorting all rows by a random number would read every vector.
_SAMPLE_ROW = """
SELECT passage_key, vector FROM vectors
WHERE passage_key >= (SELECT abs(random()) % (max(passage_key) + 1) FROM vectors) ORDER BY passage_key LIMIT 1
"""


class ChromaFailed(Exception):
    """Chroma raised an exception, or differs from the catalog."""


class ChromaIndex:
    """The Chroma folder of one store, opened only at need and only when this user made it."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership, self._folder = ownership, ownership.chroma_folder
        self._client: Any = None
        self._opened_at = ""  # the catalog's state that the open client was compared with
        self._failed_at = ""  # the catalog's state in which Chroma failed: it is not tried again until that changes
        self._mutex = threading.RLock()

    def close(self) -> None:
        """Close the client if one is open; the errors of a broken one are ignored."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def nearest(self, connection: Connection, vector: Vector, depth: int) -> list[int] | None:
        """Return the nearest passage keys; None when Chroma is behind the catalog, foreign, broken or in use."""
        now = state(connection)
        if self._failed_at == now or is_behind(connection) or not self._mutex.acquire(blocking=False):
            return None
        try:
            if self._client is None or self._opened_at != now:
                # Another process may have written, and this client would go on with what it has in memory.
                self.close()
                if problem := self.problem(connection, fully=False):
                    raise ChromaFailed(problem)
                self._opened_at = now
            with _translate_errors():
                answer = self._collection().query(query_embeddings=[vector.tolist()], n_results=depth, include=[])
                return [int(key) for key in answer["ids"][0]]
        except ChromaFailed:
            self._failed_at = now
            self.close()
            return None
        finally:
            self._mutex.release()

    def synchronise(self, connection: Connection) -> None:
        """Update Chroma to the catalog's generation. Requires the writer's lock.

        Raises
        ------
        ChromaFailed
            When a rebuild failed too; the catalog's journal is kept for the next attempt.
        """
        if is_behind(connection):
            with self._mutex:
                limit = max(STALE_LEAST, int(meta(connection, "passages")) // STALE_SHARE)
                has_few_deletes = int(meta(connection, "chroma_deletes")) <= limit
                if has_few_deletes and self._ownership.owns_chroma(catalog_id(connection)):
                    with suppress(ChromaFailed):
                        return self._apply_journal(connection)
                self.rebuild(connection)

    def _apply_journal(self, connection: Connection) -> None:
        self.close()  # a client that was open before may not see what another process wrote since
        generation = int(meta(connection, "generation"))
        journal = connection.execute("SELECT passage_key, present FROM chroma_journal").fetchall()
        removed = [key for key, present in journal if not present]
        collection = self._collection(create=True)
        for batch in batches(removed, BATCH):
            with _translate_errors():
                collection.delete(ids=[str(key) for key in batch])
        self._put(connection, [key for key, present in journal if present])
        if problem := self._difference(connection, fully=False):
            raise ChromaFailed(problem)
        self._mark_current(connection, generation, int(meta(connection, "chroma_deletes")) + len(removed))

    def rebuild(self, connection: Connection) -> None:
        """Rebuild Chroma from the catalog's vectors; nothing is embedded again. Requires the writer's lock."""
        with self._mutex:
            self.close()
            generation = int(meta(connection, "generation"))
            with _translate_errors():
                self.remove()
                self._ownership.claim_chroma(catalog_id(connection))
            self._put(connection, [row[0] for row in connection.execute("SELECT passage_key FROM vectors")])
            self._mark_current(connection, generation, 0)

    def remove(self) -> None:
        """Remove Chroma's files, if there are some; the next rebuild makes them anew."""
        with self._mutex:
            self.close()
            if self._folder.is_symlink() or self._folder.is_file():
                self._folder.unlink()
            elif self._folder.exists():
                shutil.rmtree(self._folder)

    def _put(self, connection: Connection, keys: Sequence[int]) -> None:
        collection = self._collection(create=True)
        for batch in batches(sorted(keys), BATCH):
            rows = connection.execute(_VECTORS_OF, (json.dumps(batch),)).fetchall()
            if not rows:  # passages that have no vectors yet
                continue
            vectors = np.stack([np.frombuffer(vector, dtype="<f4") for _, vector in rows])
            with _translate_errors():
                collection.upsert(ids=[str(key) for key, _ in rows], embeddings=vectors)

    def _mark_current(self, connection: Connection, generation: int, deletes: int) -> None:
        # Only now, after Chroma has everything: a process that is killed before leaves the journal for the next writer.
        with transaction(connection):
            connection.execute("DELETE FROM chroma_journal")
            set_meta(connection, "chroma_generation", generation)
            set_meta(connection, "chroma_deletes", deletes)
        self._opened_at, self._failed_at = f"{catalog_id(connection)}/{generation}", ""

    def _collection(self, *, create: bool = False) -> Any:
        try:
            import chromadb  # noqa: F401
        except ModuleNotFoundError as error:
            message = f"the package {error.name} is not installed (pip install 'chromadb>=1.5,<2')"
            raise ChromaFailed(message) from error
        with _translate_errors():
            if self._client is None:
                self._client = _client_of(self._folder)
            if not create:
                return self._client.get_collection(COLLECTION, embedding_function=None)
            space = {"hnsw:space": "cosine"}
            return self._client.get_or_create_collection(COLLECTION, embedding_function=None, metadata=space)

    def problem(self, connection: Connection, *, fully: bool = True) -> str:
        """Return how Chroma differs from the catalog; empty when it does not.

        Unless `fully` is set, some vectors are compared and no ids: all ids of a million passages take ten seconds.
        """
        if not meta(connection, "vectors") and not self._folder.exists():
            return ""
        if is_behind(connection):
            return "chroma: the index is behind the catalog"
        if not self._ownership.owns_chroma(catalog_id(connection)):
            return "chroma: the folder is missing, or this user did not make it"
        try:
            with self._mutex:
                return self._difference(connection, fully=fully)
        except ChromaFailed as error:
            return f"chroma: {error}"

    def _difference(self, connection: Connection, *, fully: bool) -> str:
        collection = self._collection()
        with _translate_errors():
            held, wanted = int(collection.count()), int(meta(connection, "vectors"))
            if held != wanted:
                return f"chroma: it has {held} vectors, the catalog {wanted}"
            if fully:
                keys = {str(row[0]) for row in connection.execute("SELECT passage_key FROM vectors")}
                if others := len(keys.symmetric_difference(collection.get(include=[])["ids"])):
                    return f"chroma: {others} passages are missing or superfluous"
            for key, blob in [row for _ in range(SAMPLE) for row in connection.execute(_SAMPLE_ROW)]:
                vector = np.frombuffer(blob, dtype="<f4")
                answer = collection.query(query_embeddings=[vector.tolist()], n_results=1, include=["distances"])
                # Passages with equal texts have equal vectors, so the hit may be another passage at distance zero.
                if answer["ids"][0] != [str(key)] and not abs(answer["distances"][0][0]) < 1e-4:
                    return f"chroma: the vector of passage {key} does not find that passage"
        return ""


def _client_of(folder: Path) -> Any:
    """Return a client of the Chroma folder; of one that cannot be opened, Chroma keeps nothing for the next attempt."""
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient

    try:
        return chromadb.PersistentClient(str(folder), chromadb.Settings(anonymized_telemetry=False))
    except BaseException:  # a panic of its Rust core is no `Exception`
        # It keeps a client's system by its folder, also one that did not start, and would use that one again.
        SharedSystemClient._identifier_to_system.pop(str(folder), None)
        raise


def is_behind(connection: Connection) -> bool:
    """Whether the catalog has changes that Chroma lacks."""
    has_changes = connection.execute("SELECT EXISTS (SELECT 1 FROM chroma_journal)").fetchone()[0]
    return bool(has_changes or (meta(connection, "vectors") and not meta(connection, "chroma_generation")))


def catalog_id(connection: Connection) -> str:
    """Return the random id that this catalog was given when it was made."""
    return str(meta(connection, "catalog_id"))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn every exception of Chroma into `ChromaFailed`."""
    try:
        yield
    except BaseException as error:
        # A panic of Chroma's Rust core is not an `Exception`, so all but the interpreter's own are caught.
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        raise ChromaFailed(f"{type(error).__name__}: {str(error)[:200]}") from error
