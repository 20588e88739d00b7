"""What the rendered page of a Markdown or HTML file does not show: where it stands, and what it says.

The blocks are read by `kiwi_rag.formats.markdown`, the HTML by `kiwi_rag.formats.elements`, the CSS by
`kiwi_rag.formats.css`. Every scan is linear in the length of the text, because the text may be hostile.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kiwi_rag.formats import elements, markdown
from kiwi_rag.formats.css import Effect, StyleSheet
from kiwi_rag.formats.elements import HtmlToken
from kiwi_rag.formats.outcome import line_starts
from kiwi_rag.validation.instructions import PROSE, SENTENCE, WORD

# CommonMark §6: what opens first of escapes, code spans, tags, links, comments and other raw HTML.
_TAG = r"<(?P<close>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*+)(?P<attributes>(?:\s++[A-Za-z_:@][\w.:-]*+" + (
    r"(?:\s*+=\s*+(?:[^\s\"'=<>`]++|'[^']*+'|\"[^\"]*+\"))?)*+\s*+/?)>"
)
_INLINE = re.compile(
    rf"\\[!-/:-@\[-`{{-~]|(?P<ticks>`++)|{_TAG}|<[A-Za-z][\w+.-]{{1,31}}:[^<>\s]*+>"
    r"|(?P<raw><!--|<\?|<!\[CDATA\[|<![A-Za-z]|\{[ \t]*/\*)"
)
_CLOSING = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>", "{": "*/}"}
# An element that ends where another of these begins.
_ENDED = {"li": "li", "dt": "dt dd", "dd": "dt dd", "td": "td th", "th": "td th", "tr": "tr td th", "option": "option"}
_ENDED |= dict.fromkeys(("p", "div", "ul", "ol", "table", "pre", "blockquote", "h1", "h2", "h3", "section"), "p")
# Attributes that hold no text.
_TEXTLESS = frozenset({"id", "d", "src", "srcset", "points", "viewbox", "integrity"})
_TICKS = re.compile(r"`+")
_REFERENCE = re.compile(r"\]\[([^\[\]]++)\]")
_LABEL = re.compile(r"\[([^\[\]]{1,200})\](?!:)")
_FOOTNOTE = re.compile(r"^[ \t]*+\[(\^[^\]\s]{1,1000})\]:", re.MULTILINE)
_FOOTNOTE_BODY = re.compile(
    r"[^\n]*+(?:\n(?![ \t>]*+(?:\n|\[\^))[^\n]++)*+(?:(?:\n[ \t>]*+(?=\n))++\n(?:> ?)*+(?: {4}|\t)[^\n]++)*+"
)
_LARGE_DEFINITION = re.compile(
    r"^[ \t>]*+\[([^\]\n]{1,200})\]:[^\n]*+(?:\n(?![ \t>]*+(?:\n|\[))[^\n]++)?+", re.MULTILINE
)
# No part of an image reaches into the next one, so each character is scanned once.
IMAGE = re.compile(
    r"!\[((?:[^\]!]|!(?!\[))*+)\](?:\([ \t]*+<?((?:https?:)?//(?:[^\s)>!]++|!(?!\[))++))?", re.IGNORECASE
)
_TITLE = re.compile(r"\]\([ \t]*+<?(?:[^\s()<>!]++|!(?!\[))*+>?\s++(\"[^\"]++\"|'[^']++'|\([^()]++\))")
# The elements in a paragraph that Markdown makes.
_MARKED = ("em", "strong", "b", "i", "del", "s", "a", "code")
_LEAVES = frozenset({"inline", "cell", "html_block", "fence", "code_block", "definition", "hr"})
_COMMENT, _ATTRIBUTE = "hidden.comment-instruction", "hidden.attribute"


class Unseen(NamedTuple):
    """Text that a page does not show; `least` is the score (`instructs`) from which on it counts as an instruction."""

    start: int
    end: int
    code: str
    text: str
    least: int = SENTENCE


def unseen_in_html(text: str) -> list[Unseen]:
    """Return the comments and the hidden elements of an HTML file; what its parser leaves out anyway is not in it."""
    return list(_unseen_html(_View(text, text, list(elements.tokens(text))), is_markdown=False))


def unseen_in_markdown(text: str, is_mdx: bool) -> tuple[list[Unseen], str]:
    """Return what the page of a Markdown file does not show, and the text with blanks for code and comments."""
    view = _read(text, is_mdx)
    visible = _blanked(view.visible, [(token.start, token.end) for token in view.tokens if not token.name])
    quoted = (
        Unseen(*match.span(1), code, match[1])
        for pattern, code in ((_TITLE, _ATTRIBUTE), (_REFERENCE, _ATTRIBUTE), (IMAGE, "hidden.image"))
        for match in pattern.finditer(visible)
    )
    return [*view.infos, *_unused(view, visible), *quoted, *_unseen_html(view)], visible


@dataclass(slots=True)
class _View:
    """A text, and its parts.

    ``visible`` has as many characters, with blanks for code, and for what stands before the lines of quotes and lists.
    ``tokens`` are the HTML in it, ``blocks`` the elements that Markdown makes, ``infos`` what follows the languages of
    code, ``notes`` the definitions of links with their labels. While it is read, ``blanks`` are the places that become
    blank, ``chunks`` those of inline Markdown and, marked by True, raw HTML.
    """

    text: str
    visible: str = ""
    tokens: list[HtmlToken] = field(default_factory=list)
    blocks: list[tuple[str, int, int]] = field(default_factory=list)
    infos: list[Unseen] = field(default_factory=list)
    notes: list[tuple[str, Unseen]] = field(default_factory=list)
    blanks: list[tuple[int, int]] = field(default_factory=list)
    chunks: list[tuple[int, int, bool]] = field(default_factory=list)

    def add(self, piece: markdown.Piece, starts: Sequence[int]) -> None:
        """Add a block of Markdown; `starts` are the offsets of the lines."""
        start, end = starts[piece.start_line], starts[piece.end_line]
        if piece.kind not in _LEAVES:
            self.blocks.append((piece.kind, start, end))
        elif piece.kind == "definition":
            self.blanks.append((start, max(self.text.find("[", start, end), start)))
            self.notes.append((piece.info, Unseen(start, end, _ATTRIBUTE, piece.text)))
        elif piece.kind in {"fence", "code_block"}:
            self.blanks.append((start, end))
            if info := " ".join(piece.info.split(maxsplit=1)[1:]).strip():
                at = max(self.text.find(info, start, end), start)
                self.infos.append(Unseen(at, min(at + len(info), end), _ATTRIBUTE, info))
        else:
            self._add_text(piece, starts)

    def _add_text(self, piece: markdown.Piece, starts: Sequence[int]) -> None:
        places: list[int] = []
        is_cell = piece.kind == "cell"
        for number, line in enumerate(piece.text.rstrip("\n").split("\n"), start=piece.start_line):
            start, words = starts[number], line.strip()
            if is_cell:  # the next one, or the first, of its line
                at = self.text.find(words, max(start, self.chunks[-1][1] if self.chunks else 0), starts[number + 1])
            else:
                at = self.text.rfind(words, start, starts[number + 1])
                self.blanks += [(start, at)] if at >= 0 and self.text[start:at].strip() else []
            places += [at, at + len(words)] if at >= 0 else [start, starts[number + 1]]
        self.chunks.append((places[0], places[-1], piece.kind == "html_block"))


def _read(text: str, is_mdx: bool) -> _View:
    starts = [*line_starts(text), len(text)]
    first = markdown.signature_lines(markdown.split_lines(text))
    view = _View(text, blanks=[(0, starts[first])])
    if markdown.is_large(text):  # it has no code here, so nothing in it is exempt
        view.chunks.append((starts[first], len(text), True))
        found = _LARGE_DEFINITION.finditer(text, starts[first])
        view.notes += [(match[1], Unseen(*match.span(), _ATTRIBUTE, match[0])) for match in found]
    else:
        is_read = bytearray(len(starts) - 1)
        is_read[:first] = b"\1" * first
        for piece in markdown.pieces(text):
            view.add(piece, starts)
            if piece.kind in _LEAVES:
                is_read[piece.start_line : piece.end_line] = b"\1" * (piece.end_line - piece.start_line)
        # Lines in no block are blank, or nested too deep.
        view.chunks += [(starts[gap.start()], starts[gap.end()], False) for gap in re.finditer(b"\0+", is_read)]
    base = _blanked(text, sorted(view.blanks))
    code: list[tuple[int, int]] = []
    for start, end, is_html in sorted(view.chunks):
        found_tokens = elements.tokens(base, start, end) if is_html else _inline(base, start, end, code, is_mdx)
        view.tokens += [token for token in found_tokens if token.kind in {"open", "close"}]
    view.visible = _blanked(base, code)
    return view


def _inline(text: str, start: int, end: int, code: list[tuple[int, int]], is_mdx: bool) -> Iterator[HtmlToken]:
    """Yield the HTML in a text with inline Markdown, and add its code spans to `code`."""
    runs: dict[int, list[int]] = {}
    for run in _TICKS.finditer(text, start, end):
        runs.setdefault(len(run[0]), []).append(run.start())
    position, unclosed = start, set[str]()
    while match := _INLINE.search(text, position, end):
        position = match.end()
        if match["ticks"]:
            same = runs.get(len(match["ticks"]), [])
            closer = bisect_left(same, position)
            if closer < len(same):
                position = same[closer] + len(match["ticks"])
                code.append((match.start(), position))
        elif match["name"]:
            name, attributes = match["name"].lower(), match["attributes"]
            yield HtmlToken("close" if match["close"] else "open", match.start(), position, name, attributes)
        elif match["raw"] and (is_mdx or match["raw"][0] == "<"):
            closing = _CLOSING.get(match["raw"].upper() if match["raw"][0] == "<" else "{", ">")
            found = -1 if closing in unclosed else text.find(closing, position, end)
            if found < 0:
                unclosed.add(closing)
                continue
            position = found + len(closing)
            yield HtmlToken("open", match.start(), position)


def _blanked(text: str, places: Iterable[tuple[int, int]]) -> str:
    """Return `text` with blanks at these places, which are in order; its lines stay."""
    pieces, position = [], 0
    for start, end in places:
        begin = max(start, position)
        pieces += [text[position:begin], re.sub(r"[^\n]+", lambda match: " " * len(match[0]), text[begin:end])]
        position = max(position, end)
    return "".join([*pieces, text[position:]])


def _unused(view: _View, visible: str) -> Iterator[Unseen]:
    """Yield the definitions of links, of which a used one may have a title, and the footnotes without a use."""
    used = {_label(match[1]) for match in _LABEL.finditer(visible)}
    for label, note in view.notes:
        if _label(label) in used:
            yield note
        else:  # "[//]: # (words)" is how Markdown writes a comment
            yield note._replace(code=_COMMENT)
    for match in _FOOTNOTE.finditer(visible):
        if _label(match[1]) not in used and (body := _FOOTNOTE_BODY.match(view.text, match.end())):
            yield Unseen(match.start(), body.end(), "hidden.definition", body[0])


def _label(label: str) -> str:
    return " ".join(label.split()).casefold()


def _unseen_html(view: _View, is_markdown: bool = True) -> Iterator[Unseen]:
    """Yield the comments, the hidden elements, and the attributes of a page."""
    sheet = StyleSheet("\n".join(_styles(view)))
    for name, start, end in view.blocks if sheet else ():
        if sheet.effect(("*", name, *(_MARKED if name == "p" else ()))).is_unseen:
            yield Unseen(start, end, "hidden.element", view.text[start:end], PROSE)
    page = _Page(view.text, sheet, is_markdown)
    for token in view.tokens:
        if token.kind == "open" and not token.name:
            words = view.text[token.start + 2 : token.end - 2].strip("!- *")
            yield Unseen(token.start, token.end, _COMMENT, words)
        elif is_markdown:
            for name, value, start, end in token.pairs():
                if name not in _TEXTLESS and len(value) > 12:
                    yield Unseen(start, end, _ATTRIBUTE, value)
        page.add(token)
    page.close(0, len(view.text))
    yield from page.unseen


def _styles(view: _View) -> Iterator[str]:
    """Yield the style sheets of a page."""
    begun = -1
    for token in (token for token in view.tokens if token.name == "style" and token.kind != "raw"):
        if token.kind == "close" and begun >= 0:
            yield view.visible[begun : token.start]
        begun = token.end if token.kind == "open" else -1
    if begun >= 0:
        yield view.visible[begun:]


@dataclass(slots=True)
class _Page:
    """The elements that are open at a place of a page, each with its effect; the outermost hidden one is `hidden`."""

    text: str
    sheet: StyleSheet
    is_markdown: bool
    stack: list[tuple[HtmlToken, Effect]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    hidden: int = -1
    unseen: list[Unseen] = field(default_factory=list)

    def add(self, token: HtmlToken) -> None:
        """Open or close an element."""
        if token.kind == "close" and self.counts[token.name]:
            while self.stack[-1][0].name != token.name:
                self.close(len(self.stack) - 1, token.start)
            self.close(len(self.stack) - 1, token.end)
        elif token.kind == "open" and token.name and token.name not in elements.VOID:
            while self.stack and self.stack[-1][0].name in _ENDED.get(token.name, "").split():
                self.close(len(self.stack) - 1, token.start)
            self._open(token)

    def _open(self, token: HtmlToken) -> None:
        effect = self.stack[-1][1] if self.stack else Effect()
        if token.attributes or self.sheet:
            effect = elements.style(token, self.sheet, effect)
        if self.hidden < 0 and (effect.is_unseen or (self.is_markdown and elements.is_unshown(token))):
            self.hidden = len(self.stack)
        self.stack.append((token, effect))
        self.counts[token.name] += 1

    def close(self, depth: int, end: int) -> None:
        """Close the elements from a depth on, which end at `end`."""
        for place in range(len(self.stack) - 1, depth - 1, -1):
            token, effect = self.stack.pop()
            self.counts[token.name] -= 1
            if place == self.hidden:
                self.hidden = -1
                self.unseen.append(self._unseen(token, effect, end))

    def _unseen(self, token: HtmlToken, effect: Effect, end: int) -> Unseen:
        is_meant = (effect.hides or token.name == "template") and self.sheet.is_whole and not elements.is_panel(token)
        if end == len(self.text) and not effect.is_unseen and not self._opens_line(token.start):
            # Never closed: perhaps a word of prose that looks like a tag.
            found, is_meant = self.text.find("\n\n", token.end), False
            end = found if found >= 0 else end
        least = WORD if is_meant and self.is_markdown else PROSE
        return Unseen(token.start, end, "hidden.element", self.text[token.start : end], least)

    def _opens_line(self, start: int) -> bool:
        return not self.text[self.text.rfind("\n", 0, start) + 1 : start].strip(" ")
