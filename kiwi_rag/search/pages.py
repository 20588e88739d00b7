"""The pages of documentation: what kind of page one is, and how well its title and headings name what is asked for.

All of it follows from the path, the title and the headings of a candidate, which every store returns. It is of prose
alone: the kind of code and of specifications is their file type.

Release notes and announcements mention everything once, in the words that a question has. A question is answered by the
page that explains its subject, so such pages lose a little of their score, unless changes are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from kiwi_rag.lexical import bm25_weights, terms
from kiwi_rag.model import Candidate, CollectionStatistics

PROSE_TYPES = frozenset({"markdown", "rst", "html", "asciidoc", "notebook", "text"})
CHANGES_SHARE = 0.06
"""What a page about changes loses where none are asked for, and what one about the version that is asked for wins."""
ABOUT_SHARE = 0.03
"""What a page loses that only lists others, or is about the project and not about what it makes."""
PATH_SHARE = 0.05
"""What is added to the score of a file whose path contains all words of the query."""
HEADINGS_SHARE = 0.05
"""What is added for a passage whose title and headings together have the words of the query and no others."""

_NAMES: Mapping[str, str] = {
    "migration": r"(.* )?(migrat(e|ing|ion)|upgrad(e|ing)|porting|deprecat(ed|ions?))"
    r"( (guides?|notes?|from|to|v?\d).*)?",
    "release": r"((prev(ious)?|api|breaking) )*(change ?log|changes|history|releases?( notes?)?|what ?s ?new|news)"
    r"( v?\d.*)?",
    "announcement": r"announce(ments?)?|blogs?|posts?|\d{4} \d\d \d\d .*",
    "about": r"contribut\w*|governance|licen[cs]es?|authors?|credits|sponsors?|code of conduct|internals?"
    r"|proposals?|drafts?|attic",
    "index": r"index|readme|contents|toc|genindex.*|(py )?modindex|summary|sitemap",
}
"""Kind → names of such files and folders, in lower case and with a space between words; the first that matches."""
_KINDS = [(kind, re.compile(names)) for kind, names in _NAMES.items()]
_FOLDERS = frozenset({"migration", "release", "announcement", "about"})
"""The kinds that a folder gives to its pages."""
_RELEASE_NAME = re.compile(r"((release|version)[ -]?)?v?\d+(\.(\d+|x))+\w{0,9}([ -]notes)?", re.IGNORECASE)
"""Of a file, and not of a folder, which may have the whole documentation of that version."""
_RELEASE_TITLE = re.compile(r"\bwhat.?s new\b|\brelease (notes?|history)\b|\bchange ?log\b", re.IGNORECASE)
_RELEASE_HEADING = re.compile(r"(\w+ )?\[?v?\d+(\.\d+)+\w{0,9}\]?( ?[-–(].*)?|\[?\d{4}-\d\d-\d\d\b.*")
_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)*)(?!\.?\w)", re.IGNORECASE)
_CHANGES = re.compile(
    r"\bchange ?logs?\b|\brelease notes?\b|\bbreaking\b|\bannounc|\bwhat('?s| is| was| has| have)?( been)? "
    r"(new|changed|added|removed|deprecated)\b|\b(new|chang\w+|added|removed|deprecat\w+|differ\w+|releases?)\b.{0,80}\d"
    r"|\d.{0,40}\b(new features?|chang(es|ed)|released?|removals?)\b",
    re.IGNORECASE,
)
_MIGRATION = re.compile(r"\b(migrat|upgrad|porting|deprecat|breaking|removed|removals?)\w*", re.IGNORECASE)


@lru_cache(maxsize=8192)  # a search meets the same pages again and again
def page_kind(path: str, title: str) -> str:
    """Return the kind of a page, one of `_NAMES`, by its file, its folders and its title; empty for any other."""
    *folders, name = PurePosixPath(path).parts
    stem, above = PurePosixPath(name).stem, [kind for kind in map(_kind_of, folders) if kind in _FOLDERS]
    own = "release" if _RELEASE_NAME.fullmatch(stem) else _kind_of(stem)
    if "announcement" in above:
        return "announcement"
    kind = next((kind for kind in (own, *reversed(above)) if kind and kind != "index"), "")
    return kind or ("release" if _RELEASE_TITLE.search(title) else own)


def _kind_of(name: str) -> str:
    words = re.sub(r"[\s_.'-]+", " ", name.lower())
    words = words if re.match(r"\d{4} \d\d \d\d ", words) else re.sub(r"^\d\d? (?=[a-z])", "", words)
    return next((kind for kind, names in _KINDS if names.fullmatch(words)), "")


@lru_cache(maxsize=32768)
def _words(text: str) -> frozenset[str]:
    return frozenset(terms(text))


def _versions(text: str) -> frozenset[str]:
    """Return the versions in a text, without zeros at the end: 8.0 and 8.0.0 are the same."""
    return frozenset(re.sub(r"(\.0)+$", "", version) for version in _VERSION.findall(text.replace("_", " ")))


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What a query says about the page that answers it: its words, what changes it asks for, and of which versions.

    ``weights`` are the inverse document frequencies of those words that the collection has, ``whole`` their sum.
    """

    words: frozenset[str]
    weights: Mapping[str, float]
    whole: float
    changes: bool
    migration: bool
    versions: frozenset[str]

    def parts(self, candidate: Candidate) -> dict[str, float]:
        """Return what a candidate's path and, of prose, its headings and the kind of its page add to its score."""
        path, title = candidate.ref.item_id, str(candidate.metadata.get("title", ""))
        share = PATH_SHARE * len(self.words & _words(path)) / max(len(self.words), 1)
        if candidate.metadata.get("file_type") not in PROSE_TYPES:
            return {"path": share, "headings": 0.0, "page": 0.0}
        headings, kind, shift = " ".join(candidate.passage.heading), page_kind(path, title), 0.0
        if kind in ("", "index") and any(map(_RELEASE_HEADING.fullmatch, candidate.passage.heading)):
            kind = "release"
        if kind in ("about", "index"):
            shift = -ABOUT_SHARE * (1 - self._likeness(_words(title)))
        elif kind:
            shift = CHANGES_SHARE * self._wanted(kind, PurePosixPath(path).stem, f"{title} {headings}")
        likeness = self._likeness(_words(title) | _words(headings))
        return {"path": share, "headings": HEADINGS_SHARE * likeness, "page": shift}

    def _likeness(self, words: frozenset[str]) -> float:
        """Return the Dice coefficient of the query's words and others, by weight; others have the mean weight."""
        common = self.weights.keys() & words
        if not common:
            return 0.0
        known = sum(self.weights[word] for word in common)
        others = (len(words) - len(common)) * self.whole / len(self.weights)
        return 2 * known / (self.whole + known + others)

    def _wanted(self, kind: str, name: str, text: str) -> int:
        """Return whether a page about changes is asked for: 1, or -1 if not; 0 for one of no or a similar version.

        Its file's `name` and its `text` may name versions.
        """
        if not (self.changes or self.migration):
            return 0 if _words(name) <= self.words else -1  # "browser history" may ask for a page of that name
        if kind == "release" and not self.changes:
            return 0
        if not self.versions:
            return int(kind != "announcement")
        versions, series = _versions(f"{name} {text}"), tuple(f"{version}." for version in self.versions)
        if versions & self.versions:
            return 1
        return 0 if not versions or any(version.startswith(series) for version in versions) else -1


def parse_page_query(text: str, statistics: CollectionStatistics) -> PageQuery:
    """Return what a query says about pages. Of "from 1.4 to 2.0" the second version is asked for."""
    words, changes, migration = _words(text), bool(_CHANGES.search(text)), bool(_MIGRATION.search(text))
    target, weights = re.split(r"\bto\b|->|→", text)[-1], bm25_weights(statistics, words)
    versions = (_versions(target) or _versions(text)) if changes or migration else frozenset[str]()
    return PageQuery(words, weights, sum(weights.values()), changes, migration, versions)
