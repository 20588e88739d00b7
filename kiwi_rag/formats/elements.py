"""HTML as tokens, and which elements the reader of a page does not see.

The tokens are those of the HTML standard (https://html.spec.whatwg.org/multipage/parsing.html) without its tree,
because no library for Python tells where a text stands in the file: lxml knows only the line of an element's opening
tag, the trees of selectolax and html5lib nothing. The standard library's ``html.parser`` takes quadratic time in Python
3.11 (14 seconds for 40 KB of ``<a``). Here each character is scanned once, however the elements nest.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from kiwi_rag.formats.css import Effect, StyleSheet, effect

# A quoted value may be long: the paths of drawings are. Each quotation mark is scanned once, for none is given back.
_ATTRIBUTES = r"(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+'|[\"'])*+"
_TAG = re.compile(rf"<(?:(!--)|(/?)([A-Za-z][\w:-]*+)({_ATTRIBUTES})>?|[!?][^<>]*+>?)")
_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]++)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
_DECIMAL = re.compile(r"&#0*+([0-9]*+)")
_RAW = frozenset({"script", "style", "textarea", "title", "xmp", "noscript", "iframe", "noembed", "noframes"})
NEVER_SHOWN = frozenset({"template", "style", "script"})
# Elements whose text browsers replace by something else, or show on request.
_REPLACED = frozenset({
    *("noscript", "iframe", "noembed", "noframes", "object", "canvas", "audio", "video", "head", "title", "datalist"),
    *("metadata", "desc", "defs", "annotation", "annotation-xml", "rp", "progress", "meter", "applet", "dialog"),
})  # fmt: skip
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_STYLING = {"color": "color", "fill": "color", "bgcolor": "background"}
_STYLING |= {name: name for name in ("display", "visibility", "opacity", "font-size")}
_HIDDEN_CLASSES = frozenset(
    {"sr-only", "visually-hidden", "visuallyhidden", "screen-reader-text", "d-none", "invisible", "hidden"}
)
# What a page shows when its reader chooses a tab or opens a box.
_PANEL = re.compile(r"(?:^|[\s_-])(?:tabs?|panes?|panels?|accordion|collaps\w*|dropdown|tooltip|modal)(?:$|[\s_-])")


class HtmlToken(NamedTuple):
    """A stretch of a file: text, a tag, the inside of an element without tags, or, without a name, a comment."""

    kind: Literal["text", "open", "close", "raw"]
    start: int
    end: int
    name: str = ""
    attributes: str = ""

    def values(self, *names: str) -> set[str]:
        """Return the words of the attributes of these names, in lower case."""
        return {word for name, value, *_ in self.pairs() if name in names for word in value.lower().split()}

    def pairs(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield name, decoded value, and start and end of the value, of each attribute."""
        offset = self.start + len(self.name) + (2 if self.kind == "close" else 1)
        for match in _ATTRIBUTE.finditer(self.attributes):
            group = match.lastindex or 1
            start, end = match.span(group)
            yield match[1].lower(), unescape(match[group]) if group > 1 else "", offset + start, offset + end


def tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[HtmlToken]:
    """Yield the whole of a stretch of HTML as tokens."""
    position, end = start, len(text) if end is None else end
    while match := _TAG.search(text, position, end):
        if match.start() > position:
            yield HtmlToken("text", position, match.start())
        position = match.end()
        if match[1]:
            found = text.find("-->", position, end)
            position = found + 3 if found >= 0 else end
        name = (match[3] or "").lower()
        yield HtmlToken("close" if match[2] else "open", match.start(), position, name, match[4] or "")
        if name in _RAW and not match[2] and not match[4].endswith("/"):
            closing = _closing(name).search(text, position, end)
            inner = closing.start() if closing else end
            yield HtmlToken("raw", position, inner, name)
            position = inner
    if position < end:
        yield HtmlToken("text", position, end)


def _closing(name: str) -> re.Pattern[str]:
    return re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE)


def unescape(text: str) -> str:
    """Return `text` with its character references decoded."""
    # The standard library fails on numbers of thousands of digits; no character's has more than seven.
    return html.unescape(_DECIMAL.sub(lambda number: f"&#{number[1][:8]}", text)) if "&" in text else text


def style(token: HtmlToken, sheet: StyleSheet, above: Effect) -> Effect:
    """Return the effect of the attributes of an element and of the rules of `sheet`; `above` is what it inherits."""
    found = {name: value for name, value, *_ in token.pairs()}
    names = [f".{name}" for name in found.get("class", "").split()] + [f"[{name}]" for name in found]
    does = sheet.effect(("*", token.name, f"#{found.get('id', '')}", *names)).over(above) if sheet else above
    given = [found.get("style", ""), *(f"{one}:{found[other]}" for other, one in _STYLING.items() if other in found)]
    if any(given):
        does = effect(";".join(given)).over(does)
    is_hidden = "hidden" in found or found.get("type", "").lower() == "hidden"
    return does._replace(hides=True) if is_hidden else does


def is_unshown(token: HtmlToken) -> bool:
    """Return whether browsers, or the usual style sheets, show nothing of an element by its name or its class."""
    if token.name in NEVER_SHOWN or token.name in _REPLACED:
        return not token.attributes.endswith("/")  # a component of MDX may be called so
    attributes = token.attributes
    return bool(attributes) and ("popover" in attributes or not _HIDDEN_CLASSES.isdisjoint(token.values("class")))


def is_panel(token: HtmlToken) -> bool:
    """Return whether a page shows an element when its reader chooses a tab or opens a box."""
    return bool(token.attributes) and (
        "tabpanel" in token.values("role") or bool(_PANEL.search(" ".join(token.values("class"))))
    )
