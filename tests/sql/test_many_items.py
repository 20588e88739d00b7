"""What must stay quick when there is much: revoking a busy key, a backlog page by page, dropping a model."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.conformance.items import FINGERPRINT
from tests.sql.bulk import insert_collection, insert_items
from tests.sql.databases import ADA, database, processor_limit, template
from tests.sql.test_index import assert_statistics_are_true

ITEMS = 3000
VECTORS = """
    insert into kiwi.passages (
        statement_id, collection_id, dimension, ordinal, text, context, heading, start_line, end_line, length, terms,
        frequencies,
        embedding
    )
    select
        v.sequence, c.collection_id, c.dimension, 0, 't', '', '{}', 1, 1, 20,
        array(select 'common' || k from generate_series(1, 10) as k)
        || array(select 'w' || (v.sequence * 31 + k * 7919) % 5000 from generate_series(1, 10) as k),
        array_fill(1, array[20]),
        ('[1' || repeat(',0', 383) || ']')::extensions.vector
    from kiwi.statements as v, kiwi_private.collections as c
"""


@pytest.fixture(scope="module")
def full() -> Iterator[str]:
    """The URL of a registry with many items, made past the signature check, indexed for two models."""
    with database(like=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        insert_items(connection, ITEMS, "'acme/n' || n")
        for model in ("old/1/384/mean/256", FINGERPRINT):
            insert_collection(connection, model)
        connection.execute(VECTORS)  # type: ignore[call-overload]
        connection.execute("select kiwi.add_to_index(array(select passage_id from kiwi.passages))")
        connection.execute("vacuum analyze")
        yield url


@pytest.fixture
def session(full: str) -> Iterator[psycopg.Connection]:
    """A connection whose changes are rolled back."""
    with psycopg.connect(full) as connection:
        yield connection
        connection.rollback()


def test_a_busy_key_is_revoked_in_one_step(session: psycopg.Connection) -> None:
    with processor_limit(session, 10):  # before: half a minute, and growing with the square
        assert session.execute("select public.revoke_signer(%s)", [ADA.key_id]).fetchone() == (True,)
    assert session.execute("select count(*) from kiwi.postings").fetchone() == (0,)
    assert session.execute("select count(*) from kiwi.term_statistics").fetchone() == (0,)
    assert_statistics_are_true(session)


def test_pages_in_order_are_everything(session: psycopg.Connection) -> None:
    page = "select sequence from public.pending_items('other/1/384/mean/256', 700, %s)"
    seen: list[int] = []
    while found := [row[0] for row in session.execute(page, [seen[-1] if seen else 0])]:
        seen += found
    everything = [row[0] for row in session.execute("select sequence from kiwi.statements order by sequence")]
    assert seen == everything


def test_a_model_is_dropped_in_steps(session: psycopg.Connection) -> None:
    drop = "select public.drop_collection('old/1/384/mean/256', 2000)"
    session.execute(
        "update kiwi_private.collections set ready_at = now() - interval '1 day' where fingerprint like 'old/%'"
    )
    removed = []
    for _ in range(2):
        removed += session.execute(drop).fetchone() or ()
        kept = session.execute("select sum(passages) from kiwi_private.collections").fetchone()
        assert kept == session.execute("select count(*) from kiwi.passages where searchable").fetchone()
    assert_statistics_are_true(session)
    assert removed == [2000, ITEMS - 2000]
    assert session.execute("select fingerprint from kiwi_private.collections").fetchall() == [(FINGERPRINT,)]
    assert session.execute("select count(*) from kiwi.audit where event = 'model-dropped'").fetchone() == (1,)


def test_a_model_that_is_half_dropped_is_not_searched(session: psycopg.Connection) -> None:
    session.execute(
        "update kiwi_private.collections set ready_at = now() - interval '1 day' where fingerprint like 'old/%'"
    )
    session.execute("select public.drop_collection('old/1/384/mean/256', 10)")
    with pytest.raises(psycopg.Error, match="are being made") as error:
        session.execute("select public.collection_statistics('{}', 'old/1/384/mean/256')")
    assert error.value.sqlstate == "KW011"
