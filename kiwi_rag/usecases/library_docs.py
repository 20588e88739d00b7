"""Reading the documentation of a library: hits joined with their neighbours, in pages of a number of tokens.

What the chunks are depends on the topic alone, and a page is the next of them that fit: so all pages together are the
answer that one large page would be.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from kiwi_rag.chunking import split_document
from kiwi_rag.collection import Collection
from kiwi_rag.errors import Refused
from kiwi_rag.model import Document, Passage, SearchQuery, SearchReply, SearchResult
from kiwi_rag.render import agents
from kiwi_rag.render.agents import Answer
from kiwi_rag.render.hits import notices
from kiwi_rag.search.document_state import read_document
from kiwi_rag.search.verify import verify_stored
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.services.library import Libraries
from kiwi_rag.sources.library.versions import Resolution
from kiwi_rag.stores.base import VectorStore
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
    request = {"library": resolved.library.canonical, "topic": topic}
    begin = agents.parse_continuation(continuation, request)
    with libraries.scope(resolved.library) as index:
        reply, chunks = await find_chunks(
            index, topic or f"{resolved.library.title}: introduction, installation, getting started"
        )
    page = _Page(resolved, reply, chunks, request, app.embed.count_tokens, index.index_command)
    return await asyncio.to_thread(page.answer, begin, tokens, continuation)


@dataclass(frozen=True, slots=True)
class _Page:
    """What the pages of an answer are made of; `count` returns the tokens of a text, `update` updates the index."""

    resolved: Resolution
    reply: SearchReply
    chunks: Sequence[Chunk]
    request: Mapping[str, Any]
    count: Callable[[str], int]
    update: str

    def answer(self, begin: int, tokens: int, continuation: str) -> Answer:
        """Return the page that begins at a position in the text of all chunks."""
        agents.check_continuation(continuation, self._continuation(begin))
        library, mark = self.resolved.library, secrets.token_hex(8)
        notes = [*([self.resolved.notice] if self.resolved.notice else []), *notices(self.reply, update=self.update)]
        shown = notes
        around = self.count(agents.library_page(library.canonical, ["."], notes, None, mark)) + CONTINUATION_TOKENS
        if around > tokens // 2:  # they are in the data
            around, shown = around - self.count("\n".join(notes)), []
        page, end = page_of(self.chunks, begin, tokens - around, self._cost)
        rows, following = [chunk.as_dict() for chunk in page], self._continuation(end)
        text = agents.library_page(library.canonical, [*map(agents.library_block, rows)], shown, following, mark)
        about = {"library": library.canonical, "version": library.version, "close": self.reply.close, "notices": notes}
        return Answer(text, {**about, "chunks": rows, "continuationToken": following})

    def _cost(self, chunk: Chunk) -> int:
        return self.count(agents.library_block(chunk.as_dict())) + 2  # the line ends between two blocks

    def _continuation(self, position: int | None) -> str | None:
        before = "".join(chunk.text for chunk in self.chunks)[:position]
        return agents.make_continuation(position, self.request, before)


async def find_chunks(index: DocumentIndex, topic: str) -> tuple[SearchReply, list[Chunk]]:
    """Search an index for a topic; return the reply, and its hits joined with their neighbours, best first."""
    reply = await index.search(SearchQuery(topic, limit=HITS, per_file=0))
    documents: dict[str, _Read | None] = {}
    for hit in reply.hits:
        if hit.ref.item_id not in documents:
            documents[hit.ref.item_id] = await _document_of(hit, index.tier)
    return reply, await asyncio.to_thread(lambda: list(_join(reply.hits, documents)))


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
        first, position = position, position + len(chunk.text)
        if position <= begin:
            continue
        rest = replace(chunk, text=chunk.text[max(0, begin - first) :])
        spent = cost(rest)
        if spent <= budget:
            page.append(rest)
            budget -= spent
            continue
        kept = 0 if page else _longest(rest, budget, cost)
        page += [replace(rest, text=rest.text[:kept])] if kept else []
        end = position - len(rest.text) + kept
        return page, end if kept < len(rest.text) or chunk is not chunks[-1] else None
    return page, None


def _longest(chunk: Chunk, budget: int, cost: Callable[[Chunk], int]) -> int:
    """Return how many characters of a chunk that is too long fit, at least one."""
    text = chunk.text
    end = bisect_right(range(1, len(text)), budget, key=lambda n: cost(replace(chunk, text=text[:n]))) or 1
    return text.rfind("\n", 0, end) + 1 or end


async def _document_of(hit: SearchResult, tier: Collection[VectorStore]) -> _Read | None:
    """Return the document of a hit as it was indexed; None where its file is not that one any more."""
    stored = await tier.store.get(hit.ref)
    if stored is None or hit.state.changed or not hit.state.compared:
        return None
    try:
        item = verify_stored(stored, hit.ref, tier.trust(), tier)
    except Refused:  # replaced since the search
        return None
    found = await asyncio.to_thread(read_document, item, tier)
    return _Read(*found, split_document(found[0])) if found else None


class _Read(NamedTuple):
    """A document as it was indexed, the bytes of its file, and its passages."""

    document: Document
    data: bytes
    passages: Sequence[Passage]


def _join(hits: Sequence[SearchResult], documents: Mapping[str, _Read | None]) -> Iterator[Chunk]:
    """Yield a chunk for each hit that no chunk before it contains, and none of the same text twice."""
    covered: dict[str, set[int]] = {}
    texts: set[str] = set()
    for hit in hits:
        passage, read = hit.passage, documents[hit.ref.item_id]
        seen = covered.setdefault(hit.ref.item_id, set())
        if passage.ordinal in seen:
            continue
        seen.add(passage.ordinal)
        if read is None or passage.file:
            chunk = Chunk(hit, passage.text, passage.start_line, passage.end_line)
        else:
            chunk = _chunk_of(hit, read, _neighbours(read.passages, passage.ordinal, seen))
            inside = (p.ordinal for p in read.passages if _is_within(p, chunk))
            seen.update(inside)
        if (key := " ".join(chunk.text.split())) not in texts:
            texts.add(key)
            yield chunk


def _is_within(passage: Passage, chunk: Chunk) -> bool:
    return not passage.file and chunk.start_line <= passage.start_line and passage.end_line <= chunk.end_line


def _neighbours(passages: Sequence[Passage], ordinal: int, taken: set[int]) -> list[Passage]:
    """Return a passage and its neighbours of the same section, what follows first, while they fit."""
    hit = passages[ordinal]
    room = CHUNK_TOKENS - estimate_tokens(hit.text, hit.kind)
    joined = [hit]
    for step in (1, -1):
        following = range(ordinal + step, len(passages) if step > 0 else -1, step)
        for other in takewhile(lambda n: n not in taken and _belongs(passages[n], hit), following):
            room -= estimate_tokens(passages[other].text, passages[other].kind)
            if room < 0:
                break
            joined.append(passages[other])
    return joined


def _belongs(passage: Passage, hit: Passage) -> bool:
    """Whether a passage is of the hit's section or of one below it."""
    return passage.heading[: len(hit.heading)] == hit.heading and passage.file == hit.file


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
