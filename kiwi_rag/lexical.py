"""The lexical leg: text → terms, BM25 over terms, and which terms are similar enough for a correction. Pure.

Terms are lower-cased Snowball-English stems. An identifier is indexed whole and by its parts, so that a query finds
``deploy_staging``, ``getUserById`` and ``svc-check-in`` by either. Every store uses this module, and the registry
stores the terms that it made, so a query means the same in every tier.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache
from typing import Any

from kiwi_rag.model import CollectionStatistics

# Okapi BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, §3.2) with the
# constants that Lucene uses: k1 controls the saturation by repeated terms, b the normalisation by length.
K1 = 1.2
B = 0.75

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_FUNCTION_WORDS = """
a an and are as at be been but by can could did do does for from had has have how i if in into is it its me my
no not of on or our should so some than that the their them then there these they this those to was we were
what when where which while who why will with would you your
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
MAX_TERM_LENGTH = 64

SYMBOL = "·"
"""What the terms of symbols (`kiwi_rag.symbols`) begin with; no ordinary term contains it."""

MAX_TERMS = 8
"""Terms that one request to a store for similar terms may have."""
MAX_CANDIDATES = 1000
"""Terms with the same first half, and with the same second half, that a store compares: the most frequent ones."""


def terms(text: str) -> list[str]:
    """Return the terms of `text` in order, with repetitions and without stop words."""
    return [term for word in _WORD.findall(text) for term in _terms_of(word)]


def query_terms(text: str) -> tuple[str, ...]:
    """Return the distinct terms of a query, in the order they first occur."""
    return tuple(dict.fromkeys(terms(text)))


def split_words(text: str) -> list[dict[str, str]]:
    """Return for each word of a query its terms → the letters that each was stemmed from, the whole word first."""
    words = ({term: piece for piece in _pieces(word) if (term := _term(piece))} for word in _WORD.findall(text))
    return [word for word in words if word]


def find_matches(text: str, wanted: Set[str]) -> Iterator[tuple[str, int, int]]:
    """Yield each of the terms `wanted` in `text`, with the place of its word, or of its part of an identifier."""
    for word in _WORD.finditer(text) if wanted else ():
        if (whole := _term(word[0])) in wanted:
            yield whole, *word.span()
            continue
        begin = word.start()
        for piece in list(_pieces(word[0]))[1:]:
            begin = text.index(piece, begin)
            if (term := _term(piece)) in wanted:
                yield term, begin, begin + len(piece)
            begin += len(piece)


def term_frequencies(text: str) -> Counter[str]:
    """Return how often each term occurs in `text`."""
    return Counter(terms(text))


def bm25_weights(statistics: CollectionStatistics, query: Iterable[str]) -> dict[str, float]:
    """Return the inverse document frequency of each query term that occurs at all.

    ``ln(1 + (N - df + 0.5) / (df + 0.5))`` is Lucene's variant (``BM25Similarity``). Without the 1 it would be negative
    for a term that is in more than half of the passages. A symbol has the weight of all words of the query in
    addition, so that passages which define it are among the best however often others repeat the words.
    """
    count = statistics.passages
    frequency = {t: statistics.document_frequency.get(t, 0) for t in query}
    weights = {t: math.log1p((count - df + 0.5) / (df + 0.5)) for t, df in frequency.items() if df > 0}
    words = sum(weight for t, weight in weights.items() if not t.startswith(SYMBOL))
    return {t: weight + words * t.startswith(SYMBOL) for t, weight in weights.items()}


def max_term_score(statistics: CollectionStatistics) -> float:
    """Return the upper bound of one term's BM25: the term occurs in a single passage (df = 1), infinitely often.

    For tf → ∞ the factor tf · (k1 + 1) / (tf + norm) approaches k1 + 1.
    """
    return (K1 + 1) * math.log1p((max(statistics.passages, 1) - 0.5) / 1.5)


def bm25(frequencies: Mapping[str, int], length: int, weights: Mapping[str, float], average_length: float) -> float:
    """Score one passage: Σ idf · tf · (k1 + 1) / (tf + k1 · (1 - b + b · length / average_length))."""
    norm = K1 * (1 - B + B * length / average_length)
    return sum(
        weight * tf * (K1 + 1) / (tf + norm) for term, weight in weights.items() if (tf := frequencies.get(term, 0))
    )


@lru_cache(maxsize=8_192)
def _terms_of(word: str) -> tuple[str, ...]:
    return tuple(term for piece in _pieces(word) if (term := _term(piece)))


def _pieces(word: str) -> Iterator[str]:
    yield word
    parts = _PART.findall(word) if word.isascii() else word.split("_")
    if len(parts) > 1:
        yield from parts


@lru_cache(maxsize=8_192)
def _term(word: str) -> str:
    lowered = word.lower().strip("_")[:MAX_TERM_LENGTH]
    return "" if lowered in _STOP_WORDS else _stemmer().stemWord(lowered)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english", 0)


def max_edits(term: str) -> int:
    """Return how many edits are allowed for a term: 0 below 4 letters or with a digit, 1 below 6, else 2.

    A different digit means another version, error code or host, and is no misspelling.
    """
    if len(term) < 4 or not term.replace("_", "").isalpha():
        return 0
    return 1 if len(term) < 6 else 2


def split_halves(term: str) -> tuple[str, str]:
    """Return the first and the second half of `term`; the first is the longer one."""
    middle = (len(term) + 1) // 2
    return term[:middle], term[middle:]


def swap_middle(term: str) -> str:
    """Return `term` with the letters on both sides of its middle swapped."""
    middle = (len(term) + 1) // 2
    return term[: middle - 1] + term[middle : middle + 1] + term[middle - 1 : middle] + term[middle + 1 :]


def find_similar(term: str, vocabulary: Iterable[str]) -> Mapping[str, int]:
    """Return those of `vocabulary` that `term` may be a misspelling of, with their distance, which is never 0.

    The distance is optimal string alignment: letters that are missing, too many, wrong, or swapped with the next.
    """
    most, (begin, end), middle = max_edits(term), split_halves(term), swap_middle(term)
    # Only terms that share one half are compared, so that stores can find them by an index. One edit always leaves one
    # half intact, but for a swap across the middle. Two edits in different halves are not found.
    candidates = [
        other
        for other in vocabulary
        if other[:1] == term[:1] and (other.startswith(begin) or other.endswith(end) or other == middle)
    ]
    if not candidates:
        return {}  # before the import, which takes longer than most searches
    from rapidfuzz.distance import OSA

    found = {other: OSA.distance(term, other, score_cutoff=most) for other in candidates}
    return {other: edits for other, edits in found.items() if 0 < edits <= most}
