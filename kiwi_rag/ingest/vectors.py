"""The second stage of indexing documents: embed the passages that were stored by their words, likely ones first.

Which passages have no vector is read from the index, so a run that was stopped at any point is continued by the next
one, of any process. The writer's lock is held only while a group of vectors is stored: others may write meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

from kiwi_rag.collection import Collection
from kiwi_rag.embedding import EmbeddingProvider, batches
from kiwi_rag.errors import EmbeddingError, TextsRefused
from kiwi_rag.ingest import GROUP, JOBS, bounded_map
from kiwi_rag.model import Passage, Vector
from kiwi_rag.retry import attempts
from kiwi_rag.sources.source import SyncReport, named_paths
from kiwi_rag.stores.base import UnembeddedDocument
from kiwi_rag.telemetry import span
from kiwi_rag.wordpieces import embedded_text

PAUSES = (0.0,) * 14
"""Between attempts to store vectors while another process writes; each waits `WAIT_SECONDS` of the local store."""

_README = re.compile(r"(?:.*/)?readme[^/]*", re.IGNORECASE)
_DOCS = re.compile(r"(?:.*/)?docs?/.*", re.IGNORECASE)
_DATA = frozenset({"json", "yaml", "text"})
_PROSE = re.compile(r".*\.(?:md|mdx|markdown|rst|adoc|asciidoc|txt|html?|ipynb)", re.IGNORECASE)
Passages = Mapping[int, Passage]


async def embed_missing(
    to: Collection,
    embed: EmbeddingProvider,
    report: SyncReport,
    paths: Sequence[str] | None = None,
    planned: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> None:
    """Embed the passages of a local index that have no vector, of all documents or of those at `paths` and below.

    `report` counts them, and names the documents whose passages the model could not embed. `planned` is called once
    with the number of passages, and returns the callback for those that are stored.

    Raises
    ------
    StoreBusy
        When another process is writing for a minute.
    StoreError
        When the index cannot be read or written; the groups before are stored.
    """
    store = to.words_first
    documents = await store.unembedded() if store else ()
    if paths is not None:
        named = set(named_paths(paths, [one.path for one in documents]))
        documents = [one for one in documents if one.path in named]
    if not store or not documents:
        return
    remaining = {key: one.path for one in sort_by_likely_use(documents) for key in one.keys}
    documents = ()  # as many as files
    advance, fingerprint = planned(len(remaining)), str(embed.fingerprint)

    async def encode(keys: Sequence[int]) -> tuple[Passages, dict[int, Vector]]:
        passages = await store.passages(keys)
        return passages, await _encode(passages, embed, remaining, report)

    try:
        async with aclosing(bounded_map(encode, batches(list(remaining), GROUP), JOBS)) as encoded:
            async for passages, vectors in encoded:
                if vectors:
                    await _store(partial(store.put_vectors, passages, vectors, fingerprint), to.name, len(vectors))
                report.embedded += len(vectors)
                advance(len(passages))
                for key in passages:
                    remaining.pop(key)
    except EmbeddingError as error:
        report.failed.update(dict.fromkeys(remaining.values(), error))
    await store.update_chroma()


def sort_by_likely_use(documents: Sequence[UnembeddedDocument]) -> list[UnembeddedDocument]:
    """Return documents in the order in which they are embedded, each kind from the last changed to the oldest.

    First READMEs, then texts and folders of documentation, then code and specifications, then data.
    """

    def kind(one: UnembeddedDocument) -> int:
        if _README.fullmatch(one.path):
            return 0
        if _PROSE.fullmatch(one.path) or _DOCS.fullmatch(one.path):
            return 1
        return 3 if one.file_type in _DATA else 2

    by_path = sorted(documents, key=lambda one: one.path)
    return sorted(sorted(by_path, key=lambda one: one.last_modified, reverse=True), key=kind)


async def _encode(
    passages: Passages, embed: EmbeddingProvider, paths: Mapping[int, str], report: SyncReport
) -> dict[int, Vector]:
    """Return the vectors of passages; a text that the server refuses is found by halving, and reported."""
    try:
        vectors = await embed.documents([embedded_text(passage) for passage in passages.values()])
        return dict(zip(passages, vectors, strict=True))
    except TextsRefused as error:
        if len(passages) == 1:
            report.failed[paths[next(iter(passages))]] = error
            return {}
        rows, half = list(passages.items()), len(passages) // 2
        first = await _encode(dict(rows[:half]), embed, paths, report)
        return first | await _encode(dict(rows[half:]), embed, paths, report)


async def _store(put: Callable[[], Awaitable[None]], tier: str, count: int) -> None:
    """Store vectors, and wait while another process is writing."""
    with span("kiwi.store", tier=tier, step="vectors", passages=count):
        for attempt in attempts(PAUSES):
            async with attempt:
                await put()
