"""Many items past the signature check, for what only much data shows."""

from __future__ import annotations

import psycopg

_ITEMS = """
    insert into kiwi.statements (payload_type, payload, signature, signer, public_key)
    select
        'application/vnd.in-toto+json',
        convert_to(
            jsonb_build_object(
                '_type', 'https://in-toto.io/Statement/v1', 'predicateType', 'urn:kiwi:item:v1',
                'subject', jsonb_build_array(jsonb_build_object(
                    'name', 'a.md', 'digest', jsonb_build_object('sha256', encode(sha256(n::text::bytea), 'hex'))
                )),
                'predicate', jsonb_build_object(
                    'main', 'a.md', 'executables', '[]'::jsonb, 'registry', 'test', 'item_type', 'knowledge',
                    'item_id', {item_id}, 'version', '1.0.0', 'metadata', {metadata},
                    'signed_at', '2026-03-01T12:00:00Z'
                )
            )::text,
            'UTF8'
        ),
        sha256('a') || sha256('b'), s.key_id, s.public_key
    from generate_series(1, %s) as n, kiwi.signers as s
"""


def insert_items(connection: psycopg.Connection, count: int, item_id: str, metadata: str = "'{}'::jsonb") -> None:
    """Store items without files; `item_id` and `metadata` are SQL over their number `n`, from 1 on."""
    table = "alter table kiwi_private.all_statements"
    connection.execute(f"{table} drop constraint statements_signature".encode())
    connection.execute(f"{table} drop constraint statements_canonical".encode())
    for trigger in ("admit", "file"):
        connection.execute(f"alter table kiwi.statements disable trigger {trigger}".encode())
    connection.execute(_ITEMS.format(item_id=item_id, metadata=metadata).encode(), [count])
    connection.execute("insert into kiwi_private.index_queue (statement_id) select sequence from kiwi.statements")


def insert_collection(connection: psycopg.Connection, fingerprint: str) -> None:
    """Begin a model's collection of items that is searched at once."""
    connection.execute(
        "select from kiwi.make_collection('items', '', %s, clock_timestamp()) as c where c is null", [fingerprint]
    )
