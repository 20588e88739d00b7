"""What an attacker found on the registry once, and cannot do any more."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import psycopg
import pytest
from psycopg import sql

from kiwi_rag.errors import RegistryError
from kiwi_rag.model import Filters
from kiwi_rag.registry import calls
from kiwi_rag.registry.supabase import SupabaseApi
from kiwi_rag.signing import dsse, keys
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission
from tests.loopback import serving
from tests.sql.databases import ADA, processor_limit
from tests.sql.publication import published
from tests.sql.test_private_items import ANN, BEN, bind, index, log_in, publish


def someone(url: str, role: str) -> psycopg.Connection:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    return connection


def value(connection: psycopg.Connection, query: str, *arguments: Any) -> Any:
    (found,) = connection.execute(query, arguments).fetchone() or (None,)  # type: ignore[call-overload]
    return found


@pytest.mark.parametrize("number", [7310595114002, 7310595114004])
def test_nobody_blocks_a_revocation_with_a_lock(url: str, connection: psycopg.Connection, number: int) -> None:
    publish(connection, admission("acme/x"))
    with someone(url, "anon") as eve:
        eve.execute("select pg_advisory_lock(%s)", [number])
        connection.execute("set statement_timeout = '60s'")
        assert value(connection, "select public.revoke_signer(%s)", ADA.key_id)


def test_no_lock_tells_which_item_is_being_published(url: str) -> None:
    with psycopg.connect(url) as ann, someone(url, "anon") as eve:
        bind(ann, ADA.public_key, ADA.principal, ANN)
        log_in(ann, "authenticated", ANN)
        assert "sequence" in publish(ann, admission("acme/layoffs"), "private")
        held = """
            select count(*) from pg_locks where locktype = 'advisory'
                and (classid::bigint << 32 | objid::bigint) = hashtextextended('directive:acme/layoffs', 7310595114003)
        """
        assert value(eve, held) == 0


def test_a_transaction_that_began_before_a_window_ended_publishes_nothing_after(
    url: str, connection: psycopg.Connection
) -> None:
    bob = keys.generate("bob")
    end = datetime.now(UTC) + timedelta(seconds=1)
    late = admission("bob/late", key=bob, signed_at=end.replace(microsecond=0) - timedelta(hours=1))
    with psycopg.connect(url) as old:
        old.execute("set role kiwi_publisher")  # the transaction begins
        connection.execute(
            "select public.enrol_signer(%s, 'bob', '{*}', '{directive}', null, %s)", [bob.public_key.hex(), end]
        )
        time.sleep(1.2)
        assert publish(old, late).get("code") == "KW003"


def test_the_time_of_arrival_is_not_when_the_transaction_began(url: str, connection: psycopg.Connection) -> None:
    with psycopg.connect(url) as old:
        old.execute("set role kiwi_publisher")
        time.sleep(0.2)
        before = value(connection, "select clock_timestamp() - interval '1 ms'")
        answer = publish(old, admission("acme/x"))
    assert datetime.fromisoformat(answer["received_at"]) > before


def test_no_private_statement_is_confirmed_without_its_signature(connection: psycopg.Connection) -> None:
    bind(connection, ADA.public_key, ADA.principal, ANN)
    log_in(connection, "authenticated", ANN)
    publish(connection, admission("acme/x"), "private")
    log_in(connection, "authenticated", BEN)
    guess = dsse.encode(admission("acme/x").envelope)
    guess["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()  # type: ignore[index]
    assert published(connection, admission("acme/x"), envelope=guess)["code"] == "KW015"


def test_an_oversized_payload_is_refused_before_it_is_read(connection: psycopg.Connection) -> None:
    payload = base64.b64encode(b"[" + b"1," * (2 << 20) + b"1]").decode()
    envelope = {
        "payloadType": "application/vnd.in-toto+json",
        "payload": payload,
        "signatures": [{"keyid": "", "sig": ""}],
    }
    with processor_limit(connection, 1):
        assert published(connection, admission("acme/x"), envelope=envelope)["code"] == "KW001"


def test_no_row_estimate_tells_of_private_items(url: str, connection: psycopg.Connection) -> None:
    bind(connection, ADA.public_key, ADA.principal, ANN)
    log_in(connection, "authenticated", ANN)
    for number in range(60):
        publish(connection, admission(f"acme/x{number}", f"we buy company {number}"), "private")
    connection.execute("reset role; analyze kiwi.statements")
    explain = """
        explain (format json) select from kiwi.statements as v join generate_series(1, 1000000) as g (n)
            on {column} < {bound} or n = -1
    """
    with someone(url, "anon") as eve:
        for column, prefix in (("item_id", "acme/x"), ("folded_id", "acme/x")):
            estimates = set()
            for digit in range(1, 9):
                bound = sql.Literal(f"{prefix}{digit}")
                query = sql.SQL(explain).format(column=sql.Identifier("v", column), bound=bound)
                ((plan,),) = eve.execute(query).fetchall()
                estimates.add(plan[0]["Plan"]["Plan Rows"])
            assert len(estimates) == 1, column


def test_nobody_counts_the_passages_of_a_private_version(url: str, connection: psycopg.Connection) -> None:
    secret = admission("acme/x")
    bind(connection, ADA.public_key, ADA.principal, ANN)
    log_in(connection, "authenticated", ANN)
    publish(connection, secret, "private")
    index(connection, secret, ["zebra"])
    with someone(url, "anon") as eve:
        assert value(eve, "select count(*) from public.item_status(%s)", "acme/x") == 0
        for query in (
            "select kiwi.has_passages(1000000000000, %s)",
            "select count(*) from kiwi.items_of(%s)",
            "select count(*) from kiwi.visible_statements(array[1000000000000, %s])",
            "select count(*) from kiwi.own_passages(%s, '{}')",
            "select count(*) from kiwi.few_passages(-1, '{1000000000000}', %s)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                value(eve, query, 10 if "array" in query or "few" in query else secret.digest)


def test_an_admin_reads_no_private_name(url: str, connection: psycopg.Connection) -> None:
    bind(connection, ADA.public_key, ADA.principal, ANN)
    log_in(connection, "authenticated", ANN)
    publish(connection, admission("acme/layoffs"), "private")
    with someone(url, "kiwi_admin") as admin:
        assert value(admin, "select count(*) from kiwi.audit where ref like '%%layoffs%%'") == 0
        assert value(admin, "select count(*) from kiwi.audit where event = 'private' and digest || key_id = ''") == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            value(admin, "select count(*) from kiwi_private.index_queue")


def test_nobody_gets_a_namespace_that_counts_as_anothers(connection: psycopg.Connection) -> None:
    eve, ann = keys.generate("eve"), keys.generate("ann")
    connection.execute("select public.enrol_signer(%s, 'ann', '{acme-corp/*}')", [ann.public_key.hex()])
    with pytest.raises(psycopg.DatabaseError) as error:
        connection.execute("select public.enrol_signer(%s, 'eve', '{acme_corp/*}')", [eve.public_key.hex()])
    assert error.value.sqlstate == "KW012"


def test_a_changed_window_is_in_the_audit_log(connection: psycopg.Connection) -> None:
    connection.execute(
        "select public.enrol_signer(%s, 'ada', '{*}', valid_before => '2099-01-01')", [ADA.public_key.hex()]
    )
    details = value(connection, "select details::text from kiwi.audit order by seq desc limit 1")
    assert "2099-01-01" in details


class Endless(BaseHTTPRequestHandler):
    """Always one more page."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps([{"x": "y"}]).encode()
        self.send_response(200)
        for name, told in (("content-type", "application/json"), ("content-range", "0-0/999999999")):
            self.send_header(name, told)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Be quiet."""


async def test_an_api_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_ROWS", 20)
    with serving(Endless) as url:
        store = RegistryVectorStore(SupabaseApi(url, "key"))
        try:
            with pytest.raises(RegistryError, match="over 20 rows"):
                async with asyncio.timeout(60):
                    await store.list(Filters())
        finally:
            await store.close()


IMPOSSIBLE_WORDS = {
    "no weight": ("{zebra}", "{}", 1, None),
    "a weight too many": ("{zebra}", "{1,1}", 1, None),
    "no term": ("{NULL}", "{1}", 1, None),
    "a weight that is nothing": ("{zebra}", "{NULL}", 1, None),
    "a weight that is no number": ("{zebra}", "{NaN}", 1, None),
    "a weight below 0": ("{zebra}", "{-1}", 1, None),
    "a weight without end": ("{zebra}", "{1e308}", 1, None),
    "no average": ("{zebra}", "{1}", None, None),
    "an average of 0": ("{zebra}", "{1}", 0, None),
    "an average that is no number": ("{zebra}", "{1}", float("nan"), None),
    "an average without end": ("{zebra}", "{1}", float("inf"), None),
    "items of no length": ("{zebra}", "{1}", 1, 0),
    "items of a length that is no number": ("{zebra}", "{1}", 1, float("nan")),
}


@pytest.mark.parametrize("given", IMPOSSIBLE_WORDS.values(), ids=IMPOSSIBLE_WORDS)
def test_what_bm25_cannot_score_with_is_refused(url: str, given: tuple[str, str, float | None, float | None]) -> None:
    with someone(url, "anon") as eve, pytest.raises(psycopg.DatabaseError) as error:
        eve.execute(
            "select * from public.search_hybrid("
            "null, %s::text[], %s::float8[], %s::float8, 10, '{}', null, %s::float8)",
            given,
        )
    assert error.value.sqlstate == "KW013"
    assert error.value.diag.message_hint


def test_no_more_terms_are_counted_than_a_search_can_have(url: str) -> None:
    with someone(url, "anon") as eve, pytest.raises(psycopg.DatabaseError) as error:
        eve.execute("select public.collection_statistics(array_fill('zebra'::text, array[10001]))")
    assert error.value.sqlstate == "KW013"


def test_a_search_that_asks_for_too_much_is_refused_at_once(url: str) -> None:
    with someone(url, "anon") as eve, processor_limit(eve, 2):
        for terms, depth in ((300_000, 100), (1, 1_000_000), (1, 0)):
            with pytest.raises(psycopg.DatabaseError) as error:
                eve.execute(
                    "select * from public.search_hybrid(null, array_fill('zebra'::text, array[%s]),"
                    " array_fill(1::float8, array[%s]), 1, %s)",
                    [terms, terms, depth],
                )
            assert error.value.sqlstate == "KW013"
        assert value(eve, "select count(*) from public.search_lexical(%s)", "zebra " * 100_000) == 0
