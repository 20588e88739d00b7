"""AsciiDoc, line by line: a section for each title.

Macros are their text. Comments, attributes, anchors, conditions and the delimiters of blocks are not shown, so they are
left out, and so are blocks that pass HTML through. The forms are those of https://docs.asciidoctor.org/asciidoc/latest/,
which no library in Python reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kiwi_rag.formats.outcome import HeadingPath, ParsedDocument
from kiwi_rag.model import RenderedLine

_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_RULES = "=-~^+"
_ENTRY = re.compile(r":!?([\w][\w-]*)!?:(?:[ \t]+(.*))?$")
_NAME = re.compile(r"\{([\w][\w-]{0,60})\}")
_LONGEST_VALUE = 100
_DELIMITER = re.compile(r"(?:(/{4,}|-{4,}|\.{4,}|\+{4,})|(?:={4,}|\*{4,}|_{4,}|--|[|,:!]={3,})|(`{3})[\w+-]*)[ \t]*$")
_UNSEEN = re.compile(r"//(?!/)|\[\[[^\]]*\]\]$|\[[^\[\]]*\]$|(?:toc|image)::?\[\]$|<<<+$|'''+$|\+$")
_CONDITION = re.compile(r"(ifdef|ifndef|ifeval|endif)::([^\s\[\]]*)\[(.*)\]$")
_COMMENT = re.compile(r"\[comment\b[^\[\]]*\]$")
_STYLES = re.compile(r"\[(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\b[^\[\]]*\]$")
_BLOCK_TITLE = re.compile(r"\.([^\s.].*)")
_MACRO = re.compile(
    r"<<(?:[^<>,\n]{1,200},)?[ ]*([^<>\n]{1,300})>>|\[[#.][^\[\]\n]{1,100}\](?=[#*_`])"
    r"|(?<![\w{])(?!include::)[a-z][a-z\d-]{0,30}:(?P<target>[^\s\[\]]{0,500})\[(?P<text>[^\[\]\n]{0,500})\]"
)
_ATTRIBUTES_AFTER = re.compile(r",[ ]*(?:role|window|opts|width|height|align|title|link)=.*|\^$")


def parse(text: str, form: str) -> ParsedDocument:
    """Return AsciiDoc as sections of the kind ``section``, with the document's title."""
    page = _Page(text.split("\n"))
    for number in range(len(page.source)):
        page.add(number)
    return page.headings.document(form, page.title, page.rendered)


@dataclass(slots=True)
class _Page:
    """The rendered lines so far.

    ``block`` is the line that ends the verbatim or unseen block that is open, ``is_unseen`` which of both it is; an
    unseen paragraph ends at an empty line. ``conditions`` tells of each open condition whether it holds, ``unmet`` how
    many do not.
    """

    source: list[str]
    rendered: list[RenderedLine] = field(default_factory=list)
    headings: HeadingPath = field(default_factory=HeadingPath)
    title: str = ""
    block: str | None = None
    is_unseen: bool = False
    conditions: list[bool] = field(default_factory=list)
    unmet: int = 0
    values: dict[str, str] = field(default_factory=dict)

    def add(self, number: int) -> None:
        """Render a line."""
        line = self.source[number].rstrip()
        if condition := _CONDITION.match(line):
            self._condition(condition)
        elif self.block is not None:
            self._within_block(line, number)
        elif self.unmet:
            return
        elif delimiter := _DELIMITER.match(line):
            if not self._underline(line, number):
                self.block = delimiter[1] or delimiter[2]
                self.is_unseen = line[0] in "/+"
                self._show("", number)
        elif heading := _HEADING.match(line):
            self._heading(len(heading[1]), self._plain(heading[2]).rstrip("= "), number)
        elif entry := _ENTRY.match(line):
            self.values[entry[1].lower()] = (entry[2] or "")[:_LONGEST_VALUE]
        elif _COMMENT.match(line):
            self.block, self.is_unseen = "", True
        elif style := _STYLES.match(line):
            self._show(f"{style[1]}:", number)
        elif not line or not _UNSEEN.match(line):
            self._text(line, number)

    def _within_block(self, line: str, number: int) -> None:
        opening = self.block == "" and _DELIMITER.match(line)
        if opening:  # the comment is not a paragraph
            self.block = line
        elif line == self.block:
            self.block = None
        elif not self.is_unseen and not self.unmet:
            self._show(line, number)

    def _condition(self, condition: re.Match[str]) -> None:
        """Open or close a condition; attributes that depend on the output are those of HTML."""
        kind, names, inline = condition.groups()
        if kind == "endif":
            self.unmet -= bool(self.conditions) and not self.conditions.pop()
        elif not inline:
            is_set = any(name in self.values or "html" in name for name in re.split("[,+]", names.lower()))
            self.conditions.append(is_set is (kind == "ifdef"))  # of ifeval, always
            self.unmet += not self.conditions[-1]

    def _text(self, line: str, number: int) -> None:
        if _is_underline(line) and self._underline(line, number):
            return
        title = _BLOCK_TITLE.match(line)
        self._show(self._plain(title[1] if title else line), number)

    def _underline(self, line: str, number: int) -> bool:
        """Return whether a line underlines the one above it as a title; that becomes a heading."""
        above = self.rendered[-1] if self.rendered else None
        before = self.rendered[-2].text if len(self.rendered) > 1 else ""
        if not _is_underline(line) or above is None or above.number != number or before:
            return False
        text = self.source[number - 1].rstrip()
        if not text[:1].isalnum() or abs(len(text) - len(line)) > 2:
            return False
        self.rendered.pop()
        self._heading(1 + _RULES.index(line[0]), self._plain(text), number - 1)
        return True

    def _heading(self, level: int, text: str, number: int) -> None:
        self.headings.open(level, text, len(self.rendered) + 1)
        self.title = self.title or text
        self._show(text, number)

    def _show(self, text: str, number: int) -> None:
        if text or self.block is not None or (self.rendered and self.rendered[-1].text):
            self.rendered.append(RenderedLine(text, number + 1))

    def _plain(self, text: str) -> str:
        """Return a line with its macros as their text, and the attributes that the file sets as their values."""
        if "{" in text:
            text = _NAME.sub(lambda name: self.values.get(name[1].lower(), name[0]), text)
        return _MACRO.sub(_macro_text, text) if "[" in text or "<<" in text else text


def _is_underline(line: str) -> bool:
    return len(line) > 2 and line[0] in _RULES and line == line[0] * len(line)


def _macro_text(match: re.Match[str]) -> str:
    text = _ATTRIBUTES_AFTER.sub("", (match["text"] or "").strip())
    return match[1] or text or (match["target"] or "").lstrip(":")
