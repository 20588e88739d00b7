"""HTML, as documentation generators write it: the text of the main content, in sections by its headings.

The main content is the only ``<article>``, else ``<main>``, else what Sphinx and other generators call ``body`` or
``document``, else the whole page. Navigation, scripts, what is styled away and links to a heading itself are left out.
The signatures of an API, which Sphinx writes as ``dt.sig``, are headings too. A panel that the page shows when a reader
chooses its tab is part of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kiwi_rag.formats import elements
from kiwi_rag.formats.css import Effect, StyleSheet
from kiwi_rag.formats.elements import HtmlToken
from kiwi_rag.formats.outcome import HeadingPath, ParsedDocument, one_line
from kiwi_rag.model import RenderedLine

_LEFT_OUT = elements.NEVER_SHOWN | {
    *("nav", "footer", "aside", "svg", "noscript", "iframe", "noembed", "noframes", "select", "button", "head"),
    *("object", "canvas", "dialog", "annotation"),
}
_FURNITURE = frozenset({
    *("headerlink", "hash-link", "anchor-link", "viewcode-link", "sphinxsidebar", "related", "breadcrumb"),
    *("breadcrumbs", "pagination", "navbar", "sidebar", "skip-link", "prev-next-area", "tableofcontents"),
    *("toc-actions", "md-source-file", "edit-this-page", "bd-toc", "wy-breadcrumbs", "rst-footer-buttons"),
})  # fmt: skip
_ROLES = frozenset({"navigation", "search", "banner", "contentinfo", "complementary", "doc-pagebreak"})
_ASIDES = frozenset({"admonition", "footnote", "footnote-list", "topic", "note", "citation", "citation-list"})
_BODIES = frozenset({"body", "document", "markdown-body", "articlebody", "content", "main-content"})
_BLOCKS = frozenset({
    *("p", "div", "section", "article", "main", "header", "ul", "ol", "dl", "table", "pre", "blockquote", "figure"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "hr", "details", "fieldset", "aside", "form", "address", "body"),
})  # fmt: skip
_ROWS = frozenset({"li", "tr", "dt", "dd", "br", "caption", "figcaption", "summary", "legend", "option", "thead"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SIGNATURE_LEVEL = 10
_NO_RULES = StyleSheet("")


def parse(text: str, form: str) -> ParsedDocument:
    """Return what a page shows as sections of the kind ``section``.

    The title is the first heading of level 1, else ``<title>``. A page that shows nothing has its title as its text.
    """
    tokens = list(elements.tokens(text))
    begin, end = _main(tokens)
    page = _Page(text)
    for token in tokens[:begin]:
        page.skip(token)
    for token in tokens[begin:end]:
        page.add(token)
    page.flush()
    inner = next((token for token in tokens if token.kind == "raw" and token.name == "title"), None)
    title = one_line(elements.unescape(text[inner.start : inner.end])) if inner else ""
    if inner and not page.lines:
        page.lines.append(RenderedLine(title, text.count("\n", 0, inner.start) + 1))
    return page.headings.document(form, page.title or title, page.lines)


def _main(tokens: list[HtmlToken]) -> tuple[int, int]:
    """Return the first token of the main content, and the one after its last."""
    found: dict[str, list[tuple[int, int]]] = {"article": [], "main": [], "body": []}
    for what, start, end in _regions(tokens):
        found[what].append((start, end))
    articles, mains, bodies = ([*found[what]] for what in ("article", "main", "body"))
    if len(articles) == 1 and not any(3 * _size(tokens, articles[0]) < _size(tokens, main) for main in mains):
        return articles[0]
    return max(mains or bodies, key=lambda region: _size(tokens, region), default=(0, len(tokens)))


def _size(tokens: list[HtmlToken], region: tuple[int, int]) -> int:
    return tokens[region[1] - 1].end - tokens[region[0]].start


def _regions(tokens: list[HtmlToken]) -> Iterator[tuple[str, int, int]]:
    """Yield the elements that may be the main content, each as two token numbers."""
    names = {token.name for token in tokens if token.kind == "open" and _region(token)}
    opened: dict[str, list[int]] = {name: [] for name in names}
    for number, token in enumerate(tokens):
        if token.name not in names:
            continue
        if token.kind == "open":
            opened[token.name].append(number)
        elif token.kind == "close" and opened[token.name]:
            start = opened[token.name].pop()
            if what := _region(tokens[start]):
                yield what, start, number + 1
    for start in (start for starts in opened.values() for start in starts):
        if what := _region(tokens[start]):  # never closed
            yield what, start, len(tokens)


def _region(token: HtmlToken) -> str:
    if token.name in {"article", "main"}:
        return token.name
    if not token.attributes:
        return "body" if token.name == "body" else ""
    if "main" in token.values("role"):
        return "main"
    return "body" if token.name == "body" or _BODIES & token.values("class", "id", "itemprop") else ""


def _is_left_out(token: HtmlToken) -> bool:
    if token.name in _LEFT_OUT:
        return token.name != "aside" or not _ASIDES & token.values("class")
    if not token.attributes:
        return False
    if (elements.style(token, _NO_RULES, Effect()).hides and not elements.is_panel(token)) or (
        _FURNITURE & token.values("class")
    ):
        return True
    return bool(_ROLES & token.values("role"))


@dataclass(slots=True)
class _Page:
    """The rendered lines of a page so far, and the line that is being written.

    ``skipped`` is the element that is left out, and how many of its name are open; ``heading`` the heading that is
    open, its level, and the number of its first rendered line; ``signed`` the level of the last signature and how many
    rendered lines there were then.
    """

    text: str
    lines: list[RenderedLine] = field(default_factory=list)
    headings: HeadingPath = field(default_factory=HeadingPath)
    title: str = ""
    line: int = 1
    words: list[str] = field(default_factory=list)
    words_line: int = 1
    gap: bool = False
    preformatted: int = 0
    lists: int = 0
    skipped: tuple[str, int] = ("", 0)
    heading: tuple[str, int, int] = ("", 0, 0)
    signed: tuple[int, int] = (0, 0)

    def skip(self, token: HtmlToken) -> None:
        """Pass over a token."""
        self.line += self.text.count("\n", token.start, token.end)

    def add(self, token: HtmlToken) -> None:
        """Add what a token shows."""
        name, depth = self.skipped
        if depth:
            same = token.name == name and token.kind != "raw"
            self.skipped = name, depth + same * (1 if token.kind == "open" else -1)
        elif token.kind == "text" or (token.kind == "raw" and token.name == "textarea"):
            self._add_text(self.text[token.start : token.end])
            return
        elif token.kind == "open":
            self._open(token)
        elif token.kind == "close":
            self._close(token.name)
        self.skip(token)

    def flush(self) -> None:
        """End the line that is being written."""
        text, self.words = "".join(self.words), []
        text = text.rstrip() if self.preformatted else " ".join(text.split())
        if text and self.gap and self.lines:
            self.lines.append(RenderedLine("", self.words_line))
        self.gap = self.gap and not text
        if text or self.preformatted:
            self.lines.append(RenderedLine(text, self.words_line))

    def _add_text(self, text: str) -> None:
        for number, part in enumerate(text.split("\n")):
            if number:
                self.flush()
                self.line += 1
            self._write(elements.unescape(part).replace("\n", " "))

    def _write(self, words: str) -> None:
        if words and self.words_line != self.line:
            if self.words:
                self.flush()
            self.words_line = self.line
        self.words += [words] if words else []

    def _open(self, token: HtmlToken) -> None:
        name = token.name
        if name in elements.VOID or not name:
            self._break(name)
            return
        if _is_left_out(token) and not (name in {"script", "style"} and token.attributes.endswith("/")):
            self.skipped = name, 1
            return
        self._break(name)
        if name == "pre":
            self.preformatted += 1
        elif name == "dl":
            self.lists += 1
        elif name == "li":
            self._write("- ")
        elif name in {"td", "th"} and self.words:
            self._write(" | ")
        level = _HEADINGS.get(name, 0)
        if name == "dt" and "sig" in token.values("class"):
            level = _SIGNATURE_LEVEL + self.lists
        if level and self.signed != (level, len(self.lines)):  # signatures below each other are of one object
            self.heading = name, level, len(self.lines)

    def _close(self, name: str) -> None:
        self._break(name)
        if name == "pre" and self.preformatted:
            self.preformatted -= 1
        elif name == "dl" and self.lists:
            self.headings.close(_SIGNATURE_LEVEL + self.lists, len(self.lines) + 1)
            self.lists -= 1
        elif name == self.heading[0]:
            _, level, first = self.heading
            text = one_line(" ".join(_texts(self.lines[first:])))
            self.headings.open(level, text, first + 1)
            self.signed = level if name == "dt" else 0, len(self.lines)
            self.title = self.title or (text if level == 1 else "")
            self.heading = "", 0, 0

    def _break(self, name: str) -> None:
        if name in _BLOCKS or name in _ROWS:
            self.flush()
            self.gap = self.gap or name in _BLOCKS


def _texts(lines: Iterable[RenderedLine]) -> Iterator[str]:
    return (line.text for line in lines if line.text)
