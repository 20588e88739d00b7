"""What remote providers share: requests of a bounded size, checks of the answer, normalising, breaker and usage log.

No tokenizer of the server's model is at hand, so tokens are estimated from bytes: English prose has about four bytes a
token, code and other scripts about three (a Chinese character is three bytes and about one token).
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint, unit_vectors, well_formed
from kiwi_rag.embedding.endpoint import Endpoint
from kiwi_rag.embedding.usage import RemoteCall, UsageLog
from kiwi_rag.errors import AnswerMalformed, EmbeddingError, FingerprintMismatch, TextsRefused
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

_BYTES_A_VECTOR = 1 << 17  # 4,096 numbers of up to 24 characters, and as much again for white space
_BYTES_AROUND = 1 << 20
_BYTES_A_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer to one request: raw vectors in order, and the tokens it counted, if it said."""

    rows: Sequence[Any]
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold: texts, and tokens by estimate; 0 stands for the provider's own."""

    texts: int = 0
    tokens: int = 0


class Breaker:
    """A circuit breaker: a server that failed is not asked for `rest` seconds; then one try tells whether it is back.

    Parameters
    ----------
    rest
        Seconds without a request after each failure.
    clock
        Seconds that only grow.
    """

    def __init__(self, rest: float = 15.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest, self._clock = rest, clock
        self._failure: EmbeddingError | None = None
        self._until = 0.0

    @property
    def failed(self) -> bool:
        """Whether the last call failed: the next one is a trial."""
        return self._failure is not None

    @property
    def resting(self) -> bool:
        """Whether the server is not to be asked now."""
        return self.failed and self._clock() < self._until

    def check(self) -> None:
        """Return if the server may be asked.

        Raises
        ------
        EmbeddingError
            The failure that it is resting from, of the same class.
        """
        failure, left = self._failure, self._until - self._clock()
        if failure and left > 0:
            raise failure.with_message(f"{failure.message}; not asked again for {left:.0f} s")

    def trip(self, failure: EmbeddingError) -> None:
        """Let the server rest."""
        self._failure, self._until = failure, self._clock() + self._rest

    def reset(self) -> None:
        """Forget the failure: the server answered."""
        self._failure = None


class RemoteEmbeddingProvider(EmbeddingProvider):
    """A provider behind HTTP; a subclass says how one request is made.

    Parameters
    ----------
    endpoint
        The server.
    model
        The model's name there.
    dimension
        Length of its vectors; 0 to learn it from the first answer, which makes ``fingerprint`` ask once.
    usage
        Where calls are logged; None for nowhere.
    limits
        What one request may hold.

    Attributes
    ----------
    breaker
        Lets the server rest after a failure.
    """

    batch_size = 64
    request_tokens = 0
    """Tokens that one request may hold, all its texts together; 0 where the server sets no such limit."""
    provider = ""
    default_model = ""
    max_tokens = 0
    """Tokens that the server reads of a text, which is cut there by estimate; 0 where the server cuts."""

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
        self._dimension = dimension
        self._usage = usage
        self._lock = threading.Lock()

    @abstractmethod
    def ask(self, texts: Sequence[str], endpoint: Endpoint) -> Reply:
        """Send one request, with the patience of `endpoint`, and return the answer."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Model, dimension and, in place of a weights digest, the digest of provider, base URL and model."""
        weights = sha256_hex(self.identity.encode())
        return Fingerprint(self.model, weights, self._known_dimension(), self.provider, self.max_tokens)

    @property
    def identity(self) -> str:
        """What tells this model from others, for its weights are not to be had: provider, base URL and model."""
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
            If it still wants fewer requests after all retries.
        TextsRefused
            If it does not take these texts.
        AnswerMalformed
            If what it sends is no vectors, or not one a text.
        FingerprintMismatch
            If its vectors do not have the expected dimension.
        EmbeddingError
            If it fails otherwise after all retries; for some seconds after any failure it is not asked again.
        """
        return self.encode_patiently(texts, self.endpoint)

    def encode_patiently(self, texts: Sequence[str], endpoint: Endpoint) -> Sequence[Vector]:
        """Do as `encode` does, with the patience of `endpoint`, which is this provider's own in all else."""
        sent = [cut(well_formed(text), self.max_tokens) for text in texts]
        runs = requests(sent, self.batch_size, self.request_tokens)
        return [vector for run in runs for vector in self._encode_run(run, endpoint)]

    @property
    def dimension(self) -> int:
        """Length of the vectors, as configured or as learned; 0 before that. Asks nobody."""
        return self._dimension

    def _encode_run(self, texts: Sequence[str], endpoint: Endpoint) -> Sequence[Vector]:
        self.breaker.check()
        started = time.perf_counter()
        patience = replace(endpoint, retries=0) if self.breaker.failed else endpoint
        try:
            reply = self.ask(texts, patience)
            vectors = self._checked(reply.rows, len(texts))
        except EmbeddingError as error:
            if not isinstance(error, TextsRefused | FingerprintMismatch):
                self.breaker.trip(error)
            self._record(len(texts), None, started, f"{error.code} {error.status or ''}".strip())
            raise
        self.breaker.reset()
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
            raise AnswerMalformed(f"asked for {wanted} vectors, {server} sent {len(rows)}")
        lengths = {len(row) if isinstance(row, list) else -1 for row in rows}
        if len(lengths) != 1 or lengths & {-1, 0}:
            raise AnswerMalformed(f"{server} sent something that is not a vector, or vectors of several lengths")
        if not _holds_numbers(rows):
            raise AnswerMalformed(f"{server} sent vectors that hold other than finite numbers, or only zeros")
        return unit_vectors(rows, self._agreed(lengths.pop()))

    def _agreed(self, length: int) -> int:
        with self._lock:
            self._dimension = self._dimension or length
            expected = self._dimension
        if length != expected:
            raise FingerprintMismatch(
                f"{self.endpoint.base_url} sends vectors of {length} numbers for {self.model}, not of {expected}",
                hint=f"if that is the model you want: KIWI_EMBEDDING_DIMENSION={length}, and index again",
            )
        return expected

    def _known_dimension(self) -> int:
        if not self._dimension:
            self.encode(["dimension"])
        return self._dimension


def _holds_numbers(rows: Sequence[Any]) -> bool:
    """Return whether `rows` are finite numbers, and each row has a length in ``float32``: not 0, not out of range."""
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


def room_for(texts: Sequence[str]) -> int:
    """Return how many bytes an answer with a vector for each of `texts` may take."""
    return _BYTES_AROUND + len(texts) * _BYTES_A_VECTOR


def counted(tokens: Any) -> int | None:
    """Return what a server counted as tokens; None where that is no count: the vectors are good without it."""
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
    return tokens if is_count else None


def estimated_tokens(text: str) -> int:
    """Return about how many tokens `text` has, rather too many than too few."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_A_TOKEN)


def cut(text: str, tokens: int) -> str:
    """Return the head of `text` that has about `tokens` tokens; all of it where `tokens` is 0."""
    if not tokens or estimated_tokens(text) <= tokens:
        return text
    return text.encode("utf-8", "replace")[: tokens * _BYTES_A_TOKEN].decode("utf-8", "ignore")


def requests(texts: Sequence[str], size: int, tokens: int) -> Iterator[Sequence[str]]:
    """Yield `texts` in order, in runs of at most `size` texts and about `tokens` tokens (0: any number of them)."""
    run: list[str] = []
    held = 0
    for text in texts:
        weight = estimated_tokens(text)
        if run and (len(run) == size or (tokens and held + weight > tokens)):
            yield run
            run, held = [], 0
        run.append(text)
        held += weight
    if run:
        yield run
