"""Words of a query that are nowhere: which words of the tiers' vocabularies they may be slips for, and which it is.

A word counts as a slip only when no asked tier holds it. Each tier is asked for its similar terms, all tiers together
how often those occur, and the choice is made here by ``(edits, -document frequency, term)``: one choice for all tiers,
so that their ranking stays one.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kiwi_rag.lexical import max_edits, near, query_terms, typed_words
from kiwi_rag.model import CollectionStatistics

MAX_UNKNOWN = 4
"""Words of one query that are read as others; more unknown ones stay unknown."""
MAX_OPTIONS = 1000
"""Terms that are considered for one word, those that the tiers told first."""
_LONGEST_RETYPED = 18  # letters; longer ones have more than `MAX_OPTIONS` words one edit away


def unknown_terms(text: str, statistics: CollectionStatistics) -> dict[str, str]:
    """Return the query's terms that may be slips, each with the letters it was made of: at most `MAX_UNKNOWN`.

    Those are terms that occur nowhere and have the shape of a word. An identifier that is unknown as a whole, with
    parts that are all known, is no slip: its parts find what there is.
    """
    missing: dict[str, str] = {}
    for word in typed_words(text):
        slips = {t: typed for t, typed in word.items() if not statistics.document_frequency.get(t) and max_edits(typed)}
        whole = next(iter(word))
        if len(word) == 1 or any(term != whole for term in slips):
            missing |= slips
    return dict(list(missing.items())[:MAX_UNKNOWN])


def options(unknown: Mapping[str, str], similar: Iterable[Mapping[str, Sequence[str]]]) -> dict[str, dict[str, int]]:
    """Return what each unknown term may be read as, with the edits that takes.

    `similar` is what the tiers answered. A tier's word for it is not enough: the distance is taken here again. To that
    come the terms of words one edit away from what was typed, where a slip in an ending hid the word's stem:
    ``deploymnet`` is far from ``deploy``, and one swap from ``deployment``.
    """
    told = list(similar)
    return {term: _options(term, typed, [t.get(term, ()) for t in told]) for term, typed in unknown.items()}


def asked_for(options: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return every term whose document frequency the choice needs."""
    return tuple(dict.fromkeys(option for found in options.values() for option in found))


def choose(options: Mapping[str, Mapping[str, int]], statistics: CollectionStatistics) -> dict[str, str]:
    """Return unknown term → the term to read in its place: fewest edits, then most frequent, then by letters."""
    frequency = statistics.document_frequency
    chosen = {}
    for term, found in options.items():
        there = [(edits, -frequency[option], option) for option, edits in found.items() if frequency.get(option)]
        if there:
            chosen[term] = min(there)[2]
    return chosen


def reread(terms: Iterable[str], chosen: Mapping[str, str]) -> tuple[str, ...]:
    """Return the query's terms with the chosen ones in place of the unknown."""
    return tuple(dict.fromkeys(chosen.get(term, term) for term in terms))


def _options(term: str, typed: str, told: Sequence[Sequence[str]]) -> dict[str, int]:
    # Each tier tells the most frequent first: of equal distance, what comes first anywhere goes first.
    place: dict[str, int] = {}
    for vocabulary in told:
        for position, option in enumerate(vocabulary):
            place[option] = min(position, place.get(option, position))
    found = {**dict.fromkeys(_retyped(term, typed.lower()), 1), **near(term, place)}
    ranked = sorted(found, key=lambda option: (option not in place, found[option], place.get(option, 0), option))
    return {option: found[option] for option in ranked[:MAX_OPTIONS]}


def _retyped(term: str, typed: str) -> set[str]:
    """Return the terms of words one edit from what was typed, but those near the term itself: tiers tell of them."""
    if len(typed) > _LONGEST_RETYPED:
        return set()
    terms = {found[0] for word in _one_edit_away(typed) if (found := query_terms(word))}
    return terms - near(term, terms).keys() - {term}


def _one_edit_away(word: str) -> Iterator[str]:
    for i in range(len(word) + 1):
        head, tail = word[:i], word[i:]
        yield head + tail[1:]
        yield head + tail[1:2] + tail[:1] + tail[2:]
        for letter in string.ascii_lowercase:
            yield head + letter + tail
            yield head + letter + tail[1:]
