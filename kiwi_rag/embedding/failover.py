"""Several servers of one model as one provider: the first that answers embeds, and vectors of two models never mix.

The fingerprint is the first server's, so that an index from before there were fallbacks stays valid, or that of a
declared identity, so that servers may change and each machine may have its own address of the same model. In both cases
a server is used after its vector of a fixed text agrees with the first server's. That vector is kept in a file, so that
a fallback can be checked while the first server is down. The check is repeated each day (UTC), because the weights
behind a model's name may change.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint
from kiwi_rag.embedding.cache import VectorFile
from kiwi_rag.embedding.endpoint import Endpoint
from kiwi_rag.embedding.remote import RemoteEmbeddingProvider
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, ModelUnavailable, TextsRefused
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from pathlib import Path

    from kiwi_rag.model import Vector

_log = logging.getLogger(__name__)
PROBE = "The night shift found the backup by its date, restored 42 tables & went home at 03:15; nobody had noticed."
_PROBE_DIGEST = hashlib.sha256(PROBE.encode()).digest()
_AGREEMENT = 0.999
"""Minimum cosine of two vectors of one model; another precision of the same weights stays above it."""
_FILE_BYTES = 4 << 20  # one vector for each server and day: the oldest are dropped after some years
_QUICK_RETRIES, _QUICK_PATIENCE = 1, 5.0


class FailoverEmbeddingProvider(EmbeddingProvider):
    """Embeds with the first of several servers that answers, and returns to the first when it works again.

    While the breaker of a failed server is open, the next server is used at once. If a server refuses the texts, no
    other server is tried.

    Parameters
    ----------
    servers
        In the order of preference, at least one.
    path
        The file of the fixed text's vectors; if it cannot be used, servers are checked again.
    identity
        The declared name of the model; empty for the first server's fingerprint.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self,
        servers: Sequence[RemoteEmbeddingProvider],
        path: Path,
        identity: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.servers = tuple(servers)
        self.batch_size = min(server.batch_size for server in servers)
        self._identity = identity
        self._source = f"declared {identity}" if identity else servers[0].identity
        # A model that can shorten its vectors has one vector for each length.
        self._model = f"{self._source} {servers[0].dimension}"
        self._file = VectorFile(path, _FILE_BYTES)
        self._known: dict[str, Vector] = {}  # what is in the file, or would be if it could be written
        self._clock = clock

    @property
    def fingerprint(self) -> Fingerprint:
        """The declared identity's, or the first server's; sends a request only if no dimension is known."""
        first, weights = self.servers[0], sha256_hex(self._source.encode())
        name, kind, tokens = first.model, first.provider, first.max_tokens
        if self._identity:
            name, kind, tokens = self._identity, "declared", 0
        return Fingerprint(name, weights, self._dimension(), kind, tokens)

    @property
    def place(self) -> str:
        """The servers' addresses."""
        return ", ".join(server.place for server in self.servers)

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a text, in order; see the base class.

        Raises
        ------
        FingerprintMismatch
            If a server that would have been used does not serve the model.
        TextsRefused
            If a server refuses these texts.
        EmbeddingError
            If every server failed: the first one's failure, with the messages of the others.
        """
        failures: list[EmbeddingError] = []
        for server in self.servers:
            was_open = server.breaker.is_open
            try:
                endpoint = self._endpoint(server)
                if self._stored(self._today(server)) is None:
                    self._check(server, endpoint)
                return server.encode_with(texts, endpoint)
            except (TextsRefused, FingerprintMismatch):
                raise
            except EmbeddingError as error:
                failures.append(error)
                if not was_open:
                    _log.warning("%s does not embed (%s); the next server is used", server.endpoint.server, error.code)
        raise _all_failed(failures)

    def verify(self) -> Sequence[str]:
        """Check whether every server serves the model; return one line for each problem."""
        problems = []
        for server in self.servers:
            try:
                self._check(server, server.endpoint)
            except EmbeddingError as error:
                problems.append(f"{server.place}: {error.message}")
        return problems

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    def _endpoint(self, server: RemoteEmbeddingProvider) -> Endpoint:
        """Return the server's endpoint, with few retries if another server can be used instead."""
        if all(other.breaker.is_open for other in self.servers if other is not server):
            return server.endpoint
        return replace(server.endpoint, retries=_QUICK_RETRIES, patience=_QUICK_PATIENCE)

    def _check(self, server: RemoteEmbeddingProvider, endpoint: Endpoint) -> None:
        """Return if the server serves the model of the stored vector, and store that it does today."""
        stored = self._stored(self._model)
        if stored is None and server is not self.servers[0]:
            stored = self._first_vector(server)
        vector = server.encode_with([PROBE], endpoint)[0]
        if stored is not None:
            self._compare(server, vector, stored)
        self._store(server, vector if stored is None else stored)

    def _first_vector(self, fallback: RemoteEmbeddingProvider) -> Vector:
        first = self.servers[0]
        try:
            vector = first.encode_with([PROBE], replace(first.endpoint, retries=0))[0]
        except EmbeddingError as error:
            raise ModelUnavailable(
                f"{fallback.place} cannot be used yet: {first.place} never answered, so it is unknown whether "
                f"both serve the same model ({error.message})",
                hint="embed something once while the first server is up",
            ) from error
        self._store(first, vector)
        return vector

    def _compare(self, server: RemoteEmbeddingProvider, vector: Vector, stored: Vector) -> None:
        cosine = float(vector @ stored) if vector.shape == stored.shape else 0.0
        if cosine >= _AGREEMENT:
            return
        raise FingerprintMismatch(
            f"{server.place} serves another model as {server.model} than "
            f"{self._identity or self.servers[0].place}: vectors of one text differ "
            f"(cosine {cosine:.3f}, at least {_AGREEMENT})",
            hint="name the right model in KIWI_EMBEDDING_FALLBACKS; if the model was changed on purpose, "
            "KIWI_EMBEDDING_IDENTITY=NEW-NAME, and index again",
        )

    def _stored(self, name: str) -> Vector | None:
        if name not in self._known:
            self._known.update((name, vector) for vector in self._file.get(name, [_PROBE_DIGEST], 0).values())
        return self._known.get(name)

    def _store(self, server: RemoteEmbeddingProvider, vector: Vector) -> None:
        for name in (self._model, self._today(server)):
            self._known[name] = vector
            self._file.put(name, {_PROBE_DIGEST: vector})

    def _today(self, server: RemoteEmbeddingProvider) -> str:
        return f"{self._model}, served by {server.identity} on day {self._clock() // 86_400:.0f}"

    def _dimension(self) -> int:
        dimension = next((server.dimension for server in self.servers if server.dimension), 0)
        if not dimension and (stored := self._stored(self._model)) is not None:
            return len(stored)
        return dimension or len(self.encode(["dimension"])[0])


def _all_failed(failures: Sequence[EmbeddingError]) -> EmbeddingError:
    first, *others = failures
    messages = "; ".join(error.loggable_message for error in others)
    return first.with_message(f"{first.message}; and the fallbacks: {messages}") if others else first
