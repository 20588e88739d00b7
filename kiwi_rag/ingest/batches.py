"""Batches of files for the gate, and embedding in groups of passages, several groups concurrently, each text once.

Files are yielded in their order, so a stop, a kill or a failing model costs only the groups in progress.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kiwi_rag.ingest import bounded_map
from kiwi_rag.model import Admission, EmbeddingRecord, Passage, Vector
from kiwi_rag.wordpieces import embedded_text

if TYPE_CHECKING:
    from kiwi_rag.embedding import EmbeddingProvider
    from kiwi_rag.sources.source import FoundFile
    from kiwi_rag.stores.base import SourceStamp

BATCH_BYTES = 32 << 10
"""Bytes of files that one call in a thread admits, with one commit of the audit log."""

GROUP = 64
"""Passages that are encoded together, or more where one file has more: about a second of work, and enough texts to
form batches of similar length."""

KEPT_TEXTS = 20_000
"""Texts whose vectors are kept for repetitions, about 50 MB; for older ones the provider's cache is used."""

JOBS = 2
"""Groups that are encoded concurrently: threads that one no longer needs at its end begin with the next."""


@dataclass(frozen=True, slots=True)
class AdmittedFile:
    """An admitted file with its passages and its stamp."""

    admission: Admission
    passages: Sequence[Passage]
    stamp: SourceStamp


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A file with the records of its passages, ready to be stored."""

    file: AdmittedFile
    records: list[EmbeddingRecord]


@dataclass(slots=True)
class _Group:
    """Files that are encoded together.

    A text that an earlier group encodes is not encoded again: each passage refers to the group that has its vector.
    """

    files: list[tuple[AdmittedFile, list[tuple[_Group, str]]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    passages: int = 0
    vectors: dict[str, Vector] = field(default_factory=dict)

    def add(self, file: AdmittedFile, group_of: dict[str, _Group]) -> None:
        texts = [embedded_text(passage) for passage in file.passages]
        new = [text for text in dict.fromkeys(texts) if text not in group_of]
        group_of.update(dict.fromkeys(new, self))
        self.texts += new
        self.files.append((file, [(group_of[text], text) for text in texts]))
        self.passages += len(texts)


async def encode_files(
    files: AsyncIterable[AdmittedFile], embed: EmbeddingProvider, jobs: int = JOBS
) -> AsyncGenerator[list[EncodedFile]]:
    """Yield `files` in their order, a group at a time, each with its passages' records.

    Up to `jobs` groups are encoded concurrently.

    Raises
    ------
    EmbeddingError
        When the model fails, after all files of the groups before were yielded.
    """
    fingerprint = str(embed.fingerprint)

    async def encode(group: _Group) -> _Group:
        group.vectors = dict(zip(group.texts, await embed.documents(group.texts), strict=True))
        return group

    async with aclosing(bounded_map(encode, _groups(files), jobs)) as groups:
        async for group in groups:
            yield [EncodedFile(file, list(_records(file, texts, fingerprint))) for file, texts in group.files]


def _records(file: AdmittedFile, texts: Sequence[tuple[_Group, str]], fingerprint: str) -> Iterator[EmbeddingRecord]:
    for passage, (group, text) in zip(file.passages, texts, strict=True):
        yield EmbeddingRecord(file.admission, passage, group.vectors[text], fingerprint)


async def _groups(files: AsyncIterable[AdmittedFile]) -> AsyncGenerator[_Group]:
    group_of: dict[str, _Group] = {}
    group = _Group()
    async for file in files:
        group.add(file, group_of)
        if group.passages >= GROUP:
            yield group
            group = _Group()
            if len(group_of) > KEPT_TEXTS:
                group_of.clear()
    if group.files:
        yield group


def batch_by_size(files: Iterable[FoundFile]) -> Iterator[list[FoundFile]]:
    """Yield files in their order in batches of up to `BATCH_BYTES`; a larger file is a batch by itself."""
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        size += file.size
        if batch and size > BATCH_BYTES:
            yield batch
            batch, size = [], file.size
        batch.append(file)
    if batch:
        yield batch
