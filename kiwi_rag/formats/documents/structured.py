"""YAML and JSON files: what their root says they are, their sections, and the service and domain they name.

A section begins at each top-level key, and at each record of a long list or mapping: capabilities, tickets, events,
compose files, manifests, whatever has keys. Short neighbours (``name``, ``version``) share a section, for a line alone
says little. All lines up to the next beginning belong to a section, so none is lost.

OpenAPI has a section for each operation, each schema, what describes the API, and each definition; AsyncAPI one for
each channel with its messages, each operation, message, schema and definition. References (``$ref``) are text like any
other: nothing is resolved, so one that refers to itself does no harm. Sources: the OpenAPI Specification 2.0, 3.0.4 and
3.1.1 (https://spec.openapis.org/oas/), the AsyncAPI Specification 2.6.0 and 3.0.0
(https://www.asyncapi.com/docs/reference).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kiwi_rag.formats.nodes import Node, read_json, read_yaml
from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, line_starts, section
from kiwi_rag.model import Section

METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"})
LONG_LINE = 400
MAX_NAME = 200
_DEFINITIONS = frozenset({"parameters", "responses", "securityDefinitions"})
_ACTIONS = ("publish", "subscribe")
_COMPONENTS = {"schemas": "schema", "messages": "message", "channels": "channel", "operations": "channel"}
# What may stand between the start of a line and an entry without being text of the entry before it.
_SIGNS = " \t-?,[]{}"
_LONG_VALUE = 1_000
_LONG_RECORD = 4_000
_SHORT = 80
_LONG_RUN = 800
_NAMES = 20
_IDS = ("id", "key", "code", "name", "title", "slug", "path", "$id")
_TITLES = ("title", "name", "summary", "label")


@dataclass(frozen=True, slots=True)
class Cut:
    """A section begins at ``offset`` (characters from 0)."""

    offset: int
    kind: str
    heading: tuple[str, ...]


def parse(text: str, form: str) -> ParsedDocument:
    """Return what a YAML or JSON text holds; `form` is ``yaml`` or ``json``.

    A text that opens with a bracket is tried as JSON first, whatever it is called: JSON is read many times faster, and
    it allows what libyaml does not (keys of any length, surrogate pairs).

    Raises
    ------
    MalformedSource
        If it is neither, with the line of the error.
    """
    form, documents = _read(text, form)
    form, cuts = _cuts(documents, form, text)
    root = documents[0] if documents else Node("mapping", 0, 0)
    service, domain = (
        root.said(("info", f"x-{what}"), (f"x-{what}",), (what,))[:MAX_NAME] for what in ("service", "domain")
    )
    return ParsedDocument(form, _title(root, text), _sections(text, cuts), service, domain)


def _read(text: str, form: str) -> tuple[str, list[Node]]:
    if form == "json" or text[:4_096].lstrip()[:1] in {"{", "["}:
        try:
            return "json", read_json(text)
        except MalformedSource:
            if form == "json":
                raise
    # A last "---" opens a document that says nothing.
    return "yaml", [node for node in read_yaml(text) if node.is_collection or node.text]


def _cuts(documents: Sequence[Node], form: str, text: str) -> tuple[str, list[Cut]]:
    if not documents:
        return form, [Cut(0, "definition", ())] if text else []
    root, *others = documents
    for api, keys, top in (("openapi", ("openapi", "swagger"), _openapi), ("asyncapi", ("asyncapi",), _asyncapi)):
        if any(root.said((key,))[:1].isdigit() for key in keys):  # it says so of itself, with a version
            return api, [*_described(root, top), *_records(others, (), _LONG_RECORD)]
    if others:
        return form, list(_records(documents, (), _LONG_RECORD))
    cuts = list(_records(root.children, (), _LONG_VALUE))
    return form, _starting_at(cuts, root.anchor) or [Cut(root.anchor, "definition", ())]


def _title(root: Node, text: str) -> str:
    """Return the title the root gives, or else the comment that the file begins with."""
    said = root.said(("info", "title"), ("title",), ("name",), ("metadata", "name"))
    first = text[:MAX_NAME].lstrip().split("\n", 1)[0]
    return said[:MAX_NAME] or (first.lstrip("#").strip() if first.startswith("#") else "")


def _named(text: str, about: str = "") -> str:
    """Return a name, and what it is about, as one line that fits into a heading."""
    line = " ".join((f"{text} — {about}" if about else text)[: 2 * MAX_NAME].split())
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"


def _starting_at(cuts: Sequence[Cut], offset: int) -> list[Cut]:
    """Return `cuts` with the first one moved to `offset`: a parent's key goes with its first entry."""
    return [replace(cuts[0], offset=offset), *cuts[1:]] if cuts else []


