"""Spelling correction: for words of a query that occur in no tier, the choice of a similar term that does occur.

A word is corrected only when none of the searched tiers contains it. Each tier returns its similar terms, then all
tiers return how often those occur. The choice is made here, by ``(edits, -document frequency, term)``: it is the same
for all tiers, so that their scores stay comparable.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kiwi_rag.lexical import find_similar, max_edits, query_terms, split_words
from kiwi_rag.model import CollectionStatistics

MAX_UNKNOWN = 4
"""Words of one query that are corrected; further unknown words stay as they are."""
MAX_OPTIONS = 1000
"""Terms that are considered for one word; those that tiers returned come first."""
_LONGEST_EDITED = 18  # letters; a longer word has more than `MAX_OPTIONS` words one edit away


def find_unknown_terms(text: str, statistics: CollectionStatistics) -> dict[str, str]:
    """Return the query's terms that may be misspelt → the letters that each was stemmed from: at most `MAX_UNKNOWN`.

    Those are terms that occur in no tier and have the shape of a word. An identifier that is unknown as a whole, while
    all its parts are known, is not corrected: its parts match.
    """
    frequency, missing = statistics.document_frequency, dict[str, str]()
    for word in split_words(text):  # the term of the whole word, and then those of its parts
        unknown = {term: letters for term, letters in word.items() if not frequency.get(term) and max_edits(letters)}
        if len(word) == 1 or unknown.keys() - {next(iter(word))}:
            missing |= unknown
    return dict(list(missing.items())[:MAX_UNKNOWN])


def collect_options(
    unknown: Mapping[str, str], similar: Iterable[Mapping[str, Sequence[str]]]
) -> dict[str, dict[str, int]]:
    """Return the possible corrections of each unknown term, with their distance in edits.

    `similar` holds the tiers' answers; the distances are computed here, because a tier's answer is not trusted. Added
    are the terms of words one edit away from the letters of the query, for an error in an ending changes the stem:
    ``deploymnet`` is far from ``deploy``, and one swap from ``deployment``.
    """
    answers = list(similar)
    return {term: _options(term, letters, [a.get(term, ()) for a in answers]) for term, letters in unknown.items()}


def distinct_options(options: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return every term whose document frequency `choose_corrections` needs."""
    return tuple(dict.fromkeys(option for found in options.values() for option in found))


def choose_corrections(options: Mapping[str, Mapping[str, int]], statistics: CollectionStatistics) -> dict[str, str]:
    """Return unknown term → its correction: fewest edits, then most frequent, then alphabetical."""
    frequency = statistics.document_frequency
    chosen = {}
    for term, found in options.items():
        occurring = [(edits, -frequency[option], option) for option, edits in found.items() if frequency.get(option)]
        if occurring:
            chosen[term] = min(occurring)[2]
    return chosen


def replace_terms(terms: Iterable[str], chosen: Mapping[str, str]) -> tuple[str, ...]:
    """Return the query's terms with the unknown ones replaced by their corrections."""
    return tuple(dict.fromkeys(chosen.get(term, term) for term in terms))


def _options(term: str, letters: str, answers: Sequence[Sequence[str]]) -> dict[str, int]:
    # A tier's answer starts with its most frequent term. Of options with equal distance, the best position counts.
    best: dict[str, int] = {}
    for answer in answers:
        for position, option in enumerate(answer):
            best[option] = min(position, best.get(option, position))
    found = {**dict.fromkeys(_terms_one_edit_away(term, letters.lower()), 1), **find_similar(term, best)}
    ranked = sorted(found, key=lambda option: (option not in best, found[option], best.get(option, 0), option))
    return {option: found[option] for option in ranked[:MAX_OPTIONS]}


def _terms_one_edit_away(term: str, letters: str) -> set[str]:
    """Return the terms of words one edit from the query's letters, without those that tiers find as similar terms."""
    if len(letters) > _LONGEST_EDITED:
        return set()
    terms = {found[0] for word in _words_one_edit_away(letters) if (found := query_terms(word))}
    return terms - find_similar(term, terms).keys() - {term}


def _words_one_edit_away(word: str) -> Iterator[str]:
    for i in range(len(word) + 1):
        head, tail = word[:i], word[i:]
        yield head + tail[1:]  # a letter deleted
        yield head + tail[1:2] + tail[:1] + tail[2:]  # two letters swapped
        for letter in string.ascii_lowercase:
            yield head + letter + tail  # inserted
            yield head + letter + tail[1:]  # replaced
