"""The write path: read → admit → split → embed → store.

Of a tier of files it is all in `files`; of a registry it has two halves, `publishing` and `indexing`, which two roles
may run, and `reverify` looks at what came of them.
"""

from kiwi_rag.ingest.files import (
    GATE_VERSION,
    IndexReport,
    Writer,
    admit,
    embed,
    index,
    ingest,
    publish,
    read,
    shown,
    side_path,
    store,
)

__all__ = [
    "GATE_VERSION",
    "IndexReport",
    "Writer",
    "admit",
    "embed",
    "index",
    "ingest",
    "publish",
    "read",
    "shown",
    "side_path",
    "store",
]
