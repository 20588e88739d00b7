"""Passages of many items encoded together: in groups, a few under way at once, each text once.

While one group is encoded, the items of the one before are stored and those of the next are judged. Whoever asks gets
the items back in their order, so that a stop, a kill or a failing model costs what was under way and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kiwi_rag.collection import Tier
from kiwi_rag.ingest.pipeline import bounded_map
from kiwi_rag.model import Admission, EmbeddingRecord, Passage
from kiwi_rag.stores.base import FileStore, SourceStamp
from kiwi_rag.telemetry import span
from kiwi_rag.wordpieces import embedded_text

if TYPE_CHECKING:
    from kiwi_rag.embedding.base import EmbeddingProvider
    from kiwi_rag.model import Vector

GROUP = 64
"""Passages that are encoded together, or those of one item where it has more: about a second of work, and enough to
batch by length."""

REMEMBERED = 20_000
"""Texts that are known again when they come a second time, about 50 MB; older ones are left to the provider's cache."""

JOBS = 2
"""Groups under way at once: one is being encoded while the threads that the other no longer needs turn to the next."""


@dataclass(frozen=True, slots=True)
class AdmittedFile:
    """One admitted file on its way into a store."""

    admission: Admission
    passages: Sequence[Passage]
    stamp: SourceStamp


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A file with the records of its passages, ready to be stored."""

    work: AdmittedFile
    records: list[EmbeddingRecord]


async def store(ready: Sequence[EncodedFile], to: Tier[FileStore]) -> None:
    """Store a group of files with their stamps."""
    passages = sum(len(one.records) for one in ready)
    with span("kiwi.store", tier=to.name, step="upsert", passages=passages):
        await to.store.upsert_all([(one.records, one.work.stamp) for one in ready])


@dataclass(slots=True)
class _Group:
    """Items that are encoded together, and for each of their passages the group that encodes its text."""

    works: list[tuple[AdmittedFile, list[tuple[_Group, str]]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    passages: int = 0
    vectors: dict[str, Vector] = field(default_factory=dict)

    def add(self, work: AdmittedFile, homes: dict[str, _Group]) -> None:
        texts = [embedded_text(passage) for passage in work.passages]
        fresh = [text for text in dict.fromkeys(texts) if text not in homes]
        homes.update(dict.fromkeys(fresh, self))
        self.texts += fresh
        self.works.append((work, [(homes[text], text) for text in texts]))
        self.passages += len(texts)


async def encoded(
    works: AsyncIterable[AdmittedFile], embed: EmbeddingProvider, jobs: int = JOBS
) -> AsyncGenerator[list[EncodedFile]]:
    """Yield `works` in their order, a group at a time, each with its passages' records.

    Up to `jobs` groups are encoded at once.

    Raises
    ------
    EmbeddingError
        When the model fails; every item of the groups before has been yielded then.
    """
    fingerprint = str(embed.fingerprint)

    async def encode(group: _Group) -> _Group:
        group.vectors = dict(zip(group.texts, await embed.documents(group.texts), strict=True))
        return group

    async with aclosing(bounded_map(encode, _groups(works), jobs)) as groups:
        async for group in groups:
            yield [EncodedFile(work, list(_records(work, places, fingerprint))) for work, places in group.works]


def _records(work: AdmittedFile, places: Sequence[tuple[_Group, str]], fingerprint: str) -> Iterator[EmbeddingRecord]:
    for passage, (home, text) in zip(work.passages, places, strict=True):
        yield EmbeddingRecord(work.admission, passage, home.vectors[text], fingerprint)


async def _groups(works: AsyncIterable[AdmittedFile]) -> AsyncGenerator[_Group]:
    homes: dict[str, _Group] = {}
    group = _Group()
    async for work in works:
        group.add(work, homes)
        if group.passages >= GROUP:
            yield group
            group = _Group()
            if len(homes) > REMEMBERED:
                homes.clear()
    if group.works:
        yield group