def _described(root: Node, top: Callable[[Node], list[Cut]]) -> list[Cut]:
    """Return the cuts of each entry of an API's description; neighbours about the API as a whole are one section."""
    found: list[Cut] = []
    for child in root.children:
        cuts = top(child)
        if not (found and found[-1].kind == "info" and cuts[0].kind == "info"):
            found += cuts
    return found


def _entries(parent: Node, cut: Callable[[Node], Iterable[Cut]], kind: str = "definition") -> list[Cut]:
    """Return the cuts of each entry of `parent`, whose own key goes with the first; one of `kind` if it has none."""
    cuts = [found for child in parent.children for found in cut(child)] if parent.is_collection else []
    return _starting_at(cuts, parent.anchor) or [Cut(parent.anchor, kind, (_named(parent.key),))]


def _components(parent: Node) -> list[Cut]:
    """Return the cuts of ``components``: each schema, message or other part, by the kind its group has."""
    return _entries(parent, lambda group: _named_entries(group, _COMPONENTS.get(group.key, "definition")))


def _named_entries(group: Node, kind: str) -> list[Cut]:
    """Return a cut for each entry of a mapping, under the mapping's key and its own."""
    if group.kind != "mapping":
        return [Cut(group.anchor, "definition", (_named(group.key),))]
    return _entries(group, lambda entry: [Cut(entry.anchor, kind, (_named(group.key), _named(entry.key)))])


def _openapi(node: Node) -> list[Cut]:
    if node.key == "paths":
        return _entries(node, lambda path: _path("endpoint", (), path))
    if node.key == "webhooks":
        return _entries(node, lambda path: _path("definition", ("webhooks",), path))
    if node.key == "components":
        return _components(node)
    if node.key == "definitions":
        return _named_entries(node, "schema")
    return _named_entries(node, "definition") if node.key in _DEFINITIONS else [Cut(node.anchor, "info", ("info",))]


def _path(kind: str, above: tuple[str, ...], path: Node) -> list[Cut]:
    """Return a cut for each operation; the path's key, and what precedes its first operation, go with that one."""
    cuts = list(_operations(kind, above, path))
    return _starting_at(cuts, path.anchor) or [Cut(path.anchor, "definition", (*above, _named(path.key)))]


def _operations(kind: str, above: tuple[str, ...], path: Node) -> Iterator[Cut]:
    begun = between = False
    for entry in path.children if path.kind == "mapping" else ():
        if entry.key.lower() in METHODS:
            yield Cut(entry.anchor, kind, (*above, _endpoint_name(path, entry)))
            begun, between = True, False
        elif begun and not between:
            yield Cut(entry.anchor, "definition", (*above, _named(path.key), _named(entry.key)))
            between = True


def _endpoint_name(path: Node, operation: Node) -> str:
    return _named(f"{operation.key.upper()} {path.key}", operation.said(("summary",), ("operationId",)))


def _asyncapi(node: Node) -> list[Cut]:
    if node.key == "channels":
        return _entries(node, lambda channel: [Cut(channel.anchor, "channel", (_channel_name(channel),))])
    if node.key == "operations":
        return _entries(node, lambda operation: [Cut(operation.anchor, "channel", (_operation_name(operation),))])
    if node.key == "components":
        return _components(node)
    return [Cut(node.anchor, "info", ("info",))]


def _channel_name(channel: Node) -> str:
    """Return what a reader asks for: what is done, the address, and what it is about."""
    actions = [action for action in _ACTIONS if channel.child(action)]
    about = channel.said(("title",), ("summary",), *((action, "summary") for action in actions), ("description",))
    # Several channels may have one address, and a null address is an answer's, decided at run time.
    address = channel.said(("address",))
    place = channel.key if address in {"", channel.key} else f"{address} ({channel.key})"
    return _named(" ".join([*actions, place]), about.split(". ", 1)[0])


def _operation_name(operation: Node) -> str:
    about = operation.said(("title",), ("summary",), ("description",))
    return _named(" ".join(filter(None, (operation.said(("action",)), operation.key))), about.split(". ", 1)[0])


