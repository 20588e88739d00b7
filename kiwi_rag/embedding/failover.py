"""Several servers of one model as one provider: the first that answers embeds, and vectors of two models never mix.

The fingerprint is the first server's, so that an index made before there were fallbacks stays good; or a declared
identity's, so that servers may change and several machines may each have their own address for the same model. Either
way a server is used once its vector of a fixed text agrees with the first server's, which is kept in a file: so a
fallback can be judged while the first server is down. Agreement is checked again each day (UTC), for the weights behind
a model's name may change.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint
from kiwi_rag.embedding.endpoint import Endpoint
from kiwi_rag.embedding.remote import RemoteEmbeddingProvider, requests
from kiwi_rag.embedding.vector_file import VectorFile
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, ModelUnavailable, TextsRefused
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from pathlib import Path

    from kiwi_rag.model import Vector

_log = logging.getLogger(__name__)
PROBE = "The night shift found the backup by its date, restored 42 tables & went home at 03:15; nobody had noticed."
_PROBE_DIGEST = hashlib.sha256(PROBE.encode()).digest()
_AGREEMENT = 0.999
"""Cosine from which two vectors are of one model; another precision of the same weights stays above it."""
_FILE_BYTES = 4 << 20  # a vector a server and day: the oldest are dropped after some years
_HURRY_RETRIES, _HURRY_PATIENCE = 1, 5.0


class FailoverEmbeddingProvider(EmbeddingProvider):
    """Embeds with the first of several servers that answers, and goes back to the first when it is well again.

    A server that failed rests for some seconds (its breaker), in which the next one is asked without waiting. What a
    server refuses for the texts' sake, no other is asked.

    Parameters
    ----------
    servers
        In the order of preference, at least one.
    path
        The file of the fixed text's vectors; trouble with it costs asking again, nothing else.
    identity
        A name that the servers' model goes by here; empty for the first server's own fingerprint.
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
        # Of a model that shortens its vectors, each length has a vector of its own.
        self._model = f"{self._source} {servers[0].dimension}"
        self._vectors = VectorFile(path, _FILE_BYTES)
        self._agreed: set[str] = set()
        self._clock = clock

    @property
    def fingerprint(self) -> Fingerprint:
        """The declared identity's, or the first server's; asks a server only where no length is configured or known."""
        first, weights = self.servers[0], sha256_hex(self._source.encode())
        if self._identity:
            return Fingerprint(self._identity, weights, self._dimension(), "declared", 0)
        return Fingerprint(first.model, weights, self._dimension(), first.provider, first.max_tokens)

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
            If a server does not take these texts.
        EmbeddingError
            If every server failed: the first one's failure, with the others' words.
        """
        runs = requests(texts, self.batch_size, 0)
        return [vector for run in runs for vector in self._first_that_answers(run)]

    def verify(self) -> Sequence[str]:
        """Ask every server now whether it serves the model; return what is wrong, a line a server."""
        problems = []
        for server in self.servers:
            try:
                self._check(server, server.endpoint)
            except EmbeddingError as error:
                problems.append(f"{server.place}: {error.message}")
        return problems

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._vectors.close()

    def _first_that_answers(self, texts: Sequence[str]) -> Sequence[Vector]:
        failures: list[EmbeddingError] = []
        for server in self.servers:
            rested = not server.breaker.resting
            try:
                patience = self._patience(server)
                if not self._agrees_today(server):
                    self._check(server, patience)
                return server.encode_patiently(texts, patience)
            except (TextsRefused, FingerprintMismatch):
                raise
            except EmbeddingError as error:
                failures.append(error)
                if rested:
                    _log.warning("%s does not embed (%s): the next server is asked", server.endpoint.server, error.code)
        raise _all_failed(failures)

    def _patience(self, server: RemoteEmbeddingProvider) -> Endpoint:
        """Hurry where another server can do the work."""
        if all(other.breaker.resting for other in self.servers if other is not server):
            return server.endpoint
        return replace(server.endpoint, retries=_HURRY_RETRIES, patience=_HURRY_PATIENCE)

    def _check(self, server: RemoteEmbeddingProvider, patience: Endpoint) -> None:
        """Return if the server serves the model that the fixed text's vector is of, and note that it does today."""
        known = self._known(self._model)
        if known is None and server is not self.servers[0]:
            known = self._vector_of_the_first(server)
        vector = server.encode_patiently([PROBE], patience)[0]
        if known is not None:
            self._compare(server, vector, known)
        self._keep(server, vector if known is None else known)

    def _vector_of_the_first(self, fallback: RemoteEmbeddingProvider) -> Vector:
        first = self.servers[0]
        try:
            vector = first.encode_patiently([PROBE], replace(first.endpoint, retries=0))[0]
        except EmbeddingError as error:
            raise ModelUnavailable(
                f"{fallback.place} cannot be used yet: {first.place} never answered, so nobody knows whether both "
                f"serve the same model ({error.message})",
                hint="embed something once while the first server is up",
            ) from error
        self._keep(first, vector)
        return vector

    def _compare(self, server: RemoteEmbeddingProvider, vector: Vector, known: Vector) -> None:
        cosine = float(vector @ known) if vector.shape == known.shape else 0.0
        if cosine >= _AGREEMENT:
            return
        raise FingerprintMismatch(
            f"{server.place} does not serve the model that {self._identity or self.servers[0].place} stands for as "
            f"{server.model}: of one text it makes another vector (cosine {cosine:.3f}, at least {_AGREEMENT})",
            hint="name the right model in KIWI_EMBEDDING_FALLBACKS; if the model was changed on purpose, "
            "KIWI_EMBEDDING_IDENTITY=NEW-NAME, and index again",
        )

    def _known(self, name: str) -> Vector | None:
        return self._vectors.get(name, [_PROBE_DIGEST], 0).get(_PROBE_DIGEST)

    def _keep(self, server: RemoteEmbeddingProvider, vector: Vector) -> None:
        for name in (self._model, self._today(server)):
            self._vectors.put(name, {_PROBE_DIGEST: vector})
        self._agreed.add(self._today(server))

    def _agrees_today(self, server: RemoteEmbeddingProvider) -> bool:
        return self._today(server) in self._agreed or self._known(self._today(server)) is not None

    def _today(self, server: RemoteEmbeddingProvider) -> str:
        return f"{self._model}, served by {server.identity} on day {self._clock() // 86_400:.0f}"

    def _dimension(self) -> int:
        for server in self.servers:
            if server.dimension:
                return server.dimension
        known = self._known(self._model)
        return len(known) if known is not None else len(self.encode(["dimension"])[0])


def _all_failed(failures: Sequence[EmbeddingError]) -> EmbeddingError:
    first, others = failures[0], failures[1:]
    if not others:
        return first
    told = "; ".join(error.loggable_message for error in others)
    return first.with_message(f"{first.message}; and the fallbacks: {told}")
