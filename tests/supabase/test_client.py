"""The `supabase` client as a way to the registry: what comes through, and what every kind of failure becomes."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler

import psycopg
import pytest

from kiwi_rag.errors import (
    ConfigError,
    KiwiError,
    NotFound,
    RefusedTooOften,
    RegistryError,
    RegistryOutdated,
    RegistryRefused,
    RegistryUnreachable,
    UnknownFilter,
)
from kiwi_rag.model import Filters
from kiwi_rag.registry.pool import Connections
from kiwi_rag.registry.supabase import SupabaseApi
from kiwi_rag.signing import keys
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, REGISTRY, admission, query, records
from tests.loopback import serving
from tests.registry_calls import signers
from tests.sql.databases import ADA
from tests.sql.test_refusal_limit import set_minute
from tests.supabase.postgrest import LEGACY_ANON, PUBLISHABLE, SECRET_KEY, PostgRest, project, token

ALICE, BOB = "6b1f7c1e-0000-4000-8000-00000000000a", "6b1f7c1e-0000-4000-8000-00000000000b"


@asynccontextmanager
async def store_at(url: str, key: str = PUBLISHABLE, bearer: str = "") -> AsyncIterator[RegistryVectorStore]:
    store = RegistryVectorStore(SupabaseApi(url, key, bearer), fingerprint=FINGERPRINT)
    yield store
    await store.close()


@pytest.fixture
async def direct(url: str) -> AsyncIterator[RegistryVectorStore]:
    """The same registry over a connection, to fill it."""
    store = RegistryVectorStore(Connections(url), fingerprint=FINGERPRINT)
    yield store
    await store.close()


@pytest.mark.parametrize("key", [PUBLISHABLE, LEGACY_ANON])
async def test_a_reader_finds_what_an_indexer_stored(hosted: PostgRest, direct: RegistryVectorStore, key: str) -> None:
    one = admission("acme/deploy", "restart the pager")
    await direct.put([records(one, ["restart the pager", "then wait"])])
    async with store_at(hosted.url, key=key) as store:
        asked = query("restart pager", await store.statistics(("restart", "pager")))
        assert await store.search(asked) == await direct.search(asked)
        assert await store.get(one.ref) == await direct.get(one.ref)
        assert await store.list(Filters(tags=("deploy",))) == await direct.list(Filters(tags=("deploy",)))
        assert await store.history(one.ref) == {"1.0.0": one.item.content_sha256}
        assert await store.status() == await direct.status()
        assert await signers(store) == await signers(direct)
    assert {seen.function for seen in hosted.seen} >= {"search_hybrid", "collection_statistics", "get_item"}


async def test_a_long_answer_comes_in_pages(hosted: PostgRest, direct: RegistryVectorStore) -> None:
    for number in range(7):
        await direct.put([records(admission(f"acme/item-{number}"), seed=number)])
    hosted.max_rows = 3
    async with store_at(hosted.url) as store:
        assert await store.list(Filters()) == await direct.list(Filters())
        asked = query("restart", await store.statistics(("restart",)))
        assert await store.search(asked) == await direct.search(asked)
    assert [seen.function for seen in hosted.seen].count("list_items") == 3


async def test_a_signed_in_user_publishes_and_gets_the_receipt(
    hosted: PostgRest, connection: psycopg.Connection
) -> None:
    one = admission("acme/deploy")
    async with store_at(hosted.url, bearer=token(sub=ALICE)) as store:
        receipt, again = await store.publish(one), await store.publish(one)
    assert (receipt.digest, receipt.already_published, again.already_published) == (one.digest, False, True)
    assert again.sequence == receipt.sequence
    assert connection.execute("select owner_key from kiwi.statements").fetchone() == ("",)
    by = connection.execute("select details ->> 'by' from kiwi.audit where event = 'publish'").fetchone()
    assert by == (ALICE,)
    assert {seen.headers["authorization"] for seen in hosted.seen} != {f"Bearer {PUBLISHABLE}"}


async def test_a_publishable_key_alone_may_not_publish(hosted: PostgRest, connection: psycopg.Connection) -> None:
    async with store_at(hosted.url) as store:
        with pytest.raises(RegistryRefused, match="may not do that") as refused:
            await store.publish(admission("acme/deploy"))
    assert "KIWI_SUPABASE_TOKEN" in refused.value.hint
    assert connection.execute("select count(*) from kiwi.statements").fetchone() == (0,)


async def test_a_refusal_of_the_registry_arrives_whole_and_stays_in_the_audit(
    hosted: PostgRest, connection: psycopg.Connection
) -> None:
    stranger = admission("acme/deploy", key=keys.generate("eve"))
    async with store_at(hosted.url, bearer=token()) as store:
        with pytest.raises(RegistryRefused, match="not enrolled") as refused:
            await store.publish(stranger)
    assert "enrol" in refused.value.hint
    assert refused.value.state == "KW002"
    row = connection.execute("select details ->> 'code' from kiwi.audit where event = 'refused'").fetchone()
    assert row == ("KW002",)


async def test_after_too_many_refusals_a_user_learns_when_to_try_again(
    hosted: PostgRest, connection: psycopg.Connection
) -> None:
    connection.execute("select public.set_refusal_limit(1)")
    set_minute(connection, 0)
    stranger = admission("acme/deploy", key=keys.generate("eve"))
    async with store_at(hosted.url, bearer=token()) as store:
        with pytest.raises(RegistryRefused, match="not enrolled"):
            await store.publish(stranger)
        with pytest.raises(RefusedTooOften, match="over 1 calls of this login were refused") as refused:
            await store.publish(stranger)
    assert 1 <= refused.value.retry_after <= 60
    assert f"{refused.value.retry_after:g} seconds" in refused.value.hint


async def test_a_private_item_is_its_owners_alone(hosted: PostgRest, connection: psycopg.Connection) -> None:
    one = admission("acme/diary")
    bind = "select enrol_signer(%s, %s, '{*}', user_id => %s)"
    connection.execute(bind, [ADA.public_key.hex(), ADA.principal, ALICE])
    mine = token(sub=ALICE)
    async with store_at(hosted.url, bearer=mine) as store:
        assert (await store.publish(one, "private")).private
    for bearer, sees in ((mine, True), (token(sub=BOB), False), ("", False)):
        async with store_at(hosted.url, bearer=bearer) as store:
            assert (await store.get(one.ref) is not None) is sees
            assert (len(await store.list(Filters())) == 1) is sees


async def test_a_token_as_the_key_serves_where_there_is_no_gateway(url: str) -> None:
    with project(url, gateway=False) as bare:
        async with store_at(bare.url, key=token(sub=ALICE)) as store:
            assert not (await store.publish(admission("acme/deploy"))).already_published
    with project(url) as behind_gateway:
        async with store_at(behind_gateway.url, key=token(sub=ALICE)) as store:
            with pytest.raises(RegistryRefused, match="Invalid API key") as refused:
                await store.status()
    assert "publishable key" in refused.value.hint


async def test_what_only_a_connection_can_do_says_so(hosted: PostgRest) -> None:
    async with store_at(hosted.url, key=SECRET_KEY) as store:
        for attempt in (store.client.begin_collection(FINGERPRINT), store.client.pending_items(FINGERPRINT)):
            with pytest.raises(RegistryRefused, match="direct connection") as refused:
                await attempt
            assert "KIWI_REGISTRY_URL" in refused.value.hint
    assert hosted.seen == []


async def test_admins_functions_are_for_connections_too(hosted: PostgRest) -> None:
    for key in (PUBLISHABLE, SECRET_KEY):
        async with store_at(hosted.url, key=key) as store, store.transport.session() as caller:
            with pytest.raises(RegistryRefused):
                await caller.value("set_audience", {"name_of_registry": "mine"})


async def test_the_registrys_own_errors_keep_their_class(hosted: PostgRest) -> None:
    async with store_at(hosted.url) as store, store.transport.session() as caller:
        with pytest.raises(UnknownFilter):
            await caller.rows("list_items", {"filter": {"colour": "red"}})
        with pytest.raises(RegistryOutdated, match="no_such_function"):
            await caller.value("no_such_function", {"a": 1})
        with pytest.raises(RegistryOutdated):
            await caller.value("registry_status", {"an_argument_of_the_future": 1})


@pytest.mark.parametrize(
    ("bearer", "said"),
    [(token(seconds=-60), "JWT expired"), ("not.a.token", "key"), (token() + "x", "key")],
)
async def test_a_token_that_does_not_count(hosted: PostgRest, bearer: str, said: str) -> None:
    async with store_at(hosted.url, bearer=bearer) as store:
        with pytest.raises(RegistryRefused, match=said) as refused:
            await store.status()
    assert "sign in again" in refused.value.hint
    assert bearer not in str(refused.value) + refused.value.hint


async def test_a_statement_that_takes_too_long(hosted: PostgRest, connection: psycopg.Connection) -> None:
    connection.execute("""
        create function public.slow() returns int language sql volatile as 'select 1 from pg_sleep(30)';
        grant execute on function public.slow to anon;
    """)
    hosted.settings["statement_timeout"] = "200ms"
    async with store_at(hosted.url) as store, store.transport.session() as caller:
        with pytest.raises(RegistryUnreachable, match="too long"):
            await caller.value("slow", {})


def answering(status: int, body: bytes, headers: Mapping[str, str]) -> type[BaseHTTPRequestHandler]:
    """A server that gives every request the same answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


