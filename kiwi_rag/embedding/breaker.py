"""A circuit breaker: a server that failed is left alone for a while, instead of once more for every batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kiwi_rag.errors import EmbeddingError

REST = 15.0
"""Seconds that a failed server is left alone."""


class Breaker:
    """Remembers a server's failure until its rest is over; then one try tells whether it is back.

    Parameters
    ----------
    rest
        Seconds of rest after each failure.
    clock
        Seconds that only grow.
    """

    def __init__(self, rest: float = REST, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._clock = clock
        self._lock = threading.Lock()
        self._failure: EmbeddingError | None = None
        self._until = 0.0

    @property
    def failed(self) -> bool:
        """Whether the last call failed: the next one is a trial."""
        return self._failure is not None

    @property
    def resting(self) -> bool:
        """Whether the server is left alone now."""
        return self._failure is not None and self._clock() < self._until

    def check(self) -> None:
        """Return if the server may be asked.

        Raises
        ------
        EmbeddingError
            The failure that it is resting from, of the same class.
        """
        with self._lock:
            failure, left = self._failure, self._until - self._clock()
        if failure is None or left <= 0:
            return
        raise failure.reworded(f"{failure.message}; not asked again for {left:.0f} s")

    def trip(self, failure: EmbeddingError) -> None:
        """Let the server rest."""
        with self._lock:
            self._failure, self._until = failure, self._clock() + self._rest

    def mend(self) -> None:
        """Forget the failure: the server answered."""
        with self._lock:
            self._failure = None
