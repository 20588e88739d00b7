"""Libraries: adding one from a folder or a package, the state of its index, and reading its documentation in pages.

Hits are joined with their neighbours to chunks, and a page is the next of them that fit into a number of tokens. What
the chunks are depends on the topic alone: so all pages together are the answer that one large page would be.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from kiwi_rag import render
from kiwi_rag.chunking import split_document
from kiwi_rag.collection import Collection
from kiwi_rag.consent import Allow
from kiwi_rag.errors import DownloadFailed, NoSuchLibrary, NotFound, StoreCorrupt, UsageError
from kiwi_rag.model import Document, Passage, SearchQuery, SearchResult
from kiwi_rag.render import agents
from kiwi_rag.render.agents import Answer
from kiwi_rag.render.hits import notices
from kiwi_rag.search.document_state import read_document
from kiwi_rag.services import Services
from kiwi_rag.services.library import Libraries, LibraryIndex
from kiwi_rag.signing.statement import format_time, is_nameable
from kiwi_rag.sources.file_states import RunState
from kiwi_rag.sources.library.archive import Progress, download, index_hosts, unpack
from kiwi_rag.sources.library.package import Package, locate, parse_origin
from kiwi_rag.sources.library.record import PATH, Library, LibraryRecords, check_id, check_version
from kiwi_rag.sources.library.versions import Resolution
from kiwi_rag.sources.workspace.config import head_commit
from kiwi_rag.usecases.status import collect_workspace_status
from kiwi_rag.wordpieces import estimate_tokens

HITS = 30
"""Hits that the chunks of one answer are made of."""
CHUNK_TOKENS = 450
"""Estimated tokens up to which a hit is joined with its neighbours."""
MIN_TOKENS = 300
"""The smallest page; less than that may be taken by what is around the text."""
CONTINUATION_TOKENS = 80
"""Most tokens of the sentence with a continuation: each sign is one token, or a part of one."""
MAX_CODE_LINES = 120
"""Lines by which a chunk grows so that a code example is whole."""
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")


@dataclass(frozen=True, slots=True)
class Addition:
    """What to add: a folder, ``npm:NAME[@V]`` or ``pypi:NAME[@V]``; `id` and `version` replace what it says of itself.

    ``from_folder`` is the project whose installed packages are meant. With `include`, only the files below these
    folders are its documentation. With `code`, source code with documentation in it is indexed, too.
    """

    origin: str
    from_folder: Path
    id: str = ""
    version: str = ""
    include: Sequence[str] = ()
    code: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for an id, a version or a folder that cannot be one."""
        check_id(self.id or "/any/name")
        check_version(self.version or "1")
        if wrong := [folder[:80] for folder in self.include if not is_nameable(folder.rstrip("/"))]:
            raise UsageError(f"{wrong[0]!r} is no folder of a library", hint="name one below it, as docs/guide")

    def save(self, libraries: Libraries, allow: Allow, progress: Progress) -> tuple[Library, str]:
        """Store the documentation and its record; the index is updated after that. Blocking.

        Return the library, and why not all of its documentation may be there; empty where all of it is.

        An npm package that is installed has all of its documentation. A Python package has it in its source archive,
        which is downloaded in the version that is installed.

        Raises
        ------
        UsageError
            When it has no version, or its id or version is not allowed.
        NotFound, DownloadFailed, ConsentRequired
            When the package is neither installed nor to be had.
        """
        installed, hosts = self.locate()
        if installed and not hosts:
            return self._store(libraries.records, installed), ""
        ecosystem, name, wanted = parse_origin(self.origin)
        version = wanted or (installed.version if installed else "")
        try:
            with download(ecosystem, name, version, allow=allow, progress=progress) as found:
                return self._store(libraries.records, *found), ""
        except (DownloadFailed, NotFound) as error:
            if installed is None:
                raise
            return self._store(libraries.records, installed), f"only what is installed was added: {error.message}"

    def locate(self) -> tuple[Package | None, Sequence[str]]:
        """Return what is on this machine, and the hosts that the archive is downloaded from, if it has to be. Blocking.

        Raises
        ------
        NotFound
            When it is a folder that does not exist.
        """
        ecosystem, installed = parse_origin(self.origin)[0], locate(self.origin, self.from_folder)
        is_whole = ecosystem == PATH or (ecosystem == "npm" and installed)
        return installed, () if is_whole else index_hosts(ecosystem)

    def _store(self, records: LibraryRecords, package: Package, archive: Path | None = None) -> Library:
        library = self.library_of(package, records)
        if library.origin != PATH:
            unpack(package, library, archive)
        elif missing := [folder for folder in library.include if not (library.root / folder).is_dir()]:
            message = f"{library.root} has no folder {missing[0]}, so nothing was added"
            raise NotFound(message, hint="name one that it has, as --docs docs/guide, or leave --docs out")
        records.write(library)
        return library

    def library_of(self, package: Package, records: LibraryRecords) -> Library:
        """Return the library that a package becomes.

        Raises
        ------
        UsageError
            When it has no version and none is given, or one of them cannot be used, or another package has them.
        """
        if not (self.version or package.version):
            raise UsageError(f"{package.folder} does not say which version it is", hint="name it: --version 1.0.0")
        chosen, root = check_id(self.id or package.id), package.folder.resolve() if package.folder else Path("/")
        aliases = tuple(dict.fromkeys(name.lower() for name in (*package.aliases, chosen.rpartition("/")[2])))
        title = "".join(filter(str.isprintable, package.title))[:200]
        named = (chosen, check_version(self.version or package.version), title, aliases, package.origin, root)
        include = tuple(folder.rstrip("/") for folder in self.include)
        library = Library(*named, include, self.code, added_at=format_time(datetime.now(UTC)))
        with suppress(NoSuchLibrary, StoreCorrupt):
            if records.read(library.name).origin != package.origin:
                hint = f"name another id with --id, or remove that one: kiwi library remove {library.canonical}"
                raise UsageError(f"{library.canonical} is there already, from another package or a folder", hint=hint)
        if package.origin == PATH:
            return replace(library, commit=head_commit(root))
        return replace(library, root=records.files_of(library))


