"""Directives: Markdown with exactly one fenced ``xml`` block whose root is ``<directive name version>``.

What the block declares becomes metadata. A ``<process>`` inside the block is XML like the rest; one below it, in
the Markdown body, is prose for an agent: its ``<step name=...>`` tags are looked for line by line and nothing
about it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from kiwi_rag.formats import markdown
from kiwi_rag.formats.markdown import Block, Heading
from kiwi_rag.formats.outcome import FindingList, ItemParts, MalformedSource, Stretch, clip, flat, labels
from kiwi_rag.model import Section

MAX_DEPTH = 24
MAX_ELEMENTS = 2_000
MAX_ATTRIBUTES = 5_000
MAX_ATTRIBUTES_PER_ELEMENT = 24
_JUNK = expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]

MAX_STEP_DESCRIPTION = 300
_SUMMARY_STEP = 120
_ROOT = re.compile(r"\s*<directive(?:[\s/>]|$)")
_ROOT_WITH_ATTRIBUTES = re.compile(r"\s*<directive(?:\s+[\w:.-]+\s*=|\s*$)")
_PROLOG = re.compile(r"\s*<(?:\?xml[^<>]*\?>\s*(?:<directive(?:[\s/>]|$)|$)|!--)")
_STEP = re.compile(r"\s*<step(?:\s[^<>]*?)?\bname\s*=\s*(?:\"([^\"<>]*)\"|'([^'<>]*)')")
_PROCESS = re.compile(r"\s*<(/?)process\b")
_STEPS = "process//step"
_TAG = re.compile(r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?>")
_END = re.compile(r"</directive\s*>\s*\Z|/>\s*\Z")
_VERSION = re.compile(r"<directive\b[^>]*?\sversion\s*=\s*([\"'])(?P<value>[^<]*?)\1")


def parse(item_id: str, content: str, found: FindingList) -> ItemParts:
    """Parse a directive."""
    lines, fence = _directive_fence(content, found)
    xml = _root(lines, fence, found)
    metadata = _metadata(xml.root, _steps(xml.root, lines, fence))
    summary = Section("summary", _summary(metadata, item_id), fence.start_line, fence.end_line)
    version = xml.root.get("version", "").strip() or None
    return ItemParts(version, metadata, (summary, *_body(lines, markdown.outline(content).headings, fence, xml)))


def block_steps(content: str) -> list[tuple[str, int]]:
    """Return name and line of the steps that stand inside the XML block of a directive that parses."""
    xml = _root(*_directive_fence(content, FindingList()), FindingList())
    return [(_name(step), xml.lines[step][0]) for step in xml.root.iterfind(_STEPS)]


def block_span(content: str) -> tuple[int, int]:
    """Return where the text of the block that holds the directive begins and ends in `content`.

    Raises
    ------
    MalformedSource
        If there is no such block.
    """
    _, fence = _directive_fence(content, FindingList())
    return markdown.line_offset(content, fence.start_line + 1), markdown.line_offset(content, fence.end_line)


def version_span(content: str) -> tuple[int, int] | None:
    """Return where the value of the root's ``version`` attribute stands in `content`, or ``None``."""
    root = _VERSION.search(content, *block_span(content))
    return root.span("value") if root else None


def _directive_fence(content: str, found: FindingList) -> tuple[list[str], Block]:
    """Return all lines, and the one fence that holds the directive; note where there is more than one."""
    lines = markdown.split_lines(content)
    fences = [b for b in markdown.outline(content).blocks if b.kind == "fence" and _opens_directive(lines, b)]
    wanted = next((fence for fence in fences if fence.info == "xml"), None)
    if wanted is None:
        line = fences[0].start_line if fences else next(_roots(lines), 0)
        hint = "put <directive name=... version=...> in a fence that opens with ```xml"
        message = "there is no fenced xml block whose root is <directive>"
        raise MalformedSource("form.no-directive", message, line, hint)
    for line in _roots(lines):
        if not wanted.start_line <= line <= wanted.end_line:
            hint = "keep one directive to a file; indent no example of one as a block of its own"
            found.add("structure.two-directives", "a second <directive> block", line, hint)
    if not wanted.closed:
        message = "the xml fence is never closed"
        raise MalformedSource("form.unclosed-fence", message, wanted.start_line, "close it with ```")
    return lines, wanted


def _opens_directive(lines: Sequence[str], fence: Block) -> bool:
    for line in lines[fence.start_line : fence.end_line]:
        if _ROOT.match(line):
            return True
        if line.strip() and not _PROLOG.match(line):
            return False
        if "<directive" in line:
            return True
    return False


def _roots(lines: Sequence[str]) -> Iterator[int]:
    """Yield the lines that open a directive: whatever reads the file by pattern might take any of those."""
    return (number for number, line in enumerate(lines, start=1) if _ROOT_WITH_ATTRIBUTES.match(line))


