"""The persistent cache of vectors, as a provider before another one, and its file: SQLite, shared by processes.

All of the file's content can be computed again, so no fault of it is an error: a damaged file is moved aside and
replaced by an empty one; a file that is locked, read-only or on a full disk is not written. Each is a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kiwi_rag.embedding import EmbeddingProvider, Fingerprint, well_formed
from kiwi_rag.model import Vector
from kiwi_rag.storage.atomic import create_file
from kiwi_rag.storage.sqlite import DerivedDatabase, transaction
from kiwi_rag.telemetry import span

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_BYTES = 2 << 30
_UNIT_TOLERANCE = 1e-3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    text_sha256 BLOB NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (text_sha256, fingerprint)
)"""

_USED_BYTES = """
SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"""

# Freed pages are used again, so the file stops growing.
_DROP_OLDEST = """
DELETE FROM vectors WHERE id IN
    (SELECT id FROM vectors ORDER BY id LIMIT (SELECT (count(*) + 9) / 10 FROM vectors))"""

_SAVED_TOGETHER = 32
"""Texts after which vectors are saved, or the provider's batch size if that is larger."""


class CachedEmbeddingProvider(EmbeddingProvider):
    """Encodes with another provider, but only texts whose vectors are not in the cache.

    Vectors are stored by the text's SHA-256 and the model's fingerprint, and saved every 32 texts (or every batch of
    the provider, if that is larger), so that an interrupted run continues where it stopped. A cache that fails never
    raises: texts are encoded again.

    Parameters
    ----------
    inner
        The provider that encodes.
    path
        The cache file (SQLite); created with its folder when first used.
    max_bytes
        Size above which the oldest vectors are dropped.

    Attributes
    ----------
    hits, encoded
        Texts answered from the cache, and texts that `inner` encoded; a text that occurs twice counts once.
    """

    def __init__(self, inner: EmbeddingProvider, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.inner = inner
        self.batch_size = max(_SAVED_TOGETHER, inner.batch_size)
        self.hits = self.encoded = 0
        self._file = VectorFile(path, max_bytes)

    @property
    def fingerprint(self) -> Fingerprint:
        """The inner provider's."""
        return self.inner.fingerprint

    @property
    def place(self) -> str:
        """The inner provider's."""
        return self.inner.place

    @property
    def uncached(self) -> EmbeddingProvider:
        """The inner provider."""
        return self.inner

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a text, in order; only what the cache lacks goes to the inner provider.

        Raises
        ------
        EmbeddingError
            As the inner provider does.
        """
        digests = {text: hashlib.sha256(well_formed(text).encode()).digest() for text in texts}
        with span("kiwi.embed", texts=len(texts)) as note:
            model = self.fingerprint
            vectors = self._file.get(str(model), list(digests.values()), model.dimension)
            missing = [text for text, digest in digests.items() if digest not in vectors]
            note(encoded=len(missing))
            self.hits += len(digests) - len(missing)
            if missing:
                self.encoded += len(missing)
                encoded = dict(zip((digests[text] for text in missing), self.inner.encode(missing), strict=True))
                self._file.put(str(model), encoded)
                vectors |= encoded
        return [vectors[digests[text]] for text in texts]

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has for the model."""
        return self.inner.count_tokens(text)

    def verify(self) -> Sequence[str]:
        """Return what is wrong with the inner provider's servers or files."""
        return self.inner.verify()

    def close(self) -> None:
        """Close the cache file and the inner provider; the next use opens both again."""
        self._file.close()
        self.inner.close()


class VectorFile:
    """Vectors by fingerprint and text digest; any thread and any process may use it.

    Parameters
    ----------
    path
        The file; created with its folder when first used.
    max_bytes
        Size above which the oldest tenth of the vectors is dropped.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._database = DerivedDatabase(path, lambda: _restrict_mode(path), lambda made: made.execute(_SCHEMA))
        self._max_bytes = max_bytes
        self._warned = False

    def get(self, fingerprint: str, digests: Sequence[bytes], dimension: int) -> dict[bytes, Vector]:
        """Return the vectors of shape ``(dimension,)`` (0: any) in the file, by text digest; empty on any fault."""
        rows = self._attempt(lambda connection: _select(connection, fingerprint, digests)) or []
        vectors = ((digest, _vector(blob, dimension)) for digest, blob in rows)
        return {digest: vector for digest, vector in vectors if vector is not None}

    def put(self, fingerprint: str, vectors: Mapping[bytes, Vector]) -> None:
        """Store `vectors`, replacing those with the same keys; do nothing on any fault."""
        rows = [(fingerprint, digest, vector.astype("<f4").tobytes()) for digest, vector in vectors.items()]
        self._attempt(lambda connection: _insert(connection, rows, self._max_bytes))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._database.close()

    def _attempt(self, action: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Run `action`; None if the cache cannot be used."""
        try:
            return self._database.use(action)
        except (sqlite3.Error, OSError) as error:
            self._database.close()
            # One warning: indexing ten thousand passages on a read-only disk would log three hundred.
            level, self._warned = (logging.DEBUG if self._warned else logging.WARNING), True
            _log.log(level, "the embedding cache %s cannot be used now: %s", self._database.path, error)
            return None


def _restrict_mode(path: Path) -> None:
    """Create the folder, and the file with mode 0600, because vectors and digests reveal something of the texts.

    SQLite gives the files beside it (``-wal``, ``-shm``) the same rights. The file is never opened here: closing it
    would drop the locks that SQLite holds on it for another thread (sqlite.org/howtocorrupt.html, section 2.2).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # SQLite raises the error that matters
        if not create_file(path):
            path.chmod(path.stat().st_mode & 0o600)


def _select(connection: sqlite3.Connection, fingerprint: str, digests: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    statement = "SELECT vector FROM vectors WHERE text_sha256 = ? AND fingerprint = ?"
    found = ((digest, connection.execute(statement, (digest, fingerprint)).fetchone()) for digest in digests)
    return [(digest, row[0]) for digest, row in found if row]


def _insert(connection: sqlite3.Connection, rows: Sequence[tuple[str, bytes, bytes]], max_bytes: int) -> None:
    statement = "INSERT OR REPLACE INTO vectors (fingerprint, text_sha256, vector) VALUES (?, ?, ?)"
    with transaction(connection):
        connection.executemany(statement, rows)
        if connection.execute(_USED_BYTES).fetchone()[0] > max_bytes:
            connection.execute(_DROP_OLDEST)


def _vector(blob: object, dimension: int) -> Vector | None:
    """Return the stored vector, or None if its length or norm shows a damaged row."""
    import numpy as np

    if not isinstance(blob, bytes) or len(blob) != 4 * (dimension or len(blob) // 4):
        return None
    vector = np.frombuffer(blob, dtype="<f4").astype(np.float32)
    return vector if abs(float(vector @ vector) - 1.0) < _UNIT_TOLERANCE else None