_STATUS = {"": "NotStarted", RunState.BEGUN: "InProgress", RunState.COMPLETE: "Completed", RunState.PARTLY: "Failed"}
"""The state of the last index run → the status of a library."""


async def collect_library_status(index: LibraryIndex, *, brief: bool = False) -> Mapping[str, Any]:
    """Return a library's record and the state of its index, JSON-ready; a `brief` one reads no document."""
    library, stats = index.library, await collect_workspace_status(index, brief=brief)
    states = index.tier.states if index.is_indexed else None
    return {
        "id": library.canonical,
        **render.attributes(library, "title", "version", "origin", "aliases"),
        "root": str(library.root),
        "status": _STATUS[stats["run"]],
        "last_indexed": states.written_at() if states else "",
        "commit": states.run_commit() if states else library.commit,
        "stats": stats,
    }


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a page of documentation: a hit, with the neighbours that belong to it.

    ``offset`` is where its lines begin and end in the file's bytes; None where the file is not the one that was
    indexed, and for what another file includes.
    """

    hit: SearchResult
    text: str
    start_line: int
    end_line: int
    offset: tuple[int, int] | None = None

    def as_dict(self) -> Mapping[str, Any]:
        """Return the chunk, JSON-ready."""
        hit = self.hit
        source = {
            "file": hit.passage.file or hit.ref.item_id,
            "commit": str(hit.metadata.get("git_commit", "")),
            "lines": [self.start_line, self.end_line],
            "offset": list(self.offset) if self.offset else None,
        }
        about = {"title": str(hit.metadata.get("title", "")), "heading": list(hit.passage.heading)}
        signed = {"signer": hit.principal, "key_id": hit.key_id, "digest": hit.digest, "changed": hit.state.changed}
        times = {"indexed_at": hit.signed_at.isoformat()}
        return {"text": self.text, "source": source, **about, **times, **signed, "score": round(hit.score, 6)}


async def get_docs(  # noqa: PLR0913  # what a page depends on
    app: Services, libraries: Libraries, resolved: Resolution, topic: str = "", *, tokens: int = 5_000,
    continuation: str = "",
) -> Answer:  # fmt: skip
    """Return the page of a library's documentation about a topic that a continuation stands for, the first by default.

    The whole text has at most `tokens` tokens of the embedding model. Without a topic it is how to begin.

    Raises
    ------
    UsageError
        When the continuation belongs to another request, or what came before it has changed.
    NotFound
        When the library is not indexed yet.
    """
    library, request = resolved.library, {"library": resolved.library.canonical, "topic": topic}
    begin = agents.parse_continuation(continuation, request)
    with libraries.scope(library) as index:
        topic = topic or f"{library.title}: introduction, installation, getting started"
        reply = await index.search(SearchQuery(topic, limit=HITS, per_file=0))
        chunks = await asyncio.to_thread(lambda: list(_join(reply.hits, index.tier)))
    notes = [*filter(None, [resolved.notice]), *notices(reply, update=index.index_command)]
    about = {"library": library.canonical, "version": library.version, "close": reply.close, "notices": notes}
    page = _Page(about, chunks, request, app.embed.count_tokens)
    return await asyncio.to_thread(page.answer, begin, tokens, continuation)


@dataclass(frozen=True, slots=True)
class _Page:
    """What the pages of an answer are made of: `about` is in the data of each, `count` returns the tokens of a text."""

    about: Mapping[str, Any]
    chunks: Sequence[Chunk]
    request: Mapping[str, Any]
    count: Callable[[str], int]

    def answer(self, begin: int, tokens: int, continuation: str) -> Answer:
        """Return the page that begins at a position in the text of all chunks."""
        agents.check_continuation(continuation, self._continuation(begin))
        library, notes, mark = self.about["library"], self.about["notices"], secrets.token_hex(8)
        around = self.count(agents.library_page(library, ["."], notes, None, mark)) + CONTINUATION_TOKENS
        if around > tokens // 2:  # they are in the data
            around, notes = around - self.count("\n".join(notes)), []
        page, end = page_of(self.chunks, begin, tokens - around, self._cost)
        rows, following = [chunk.as_dict() for chunk in page], self._continuation(end)
        text = agents.library_page(library, [*map(agents.library_block, rows)], notes, following, mark)
        return Answer(text, {**self.about, "chunks": rows, "continuationToken": following})

    def _cost(self, chunk: Chunk) -> int:
        return self.count(agents.library_block(chunk.as_dict())) + 2  # the line ends between two blocks

    def _continuation(self, position: int | None) -> str | None:
        before = "".join(chunk.text for chunk in self.chunks)[:position]
        return agents.make_continuation(position, self.request, before)


def page_of(
    chunks: Sequence[Chunk], begin: int, budget: int, cost: Callable[[Chunk], int]
) -> tuple[list[Chunk], int | None]:
    """Return what fits into a page, and where the next page begins; None at the end.

    A chunk that does not fit into a page of its own is divided, at a line end where there is one.

    Parameters
    ----------
    begin
        A position in the text of all chunks, in characters.
    budget, cost
        What a page may cost, and what a chunk costs of it; a longer text costs no less.
    """
    page: list[Chunk] = []
    position = 0
    for chunk in chunks:
        rest = replace(chunk, text=chunk.text[max(0, begin - position) :])
        position += len(chunk.text)
        if not rest.text:
            continue
        budget -= (spent := cost(rest))
        if budget < 0:
            kept = 0 if page else _longest(rest, budget + spent, cost)
            page += [replace(rest, text=rest.text[:kept])] if kept else []
            is_end = kept == len(rest.text) and chunk is chunks[-1]
            return page, None if is_end else position - len(rest.text) + kept
        page.append(rest)
    return page, None


def _longest(chunk: Chunk, budget: int, cost: Callable[[Chunk], int]) -> int:
    """Return how many characters of a chunk that is too long fit, at least one."""
    text = chunk.text
    end = bisect_right(range(1, len(text)), budget, key=lambda n: cost(replace(chunk, text=text[:n]))) or 1
    return text.rfind("\n", 0, end) + 1 or end


class _Read(NamedTuple):
    """A document as it was indexed, the bytes of its file, and its passages."""

    document: Document
    data: bytes
    passages: Sequence[Passage]


def _join(hits: Sequence[SearchResult], tier: Collection) -> Iterator[Chunk]:
    """Yield a chunk for each hit that no chunk before it contains, and none of the same text twice. Blocking."""
    documents: dict[str, _Read | None] = {}
    covered, texts = defaultdict[str, set[int]](set), set[str]()
    for hit in hits:
        passage, path = hit.passage, hit.ref.item_id
        if passage.ordinal in covered[path]:
            continue
        covered[path].add(passage.ordinal)
        if path not in documents:
            found = read_document(hit, tier)
            documents[path] = _Read(*found, split_document(found[0])) if found else None
        read = documents[path]
        if read is None or passage.file:
            chunk = Chunk(hit, passage.text, passage.start_line, passage.end_line)
        else:
            chunk = _chunk_of(hit, read, _neighbours(read.passages, passage.ordinal, covered[path]))
            within = range(chunk.start_line, chunk.end_line + 1)
            own = (p for p in read.passages if not p.file)
            covered[path].update(p.ordinal for p in own if p.start_line in within and p.end_line in within)
        if (key := " ".join(chunk.text.split())) not in texts:
            texts.add(key)
            yield chunk


def _neighbours(passages: Sequence[Passage], ordinal: int, taken: set[int]) -> list[Passage]:
    """Return a passage and its neighbours of the same section, what follows first, while they fit."""
    hit = passages[ordinal]
    room = CHUNK_TOKENS - estimate_tokens(hit.text, hit.kind)
    joined = [hit]
    for following in (range(ordinal + 1, len(passages)), range(ordinal - 1, -1, -1)):
        for other in (passages[n] if n not in taken else None for n in following):
            if other is None or other.heading[: len(hit.heading)] != hit.heading or other.file != hit.file:
                break
            room -= estimate_tokens(other.text, other.kind)
            if room < 0:
                break
            joined.append(other)
    return joined


def _chunk_of(hit: SearchResult, read: _Read, passages: Sequence[Passage]) -> Chunk:
    """Return the lines of some neighbouring passages, with all of a code example that they begin or end in."""
    first, last = min(p.start_line for p in passages), max(p.end_line for p in passages)
    if read.document.rendered is not None:
        lines = [(line.number, line.text) for line in read.document.rendered]
    else:
        lines = list(enumerate(read.document.lines(), start=1))
        first, last = _whole_code([text for _, text in lines], first, last)
    text = "\n".join(text for number, text in lines if first <= number <= last)
    # An offset into UTF-16 would be that of a line feed of one byte.
    offset = None if b"\0" in read.data[:4] else _offset(read.data, first, last)
    return Chunk(hit, text, first, last, offset)


def _offset(data: bytes, first: int, last: int) -> tuple[int, int]:
    """Return where lines, counted from 1, begin and end in bytes."""
    lines = data.split(b"\n")
    begin = sum(len(line) + 1 for line in lines[: first - 1])
    return begin, min(len(data), begin + sum(len(line) + 1 for line in lines[first - 1 : last]))


def _whole_code(lines: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """Return the lines `first` to `last`, counted from 1, grown so that no fenced code example is cut."""
    opened = 0
    for number, line in enumerate(lines, start=1):
        if not _FENCE.match(line):
            continue
        begin, opened = opened, 0 if opened else number
        if not begin or number < first or begin > last or number - begin > MAX_CODE_LINES:
            continue
        first, last = min(first, begin), max(last, number)
    return first, last