def _root(lines: Sequence[str], fence: Block, found: FindingList) -> Xml:
    text = "\n".join(lines[fence.start_line : fence.end_line - 1])
    try:
        xml = _XmlParser(fence.start_line).parse(text)
        line, end_line = xml.lines[xml.root]
        if not _END.search(text[-200:]):
            raise text_after_directive(end_line + 1)
    except MalformedSource as error:
        rest = lines[error.line - 1 : fence.end_line - 1] if error.code == "form.text-after-directive" else ()
        if any(_ROOT.match(part) or ("</directive" in part and "<directive" in part) for part in rest):
            hint = "keep one directive to a file"
            found.add("structure.two-directives", "a second <directive> block", error.line, hint)
        raise
    if xml.root.tag != "directive":
        raise MalformedSource("form.no-directive", f"the root element is <{xml.root.tag}>, not <directive>", line)
    return xml


def _metadata(root: Element, steps: list[dict[str, str]]) -> dict[str, Any]:
    block = _first(root, "metadata", root)
    return {
        "name": _name(root),
        "description": _text(block, "description") or _text(root, "description"),
        "category": _text(block, "category"),
        "author": _text(block, "author"),
        "tags": _tags(block),
        "model": _attributes(root, "model"),
        "limits": _attributes(root, "limits"),
        "permissions": [p for group in root.iter("permissions") for p in _group_permissions(group)],
        "context": _context(root),
        "inputs": [_input(element) for element in root.iterfind("inputs/input")],
        "outputs": [_output(element) for element in root.iterfind("outputs/*")],
        "steps": steps,
    }


def _text(element: Element, tag: str) -> str:
    return next(map(_prose, element.iterfind(tag)), "")


def _attributes(root: Element, tag: str) -> dict[str, str]:
    element = _first(root, tag)
    return {**dict(sorted(element.items())), **{child.tag: _prose(child) for child in element}}


def _tags(block: Element) -> list[str]:
    elements = [_prose(element) for tags in block.findall("tags")[:1] for element in tags]
    return elements or [part.strip() for part in _text(block, "tags").split(",") if part.strip()]


def _group_permissions(group: Element) -> Iterator[dict[str, str]]:
    """Yield every permission in an element ``<permissions>`` as verb, resource and pattern."""
    if text := _own_text(group):
        yield _permission("*", "*", text)
    for child in group:
        yield from _group_permissions(child) if child.tag == "permission" else _verb_permissions(child)


def _verb_permissions(verb: Element) -> Iterator[dict[str, str]]:
    if verb.attrib:
        pattern = next((v for k, v in sorted(verb.items()) if k != "resource"), "*")
        yield _permission(verb.tag, verb.get("resource", "*"), pattern)
    if text := _own_text(verb):
        yield _permission(verb.tag, "*", text)
    for resource in verb:
        yield _permission(verb.tag, resource.tag, _prose(resource))


def _permission(verb: str, resource: str, pattern: str) -> dict[str, str]:
    return {"verb": verb, "resource": resource, "pattern": " ".join(pattern.split())}


def _context(root: Element) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for child in _first(root, "context"):
        found.setdefault(child.tag, []).append(_prose(child))
    return found


def _input(element: Element) -> dict[str, Any]:
    known = {
        "name": _name(element),
        "type": element.get("type", "string"),
        "required": element.get("required", "false").strip().lower() == "true",
        "description": _prose(element),
    }
    return known | {key: value for key, value in element.items() if key == "default"}


def _output(element: Element) -> dict[str, str]:
    return {"name": element.get("name", element.tag).strip(), "description": _prose(element)}


def _steps(root: Element, lines: Sequence[str], fence: Block) -> list[dict[str, str]]:
    inside = [_xml_step(step) for step in root.iterfind(_STEPS)]
    return inside or [_body_step(lines, name, start, end) for name, start, end in _step_spans(lines, fence)]


def _xml_step(step: Element) -> dict[str, str]:
    return {"name": _name(step), "description": clip(_text(step, "description") or _prose(step), MAX_STEP_DESCRIPTION)}


def _body_step(lines: Sequence[str], name: str, start: int, end: int) -> dict[str, str]:
    text = " ".join(_TAG.sub(" ", line) for line in lines[start - 1 : end])
    return {"name": name, "description": clip(" ".join(text.split()), MAX_STEP_DESCRIPTION)}


def _step_spans(lines: Sequence[str], fence: Block) -> list[tuple[str, int, int]]:
    """Return name, first and last line of each step in the body; one ends where the next begins."""
    starts: list[tuple[str, int]] = []
    last = len(lines)
    for number in range(fence.end_line + 1, len(lines) + 1):
        if match := _STEP.match(lines[number - 1]):
            starts.append((match[1] or match[2] or "", number))
        elif starts and (end := _PROCESS.match(lines[number - 1])) and end[1]:
            last = number - 1
            break
    ends = [*(start - 1 for _, start in starts[1:]), last][: len(starts)]
    return [(name, start, end) for (name, start), end in zip(starts, ends, strict=True)]