JSON, HTML = {"Content-Type": "application/json"}, {"Content-Type": "text/html"}


@pytest.mark.parametrize(
    ("status", "body", "headers", "kind"),
    [
        (200, b"<html>Sign in to the wireless</html>", HTML, RegistryError),
        (200, b"", {}, RegistryError),
        (200, b'{"a": "row"}', JSON, RegistryError),
        (200, b"[1, 2]", JSON, RegistryError),
        (200, b"{", JSON, RegistryError),
        (302, b"", {"Location": "http://127.0.0.1:9/"}, RegistryError),
        (404, b"<html>nothing here</html>", HTML, RegistryError),
        (401, b'{"message": "Invalid API key"}', JSON, RegistryRefused),
        (403, b"<html>forbidden</html>", HTML, RegistryRefused),
        (429, b"slow down", HTML, RegistryUnreachable),
        (502, b"<html>Bad Gateway</html>", HTML, RegistryUnreachable),
        (521, b"<html>Web server is down</html>", HTML, RegistryUnreachable),
        (540, b'{"message": "Project paused"}', JSON, RegistryUnreachable),
        (503, b'{"code": "PGRST002", "message": "Could not query the database"}', JSON, RegistryUnreachable),
        (400, b'{"code": "KW010", "message": "no such thing", "hint": "look again"}', JSON, NotFound),
        (500, b'{"code": "XX000", "message": "internal error"}', JSON, RegistryError),
    ],
)
async def test_every_answer_becomes_an_error_of_kiwis(
    status: int, body: bytes, headers: Mapping[str, str], kind: type[KiwiError]
) -> None:
    with serving(answering(status, body, headers)) as url:
        async with store_at(url) as store, store.transport.session() as caller:
            with pytest.raises(KiwiError) as raised:
                await caller.rows("list_items", {})
    assert type(raised.value) is kind
    assert raised.value.message


