"""What a tier may answer: a store is a stranger's code over a stranger's data, and one tier must not spoil the others.

A NaN has no place in an order, a negative count no logarithm, and a score above what BM25 can give would push every
other tier's hits down.
"""

from __future__ import annotations

from datetime import datetime

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.lexical import K1, bm25_weights
from kiwi_rag.model import Candidate, Candidates, CollectionStatistics, Passage, StoreQuery

_SLACK = 1e-3
MAX_COUNT = 1 << 53
"""Larger whole numbers are none that a double holds, and no collection has as many passages."""
MAX_CANDIDATES = 20_000
"""Twice the greatest depth, and as many private passages as one owner may reasonably have."""
_WHOLLY = ": nothing of this tier is shown"


def check_statistics(told: CollectionStatistics) -> CollectionStatistics:
    """Return a tier's statistics if a collection can have them.

    Raises
    ------
    StoreCorrupt
        When a number is negative, huge or none, or a term is in more passages than there are.
    """
    frequencies = told.document_frequency.values()
    numbers = (told.passages, told.items, told.total_length, *frequencies)
    if not all(isinstance(number, int) and 0 <= number <= MAX_COUNT for number in numbers):
        raise StoreCorrupt(f"the tier's statistics hold what is no count{_WHOLLY}")
    if any(frequency > told.passages for frequency in frequencies):
        raise StoreCorrupt(f"the tier's statistics count a term in more passages than there are{_WHOLLY}")
    if told.items > told.passages or bool(told.items) != bool(told.passages):
        raise StoreCorrupt(f"the tier's statistics count {told.items} items in {told.passages} passages{_WHOLLY}")
    return told


def check_candidates(told: Candidates, question: StoreQuery) -> Candidates:
    """Return a tier's candidates if they can be an answer to `question`.

    Raises
    ------
    StoreCorrupt
        When there are far more than were asked for, a score is none that its leg can give, or a candidate does not
        have the shape of one.
    """
    if len(told.items) > MAX_CANDIDATES:
        raise StoreCorrupt(
            f"the tier gave {len(told.items)} passages where {question.depth} a leg were asked for{_WHOLLY}"
        )
    ceiling = (K1 + 1) * sum(bm25_weights(question.statistics, question.terms).values())
    for candidate in told.items:
        if not _are_scores(candidate, ceiling):
            raise StoreCorrupt(f"the tier gave {candidate.ref} a score that no passage can have{_WHOLLY}")
        if not _is_formed(candidate, candidate.passage):
            raise StoreCorrupt(f"the tier gave a malformed passage of {candidate.ref}{_WHOLLY}")
    return told


def _are_scores(candidate: Candidate, ceiling: float) -> bool:
    item = candidate.item
    cosines = (candidate.cosine, item.best, item.first, item.centroid)
    words = (candidate.bm25, item.best_words, item.words)
    ranged = all(_is_score(c, -1, 1) for c in cosines) and all(_is_score(w, 0, ceiling) for w in words)
    return ranged and candidate.cosine <= item.best + _SLACK and candidate.bm25 <= item.best_words + _SLACK


def _is_score(score: object, low: float, high: float) -> bool:
    """Whether `score` is a number of the range, with room for rounding; a NaN is in none."""
    return isinstance(score, int | float) and low - _SLACK <= score <= high + _SLACK * max(1.0, high)


def _is_formed(candidate: Candidate, passage: Passage) -> bool:
    texts = (candidate.ref.item_id, passage.text, passage.context, *passage.heading)
    numbers = (passage.ordinal, passage.start_line, passage.end_line)
    moment = candidate.signed_at
    timed = isinstance(moment, datetime) and moment.tzinfo is not None
    return timed and all(isinstance(t, str) for t in texts) and all(isinstance(n, int) and n >= 0 for n in numbers)
