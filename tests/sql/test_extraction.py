"""Nobody gets at what another keeps private by measuring: every role against all that a query tells besides rows.

Two registries are alike but for what Ann keeps private, in the one nothing, in the other an item with its file and its
passages, and a workspace's documents. What each role measures must be the same in both, but for the sizes of tables and
the records of the audit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from kiwi_rag.model import sha256_hex
from kiwi_rag.registry import rows
from tests.conformance.items import FINGERPRINT, admission, records, unit_vector
from tests.sql import documents
from tests.sql.databases import ADA, database, template
from tests.sql.publication import encoded, published
from tests.sql.test_private_items import ANN, BEN, bind, log_in

TEXT = "we buy company 7 okapi"
SECRET = admission("acme/layoffs", TEXT)
PUBLIC = admission("acme/public", "zebra stripes")
ROLES = ("anon", "authenticated", "service_role", "kiwi_publisher", "kiwi_admin")
READABLE = ("statements", "statement_files", "blobs", "passages", "signers", "settings")
VECTOR = f"'{rows.vector_text(unit_vector(1))}'::extensions.vector"


def index(connection: psycopg.Connection, item: Any) -> None:
    log_in(connection, "kiwi_indexer")
    passages = Jsonb([rows.passage_object(record) for record in records(item, [item.item.content])])
    connection.execute("select public.store_passages(%s, %s, %s)", [item.digest, FINGERPRINT, passages])


def filled(url: str, *, private: bool) -> None:
    """Publish one public item; with `private`, before and after it what nobody else is to know of."""
    with psycopg.connect(url, autocommit=True) as connection:
        documents.enrol(connection, documents.KEY, ADA.principal, "*")
        bind(connection, ADA.public_key, ADA.principal, ANN)
        documents.enrol(connection, documents.KEY, ADA.principal, "*")
        for item, visibility in ((SECRET, "private"), (PUBLIC, "public"), (admission("acme/plan", TEXT), "private")):
            if private or visibility == "public":
                log_in(connection, "authenticated", ANN)
                assert "sequence" in published(connection, item, visibility)
                index(connection, item)
        if private:
            log_in(connection, "kiwi_indexer")
            answer = connection.execute(
                "select public.put_document(%s, %s, %s)", documents.arguments(documents.records("plan.md", [TEXT]))
            ).fetchone()
            assert "digest" in answer[0], answer
        connection.execute("reset role; analyze")


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[str, str]]:
    """The URLs of both registries."""
    with database(like=template()) as without, database(like=template()) as with_secret:
        filled(without, private=False)
        filled(with_secret, private=True)
        yield without, with_secret


def someone(url: str, role: str) -> psycopg.Connection:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(role)))
    if role == "authenticated":
        log_in(connection, role, BEN)
    return connection


def measured(connection: psycopg.Connection, query: str) -> Any:
    """What EXPLAIN ANALYZE tells of a query but how long it took: rows, rows removed by filters, buffers."""
    explain = f"explain (analyze, buffers, format json, costs on, timing off, summary off) {query}"
    try:
        connection.execute(query.encode())  # the second time, catalogs are read already
        ((plan,),) = connection.execute(explain.encode()).fetchall()
    except psycopg.Error as error:
        return error.sqlstate, str(error.diag.message_primary)
    return _counts(plan)


COUNTS = ("Node Type", "Actual Rows", "Plan Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")


def _counts(node: Any) -> Any:
    if isinstance(node, list):
        return [_counts(one) for one in node]
    if not isinstance(node, dict):
        return node
    told = {name: node[name] for name in COUNTS if name in node}
    # Pages of the catalog differ by what else a server does; a probe of a private row would read its table.
    return told | {name: _counts(node[name]) for name in ("Plan", "Plans") if name in node}


PROBES = {
    "leakproof conditions": [
        f"select * from kiwi.{table} as t where {condition}"
        for table, column in {"statements": "item_id", "statement_files": "path", "blobs": "sha256"}.items()
        for condition in (
            f"{column} = 'acme/layoffs'",
            f"{column} >= 'acme/l' and {column} < 'acme/m'",
            f"starts_with({column}, 'acme/lay')",
        )
    ],
    "conditions on content": [
        f"select * from kiwi.blobs where content = convert_to('{TEXT}', 'UTF8')",
        f"select * from kiwi.statements where digest = '{SECRET.digest}'",
        "select * from kiwi.passages where text >= 'we buy' and text < 'we buz'",
        "select * from kiwi.passages where terms @> '{okapi}'",
    ],
    "functions": [
        "select * from public.search_lexical('okapi company')",
        f"select * from public.search_embeddings({VECTOR})",
        f"select * from public.search_hybrid({VECTOR}, '{{okapi}}', '{{1}}', 1)",
        "select * from public.get_item(null, 'acme/layoffs')",
        "select * from public.item_status('acme/layoffs')",
        "select * from public.list_items()",
        'select * from public.list_items(\'{"namespace": "acme"}\')',
        "select public.collection_statistics('{okapi,zebra}')",
        "select public.similar_terms('{okapy}')",
        "select * from public.item_embeddings",
    ],
    "private tables": [
        f"select * from kiwi_private.{table}"
        for table in ("statements", "all_statements", "blobs", "statement_files", "passages", "postings", "refusals")
    ],
    "inner functions": [
        "select kiwi.items_of('x')",
        "select kiwi.own_passages('x', '{}')",
        "select kiwi.filtered_statements('{uid:00000000-0000-0000-0000-000000000001}', '{}')",
        "select kiwi.visible_statements('{1000000000000}')",
        "select kiwi.has_passages(1000000000000, 'x')",
    ],
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("probe", PROBES)
def test_plans_rows_and_filters_are_the_same(both: tuple[str, str], role: str, probe: str) -> None:
    for query in PROBES[probe]:
        told = []
        for url in both:
            with someone(url, role) as connection:
                told.append(measured(connection, query))
        assert told[0] == told[1], query
        assert probe not in ("private tables", "inner functions") or told[0][0] == "42501", query


@pytest.mark.parametrize("role", ROLES)
def test_values_and_estimates_are_the_same(both: tuple[str, str], role: str) -> None:
    """The answers of functions, the planner's statistics, the views of the dashboard."""
    for query in (
        "select to_jsonb(s) from public.search_lexical('okapi company') as s",
        f"select item_id, similarity from public.search_embeddings({VECTOR})",
        "select public.collection_statistics('{okapi,zebra,company}')",
        "select public.similar_terms('{okapy,compamy}')",
        "select public.registry_status() - 'audit_head' - 'sql_digest'",
        "select public.index_status()",
        "select schemaname, tablename, attname, most_common_vals::text, histogram_bounds::text, n_distinct"
        " from pg_stats where schemaname = 'kiwi' and attname not in ('received_at', 'public_key', 'signature')"
        " and tablename in ('statements', 'statement_files', 'blobs', 'passages', 'postings', 'term_statistics')"
        " order by 2, 3",
        "select * from pg_stats where schemaname = 'kiwi_private'",
        "select sequence, item_id from kiwi.statements order by 1",
        "select passage_id, collection_id from kiwi.passages order by 1",
        "select item_id from public.pending_items",
        "select items, versions, waiting, active_signers from public.registry_overview",
        "select principal, items, versions from public.signer_activity",
    ):
        told = []
        for url in both:
            with someone(url, role) as connection:
                try:
                    told.append(connection.execute(query.encode()).fetchall())
                except psycopg.Error as error:
                    told.append([(error.sqlstate,)])
        assert told[0] == told[1], query


