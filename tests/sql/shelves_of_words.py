"""Registries filled with postings past the gate, for what only many passages show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import psycopg

from tests.conformance.items import FINGERPRINT

_ITEMS = """
    insert into kiwi.statements (payload_type, payload, signature, signer, public_key, owner_name)
    select
        'application/vnd.kiwi.item.v1+json',
        convert_to(
            jsonb_build_object(
                'registry', 'test', 'item_type', 'knowledge', 'item_id', 'ns' || n %% 20 || '/n' || n,
                'version', '1.0.0', 'content', 'text of ' || n, 'signed_at', '2026-03-01T12:00:00Z',
                'metadata', jsonb_build_object('category', case when n %% 10 = 0 then 'rare' else 'bulk' end)
            )::text,
            'UTF8'
        ),
        sha256('a') || sha256('b'), s.key_id, s.public_key, s.principal
    from generate_series(1, %s) as n, kiwi.signers as s
"""
_PASSAGES = """
    insert into kiwi.passages (
        passage_id, digest, collection_id, ordinal, text, context, heading, start_line, end_line, length, terms,
        frequencies, embedding
    )
    overriding system value
    select
        p.id, v.digest, c.collection_id, (p.id - 1) %% %s, 't', '', '{}', 1, 1,
        (select sum(f) from unnest(p.frequencies) as f), p.terms, p.frequencies,
        ('[1' || repeat(',0', 383) || ']')::extensions.vector
    from passages as p
    cross join kiwi_private.collections as c
    join (select digest, row_number() over (order by sequence) as place from kiwi.statements) as v
        on v.place = (p.id - 1) / %s + 1
"""


def fill(connection: psycopg.Connection, frequencies: Mapping[int, Counter[str]], each: int) -> None:
    """Store passages by their ids, from 1 on: `each` an item, every twentieth item in ``ns3``, a tenth ``rare``."""
    connection.execute("alter table kiwi.statements drop constraint statements_signature")
    connection.execute("alter table kiwi.statements drop constraint statements_canonical")
    connection.execute("alter table kiwi.statements disable trigger admit")
    connection.execute(_ITEMS, [len(frequencies) // each])
    connection.execute("insert into kiwi_private.collections (fingerprint, ready_at) values (%s, now())", [FINGERPRINT])
    connection.execute("create temp table passages (id bigint, terms text[], frequencies integer[])")
    with connection.cursor().copy("copy passages from stdin") as copy:
        for number, held in frequencies.items():
            copy.write_row((number, list(held), list(held.values())))
    connection.execute(_PASSAGES, [each, each])
    connection.execute("select kiwi.add_to_index(array(select passage_id from kiwi.passages))")
    connection.execute("vacuum analyze")
