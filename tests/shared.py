"""Where the tests find the data that is shared between Kiwi's checkouts: items, judged queries, vectors."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("KIWI_SHARED", ROOT.parent / "shared"))
CORPUS = SHARED / "corpus/rye/.ai"
QUERIES = SHARED / "corpus/queries.jsonl"
