"""Spelling correction: for words of a query that occur in no tier, the choice of a similar term that does occur.

A word is corrected only when none of the searched tiers contains it, and it is no English word: an English word that
does not occur is what its user meant. Each tier returns its similar terms, then all tiers return how often those occur.
The choice is made here, by ``(edits, -document frequency, term)``: it is the same for all tiers, so that their scores
stay comparable.

``english.txt`` holds the stems of the words that are whole in the vocabulary of BERT (bert-base-uncased, Apache-2.0),
which are the 20,000 most frequent ones of at least four letters.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from kiwi_rag.lexical import find_matches, find_similar, max_edits, query_terms, split_words
from kiwi_rag.model import CollectionStatistics

MAX_UNKNOWN = 4
"""Words of one query that are corrected; further unknown words stay as they are."""
MAX_OPTIONS = 1000
"""Terms that are considered for one word; those that tiers returned come first."""
_LONGEST_EDITED = 18  # letters; a longer word has more than `MAX_OPTIONS` words one edit away


def find_unknown_terms(text: str, statistics: CollectionStatistics) -> dict[str, str]:
    """Return the query's terms that may be misspelt → the letters that each was stemmed from: at most `MAX_UNKNOWN`.

    Those are terms that occur in no tier, have the shape of a word and are not of an English one. An identifier that is
    unknown as a whole, while all its parts are known, is not corrected: its parts match.
    """
    frequency, missing = statistics.document_frequency, dict[str, str]()
    for word in split_words(text):  # the term of the whole word, and then those of its parts
        rare = {term: letters for term, letters in word.items() if not frequency.get(term) and max_edits(letters)}
        unknown = {term: letters for term, letters in rare.items() if term not in _english_terms()}
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


def choose_corrections(options: Mapping[str, Mapping[str, int]], statistics: CollectionStatistics) -> dict[str, str]:
    """Return unknown term → its correction: fewest edits, then most frequent, then alphabetical.

    A term two edits away must occur twice: one that occurs once is not likelier than the word as it was written.
    """
    frequency = statistics.document_frequency
    chosen = {}
    for term, found in options.items():
        occurring = [(n, -frequency[option], option) for option, n in found.items() if frequency.get(option, 0) >= n]
        if occurring:
            chosen[term] = min(occurring)[2]
    return chosen


def replace_terms(terms: Iterable[str], chosen: Mapping[str, str]) -> tuple[str, ...]:
    """Return the query's terms with the unknown ones replaced by their corrections."""
    return tuple(dict.fromkeys(chosen.get(term, term) for term in terms))


def spell_out(chosen: Mapping[str, str], texts: Iterable[str]) -> dict[str, str]:
    """Return misspelt word → the word of `texts`, the passages that were found, that has the term chosen for it.

    Of several it is the most similar one, then the most frequent one. Where no text has one, the term stands for it,
    with a mark that it is the beginning of a word.
    """
    words = {term: Counter[str]() for term in chosen.values()}
    for text in texts if words else ():
        for term, begin, end in find_matches(text, words.keys()):
            words[term][text[begin:end].lower()] += 1
    return {word: _most_similar(word.lower(), words[term]) or f"{term}…" for word, term in chosen.items()}


def _most_similar(word: str, counts: Counter[str]) -> str:
    if not counts:
        return ""
    from rapidfuzz.distance import OSA

    return min(counts, key=lambda other: (OSA.distance(word, other), -counts[other], other))


@lru_cache(maxsize=1)
def _english_terms() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("english.txt").read_text(encoding="ascii").split())


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
