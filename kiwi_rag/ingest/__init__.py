"""The write path: read → admit → split → embed → store.

`pipeline` has the steps for one file, `sync` updates the index of a whole tier of item files, `documents` that of a
workspace. A registry has two halves, which different roles may run: `publication` sends items, `registry_indexer` makes
them searchable. `audit_index` compares a registry's index with the signed items.
"""

from kiwi_rag.ingest.pipeline import (
    GATE_VERSION,
    IngestContext,
    admit,
    display_path,
    embed,
    ingest,
    publish,
    read,
    side_path,
    store,
)
from kiwi_rag.ingest.sync import IndexReport, index

__all__ = [
    "GATE_VERSION",
    "IndexReport",
    "IngestContext",
    "admit",
    "display_path",
    "embed",
    "index",
    "ingest",
    "publish",
    "read",
    "side_path",
    "store",
]
