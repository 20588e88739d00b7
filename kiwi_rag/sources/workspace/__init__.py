"""A workspace as a source of documents: its settings (`config`), its files (`walk`), and their changes (`watch`).

`kiwi_rag.ingest.documents` indexes them, `kiwi_rag.search.documents` searches them.
"""

from __future__ import annotations
