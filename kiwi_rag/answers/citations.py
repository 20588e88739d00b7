"""The check of an answer against the numbered passages that it cites: pure, sentence by sentence.

The model is not believed. A sentence is shown with these marks:

- ``wrong-number``: it cites a passage that does not exist; the number is taken out.
- ``quote-not-found``: it quotes words (in quotation marks, as a block quote, or as code of several words or of
  `CODE_CHARACTERS`) that do not stand in the cited passages, compared without regard to white space.
- ``unsupported``: it cites nothing.
- ``weak``: fewer than `SUPPORT` of its content words occur in the passages that it cites. Content words are the
  distinct terms of the search by words: stems, without stop words; of an identifier also its parts.

Block quotes and fenced code that cite nothing belong to the passages of the sentence before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kiwi_rag.lexical import query_terms
from kiwi_rag.render import safe

NOT_FOUND = "Not in these sources."
SUPPORT = 0.5
CODE_CHARACTERS = 12
_NUMBERS = r"\d+(?:\s*[,;–-]\s*\d+)*"
_CITATION = rf"[\[【](?:\^|passages?\s|sources?\s)?\s*({_NUMBERS})\s*(?:†[^\]】]*)?[\]】]"
# A citation, also one alone in backticks; else code, in which brackets are no citations.
_TICKS = "(?<!`)(?P<ticks>`{1,3})(?!`)"
_CITED = re.compile(rf"(?P<gap>[ ]?)`?{_CITATION}`?|(?P<code>{_TICKS}.+?(?P=ticks)(?!`))", re.IGNORECASE | re.DOTALL)
# A small letter goes on with the sentence, as after an abbreviation; a citation belongs to what is before it.
_END = re.compile(rf"[.!?…][\"”»’'*_)\]]*(?:\s*{_CITATION}[.]?)*(?=\s+[^\s\[【a-z])|\n(?=[^\S\n]*[^\s\[【])")
# What begins one of these and does not end it quotes the rest.
_QUOTES = re.compile(
    r"“([^”]*)”?|«([^»]*)»?|„([^“”]*)[“”]?|\"([^\"]*)\"?|^[\s>*-]*>\s?(.+)"
    r"|‘((?:[^’]|’(?=\w))*)’?|(?<!\w)'((?:[^']|'(?=\w))*)'(?!\w)|”([^”]+)”|‹([^›]*)›?|「([^」]*)」?|『([^』]*)』?"
    r"|＂([^＂]*)＂?|&quot;(.*?)&quot;|(?i:<(?:q|blockquote)\b[^>]*>)(.*?)</"
)
_CODE = re.compile(rf"{_TICKS}(.+?)(?:(?P=ticks)(?!`)|$)", re.DOTALL)
_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)
_FENCE_LINE = re.compile(r"^\s*(```+|~~~+)[\w+-]*\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as it is shown: its citations all exist; ``missing`` are the quotations that were not found."""

    text: str
    citations: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def split_sentences(text: str) -> tuple[list[str], str]:
    """Return the sentences that are complete, whatever follows, and the rest.

    A line ends a sentence, except within fenced code, which is one sentence. A full stop does not within a quotation,
    so that it is checked as a whole.
    """
    found, begin = list[str](), 0
    for end in _END.finditer(text):
        part = text[begin : end.end()]
        if len(_FENCE.findall(part)) % 2 or (not part.endswith("\n") and _continues(part)):
            continue
        found += [part] if part.strip() else []
        begin = end.end()
    return found, text[begin:]


def _continues(part: str) -> bool:
    """Whether a full stop is within a quotation, or behind the number of a list."""
    in_quote = part.count('"') % 2 or part.count("“") > part.count("”") or part.count("«") > part.count("»")
    return bool(in_quote) or part.lstrip().startswith(">") or not re.search(r"[^\W\d_]", part)


class CitationCheck:
    """Checks one answer's sentences, in order, against the passages, which count from 1."""

    def __init__(self, passages: Sequence[str]) -> None:
        self._passages = [_normal(passage) for passage in passages]
        self._terms = [frozenset(query_terms(passage)) for passage in passages]
        self._before: tuple[int, ...] = ()

    def check(self, sentence: str) -> Sentence:
        """Return the sentence as it may be shown; control characters and terminal escapes are replaced."""
        cited = list[int]()

        def cite(found: re.Match[str]) -> str:
            if found["code"]:
                return found[0]
            numbers = self._numbers(found[2])
            cited.extend(numbers)
            shown = "".join(f"[{number}]" for number in numbers if number)
            return found["gap"] * bool(shown) + shown

        text = safe(sentence.strip() if _FENCE.match(sentence) else _CITED.sub(cite, sentence.strip()))
        is_quote = text.startswith((">", "```", "~~~"))
        own = tuple(dict.fromkeys(filter(None, cited)))
        self._before = citations = own or (self._before if is_quote else ())
        sources = [self._passages[number - 1] for number in citations]
        missing = tuple(quote for quote in quotations(text) if not any(_normal(quote) in one for one in sources))
        marks = {"wrong-number": 0 in cited, "quote-not-found": missing, **self._support(text, citations)}
        return Sentence(text, citations, tuple(name for name, is_set in marks.items() if is_set), missing)

    def _numbers(self, text: str) -> list[int]:
        """Return the numbers of a citation, with 0 for what does not exist."""
        numbers = list[int]()
        for part in re.split(r"\s*[,;]\s*", text):
            ends = [int(end) if len(end) < 6 else 0 for end in re.split(r"\s*[–-]\s*", part)]
            exist = all(1 <= end <= len(self._passages) for end in ends)
            numbers += range(min(ends), max(ends) + 1) if exist else (0,)
        return numbers

    def _support(self, text: str, citations: Sequence[int]) -> dict[str, bool]:
        terms = query_terms(re.sub(_CITATION, "", text))
        if not terms or is_not_found(text):
            return {}
        known = frozenset[str]().union(*(self._terms[number - 1] for number in citations))
        weak = bool(citations) and len(known.intersection(terms)) < SUPPORT * len(terms)
        return {"unsupported": not citations, "weak": weak}


def quotations(text: str) -> Iterator[str]:
    """Yield what a sentence says that its source says, word by word."""
    if _FENCE.match(text):
        yield _FENCE_LINE.sub("", text)
        return
    for _, code in _CODE.findall(text):
        if " " in code.strip() or len(code) >= CODE_CHARACTERS:
            yield code
    bare = _CITED.sub(lambda found: found["code"] or "", text)
    yield from (quote.strip() for groups in _QUOTES.findall(bare) for quote in groups if re.search(r"\w", quote))


def is_not_found(text: str) -> bool:
    """Whether a sentence says that the sources do not have the answer."""
    return query_terms(text) == query_terms(NOT_FOUND)


def _normal(text: str) -> str:
    return " ".join(text.split())
