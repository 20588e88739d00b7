"""MDX (https://mdxjs.com/docs/what-is-mdx/): Markdown after what JavaScript and components show is put in their place.

A component's tag becomes the texts in its properties, and an export the texts in it, each on its own line: this is
what a page shows of them. Imports and comments are left out. Components cannot be run, so which texts they show is
taken from the names of properties. A tag that its attributes hide keeps ``hidden`` alone, which the gate looks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kiwi_rag.formats.documents.markdown import front_matter_lines
from kiwi_rag.formats.documents.markdown import parse as parse_markdown
from kiwi_rag.formats.outcome import ParsedDocument, one_line
from kiwi_rag.model import RenderedLine

_START = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^`\n]*$|(?P<code>`+)|(?P<comment>\{\s*/\*)"
    r"|(?P<tag></?(?P<name>[A-Za-z][\w.]*)|<>|</>)"
    r"|^(?P<esm>import\s+(?:[\"']|\{[ \t]*$|[\w*{][^;\n]*?(?:\bfrom\b|[{,][ \t]*$))"
    r"|export\s+(?:const|let|var|function|default|async|class|\*|\{))",
    re.MULTILINE,
)
_ESM_LINES = 500
_SHORT = 12
_SCRIPT_SIGN = re.compile(r"[\"'`{}>]")
_QUOTED = r"\"(?:[^\"\\\n]|\\.){0,2000}+\"|'(?:[^'\\\n]|\\.){0,2000}+'|`(?:[^`\\]|\\.){0,4000}+`"
_TEXT = re.compile(
    rf"(?:(?<![\w-])([A-Za-z][\w-]{{0,40}})\"?\s{{0,5}}[=:]\s{{0,5}}\{{?\s{{0,5}})?({_QUOTED})|>([^<>{{}}]+)<"
)
_NOT_SHOWN = frozenset({
    *("class", "classname", "style", "href", "src", "id", "key", "to", "icon", "size", "color", "variant", "lang"),
    *("language", "width", "height", "target", "rel", "component", "as", "slot", "ref", "mode", "group"),
    *("align", "theme", "layout", "image", "img", "url", "path", "link", "scope", "groupid", "querystring"),
})  # fmt: skip
_HIDDEN = re.compile(r"(?<![\w-])hidden(?:\s*=\s*\{\s*true\s*\})?(?=[\s/>{]|$)")
_STYLE = re.compile(r"(?<![\w-])style\s*=\s*(\{\{[^{}]{0,1000}\}\}|\"[^\"]{0,1000}\"|'[^']{0,1000}')", re.IGNORECASE)
_AWAY = re.compile(
    r"display[\"']?\s*:\s*[\"'`]?none|visibility[\"']?\s*:\s*[\"'`]?(?:hidden|collapse)"
    r"|(?:font-?size|opacity)[\"']?\s*:\s*[\"'`]?0(?!\.?\d*[1-9])",
    re.IGNORECASE,
)
_TITLE = re.compile(rf"\btitle[\"']?\s{{0,5}}[:=]\s{{0,5}}({_QUOTED})")


def parse(text: str, form: str) -> ParsedDocument:
    """Return MDX as `kiwi_rag.formats.documents.markdown.parse` returns Markdown.

    Without a title in the front matter it is that of an export (``export const title``), else the first heading.
    """
    reader = _Reader()
    lines = text.split("\n")
    front = front_matter_lines(lines)
    shown = lines[:front] + reader.rendered("\n".join(lines[front:])).split("\n")
    rendered = tuple(_without_emptied(shown[: len(lines)], lines))
    document = parse_markdown("\n".join(line.text for line in rendered), "markdown")
    has_title = any(line.startswith("title:") for line in lines[:front])
    title = document.title if has_title else reader.title or document.title
    return replace(document, title=title, rendered=rendered)


def _without_emptied(shown: list[str], lines: list[str]) -> Iterator[RenderedLine]:
    """Yield the lines that are shown, without those below a blank one that only became blank."""
    was_blank = False
    for number, (text, line) in enumerate(zip(shown, lines, strict=True), start=1):
        if text.strip() or not line.strip() or not was_blank:
            yield RenderedLine(text, number)
        was_blank = not text.strip()


class _Reader:
    """Renders the prose of a file; knows the title that it exports, and the names of components that are hidden."""

    def __init__(self) -> None:
        self.title = ""
        self._hidden: set[str] = set()

    def rendered(self, text: str) -> str:
        """Return prose with as many lines, its components and its JavaScript as their texts."""
        pieces: list[str] = []
        position = 0
        while match := _START.search(text, position):
            pieces.append(text[position : match.start()])
            position = match.end()
            if match["fence"]:
                mark = match["fence"]
                closing = re.compile(rf"^[ \t]*{mark}{mark[0]}*[ \t]*$", re.MULTILINE).search(text, position)
                position = closing.end() if closing else len(text)
                pieces.append(text[match.start() : position])
            elif match["code"]:
                end = text.find(match[0], position, position + 2_000)
                position = end + len(match[0]) if end >= 0 else position
                pieces.append(text[match.start() : position])
            elif match["comment"]:
                end = text.find("*/", position)
                brace = text.find("}", end) if end >= 0 else -1
                position = brace + 1 if brace >= 0 else len(text)
                pieces.append("\n" * text.count("\n", match.start(), position))
            elif match["esm"]:
                position = _esm_end(text, position)
                pieces.append(self._script(text[match.start() : position]))
            else:
                position, shown = self._tag(text, match)
                pieces.append(shown)
        return "".join([*pieces, text[position:]])

    def _script(self, text: str) -> str:
        if text.startswith("import"):
            return "\n" * text.count("\n")
        title = _TITLE.search(text)
        if title and not self.title:
            self.title = one_line(title[1][1:-1])
            return "\n" * text.count("\n", 0, title.start()) + title[1][1:-1] + _texts(text[title.end() :])
        return _texts(text)

    def _tag(self, text: str, match: re.Match[str]) -> tuple[int, str]:
        """Return where a tag ends, and what is shown of it; a tag of HTML stays as it is."""
        name = match["name"] or ""
        is_component = not name or not name[0].islower() or "." in name
        if not name:
            return match.end(), ""
        end, outer = _tag_end(text, match.end())
        whole = text[match.start() : end]
        if not outer.endswith(">"):
            return end, whole  # never closed
        if match[0].startswith("</"):
            return end, whole if name in self._hidden or not is_component else ""
        if _HIDDEN.search(outer) or any(_AWAY.search(style[1]) for style in _STYLE.finditer(whole)):
            self._hidden.add(name)  # from here on, its tags stay, so that its end is found
            breaks = "\n" * whole.count("\n")
            return end, breaks if whole.endswith("/>") and is_component else f"<{name} hidden>{breaks}"
        opening = f"<{name}>" if name in self._hidden and not whole.endswith("/>") else ""
        return end, opening + _texts(whole[len(match[0]) :]) if is_component else whole


def _esm_end(text: str, position: int) -> int:
    """Return the end of a statement around an offset: a blank line or the next statement, where no bracket is open."""
    depth, start = 0, (first := text.rfind("\n", 0, position) + 1)
    for _ in range(_ESM_LINES):
        end = _line_end(text, start)
        line = text[start:end]
        if depth <= 0 and (not line.strip() or (start > first and line.startswith(("import ", "export ")))):
            return start - 1
        depth += sum(map(line.count, "{[(")) - sum(map(line.count, "}])"))
        if end == len(text):
            break
        start = end + 1
    return end


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _tag_end(text: str, position: int) -> tuple[int, str]:
    """Return where the tag around an offset ends, and its attributes without texts and longer scripts."""
    depth, outer, opened = 0, [], 0
    while sign := _SCRIPT_SIGN.search(text, position):
        outer += [text[position : sign.start()]] if not depth else []
        position = sign.end()
        if sign[0] == ">" and not depth:
            return position, "".join([*outer, ">"])
        if sign[0] in "{}":
            opened = opened if depth else sign.start()
            depth = max(depth + (1 if sign[0] == "{" else -1), 0)
            outer += [text[opened:position]] if not depth and position - opened < _SHORT else []
        elif sign[0] != ">":  # a string of JavaScript ends on its line; an apostrophe in a text has no partner
            limit = _line_end(text, position) if depth and sign[0] != "`" else position + 4_000
            found = text.find(sign[0], position, limit)
            position = found + 1 if found >= 0 else position
    return len(text), ""


def _texts(script: str) -> str:
    """Return the texts in attributes or in a script, with as many line ends as it has."""
    pieces: list[str] = []
    last, is_empty = 0, True  # whether the line has no text so far
    for match in _TEXT.finditer(script):
        start, end = (match.start(2) + 1, match.end(2) - 1) if match[2] else match.span(3)
        words, breaks = script[start:end], script.count("\n", last, start)
        last, is_empty = end, is_empty or breaks > 0
        if (match[1] or "").lower() in _NOT_SHOWN or not any(map(str.isalpha, words)):
            words = "\n" * words.count("\n")
        pieces += ["\n" * breaks, "" if is_empty or not words.strip() else " | ", words.replace("\\", "")]
        is_empty = not words.rpartition("\n")[2].strip() and (is_empty or "\n" in words)
    return "".join([*pieces, "\n" * script.count("\n", last)])