@pytest.mark.parametrize("role", ROLES)
def test_nothing_of_it_stands_where_a_role_reads(both: tuple[str, str], role: str) -> None:
    """Not its name, not its words, not its digests: not even in the audit log, whose records alone are more."""
    traces = [SECRET.digest, SECRET.item.content_sha256, sha256_hex(TEXT.encode()), "layoffs", "okapi", "acme/plan"]
    with someone(both[1], role) as connection:
        for table in (*READABLE, "audit"):
            if not connection.execute("select has_table_privilege(%s, 'select')", [f"kiwi.{table}"]).fetchone()[0]:
                continue
            text = json.dumps(connection.execute(f"select to_jsonb(t) from kiwi.{table} as t".encode()).fetchall())
            assert not [trace for trace in traces if trace in text], table
        if role in ("service_role", "kiwi_admin"):
            private = "select ref, digest, key_id, details from kiwi.audit where event = 'private'"
            assert set(map(str, connection.execute(private).fetchall())) == {"('', '', '', {})"}
        definitions = connection.execute("select query from pg_stat_activity where datname = current_database()")
        assert not [text for (text,) in definitions if "layoffs" in (text or "") and "insufficient" not in text]


def test_a_notification_says_nothing(both: tuple[str, str]) -> None:
    with someone(both[1], "anon") as eve, psycopg.connect(both[1], autocommit=True) as connection:
        eve.execute("listen kiwi_published")
        log_in(connection, "authenticated", ANN)
        published(connection, admission("acme/later", TEXT), "private")
        received = list(eve.notifies(timeout=5, stop_after=1))
        assert [(one.channel, one.payload) for one in received] == [("kiwi_published", "")]


