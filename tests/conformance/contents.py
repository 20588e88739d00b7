"""The kinds of content that a store keeps, each made in the same way: an item, a skill of twelve files, a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from kiwi_rag.model import EmbeddingRecord
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores.base import VectorStore
from tests.conformance.documents import document, records_of
from tests.conformance.items import FINGERPRINT, SIGNED, WORDS, admission, records

SKILL_FILES = {
    "LICENSE": b"Apache-2.0\n",
    "assets/logo.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\0",
    "assets/palette.json": b'{"sea": "#003366"}\n',
    "references/berths.md": b"# Berths\n\nBerth nine is dredged in May.\n",
    "references/deep/anchors.md": b"# Anchors\n",
    "references/deep/ropes.md": b"# Ropes\r\n",
    "references/tides.md": b"# Tides\n",
    "scripts/check.py": b"print('checked')\n",
    "scripts/lib/report.py": b"LINES = 3\n",
    "templates/notice.md": "# Notice to mariners \u2693\n".encode(),
    "templates/empty.txt": b"",
}
"""What a skill has besides its SKILL.md: nested folders, a binary file, an empty one, line ends of both kinds."""


@dataclass(frozen=True)
class Kind:
    """How the content of one type is made. `name` is an id of items; a document's path is it with ``.md``."""

    item_type: ItemType

    @property
    def is_document(self) -> bool:
        return self.item_type is ItemType.DOCUMENT

    def ref(self, name: str, version: str | None = None) -> ItemRef:
        """The reference of the content called `name`."""
        return ItemRef(self.item_type, f"{name}.md") if self.is_document else ItemRef(self.item_type, name, version)

    def entry(
        self, name: str, texts: Sequence[str], seed: int = 0, version: str = "1.0.0", fingerprint: str = FINGERPRINT
    ) -> list[EmbeddingRecord]:
        """The records of one admission with a passage a text; a later version was signed later."""
        if self.is_document:
            later = timedelta(hours=int("".join(version.split("."))))
            return records_of(document(f"{name}.md", texts, at=SIGNED + later), seed, fingerprint)
        changes: dict[str, Any] = {"version": version, "item_type": self.item_type}
        if self.item_type is ItemType.SKILL:
            changes["files"] = SKILL_FILES
        return records(admission(name, texts[0], **changes), texts, seed, fingerprint)

    async def fill(self, store: VectorStore, count: int = 30) -> dict[str, list[str]]:
        """Store `count` of two passages each; return name → texts. The last two digits of a name are its number."""
        rng = np.random.default_rng(7)
        stored: dict[str, list[str]] = {}
        entries = []
        for n in range(count):
            texts = [" ".join(rng.choice(WORDS, size=rng.integers(3, 20))) for _ in range(2)]
            name = f"{'acme' if n % 3 else 'beta'}/item-{n:02d}"
            entries.append(self.entry(name, texts, seed=1000 + 2 * n))
            stored[name] = texts
        await store.put(entries)
        return stored


KINDS = {
    "item": Kind(ItemType.DIRECTIVE),
    "skill": Kind(ItemType.SKILL),
    "document": Kind(ItemType.DOCUMENT),
}


def number_of(ref: ItemRef) -> int:
    """The number of a content that `Kind.fill` stored."""
    return int(ref.item_id.removesuffix(".md")[-2:])
