"""The write path: read → admit → split → (sign) → embed → store.

`pipeline` has the steps for one file, `sync` updates a whole collection from its source. A registry has two halves,
which different roles may run: `publication` sends items, `registry_indexer` makes them searchable. `audit_index`
compares a registry's index with the signed items.
"""

from kiwi_rag.ingest.pipeline import (
    GATE_VERSION,
    IngestContext,
    admit,
    embed,
    ingest,
    publish,
    store,
)
from kiwi_rag.ingest.sync import Callbacks, sync
from kiwi_rag.sources.items import ItemSource, read

__all__ = [
    "GATE_VERSION",
    "Callbacks",
    "IngestContext",
    "ItemSource",
    "admit",
    "embed",
    "ingest",
    "publish",
    "read",
    "store",
    "sync",
]
