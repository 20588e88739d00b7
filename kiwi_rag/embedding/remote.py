"""Remote providers: requests of a bounded size, checks of the reply, circuit breaker and usage log.

Formats: ``POST {base}/embeddings``, https://platform.openai.com/docs/api-reference/embeddings, which Kong, LiteLLM,
vLLM and others have, too; and Ollama's ``POST {base}/api/embed``,
https://github.com/ollama/ollama/blob/main/docs/api.md, "Generate Embeddings".

The tokenizer of the server's model is not available, so tokens are estimated from bytes: English prose has
about four bytes a token, code and other scripts about three (a Chinese character is three bytes and about one token).
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint, unit_vectors, well_formed
from kiwi_rag.embedding.endpoint import Endpoint, post_json
from kiwi_rag.embedding.usage import RemoteCall, UsageLog
from kiwi_rag.errors import AnswerMalformed, EmbeddingError, FingerprintMismatch, ModelUnavailable, TextsRefused
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from kiwi_rag.model import Vector


_BYTES_PER_VECTOR = 1 << 17  # 4,096 numbers of up to 24 characters, and as much again for white space
_BYTES_OF_REPLY = 1 << 20
_BYTES_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply to one request: raw vectors in order, and the tokens that it counted, None if it did not say."""

    rows: Sequence[Any]
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request: texts, and estimated tokens; 0 for the provider's default."""

    texts: int = 0
    tokens: int = 0


