"""The text of a passage that the embedding model gets, its context included, and an estimate of its word pieces.

Measured with all-MiniLM-L6-v2. Of prose, markup is noise. Of code and specifications markup is half of the meaning
(``List<Reservation>``), but names written together are lost on a model of sentences: telling their words apart
raised the mean reciprocal rank of 300 JDK methods, asked for by their first sentence of Javadoc, from 0.68 to 0.72,
and of 300 OpenAPI operations, asked for by their summary, from 0.72 to 0.77. The context keeps its names as they are
written, so that a question that is such a name finds them, too.

The estimate needs no tokenizer. Checked against the uncased BERT vocabulary of that model, on 223 Markdown files and
on Java, YAML, JSON, Python and JavaScript: of prose it is 0.93 of the true count at the median and 0.79 at the first
percentile, of everything else 0.96 to 1.08 and 0.83 to 0.91.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from kiwi_rag.model import Item, Passage

PROSE_KINDS = frozenset({
    *("", "section", "front-matter", "context", "drivers", "options", "decision", "consequences", "turn")
})  # fmt: skip
MAX_CONTEXT = 200
"""Characters of a passage's context."""
_MAX_PART = 80
_PART_TOKENS = 40
_JOINT = " > "
_SEPARATORS = re.compile(r"[/_.\-]+")
_NAMED_TAG = re.compile(r"<\w[^<>]*?\sname=\"([^\"<>]+)\"[^<>]*>")
_TAG = re.compile(r"</?[A-Za-z][\w:-]*(?:\s[^<>]*)?/?>")
_RULE = re.compile(r"[-:|=][-:|= \t]{2,}[-:|=]")
_MARK = re.compile(r"```\w*|[`*#|]+")
_SPACES = re.compile(r"[^\S\n]+")
_COMMENT_MARK = re.compile(r"^[^\S\n]*(?:/\*+|\*+/|\*(?=\s|$))", re.MULTILINE)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def embedded_text(passage: Passage) -> str:
    """Return what the model sees of a passage: its context and its text, the latter made readable.

    Of items and of prose in documents, markup is left out; of everything else in documents the marks of comments
    are, and the words of names are told apart. The words leg sees the text as it stands.
    """
    readable = _without_markup if passage.kind in PROSE_KINDS else _words_apart
    return f"{passage.context}\n{readable(passage.text)}" if passage.context else readable(passage.text)


def _without_markup(text: str) -> str:
    named = _NAMED_TAG.sub(lambda tag: f" {_SEPARATORS.sub(' ', tag[1])}: ", text)
    bare = _MARK.sub(" ", _RULE.sub(" ", _TAG.sub(" ", named)))
    return _SPACES.sub(" ", bare).strip() or text


def _words_apart(text: str) -> str:
    names = _WORD_START.sub(" ", _COMMENT_MARK.sub(" ", text)).replace("_", " ")
    return _SPACES.sub(" ", names).strip() or text


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate by a regular expression of what counts as a `piece`; the signs between pieces do not count."""

    piece: re.Pattern[str]

    def count(self, text: str) -> int:
        """Return about how many word pieces `text` has."""
        return len(self.piece.findall(text))

    def reach(self, text: str, start: int, end: int, tokens: int) -> int:
        """Return the last offset from `start` to `end` up to which `text` has no more than `tokens`, at least 1."""
        end = min(end, len(text))
        following = next(islice(self.piece.finditer(text, start, end), tokens, None), None)
        return following.start() if following else end


prose = Estimate(
    re.compile(r"[A-Za-z]{5}(?=[A-Za-z]{5})|[A-Za-z]+|[0-9]{1,3}|(?<![-:|=])[-:=](?![-:|=])|[^\sA-Za-z0-9`*#|:=-]")
)
code = Estimate(
    re.compile(r"[A-Z]?[a-z]{4}(?=[a-z]{5})|[A-Z]?[a-z]+|[A-Z]{1,3}(?![a-z])|[A-Z]|[0-9]{1,2}|[^\sA-Za-z0-9_]")
)


def estimate_of(kind: str) -> Estimate:
    """Return the estimate for a passage or a section of this kind, by what the model sees of one."""
    return prose if kind in PROSE_KINDS else code


def estimate_tokens(text: str, kind: str = "text") -> int:
    """Return about how many word pieces an English BERT vocabulary makes of a text of this kind.

    Of prose, markup does not count, for the model does not see it; of everything else all signs do.
    """
    return estimate_of(kind).count(text)


def item_context(item: Item, heading: tuple[str, ...]) -> str:
    """Return the words of the id, the title where they do not say it already, and the headings."""
    title, words = item.title, _SEPARATORS.sub(" ", item.ref.item_id)
    said = _SEPARATORS.sub(" ", title).lower() in words.lower()
    path = [words, *([] if said else [title]), *(h for h in heading if h != title)]
    return _JOINT.join(part[:_MAX_PART] for part in path)[:MAX_CONTEXT]


@lru_cache(maxsize=1_024)
def document_context(title: str, heading: tuple[str, ...], service: str) -> str:
    """Return service, title and headings, none of them twice, in at most ``MAX_CONTEXT`` characters."""
    parts = [_short(part) for part in heading if part]
    for outer in (_short(title), _short(service)):
        if outer and not any(outer.lower() in part.lower() for part in parts):
            parts.insert(0, outer)
    while len(parts) > 2 and _is_long(_JOINT.join(parts)):
        del parts[-2]
    return _JOINT.join(parts)


def _is_long(context: str) -> bool:
    return len(context) > MAX_CONTEXT or estimate_tokens(context) > 2 * _PART_TOKENS


def _short(words: str) -> str:
    """Return the beginning of a title, a heading or a service, on one line."""
    words = " ".join(words.split())
    return words[: code.reach(words, 0, _MAX_PART, _PART_TOKENS)].strip()
