"""Which terms may be a slip of the finger for which. Pure; every store uses this one, so that all tiers mean the same.

How far a term may be read from what was typed grows with its length, as Lucene's ``AUTO`` fuzziness has it, but from
one letter later on: a word of three letters has too many neighbours to be read as another. The first letter must be
right, and one half of the term whole, either its beginning or its end: that is what an index can look up, and what
keeps the cost of a slip bounded. A slip that swaps the two letters in the middle breaks both halves and is looked up as
it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MAX_TERMS = 8
"""Terms that a store is asked about at once."""
MAX_CANDIDATES = 1000
"""Terms of each half that a store looks at, the most frequent first."""


def max_edits(term: str) -> int:
    """Return how many edits a term may be away: 0 below 4 letters or with a digit, 1 below 6, else 2.

    One digit more or less is another version, another error code, another host: never a slip.
    """
    if len(term) < 4 or not term.replace("_", "").isalpha():
        return 0
    return 1 if len(term) < 6 else 2


def halves(term: str) -> tuple[str, str]:
    """Return the beginning and the end of `term`, together all of it."""
    middle = (len(term) + 1) // 2
    return term[:middle], term[middle:]


def swapped(term: str) -> str:
    """Return `term` with the two letters beside its middle swapped."""
    middle = (len(term) + 1) // 2
    return term[: middle - 1] + term[middle : middle + 1] + term[middle - 1 : middle] + term[middle + 1 :]


def near(term: str, vocabulary: Iterable[str]) -> Mapping[str, int]:
    """Return those of `vocabulary` that `term` may be a slip for, with their distance, which is never 0.

    The distance is optimal string alignment: letters that are missing, too many, wrong, or swapped with the next.
    """
    most, (begin, end), middle = max_edits(term), halves(term), swapped(term)
    alike = [
        other
        for other in vocabulary
        if other[:1] == term[:1] and (other.startswith(begin) or other.endswith(end) or other == middle)
    ]
    if not alike:
        return {}  # without the library's import, which takes longer than most searches
    from rapidfuzz.distance import OSA

    found = {other: OSA.distance(term, other, score_cutoff=most) for other in alike}
    return {other: edits for other, edits in found.items() if 0 < edits <= most}
