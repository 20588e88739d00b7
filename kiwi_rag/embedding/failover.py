"""Several servers of one model as one provider: the first that answers embeds, and vectors of two models never mix.

The fingerprint is the first server's, so that an index made before there were stand-ins stays good; or a declared
identity's, so that servers may change and several machines may each have their own address for the same model. Either
way a server is used once its vector of a fixed text agrees with the remembered one (:mod:`kiwi_rag.embedding.probe`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kiwi_rag.embedding import probe
from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint
from kiwi_rag.embedding.batching import requests
from kiwi_rag.embedding.endpoint import Endpoint
from kiwi_rag.embedding.remote import RemoteEmbeddingProvider
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, ModelUnavailable, TextsRefused
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from pathlib import Path

    from kiwi_rag.model import Vector

_log = logging.getLogger(__name__)
_HURRY_RETRIES, _HURRY_PATIENCE = 1, 5.0


class FailoverEmbeddingProvider(EmbeddingProvider):
    """Embeds with the first of several servers that answers, and goes back to the first when it is well again.

    A server that failed rests for some seconds (its breaker), in which the next one is asked without waiting. What a
    server refuses for the texts' sake, no other is asked.

    Parameters
    ----------
    servers
        In the order of preference, at least one.
    folder
        Where the fixed text's vector is remembered.
    identity
        A name that the servers' model goes by here; empty for the first server's own fingerprint.
    """

    def __init__(self, servers: Sequence[RemoteEmbeddingProvider], folder: Path, identity: str = "") -> None:
        self.servers = tuple(servers)
        self.batch_size = min(server.batch_size for server in servers)
        self._identity = identity
        # Of a model that shortens its vectors, each length has a vector of its own.
        self._memory = probe.ProbeMemory(folder, f"{self._source()} {servers[0].dimension}")
        self._agreed: set[str] = set()

    @property
    def fingerprint(self) -> Fingerprint:
        """The declared identity's, or the first server's; asks a server only where no length is configured or known."""
        first = self.servers[0]
        model, weights = self._identity or first.model, sha256_hex(self._source().encode())
        if self._identity:
            return Fingerprint(model, weights, self._dimension(), "declared", 0)
        return Fingerprint(model, weights, self._dimension(), first.provider, first.max_tokens)

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
                self._check(server, server.endpoint, anew=True)
            except EmbeddingError as error:
                problems.append(f"{server.place}: {error.message}")
        return problems

    def _first_that_answers(self, texts: Sequence[str]) -> Sequence[Vector]:
        failures: list[EmbeddingError] = []
        for server in self.servers:
            rested = not server.breaker.resting
            try:
                patience = self._patience(server)
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
        others = any(not other.breaker.resting for other in self.servers if other is not server)
        if not others:
            return server.endpoint
        return replace(server.endpoint, retries=_HURRY_RETRIES, patience=_HURRY_PATIENCE)

    def _check(self, server: RemoteEmbeddingProvider, patience: Endpoint, *, anew: bool = False) -> None:
        """Return if the server serves the model that the fixed text's vector is of."""
        name = server.identity
        if not anew and (name in self._agreed or self._memory.agreed_lately(name)):
            return
        known = self._memory.vector()
        if known is None and server is not self.servers[0]:
            known = self._probe_of_the_first(server)
        vector = server.encode_patiently([probe.TEXT], patience)[0]
        if known is not None:
            self._compare(server, vector, known)
        self._memory.remember(vector if known is None else known, name)
        self._agreed.add(name)

    def _probe_of_the_first(self, stand_in: RemoteEmbeddingProvider) -> Vector:
        first = self.servers[0]
        try:
            self._check(first, replace(first.endpoint, retries=0))
        except EmbeddingError as error:
            raise ModelUnavailable(
                f"{stand_in.place} cannot be used yet: {first.place} never answered, so nobody knows whether both "
                f"serve the same model ({error.message})",
                hint="embed something once while the first server is up",
            ) from error
        vector = self._memory.vector()
        return first.encode([probe.TEXT])[0] if vector is None else vector

    def _compare(self, server: RemoteEmbeddingProvider, vector: Vector, known: Vector) -> None:
        cosine = float(vector @ known) if vector.shape == known.shape else 0.0
        if cosine >= probe.AGREEMENT:
            return
        raise FingerprintMismatch(
            f"{server.place} does not serve the model that {self._identity or self.servers[0].place} stands for as "
            f"{server.model}: of one text it makes another vector (cosine {cosine:.3f}, at least {probe.AGREEMENT})",
            hint="name the right model in KIWI_EMBEDDING_FALLBACKS; if the model was changed on purpose, "
            "KIWI_EMBEDDING_IDENTITY=NEW-NAME, and index again",
        )

    def _source(self) -> str:
        return f"declared {self._identity}" if self._identity else self.servers[0].identity

    def _dimension(self) -> int:
        for server in self.servers:
            if server.dimension:
                return server.dimension
        known = self._memory.vector()
        return len(known) if known is not None else len(self.encode(["dimension"])[0])


def _all_failed(failures: Sequence[EmbeddingError]) -> EmbeddingError:
    first, others = failures[0], failures[1:]
    if not others:
        return first
    told = "; ".join(error.own_words for error in others)
    return first.reworded(f"{first.message}; and those that stand in: {told}")