class Breaker:
    """A circuit breaker: a server that failed gets no request for `cooldown` seconds, then one attempt.

    Parameters
    ----------
    cooldown
        Seconds without a request after each failure.
    clock
        A monotonic clock, in seconds.
    """

    def __init__(self, cooldown: float = 15.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._cooldown, self._clock = cooldown, clock
        self._failure: EmbeddingError | None = None
        self._until = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether the last call failed; the next one is not retried."""
        return self._failure is not None

    @property
    def is_open(self) -> bool:
        """Whether the server must not get a request now."""
        return self.has_failed and self._clock() < self._until

    def check(self) -> None:
        """Return if the server may get a request.

        Raises
        ------
        EmbeddingError
            The failure that opened the breaker, of the same class.
        """
        failure, left = self._failure, self._until - self._clock()
        if failure and left > 0:
            raise failure.with_message(f"{failure.message}; no further request for {left:.0f} s")

    def open(self, failure: EmbeddingError) -> None:
        """Allow no request until the cooldown is over."""
        self._failure, self._until = failure, self._clock() + self._cooldown

    def close(self) -> None:
        """Forget the failure, because a call succeeded."""
        self._failure = None


class RemoteEmbeddingProvider(EmbeddingProvider):
    """A provider that calls a server; a subclass sends one request.

    Parameters
    ----------
    endpoint
        The server.
    model
        The model's name there.
    dimension
        Length of its vectors; 0 to take it from the first reply, so that ``fingerprint`` sends one request.
    usage
        The log of calls; None for no log.
    limits
        The limits of one request.

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
    default_model = ""
    max_tokens = 0
    """Tokens of a text, which is truncated there by estimate; 0 if the server truncates."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        dimension: int = 0,
        usage: UsageLog | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.endpoint = endpoint
        self.model = model
        self.breaker = Breaker()
        self.batch_size = limits.texts or self.batch_size
        self.request_tokens = limits.tokens or self.request_tokens
        self.dimension = dimension
        self._usage = usage
        self._lock = threading.Lock()

    @abstractmethod
    def ask(self, texts: Sequence[str], endpoint: Endpoint) -> Reply:
        """Send one request, with the limits of time of `endpoint`, and return the reply."""

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
        return self.encode_with(texts, self.endpoint)

    def encode_with(self, texts: Sequence[str], endpoint: Endpoint) -> Sequence[Vector]:
        """Do as `encode` does, with the retries and patience of `endpoint`, which is otherwise this provider's own."""
        sent = [truncate(well_formed(text), self.max_tokens) for text in texts]
        runs = requests(sent, self.batch_size, self.request_tokens)
        return [vector for run in runs for vector in self._encode_run(run, endpoint)]

    def _encode_run(self, texts: Sequence[str], endpoint: Endpoint) -> Sequence[Vector]:
        self.breaker.check()
        started = time.perf_counter()
        attempt = replace(endpoint, retries=0) if self.breaker.has_failed else endpoint
        try:
            reply = self.ask(texts, attempt)
            vectors = self._checked(reply.rows, len(texts))
        except EmbeddingError as error:
            if not isinstance(error, TextsRefused | FingerprintMismatch):
                self.breaker.open(error)
            self._record(len(texts), None, started, f"{error.code} {error.status or ''}".strip())
            raise
        self.breaker.close()
        self._record(len(texts), reply.tokens, started, "ok")
        return vectors

    def _record(self, texts: int, tokens: int | None, started: float, outcome: str) -> None:
        if self._usage:
            seconds = round(time.perf_counter() - started, 4)
            server = self.endpoint.server
            self._usage.record(RemoteCall(self.provider, self.model, texts, tokens, seconds, outcome, server))

    def _checked(self, rows: Sequence[Any], wanted: int) -> Sequence[Vector]:
        server = self.endpoint.base_url
        if len(rows) != wanted:
            raise AnswerMalformed(f"{server} returned {len(rows)} vectors for {wanted} texts")
        lengths = {len(row) if isinstance(row, list) else -1 for row in rows}
        if len(lengths) != 1 or lengths & {-1, 0}:
            raise AnswerMalformed(f"{server} returned something that is not a vector, or vectors of several lengths")
        if not _holds_numbers(rows):
            raise AnswerMalformed(
                f"{server} returned vectors with other values than finite numbers, or with zeros only"
            )
        return unit_vectors(rows, self._expected_dimension(lengths.pop()))

    def _expected_dimension(self, length: int) -> int:
        with self._lock:
            expected = self.dimension = self.dimension or length
        if length != expected:
            raise FingerprintMismatch(
                f"{self.endpoint.base_url} returned vectors of {length} numbers for {self.model}, not of {expected}",
                hint=f"if that is the model you want: KIWI_EMBEDDING_DIMENSION={length}, and index again",
            )
        return expected


def _holds_numbers(rows: Sequence[Any]) -> bool:
    """Return whether `rows` are finite numbers, and no row has a norm of 0 or beyond ``float32``."""
    import numpy as np

    try:
        matrix = np.asarray(rows)
    except ValueError:
        return False
    if matrix.dtype.kind not in "iuf" or matrix.ndim != 2:
        return False
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(matrix.astype(np.float32), axis=1)
    return bool((np.isfinite(norms) & (norms > 0)).all())


def max_reply_bytes(texts: Sequence[str]) -> int:
    """Return the limit in bytes of a reply with a vector for each of `texts`."""
    return _BYTES_OF_REPLY + len(texts) * _BYTES_PER_VECTOR


def token_count(tokens: Any) -> int | None:
    """Return the number of tokens that a server counted; None if that is not a number, since vectors need none."""
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
    return tokens if is_count else None


def estimated_tokens(text: str) -> int:
    """Return an estimate of the tokens of `text`, rather too many than too few."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def truncate(text: str, tokens: int) -> str:
    """Return the first `tokens` tokens of `text`, by estimate; all of it if `tokens` is 0."""
    if not tokens or estimated_tokens(text) <= tokens:
        return text
    return text.encode("utf-8", "replace")[: tokens * _BYTES_PER_TOKEN].decode("utf-8", "ignore")


def requests(texts: Sequence[str], size: int, tokens: int) -> Iterator[Sequence[str]]:
    """Yield `texts` in order, in runs of at most `size` texts and about `tokens` tokens (0: any number of them)."""
    run: list[str] = []
    run_tokens = 0
    for text in texts:
        text_tokens = estimated_tokens(text)
        if run and (len(run) == size or (tokens and run_tokens + text_tokens > tokens)):
            yield run
            run, run_tokens = [], 0
        run.append(text)
        run_tokens += text_tokens
    if run:
        yield run


def _inputs(texts: Sequence[str]) -> list[str]:
    """Return what is sent: of a blank text a full stop, because OpenAI refuses it and Ollama returns no vector."""
    return [text if text.strip() else "." for text in texts]


_NATIVE_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}


class OpenAIEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through an OpenAI-compatible server; parameters as in the base class.

    Models named ``text-embedding-3-*`` can shorten their vectors to `dimension`. Other models must have that dimension.
    """

    provider = "openai"
    default_model = "text-embedding-3-small"
    max_tokens = 8191
    request_tokens = 250_000
    """The API's limit is 300,000, and these are estimated."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        dimension: int = 0,
        usage: UsageLog | None = None,
        limits: Limits = Limits(),
    ) -> None:
        native = _NATIVE_DIMENSIONS.get(model, 0)
        super().__init__(endpoint, model, dimension or native, usage, limits)
        shortened = model.startswith("text-embedding-3-") and dimension not in {0, native}
        self._parameters = {"dimensions": dimension} if shortened else {}

    def ask(self, texts: Sequence[str], endpoint: Endpoint) -> Reply:
        """Send one request."""
        body = {"model": self.model, "input": _inputs(texts), "encoding_format": "float", **self._parameters}
        answer = post_json(endpoint, "/embeddings", body, max_reply_bytes(texts))
        try:
            rows = {int(entry["index"]): entry["embedding"] for entry in answer["data"]}
            count = len(answer["data"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise AnswerMalformed(f"{endpoint.base_url} returned no reply in OpenAI's format") from error
        if sorted(rows) != list(range(count)):
            raise AnswerMalformed(f"{endpoint.base_url} returned vectors without a unique index for each text")
        usage = answer.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return Reply([rows[index] for index in range(count)], token_count(tokens))


class OllamaEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through Ollama; parameters as in the base class.

    The server truncates long texts. Name a model with its tag and do not change it: after a ``pull``, Ollama may serve
    other weights under the same name, and its reply does not show that.
    """

    provider = "ollama"
    default_model = "all-minilm"
    batch_size = 16

    def ask(self, texts: Sequence[str], endpoint: Endpoint) -> Reply:
        """Send one request."""
        body = {"model": self.model, "input": _inputs(texts), "truncate": True}
        try:
            answer = post_json(endpoint, "/api/embed", body, max_reply_bytes(texts))
        except ModelUnavailable as error:
            error.hint = f"start it with: ollama serve; get the model with: ollama pull {self.model}"
            raise
        try:
            return Reply(list(answer["embeddings"]), token_count(answer.get("prompt_eval_count")))
        except (KeyError, TypeError, AttributeError) as error:
            raise AnswerMalformed(f"{endpoint.base_url} returned no reply in Ollama's format") from error
