"""The XML of a directive, read by expat: without DTD, entities or outside references, and with caps.

An element beyond a cap is refused as it begins, so no tree of a larger block is ever built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from kiwi_rag.formats.outcome import MalformedSource

MAX_DEPTH = 24
MAX_ELEMENTS = 2_000
MAX_ATTRIBUTES = 5_000
MAX_ATTRIBUTES_PER_ELEMENT = 24
_JUNK = expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]


@dataclass(slots=True)
class XmlElement:
    """An XML element: tag, attributes, children, the pieces of its own text, and the lines of its tags in the file."""

    tag: str
    attributes: dict[str, str]
    line: int
    end_line: int = 0
    pieces: list[str] = field(default_factory=list)
    children: list[XmlElement] = field(default_factory=list)

    def iter(self) -> Iterator[XmlElement]:
        """Yield this element and all below it, in document order."""
        yield self
        for child in self.children:
            yield from child.iter()

    def all(self, tag: str) -> list[XmlElement]:
        """Return the direct children named `tag`."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> XmlElement | None:
        """Return the first element named `tag` anywhere below, or ``None``."""
        return next((e for e in self.iter() if e.tag == tag and e is not self), None)

    @property
    def text(self) -> str:
        """Its own text, on one line."""
        return " ".join("".join(self.pieces).split())

    @property
    def prose(self) -> str:
        """All text inside, on one line."""
        return " ".join(filter(None, (element.text for element in self.iter())))


def parse_xml(text: str, line_before: int = 0) -> XmlElement:
    """Return the root element of `text`, which `line_before` lines of the file precede.

    Raises
    ------
    MalformedSource
        If a cap is exceeded, a DTD occurs, or the text is not well-formed; with the line in the file.
    """
    return _TreeBuilder(line_before).parse(text)


class _TreeBuilder:
    def __init__(self, line_before: int) -> None:
        self._line_before = line_before
        self._open: list[XmlElement] = []
        self._elements: list[XmlElement] = []
        self._attributes = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._add_text
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse_dtd()

    @property
    def _line(self) -> int:
        return self._line_before + self._parser.CurrentLineNumber

    def parse(self, text: str) -> XmlElement:
        """Return the root element."""
        try:
            self._parser.Parse(text, True)  # text, not bytes: an encoding in the XML declaration then has no say
        except expat.ExpatError as error:
            self._refuse_malformed(text, error)
        return self._elements[0]  # a document without a root element does not parse

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        element = XmlElement(tag, attributes, self._line)
        if self._open:
            self._open[-1].children.append(element)
        self._open.append(element)
        self._elements.append(element)
        self._attributes += len(attributes)
        self._check(len(attributes))

    def _end(self, _: str) -> None:
        self._open.pop().end_line = self._line

    def _add_text(self, data: str) -> None:
        self._open[-1].pieces.append(data)

    def _check(self, own: int) -> None:
        if len(self._open) > MAX_DEPTH:
            self._refuse("form.xml-depth", f"XML elements are nested deeper than {MAX_DEPTH}")
        if len(self._elements) > MAX_ELEMENTS:
            self._refuse("form.xml-elements", f"the XML block has over {MAX_ELEMENTS} elements")
        if own > MAX_ATTRIBUTES_PER_ELEMENT or self._attributes > MAX_ATTRIBUTES:
            limits = f"{MAX_ATTRIBUTES_PER_ELEMENT} to an element, {MAX_ATTRIBUTES} in all"
            self._refuse("form.xml-attributes", f"the XML block has too many attributes ({limits})")

    def _refuse(self, code: str, message: str, hint: str = "split the directive, or simplify it") -> NoReturn:
        raise MalformedSource(code, message, self._line, hint)

    def _refuse_dtd(self) -> NoReturn:
        self._refuse("form.xml-dtd", "the XML block declares a DTD or entities", "remove the <!...> declaration")

    def _refuse_malformed(self, text: str, error: expat.ExpatError) -> NoReturn:
        if text.encode()[: self._parser.ErrorByteIndex].endswith(b"<!"):
            self._refuse_dtd()
        line = self._line_before + error.lineno
        if error.code == _JUNK:
            raise text_after_directive(line)
        hint = "close every element; write & as &amp; and < as &lt; in text"
        reason = expat.ErrorString(error.code)
        raise MalformedSource("form.xml", f"the XML block is not well-formed: {reason}", line, hint) from error


def text_after_directive(line: int) -> MalformedSource:
    """Return the refusal of anything that follows ``</directive>`` inside the fence."""
    return MalformedSource(
        "form.text-after-directive",
        "something follows </directive> inside the fence",
        line,
        "move it below the closing fence, or remove it",
    )
