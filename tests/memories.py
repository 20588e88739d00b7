"""A conversation memory in a folder of a test's own: real files, gate and store; only the model is small."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kiwi_rag.model import Exchange
from kiwi_rag.services import Services
from kiwi_rag.services.memory import Memory
from tests.search_tiers import WordsProvider

START = datetime(2026, 11, 1, 9, tzinfo=UTC)


@asynccontextmanager
async def opened_memory(home: Path, cwd: Path | None = None, **settings: str) -> AsyncIterator[Memory]:
    """Open the memory of a user, or of the project around `cwd`, as a process of its own would."""
    environ = {"HOME": str(home), "KIWI_HOME": str(home / ".ai"), "KIWI_CACHE_DIR": str(home / "cache"), **settings}
    app = Services.open(environ, cwd or home)
    async with app, Memory(app, embed=WordsProvider()) as memory:
        yield memory


def settings_of(memory: Memory) -> Any:
    """Return the settings that a memory was opened with."""
    return memory._app.settings


def exchange(number: int, user: str = "", assistant: str = "", session: str = "s1", **more: Any) -> Exchange:
    """Return an exchange that began `number` minutes after the first one."""
    texts = user or f"question {number} on topic{number}", assistant or f"answer {number} with detail{number}"
    moment = START + timedelta(minutes=number)
    return Exchange(more.pop("id", f"e{number}"), session, *texts, more.pop("timestamp", moment), **more)


def files_with(folder: Path, *texts: str) -> list[str]:
    """Return the files below a folder that have one of some texts in their bytes, whatever they are."""
    wanted = [text.encode() for text in texts]
    paths = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return sorted(str(path) for path in paths if any(one in path.read_bytes() for one in wanted))