def _sections(text: str, cuts: Sequence[Cut]) -> tuple[Section, ...]:
    """Return the sections that `cuts`, in order, make of `text`; what precedes the first cut belongs to it.

    A section has whole lines, without blank ones at both ends. Entries that share a line share a section as long as the
    line is short; one of `LONG_LINE` characters and more is cut within, so that a minified file has sections, too.
    """
    if not cuts:
        return ()
    page = _Page(text)
    begun = page.begin(cuts)
    ends = [*(offset for offset, _ in begun[1:]), len(text)]
    pieces = zip([0, *ends], ends, (cut for _, cut in begun), strict=False)
    found = (page.section(begin, end, cut) for begin, end, cut in pieces)
    return tuple(section for section in found if section)


class _Page:
    """A text, its lines, and where they start."""

    def __init__(self, text: str) -> None:
        self.text, self.lines, self.starts = text, text.split("\n"), line_starts(text)

    def begin(self, cuts: Iterable[Cut]) -> list[tuple[int, Cut]]:
        """Return where each section really begins: at its line if that is its own, within it if the line is long."""
        found: list[tuple[int, Cut]] = []
        taken = -1
        for cut in cuts:
            line = self._line(cut.offset)
            column = cut.offset - self.starts[line]
            if line > taken and not self.lines[line][:column].strip(_SIGNS):
                first = line
                while first - 1 > taken and _leads(self.lines[first - 1], column):
                    first -= 1
                found.append((self.starts[first], cut))
            elif not found or (len(self.lines[line]) >= LONG_LINE and cut.offset > found[-1][0]):
                found.append((cut.offset, cut))
            taken = max(taken, line)
        return found

    def section(self, begin: int, end: int, cut: Cut) -> Section | None:
        """Return what stands between two offsets, without blank lines at both ends; ``None`` if all are blank."""
        lines, above = self.text[begin:end].split("\n"), self._line(begin)
        found = section(lines, 1, len(lines), cut.heading, cut.kind)
        return found and replace(found, start_line=above + found.start_line, end_line=above + found.end_line)

    def _line(self, offset: int) -> int:
        return bisect_right(self.starts, offset) - 1


def _leads(line: str, column: int) -> bool:
    """Return whether a line belongs to the entry below: a comment that is indented as it is, or a dash of its own."""
    return line.strip() == "-" or (line[column : column + 1] == "#" and not line[:column].strip(_SIGNS))


def _records(nodes: Sequence[Node], above: tuple[str, ...], limit: int) -> Iterator[Cut]:
    """Yield the cuts of each entry, one for a run of short ones; an entry longer than `limit` is divided."""
    for number, run in _runs(nodes):
        names = [_name(node, number + index) for index, node in enumerate(run[:_NAMES])]
        path = (*above, names[0] if len(run) == 1 else _named(", ".join(names)))
        node = run[0]
        if len(run) == 1 and node.end - node.start > limit and _holds_records(node):
            yield from _starting_at(list(_records(node.children, path, _LONG_RECORD)), node.anchor)
        else:
            yield Cut(node.anchor, "definition", path)


def _runs(nodes: Sequence[Node]) -> Iterator[tuple[int, list[Node]]]:
    """Yield entries with the place of the first, from 1: short neighbours together, every other one alone."""
    run: list[Node] = []
    for place, node in enumerate(nodes, start=1):
        if run and not (_is_short(node) and _is_short(run[0]) and node.end - run[0].start <= _LONG_RUN):
            yield place - len(run), run
            run = []
        run.append(node)
    if run:
        yield len(nodes) - len(run) + 1, run


def _holds_records(node: Node) -> bool:
    collections = sum(child.is_collection for child in node.children)
    return len(node.children) > 1 and 2 * collections >= len(node.children)


def _is_short(node: Node) -> bool:
    return node.end - node.start <= _SHORT


def _name(node: Node, number: int) -> str:
    """Return an entry's key, else what a record calls itself: its id and title, or `number`, its place in the list."""
    if node.key or node.kind == "scalar":
        return _named(node.key or node.text) or str(number)
    kind, name = node.said(("kind",)), node.said(("metadata", "name"))
    if kind and name:
        return _named(f"{kind} {name}")
    own = node.said(*((key,) for key in _IDS)) or str(number)
    titles = (node.said((key,)) for key in _TITLES)
    return _named(own, next((title for title in titles if title not in {"", own}), ""))
