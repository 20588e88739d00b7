"""An index run over many small files: what it has read of a file is let go when that is stored."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable
from functools import _lru_cache_wrapper
from itertools import count
from pathlib import Path

import pytest

from kiwi_rag import ingest
from kiwi_rag.ingest import AdmittedFile, sync, vectors
from kiwi_rag.ingest.sync import Callbacks
from kiwi_rag.model import Admission, Document, Passage
from kiwi_rag.sources.source import SourceContent, SyncReport
from tests.unit.test_embedding_base import Hashing
from tests.unit.test_index_files import Project
from tests.workspaces import Yard

CONTENTS = (Admission, AdmittedFile, Document, Passage, SourceContent)
GROUP, GROUPS, FILES, EVERY = 4, 8, 200, 20


def held() -> int:
    """Return how many objects there are that hold what was read of a file, apart from caches of a limited size."""
    modules = [module for name, module in sys.modules.items() if name.startswith("kiwi_rag.")]
    for one in [one for module in modules for one in vars(module).values() if isinstance(one, _lru_cache_wrapper)]:
        if one.cache_parameters()["maxsize"] is not None:
            one.cache_clear()
    gc.collect()
    return sum(isinstance(one, CONTENTS) for one in gc.get_objects())


class Most:
    """The most such objects at any time that a file is stored, or a group is embedded."""

    def __init__(self) -> None:
        self.before, self.count, self._calls = held(), 0, count()

    def look(self, _: object) -> None:
        """Count them, once in so many calls."""
        if next(self._calls) % EVERY == 0:
            self.count = max(self.count, held() - self.before)


async def documents(root: Path, most: Most) -> SyncReport:
    yard = Yard(root)
    for number in range(FILES):
        yard.write(f"docs/{number // 50}/{number}.md", f"# Buoy {number}\n\nBuoy {number} blinks.\n")
    report = await yard.index(callbacks=Callbacks(stored=most.look, embedding=lambda _: most.look))
    assert report.embedded == report.passages
    await yard.store.close()
    return report


async def items(root: Path, most: Most) -> SyncReport:
    project = Project(root)
    for number in range(FILES):
        project.write(f"n{number}", f"Buoy {number} blinks.")
    report = await project.index(Hashing(), stored=most.look)
    await project.tier.store.close()
    return report


@pytest.mark.parametrize("index", [documents, items])
async def test_a_run_holds_only_some_groups_of_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Callable[[Path, Most], Awaitable[SyncReport]]
) -> None:
    """Groups are read, stored and embedded at once; one object kept of each file would be more than all of them."""
    for module, name in ((ingest, "GROUP"), (sync, "WORDS_GROUP"), (vectors, "GROUP")):
        monkeypatch.setattr(module, name, GROUP)
    most = Most()
    assert len((await index(tmp_path, most)).indexed) == FILES
    assert 0 < most.count < GROUPS * GROUP * len(CONTENTS) < FILES