@pytest.mark.parametrize("with_bytes", [True, False], ids=["with its bytes", "without its bytes"])
def test_anothers_digest_gives_nothing_and_tells_nothing(both: tuple[str, str], with_bytes: bool) -> None:
    """Ben signs a statement that names the digest of Ann's file: the answer depends on the bytes that he hands in."""
    told = []
    for url in both:
        with psycopg.connect(url) as connection:
            mine = admission("ben/copy", TEXT)
            envelope = mine.envelope
            log_in(connection, "authenticated", BEN)
            files = encoded(mine.item.files) if with_bytes else {}
            call = "select public.publish_item(%s, %s)"
            (answer,) = connection.execute(call, [Jsonb(documents.dsse.encode(envelope)), Jsonb(files)]).fetchone()
            shown = connection.execute("select files from public.get_item(null, 'ben/copy')").fetchall()
            told.append((answer.get("code"), answer.get("message"), answer.get("already_published"), shown))
            connection.rollback()
    assert told[0] == told[1]
    assert (told[0][0] is None) == with_bytes
    assert bool(told[0][3]) == with_bytes


def test_whose_number_is_higher_tells_nothing(both: tuple[str, str]) -> None:
    """Numbers of what is public come from sequences of their own, and nobody reads the others'."""
    for url in both:
        with someone(url, "service_role") as connection:
            assert connection.execute("select max(sequence) from kiwi.statements").fetchone() == (1,)
            for name in ("kiwi.statement_number", "kiwi_private.statement_number", "kiwi_private.passage_number"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"select last_value from {name}".encode())


def test_a_wait_tells_nothing_of_somebodys_item(both: tuple[str, str]) -> None:
    """While Ann's private item is being published, one of its name is published without waiting for it."""
    with psycopg.connect(both[1]) as ann, psycopg.connect(both[1]) as ben:
        log_in(ann, "authenticated", ANN)
        published(ann, admission("acme/held", TEXT), "private")
        locked = ann.execute("select pg_backend_pid()").fetchone()
        assert locked
        log_in(ben, "authenticated", BEN)
        ben.execute("reset role")
        ben.execute("set lock_timeout = '5s'")
        ben.execute("select kiwi.lock_item(array[''], %s)", [Jsonb({"item_type": "directive", "item_id": "acme/held"})])
        ben.rollback()
        ann.rollback()


def test_the_probes_see_something() -> None:
    """A probe over a table that Eve may read differs when a row is added: else the comparisons would show nothing."""
    with database(like=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        query = "select * from kiwi.statements where item_id = 'acme/layoffs'"
        before = measured(connection, query)
        published(connection, SECRET)
        assert measured(connection, query) != before
        assert re.search("acme/layoffs", str(connection.execute(query.encode()).fetchall()))
