"""The write path: read → admit → split → embed → store.

Of a tier of files it is in `files`, and `refresh` brings a whole tier up to date; of a registry it has two halves,
`publishing` and `indexing`, which two roles may run, and `reverify` looks at what came of them.
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