def _summary(metadata: dict[str, Any], item_id: str) -> str:
    """Compose the text that a directive is found by, with outputs beside inputs."""
    parts = [f"Directive: {metadata['name'] or item_id}", f"Description: {metadata['description']}"]
    parts += labels(metadata)
    parts += [f"Input {i['name']}: {i['description']}" for i in metadata["inputs"]]
    parts += [f"Output {o['name']}: {o['description']}" for o in metadata["outputs"]]
    parts += [f"Step {s['name']}: {clip(s['description'], _SUMMARY_STEP)}" for s in metadata["steps"]]
    return "\n".join(parts)


def _body(lines: Sequence[str], headings: Sequence[Heading], fence: Block, xml: Xml) -> Iterator[Section]:
    first = markdown.signature_lines(lines) + 1
    yield from markdown.sections(lines, first, fence.start_line - 1, headings)
    spans = (xml.lines[process] for process in xml.root.iterfind("process"))
    yield from flat(lines, (Stretch("body", start, end, ("process",)) for start, end in spans))
    yield from _body_after(lines, fence, headings)


def _body_after(lines: Sequence[str], fence: Block, headings: Sequence[Heading]) -> Iterator[Section]:
    """Yield the sections below the fence; each step is one, under ``process > name``, as long as it has no headings."""
    spans = _step_spans(lines, fence)
    begin = fence.end_line + 1
    for name, start, end in spans:
        yield from markdown.sections(lines, begin, start - 1, headings)
        for step in markdown.sections(lines, start, end, headings):
            yield replace(step, heading=("process", name, *step.heading))
        begin = end + 1
    yield from markdown.sections(lines, begin, len(lines), headings)


def _name(element: Element) -> str:
    """Return its attribute ``name``, empty if it has none."""
    return element.get("name", "").strip()


def _own_text(element: Element) -> str:
    """Return its text without that of its children, on one line."""
    pieces = [element.text, *(child.tail for child in element)]
    return " ".join("".join(filter(None, pieces)).split())


def _prose(element: Element) -> str:
    """Return all text inside, on one line: of each element its own, in document order."""
    return " ".join(filter(None, map(_own_text, element.iter())))


def _first(root: Element, tag: str, default: Element | None = None) -> Element:
    """Return the first element named `tag` anywhere below `root`, or else `default` or an empty one."""
    return next(element for element in (root.find(f".//{tag}"), default, Element(tag)) if element is not None)


class Xml(NamedTuple):
    """An XML element, and the lines in the file at which it and each element in it begins and ends."""

    root: Element
    lines: Mapping[Element, Sequence[int]]


class _XmlParser:
    """Parses a text that `line_before` lines of the file precede."""

    def __init__(self, line_before: int) -> None:
        self._line_before = line_before
        self._tree = TreeBuilder()
        self._lines: dict[Element, list[int]] = {}
        self._depth = self._attributes = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._tree.data
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse_dtd()

    @property
    def _line(self) -> int:
        return self._line_before + self._parser.CurrentLineNumber

    def parse(self, text: str) -> Xml:
        """Return the root element.

        Raises
        ------
        MalformedSource
            If a cap is exceeded, a DTD occurs, or the text is not well-formed; with the line in the file.
        """
        try:
            self._parser.Parse(text, True)  # text, not bytes: an encoding in the XML declaration then has no say
        except expat.ExpatError as error:
            self._refuse_malformed(text, error)
        return Xml(self._tree.close(), self._lines)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._lines[self._tree.start(tag, attributes)] = [self._line]
        self._depth += 1
        self._attributes += len(attributes)
        if self._depth > MAX_DEPTH:
            self._refuse("form.xml-depth", f"XML elements are nested deeper than {MAX_DEPTH}")
        if len(self._lines) > MAX_ELEMENTS:
            self._refuse("form.xml-elements", f"the XML block has over {MAX_ELEMENTS} elements")
        if len(attributes) > MAX_ATTRIBUTES_PER_ELEMENT or self._attributes > MAX_ATTRIBUTES:
            limits = f"{MAX_ATTRIBUTES_PER_ELEMENT} to an element, {MAX_ATTRIBUTES} in all"
            self._refuse("form.xml-attributes", f"the XML block has too many attributes ({limits})")

    def _end(self, tag: str) -> None:
        self._lines[self._tree.end(tag)].append(self._line)
        self._depth -= 1

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
    message, hint = "something follows </directive> inside the fence", "move it below the closing fence, or remove it"
    return MalformedSource("form.text-after-directive", message, line, hint)