async def test_nobody_listens() -> None:
    async with store_at("http://127.0.0.1:1") as store:
        with pytest.raises(RegistryUnreachable, match="cannot be reached"):
            await store.status()


@pytest.mark.parametrize(
    "url",
    ["acme.supabase.co", "ftp://acme.supabase.co", "http://acme.supabase.co", "https://", "https://me:pw@acme.example"],
)
async def test_an_address_that_would_carry_the_key_in_clear_or_nowhere(url: str) -> None:
    async with store_at(url) as store:
        with pytest.raises(ConfigError, match="not the address of a project") as refused:
            await store.status()
    assert "pw" not in refused.value.message


@pytest.mark.parametrize("key", ["", "two\nlines", "with space", "schlüssel"])
async def test_a_key_that_cannot_be_one(hosted: PostgRest, key: str) -> None:
    async with store_at(hosted.url, key=key) as store:
        with pytest.raises(ConfigError) as refused:
            await store.status()
    assert not key or key not in str(refused.value)
    assert hosted.seen == []


@pytest.mark.parametrize("status", [200, 400, 401, 500])
async def test_a_key_that_a_server_echoes_is_not_repeated(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bearer = token()
    body = f'{{"code": "X", "message": "{PUBLISHABLE} and {bearer}", "hint": "{bearer}"}}'.encode()
    with serving(answering(status, body, JSON)) as url:
        async with store_at(url, bearer=bearer) as store, store.transport.session() as caller:
            with pytest.raises(KiwiError) as raised:
                await caller.rows("list_items", {})
    told = "".join(traceback.format_exception(raised.value)) + raised.value.hint + caplog.text
    assert PUBLISHABLE not in told
    assert bearer not in told


async def test_the_name_of_these_tests_registry(hosted: PostgRest) -> None:
    async with store_at(hosted.url) as store:
        assert (await store.status()).details["audience"] == REGISTRY
