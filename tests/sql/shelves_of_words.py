"""Registries filled with postings past the gate, for what only many passages show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import psycopg

from tests.conformance.items import FINGERPRINT
from tests.sql.bulk import insert_collection, insert_items

_PASSAGES = """
    insert into kiwi.passages (
        passage_id, statement_id, collection_id, dimension, ordinal, text, context, heading, start_line, end_line,
        length, terms, frequencies, embedding
    )
    select
        p.id, v.sequence, c.collection_id, c.dimension, (p.id - 1) %% %s, 't', '', '{}', 1, 1,
        (select sum(f) from unnest(p.frequencies) as f), p.terms, p.frequencies,
        ('[1' || repeat(',0', 383) || ']')::extensions.vector
    from passages as p
    cross join kiwi_private.collections as c
    join (select sequence, row_number() over (order by sequence) as place from kiwi.statements) as v
        on v.place = (p.id - 1) / %s + 1
"""


def fill(connection: psycopg.Connection, frequencies: Mapping[int, Counter[str]], each: int) -> None:
    """Store passages by their ids, from 1 on: `each` an item, every twentieth item in ``ns3``, a tenth ``rare``."""
    metadata = "jsonb_build_object('category', case when n %% 10 = 0 then 'rare' else 'bulk' end)"
    insert_items(connection, len(frequencies) // each, "'ns' || n %% 20 || '/n' || n", metadata)
    insert_collection(connection, FINGERPRINT)
    connection.execute("create temp table passages (id bigint, terms text[], frequencies integer[])")
    with connection.cursor().copy("copy passages from stdin") as copy:
        for number, held in frequencies.items():
            copy.write_row((number, list(held), list(held.values())))
    connection.execute(_PASSAGES, [each, each])
    connection.execute("select kiwi.add_to_index(array(select passage_id from kiwi.passages))")
    connection.execute("vacuum analyze")
