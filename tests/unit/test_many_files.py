"""An index run over many small files: what it has read of a file is let go when that is stored."""

from __future__ import annotations

import gc
import sys
from functools import _lru_cache_wrapper
from itertools import count
from pathlib import Path

import pytest

from kiwi_rag.ingest import AdmittedFile, sync, vectors
from kiwi_rag.ingest.sync import Callbacks
from kiwi_rag.model import Admission, Document, Passage
from kiwi_rag.sources.source import SourceContent
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


async def most_held(root: Path, files: int) -> int:
    """Return the most such objects at any time that a file is stored, or a group is embedded."""
    yard, before, seen = Yard(root), held(), [0]
    calls = count()

    def look(_: object) -> None:
        if next(calls) % EVERY == 0:
            seen.append(held() - before)

    for number in range(files):
        yard.write(f"docs/{number // 50}/{number}.md", f"# Buoy {number}\n\nBuoy {number} blinks.\n")
    report = await yard.index(callbacks=Callbacks(stored=look, embedding=lambda _: look))
    assert len(report.indexed) == files
    assert report.embedded == report.passages
    await yard.store.close()
    return max(seen)


async def test_a_run_holds_only_some_groups_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are read, stored and embedded at once; one object kept of each file would be more than all of them."""
    for module in (sync, vectors):
        monkeypatch.setattr(module, "WORDS_GROUP" if module is sync else "GROUP", GROUP)
    assert 0 < await most_held(tmp_path, FILES) < GROUPS * GROUP * len(CONTENTS) < FILES
