"""Remote providers: requests of a bounded size, checks of the reply, circuit breaker and usage log.

Formats: ``POST {base}/embeddings``, https://platform.openai.com/docs/api-reference/embeddings, which Kong, LiteLLM,
vLLM and others have, too; and Ollama's ``POST {base}/api/embed``,
https://github.com/ollama/ollama/blob/main/docs/api.md, "Generate Embeddings".

The tokenizer of the server's model is not available, so tokens are estimated from bytes: English prose has
about four bytes a token, code and other scripts about three (a Chinese character is three bytes and about one token).
"""

from __future__ import annotations

import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kiwi_rag.embedding import EmbeddingProvider, Fingerprint, batches, unit_vectors, well_formed
from kiwi_rag.embedding.usage import RemoteCall, UsageLog
from kiwi_rag.endpoint import Endpoint, post_json
from kiwi_rag.errors import AnswerMalformed, EmbeddingError, FingerprintMismatch, ModelUnavailable, TextsRefused
from kiwi_rag.model import Vector, sha256_hex

_BYTES_PER_VECTOR = 1 << 17  # 4,096 numbers of up to 24 characters, and as much again for white space
_BYTES_OF_REPLY = 1 << 20
_BYTES_PER_TOKEN = 3


@dataclass(slots=True)
class Breaker:
    """A circuit breaker: a server that failed gets no request for `cooldown` seconds, then one attempt.

    ``clock`` is monotonic, in seconds; ``failure`` is that of the last call, None if it succeeded.
    """

    cooldown: float = 15.0
    clock: Callable[[], float] = time.monotonic
    failure: EmbeddingError | None = None
    until: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the server must not get a request now."""
        return self.failure is not None and self.clock() < self.until

    def check(self) -> None:
        """Return if the server may get a request.

        Raises
        ------
        EmbeddingError
            The failure that opened the breaker, of the same class.
        """
        left = self.until - self.clock()
        if self.failure and left > 0:
            raise self.failure.with_message(f"{self.failure.message}; no further request for {left:.0f} s")

    def open(self, failure: EmbeddingError) -> None:
        """Allow no request until the cooldown is over."""
        self.failure, self.until = failure, self.clock() + self.cooldown


class RemoteEmbeddingProvider(EmbeddingProvider):
    """A provider that calls a server; a subclass sends one request.

    Parameters
    ----------
    endpoint
        The server.
    model
        The model's name there; empty for the provider's default.
    dimension
        Length of its vectors; 0 to take it from the first reply, so that ``fingerprint`` sends one request.
    usage
        The log of calls; None for no log.
    batch_texts, batch_tokens
        The limits of one request: texts, and estimated tokens; 0 for the provider's default.

    Attributes
    ----------
    breaker
        Prevents requests for some seconds after a failure.
    dimension
        Length of the vectors, as configured or as received; 0 before that.
    """

    batch_size = 64
    request_tokens = 0
    """Tokens of all texts in one request; 0 if the server has no such limit."""
    provider = ""
    default_url = ""
    default_model = ""
    max_tokens = 0
    """Tokens of a text, which is truncated there by estimate; 0 if the server truncates."""
    native_dimensions: Mapping[str, int] = {}
    """Lengths that are known before the first reply, by model."""

    def __init__(  # noqa: PLR0913 - the settings of one server
        self,
        endpoint: Endpoint,
        model: str = "",
        dimension: int = 0,
        usage: UsageLog | None = None,
        *,
        batch_texts: int = 0,
        batch_tokens: int = 0,
    ) -> None:
        self.endpoint = endpoint
        self.model = model or self.default_model
        self.breaker = Breaker()
        self.batch_size = batch_texts or self.batch_size
        self.request_tokens = batch_tokens or self.request_tokens
        self.dimension = dimension or self.native_dimensions.get(self.model, 0)
        self._usage = usage
        self._lock = threading.Lock()

    @abstractmethod
    def ask(self, texts: Sequence[str]) -> tuple[Sequence[Any], object]:
        """Send one request; return raw vectors in order, and what the server says of the tokens that it counted."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Model, dimension and, in place of a weights digest, the digest of provider, base URL and model."""
        weights = sha256_hex(self.identity.encode())
        if not self.dimension:
            self.encode(["dimension"])
        return Fingerprint(self.model, weights, self.dimension, self.provider, self.max_tokens)

    @property
    def identity(self) -> str:
        """Provider, base URL and model, which identify the model, as its weights are not available."""
        return f"{self.provider} {self.endpoint.base_url.rstrip('/')} {self.model}"

    @property
    def place(self) -> str:
        """The server's address."""
        return self.endpoint.base_url

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a text, in order; see the base class.

        Raises
        ------
        ModelUnavailable
            If the server does not know the model, or cannot be reached.
        RateLimited
            If it still limits requests after all retries.
        TextsRefused
            If it refuses these texts.
        AnswerMalformed
            If the reply is not one vector for each text.
        FingerprintMismatch
            If its vectors do not have the expected dimension.
        EmbeddingError
            If it fails otherwise after all retries. For some seconds after any failure it gets no request.
        """
        sent = [truncate(well_formed(text), self.max_tokens) for text in texts]
        runs = batches(sent, self.batch_size, estimated_tokens, self.request_tokens or math.inf)
        return [vector for run in runs for vector in self._encode_run(run)]

    def _encode_run(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.breaker.check()
        started = time.perf_counter()
        try:
            rows, tokens = self.ask(texts)
            vectors = self._checked(rows, len(texts))
        except EmbeddingError as error:
            if not isinstance(error, TextsRefused | FingerprintMismatch):
                self.breaker.open(error)
            self._record(len(texts), None, started, f"{error.code} {error.status or ''}".strip())
            raise
        self.breaker.failure = None
        self._record(len(texts), tokens, started, "ok")
        return vectors

    def _post(self, path: str, texts: Sequence[str], **body: object) -> Any:
        """Return the parsed reply to one request for `texts`; the first one after a failure is not retried."""
        endpoint = replace(self.endpoint, retries=0) if self.breaker.failure else self.endpoint
        # Of a blank text a full stop is sent, because OpenAI refuses it and Ollama returns no vector.
        inputs = [text if text.strip() else "." for text in texts]
        max_bytes = _BYTES_OF_REPLY + len(texts) * _BYTES_PER_VECTOR
        return post_json(endpoint, path, {"model": self.model, "input": inputs, **body}, max_bytes)

    def _record(self, texts: int, tokens: object, started: float, outcome: str) -> None:
        if self._usage:
            # Any other value is taken for none, since the vectors do not need it.
            counted = tokens if type(tokens) is int and tokens >= 0 else None
            taken = texts, counted, round(time.perf_counter() - started, 4)
            self._usage.record(RemoteCall(self.provider, self.model, *taken, outcome, self.endpoint.server))

    def _checked(self, rows: Sequence[Any], wanted: int) -> Sequence[Vector]:
        import numpy as np

        if len(rows) != wanted:
            raise AnswerMalformed(f"{self.place} returned {len(rows)} vectors for {wanted} texts")
        try:
            matrix = np.asarray(rows)
            if matrix.dtype.kind not in "iuf" or not (matrix.ndim == 2 and matrix.size):
                raise ValueError("no rows of numbers")
            vectors = unit_vectors(matrix, matrix.shape[1])
        except (ValueError, EmbeddingError) as error:
            wrong = "something that is not one vector of finite numbers a text, all of one length"
            raise AnswerMalformed(f"{self.place} returned {wrong}") from error
        length = matrix.shape[1]
        with self._lock:
            expected = self.dimension = self.dimension or length
        if length != expected:
            message = f"{self.place} returned vectors of {length} numbers for {self.model}, not of {expected}"
            hint = f"if that is the model you want: KIWI_EMBEDDING_DIMENSION={length}, and index again"
            raise FingerprintMismatch(message, hint=hint)
        return vectors


def estimated_tokens(text: str) -> int:
    """Return an estimate of the tokens of `text`, rather too many than too few."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def truncate(text: str, tokens: int) -> str:
    """Return the first `tokens` tokens of `text`, by estimate; all of it if `tokens` is 0."""
    if not tokens or estimated_tokens(text) <= tokens:
        return text
    return text.encode("utf-8", "replace")[: tokens * _BYTES_PER_TOKEN].decode("utf-8", "ignore")


class OpenAIEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through an OpenAI-compatible server; parameters as in the base class.

    Models named ``text-embedding-3-*`` can shorten their vectors to `dimension`. Other models must have that dimension.
    """

    provider = "openai"
    default_url = "https://api.openai.com/v1"
    default_model = "text-embedding-3-small"
    max_tokens = 8191
    request_tokens = 250_000
    """The API's limit is 300,000, and these are estimated."""
    native_dimensions: Mapping[str, int] = {
        "text-embedding-3-small": 1536,
        "text-embedding-3-large": 3072,
        "text-embedding-ada-002": 1536,
    }

    def ask(self, texts: Sequence[str]) -> tuple[Sequence[Any], object]:
        """Send one request."""
        is_shortened = self.dimension not in {0, self.native_dimensions.get(self.model)}
        can_shorten = self.model.startswith("text-embedding-3-")
        parameters = {"dimensions": self.dimension} if can_shorten and is_shortened else {}
        answer = self._post("/embeddings", texts, encoding_format="float", **parameters)
        try:
            rows = {int(entry["index"]): entry["embedding"] for entry in answer["data"]}
            count = len(answer["data"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise AnswerMalformed(f"{self.place} returned no reply in OpenAI's format") from error
        if sorted(rows) != list(range(count)):
            raise AnswerMalformed(f"{self.place} returned vectors without a unique index for each text")
        usage = answer.get("usage")
        return [rows[index] for index in range(count)], usage.get("prompt_tokens") if isinstance(usage, dict) else None


class OllamaEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through Ollama; parameters as in the base class.

    The server truncates long texts. Name a model with its tag and do not change it: after a ``pull``, Ollama may serve
    other weights under the same name, and its reply does not show that.
    """

    provider = "ollama"
    default_url = "http://127.0.0.1:11434"
    default_model = "all-minilm"
    batch_size = 16

    def ask(self, texts: Sequence[str]) -> tuple[Sequence[Any], object]:
        """Send one request."""
        try:
            answer = self._post("/api/embed", texts, truncate=True)
        except ModelUnavailable as error:
            error.hint = f"start it with: ollama serve; get the model with: ollama pull {self.model}"
            raise
        try:
            return list(answer["embeddings"]), answer.get("prompt_eval_count")
        except (KeyError, TypeError, AttributeError) as error:
            raise AnswerMalformed(f"{self.place} returned no reply in Ollama's format") from error
