"""Creates the embedding provider that the settings name; several servers of one model become one provider.

The first server that answers embeds, and vectors of two models never mix. The fingerprint is the first server's, so
that an index from before there were fallbacks stays valid, or that of a declared identity, so that servers may change
and each machine may have its own address of the same model. In both cases a server is used after its vector of a fixed
text agrees with the first server's. That vector is kept in a file, so that a fallback can be checked while the first
server is down. The check is repeated each day (UTC), because the weights behind a model's name may change.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.embedding import EmbeddingProvider, Fingerprint
from kiwi_rag.embedding.cache import CachedEmbeddingProvider, VectorFile
from kiwi_rag.embedding.onnx import OnnxEmbeddingProvider, SentenceTransformersEmbeddingProvider
from kiwi_rag.embedding.weights import INT8_MODEL, MODEL, ModelSource
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, ModelUnavailable, TextsRefused, UsageError
from kiwi_rag.model import Vector, sha256_hex

if TYPE_CHECKING:
    from kiwi_rag.consent import Allow
    from kiwi_rag.embedding.remote import RemoteEmbeddingProvider

_log = logging.getLogger(__name__)
_LOCAL = {"onnx": OnnxEmbeddingProvider, "sentence-transformers": SentenceTransformersEmbeddingProvider}
_MODELS = {"onnx": (INT8_MODEL, MODEL), "sentence-transformers": (MODEL,)}  # of `_LOCAL`, the default first
PROVIDERS = (*_LOCAL, "openai", "ollama")
_FALLBACK = re.compile(r"(?:(?P<kind>openai|ollama)\s+)?(?P<url>\S*://\S*)(?:\s+(?P<model>\S+))?")
PROBE = "The night shift found the backup by its date, restored 42 tables & went home at 03:15; nobody had noticed."
_PROBE_DIGEST = hashlib.sha256(PROBE.encode()).digest()
_AGREEMENT = 0.999
"""Minimum cosine of two vectors of one model; another precision of the same weights stays above it."""
_FILE_BYTES = 4 << 20  # one vector for each server and day: the oldest are dropped after some years
_QUICK_RETRIES, _QUICK_PATIENCE = 1, 5.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the providers that call servers; each is a setting, its name after ``embedding_``.

    ``base_url`` and ``dimension`` have the provider's and the model's default. ``fallbacks`` lists servers as
    ``[openai|ollama] URL [MODEL]``, separated by commas; the default of each part is that of the first server.
    ``fallback_keys`` has one key for each of them, separated by commas; empty if a server needs none. ``identity`` is a
    declared name of the model that all of them serve; ``batch_texts`` and ``batch_tokens`` are the limits of one
    request, 0 for the provider's defaults; ``prices`` is as in `kiwi_rag.embedding.usage.parse_prices`.
    """

    base_url: str = ""
    api_key: str = field(default="", repr=False)
    dimension: int = 0
    fallbacks: str = ""
    fallback_keys: str = field(default="", repr=False)
    identity: str = ""
    batch_texts: int = 0
    batch_tokens: int = 0
    prices: str = ""


def load_provider(  # noqa: PLR0913 - plain values, because this package reads no settings
    name: str = "onnx",
    *,
    cache_dir: Path,
    model: str = "",
    model_dir: Path | None = None,
    threads: int = 0,
    servers: ServerOptions = ServerOptions(),
    allow: Allow | None = None,
) -> EmbeddingProvider:
    """Return the provider called `name`, with the persistent cache before it. Loads and contacts nothing.

    Parameters
    ----------
    name
        ``onnx``, ``sentence-transformers``, ``openai`` or ``ollama``.
    cache_dir
        Kiwi's cache folder: ``models/``, ``embeddings.sqlite`` and ``usage.jsonl`` are kept there.
    model
        The model's name; empty for the provider's default. ``onnx`` has ``all-MiniLM-L6-v2-int8``, the default, and
        ``all-MiniLM-L6-v2``, the only one of ``sentence-transformers``.
    model_dir, threads
        Of the local providers: a folder with the weights; threads (0: one a core).
    servers
        Options of the remote providers.
    allow
        Called with host, purpose, bytes and estimated cost before anything is sent to a server; raises if that is not
        allowed.

    Raises
    ------
    UsageError
        If there is no such provider, or a local one does not have the model.
    """
    if name not in PROVIDERS:
        raise UsageError(f"there is no embedding provider {name!r}", hint=f"one of: {', '.join(PROVIDERS)}")
    provider: EmbeddingProvider
    if models := _MODELS.get(name):
        if (chosen := model.removeprefix("sentence-transformers/") or models[0]) not in models:
            hint = "openai and ollama run other models"
            raise UsageError(f"the provider {name} runs {' and '.join(models)}, not {model!r}", hint=hint)
        provider = _LOCAL[name](ModelSource(cache_dir / "models", model_dir, model=chosen), threads)
    else:
        provider, *fallbacks = chain = remote_providers(name, model, cache_dir, servers, allow)
        if fallbacks or servers.identity:
            provider = FailoverEmbeddingProvider(chain, cache_dir / "probes.sqlite", servers.identity)
    return CachedEmbeddingProvider(provider, cache_dir / "embeddings.sqlite")


