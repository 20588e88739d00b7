"""The XML of a directive: capped by a linear scan, then parsed without DTD, entities or outside references.

``defusedxml`` refuses DTDs but caps neither depth nor the number of elements and attributes, so `check_caps`
counts them first, without any parser.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from kiwi_rag.formats.outcome import MalformedSource

MAX_DEPTH = 24
MAX_ELEMENTS = 2_000
MAX_ATTRIBUTES = 5_000
MAX_ATTRIBUTES_PER_ELEMENT = 24

# No branch can take over what another has taken (possessive), so each tag costs its own length once.
_TAG = re.compile(r"<(/?)[^\s<>/\"'!?](?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+>")
_ATTRIBUTE = re.compile(r"=\s*+(?:\"[^\"]*+\"|'[^']*+')")
_SKIPPED = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"))


@dataclass(slots=True)
class XmlElement:
    """An XML element: tag, attributes, own text, children and the line its tag starts on (within the block)."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[XmlElement] = field(default_factory=list)
    end_line: int = 0

    def iter(self) -> Iterator[XmlElement]:
        """Yield this element and all below it, in document order."""
        stack = [self]
        while stack:
            element = stack.pop()
            yield element
            stack.extend(reversed(element.children))

    def all(self, tag: str) -> list[XmlElement]:
        """Return the direct children named `tag`."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> XmlElement | None:
        """Return the first element named `tag` anywhere below, or ``None``."""
        return next((e for e in self.iter() if e.tag == tag and e is not self), None)

    @property
    def prose(self) -> str:
        """All text inside, in one line."""
        return " ".join(" ".join(e.text for e in self.iter()).split())


def parse_xml(text: str) -> XmlElement:
    """Return the root element of `text`.

    Raises
    ------
    MalformedSource
        If a cap is exceeded, a DTD occurs, or the text is not well-formed; with the line within `text`.
    """
    check_caps(text)
    handler = _TreeHandler()
    _feed(text, handler)
    assert handler.root is not None, "a document without a root element does not parse"  # noqa: S101
    return handler.root


def check_caps(text: str) -> None:
    """Count depth, elements and attributes in one pass over `text`.

    On text that is not well-formed the count may be wrong from the first fault on; a parser stops there too.

    Raises
    ------
    MalformedSource
        ``form.xml-dtd``, ``form.xml-depth``, ``form.xml-elements`` or ``form.xml-attributes``.
    """
    counter = _CapCounter(text)
    position = text.find("<")
    while position >= 0:
        position = text.find("<", counter.step(position))


class _CapCounter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.depth = self.elements = self.attributes = 0

    def step(self, position: int) -> int:
        """Count what starts at `position`, a ``<``; return where to look for the next one."""
        for opening, closing in _SKIPPED:
            if self.text.startswith(opening, position):
                end = self.text.find(closing, position + len(opening))
                return end + len(closing) if end >= 0 else len(self.text)
        if self.text.startswith("<!", position):
            self._refuse("dtd", "the XML block declares a DTD or entities", position, "remove the <!...> declaration")
        tag = _TAG.match(self.text, position)
        if tag:
            self._count(tag)
        return tag.end() if tag else position + 1

    def _count(self, tag: re.Match[str]) -> None:
        if tag[1]:
            self.depth -= 1
            return
        own = len(_ATTRIBUTE.findall(tag[0]))
        self.elements += 1
        self.attributes += own
        self.depth += 1
        self._check(own, tag.start())
        self.depth -= tag[0].endswith("/>")

    def _check(self, own: int, position: int) -> None:
        if self.depth > MAX_DEPTH:
            self._refuse("depth", f"XML elements are nested deeper than {MAX_DEPTH}", position)
        if self.elements > MAX_ELEMENTS:
            self._refuse("elements", f"the XML block has over {MAX_ELEMENTS} elements", position)
        if own > MAX_ATTRIBUTES_PER_ELEMENT or self.attributes > MAX_ATTRIBUTES:
            limits = f"{MAX_ATTRIBUTES_PER_ELEMENT} to an element, {MAX_ATTRIBUTES} in all"
            self._refuse("attributes", f"the XML block has too many attributes ({limits})", position)

    def _refuse(
        self, kind: str, message: str, position: int, hint: str = "split the directive, or simplify it"
    ) -> None:
        raise MalformedSource(f"form.xml-{kind}", message, self.text.count("\n", 0, position) + 1, hint)


class _TreeHandler(ContentHandler):
    def __init__(self) -> None:
        super().__init__()
        self.root: XmlElement | None = None
        self._open: list[XmlElement] = []
        self._text: list[list[str]] = []
        self._locator: Locator | None = None

    def setDocumentLocator(self, locator: Locator) -> None:
        self._locator = locator

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        element = XmlElement(name, dict(attrs.items()), self._line)
        if self._open:
            self._open[-1].children.append(element)
        self.root = self.root or element
        self._open.append(element)
        self._text.append([])

    def endElement(self, name: str) -> None:
        element = self._open.pop()
        element.end_line = self._line
        element.text = "".join(self._text.pop())

    def characters(self, content: str) -> None:
        self._text[-1].append(content)

    @property
    def _line(self) -> int:
        return (self._locator.getLineNumber() if self._locator else None) or 1


def _feed(text: str, handler: ContentHandler) -> None:
    from defusedxml import DefusedXmlException
    from defusedxml.sax import make_parser

    parser = make_parser()
    parser.forbid_dtd = True
    parser.setContentHandler(handler)
    try:
        # Text, not bytes: an encoding named in the XML declaration then has no say.
        parser.parse(io.StringIO(text))
    except DefusedXmlException as error:
        hint = "remove the <!...> declaration"
        raise MalformedSource("form.xml-dtd", "the XML block declares a DTD or entities", 1, hint) from error
    except SAXParseException as error:
        raise _not_well_formed(error) from error


def _not_well_formed(error: SAXParseException) -> MalformedSource:
    reason, line = error.getMessage(), error.getLineNumber() or 1
    if "junk after document element" in reason:
        return text_after_directive(line)
    hint = "close every element; write & as &amp; and < as &lt; in text"
    return MalformedSource("form.xml", f"the XML block is not well-formed: {reason}", line, hint)


def text_after_directive(line: int) -> MalformedSource:
    """Return the refusal of anything that follows ``</directive>`` inside the fence."""
    return MalformedSource(
        "form.text-after-directive",
        "something follows </directive> inside the fence",
        line,
        "move it below the closing fence, or remove it",
    )
