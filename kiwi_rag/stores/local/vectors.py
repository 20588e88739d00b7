"""The passages of a catalog that were stored without vectors, and the vectors that they get later.

Blocking; the callers hold the locks and open the transactions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from sqlite3 import Connection

from kiwi_rag.model import Passage, Vector
from kiwi_rag.stores.base import UnembeddedDocument
from kiwi_rag.stores.local.catalog import check_model, increment_generation, insert_vectors, meta, read_passage

PASSAGES = "SELECT * FROM passages WHERE passage_key IN (SELECT value FROM json_each(?))"
# The covering index gives the keys of the passages, so that their texts are not read.
_UNEMBEDDED = """
SELECT i.item_id, i.file_type, coalesce(json_extract(i.metadata, '$.last_modified'), ''),
    json_group_array(p.passage_key)
FROM passages p INDEXED BY passages_by_item JOIN items i USING (item_key)
WHERE i.item_type = 'document' AND p.passage_key NOT IN (SELECT passage_key FROM vectors) GROUP BY item_key
"""


def unembedded(connection: Connection) -> list[UnembeddedDocument]:
    """Return the documents with passages that have no vector yet."""
    if meta(connection, "vectors") == meta(connection, "passages"):  # usual, and the query reads every passage's key
        return []
    rows = connection.execute(_UNEMBEDDED).fetchall()
    return [UnembeddedDocument(row[0], row[1], row[2], tuple(json.loads(row[3]))) for row in rows]


def read_passages(connection: Connection, keys: Sequence[int]) -> dict[int, Passage]:
    """Return those of some passages that are stored, by their keys."""
    rows = connection.execute(PASSAGES, (json.dumps(list(keys)),))
    return {row["passage_key"]: read_passage(row) for row in rows}


def put_vectors(
    connection: Connection, passages: Mapping[int, Passage], vectors: Mapping[int, Vector], fingerprint: str
) -> None:
    """Write the vectors of passages, by their keys, inside the caller's transaction.

    What is not stored any more, or is another passage in a catalog that was made anew, gets none.
    """
    stored = read_passages(connection, list(vectors))
    current = {key: vectors[key] for key, passage in stored.items() if passage == passages[key]}
    if current:
        check_model(connection, fingerprint, list(current.values()))
        insert_vectors(connection, current.items())
        increment_generation(connection)