def remote_providers(
    name: str, model: str, cache_dir: Path, options: ServerOptions, allow: Allow | None = None
) -> list[RemoteEmbeddingProvider]:
    """Return the providers of the first server, called `name`, and of its fallbacks, in order; see `load_provider`.

    The first server's key is used for its own scheme, host and port only.

    Raises
    ------
    UsageError
        If the list of fallbacks or their keys are not as `ServerOptions` says.
    """
    from kiwi_rag.embedding.remote import OllamaEmbeddingProvider, OpenAIEmbeddingProvider
    from kiwi_rag.embedding.usage import UsageLog, parse_prices
    from kiwi_rag.endpoint import Endpoint

    kinds = {"openai": OpenAIEmbeddingProvider, "ollama": OllamaEmbeddingProvider}
    usage = UsageLog(cache_dir / "usage.jsonl", parse_prices(options.prices))

    def provider(kind: str, url: str, model: str, key: str) -> RemoteEmbeddingProvider:
        limits = {"batch_texts": options.batch_texts, "batch_tokens": options.batch_tokens}
        endpoint = Endpoint(url, key, allow=allow and usage.priced(allow, kind, model or kinds[kind].default_model))
        return kinds[kind](endpoint, model, options.dimension, usage, **limits)

    first = provider(name, options.base_url or kinds[name].default_url, model, options.api_key)
    entries = [entry.strip() for entry in options.fallbacks.split(",") if entry.strip()]
    keys = [key.strip() for key in options.fallback_keys.split(",")] if options.fallback_keys.strip() else []
    if len(keys) > len(entries):
        raise UsageError("embedding_fallback_keys has more keys than embedding_fallbacks has servers")
    chain = [first]
    for entry, key in zip_longest(entries, keys, fillvalue=""):
        if (found := _FALLBACK.fullmatch(entry)) is None:
            form = "embedding_fallbacks lists servers as: [openai|ollama] URL [MODEL], separated by commas"
            hint = "for example: KIWI_EMBEDDING_FALLBACKS='ollama http://127.0.0.1:11434 all-minilm'"
            raise UsageError(form, hint=hint)
        same_key = options.api_key if Endpoint(found["url"]).origin == first.endpoint.origin else ""
        chain.append(provider(found["kind"] or name, found["url"], found["model"] or model, key or same_key))
    return chain


class FailoverEmbeddingProvider(EmbeddingProvider):
    """Embeds with the first of several servers that answers, and returns to the first when it works again.

    While the breaker of a failed server is open, the next server is used at once; only the last one has all its
    retries. If a server refuses the texts, no other server is tried.

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
        for server in self.servers[:-1]:
            server.endpoint = replace(server.endpoint, retries=_QUICK_RETRIES, patience=_QUICK_PATIENCE)
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
            If a server refuses these texts.
        EmbeddingError
            If every server failed: the first one's failure, with the messages of the others.
        """
        failures: list[EmbeddingError] = []
        for server in self.servers:
            was_open = server.breaker.is_open
            try:
                if self._stored(self._today(server)) is None:
                    self._check(server)
                return server.encode(texts)
            except (TextsRefused, FingerprintMismatch):
                raise
            except EmbeddingError as error:
                failures.append(error)
                if not was_open:
                    _log.warning("%s does not embed (%s); the next server is used", server.endpoint.server, error.code)
        first, *others = failures
        messages = "; ".join(error.loggable_message for error in others)
        raise first.with_message(f"{first.message}; and the fallbacks: {messages}") if others else first

    def verify(self) -> Sequence[str]:
        """Check whether every server serves the model; return one line for each problem."""
        problems = []
        for server in self.servers:
            try:
                self._check(server)
            except EmbeddingError as error:
                problems.append(f"{server.place}: {error.message}")
        return problems

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    def _check(self, server: RemoteEmbeddingProvider) -> None:
        """Return if the server serves the model of the stored vector, and store that it does today."""
        first, stored = self.servers[0], self._stored(self._model)
        if stored is None and server is not first:
            unknown = f"{first.place} never answered, so it is unknown whether both serve the same model"
            hint = "embed something once while the first server is up"
            raise ModelUnavailable(f"{server.place} cannot be used yet: {unknown}", hint=hint)
        vector = server.encode([PROBE])[0]
        cosine = 1.0 if stored is None else float(vector @ stored) if vector.shape == stored.shape else 0.0
        if cosine < _AGREEMENT:
            raise FingerprintMismatch(
                f"{server.place} serves another model as {server.model} than {self._identity or first.place}: "
                f"vectors of one text differ (cosine {cosine:.3f}, at least {_AGREEMENT})",
                hint="name the right model in KIWI_EMBEDDING_FALLBACKS; if the model was changed on purpose, "
                "KIWI_EMBEDDING_IDENTITY=NEW-NAME, and index again",
            )
        for name in (self._model, self._today(server)):
            self._known[name] = vector if stored is None else stored
            self._file.put(name, {_PROBE_DIGEST: self._known[name]})

    def _stored(self, name: str) -> Vector | None:
        if name not in self._known:
            self._known.update((name, vector) for vector in self._file.get(name, [_PROBE_DIGEST], 0).values())
        return self._known.get(name)

    def _today(self, server: RemoteEmbeddingProvider) -> str:
        return f"{self._model}, served by {server.identity} on day {self._clock() // 86_400:.0f}"

    def _dimension(self) -> int:
        dimension = next((server.dimension for server in self.servers if server.dimension), 0)
        if not dimension and (stored := self._stored(self._model)) is not None:
            return len(stored)
        return dimension or len(self.encode(["dimension"])[0])
