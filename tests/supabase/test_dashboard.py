"""What the dashboard shows: views that only those see who administer, with comments beside every name."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from kiwi_rag.errors import RegistryRefused
from kiwi_rag.registry.pool import Connections
from kiwi_rag.signing import keys
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, KEY, REGISTRY, admission, records

VIEWS = ("registry_overview", "pending_items", "recent_rejections", "signer_activity")


@pytest.fixture
def editor(url: str) -> Iterator[psycopg.Connection]:
    """A connection as the dashboard makes one: a role that holds kiwi_admin."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as opened:
        opened.execute("set role kiwi_admin")
        yield opened


@pytest.fixture
async def filled(url: str) -> None:
    """One item that is searchable, one that waits, one refusal, one yanked."""
    store = RegistryVectorStore(Connections(url), fingerprint=FINGERPRINT)
    await store.put([records(admission("acme/done"))])
    await store.publish(admission("acme/waits"))
    await store.publish(admission("acme/gone"))
    await store.delete(admission("acme/gone").ref)
    with pytest.raises(RegistryRefused):
        await store.publish(admission("acme/forged", key=keys.generate("eve")))
    await store.close()


def test_the_overview(editor: psycopg.Connection, filled: None) -> None:
    (row,) = editor.execute("select * from public.registry_overview").fetchall()
    assert (row["name"], row["items"], row["versions"], row["waiting"]) == (REGISTRY, 2, 3, 1)
    assert (row["active_signers"], row["refused_today"], row["model"]) == (1, 1, FINGERPRINT)
    assert row["last_published_at"] is not None
    head = editor.execute("select seq || ':' || hash as head from kiwi.audit order by seq desc limit 1").fetchone()
    assert row["audit_head"] == head["head"]


def test_what_waits(editor: psycopg.Connection, filled: None) -> None:
    rows = editor.execute("select * from public.pending_items").fetchall()
    assert [(row["item_id"], row["principal"], row["attempts"]) for row in rows] == [("acme/waits", "ada@acme", 0)]


def test_what_was_refused_and_why(editor: psycopg.Connection, filled: None) -> None:
    (row,) = editor.execute("select * from public.recent_rejections").fetchall()
    assert (row["code"], row["claimed_ref"], row["principal"]) == ("KW002", "directive:acme/forged@1.0.0", None)
    assert "not enrolled" in row["message"]


def test_what_signers_do(editor: psycopg.Connection, filled: None) -> None:
    (row,) = editor.execute("select * from public.signer_activity").fetchall()
    assert (row["principal"], row["key_id"], row["status"]) == ("ada@acme", KEY.key_id, "active")
    assert (row["items"], row["versions"], row["yanked"], row["refused"]) == (3, 3, 1, 0)
    editor.execute("select public.revoke_signer(%s, 'stolen')", [KEY.key_id])
    (row,) = editor.execute("select * from public.signer_activity").fetchall()
    assert (row["status"], row["status_reason"]) == ("compromised", "stolen")
    assert editor.execute("select * from public.pending_items").fetchall() == []


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("role", ["anon", "authenticated", "kiwi_publisher", "kiwi_indexer"])
def test_nobody_else_sees_them(connection: psycopg.Connection, view: str, role: str) -> None:
    connection.execute(f"set role {role}".encode())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"select * from public.{view}".encode())


@pytest.mark.parametrize("view", VIEWS)
def test_the_service_role_sees_them(connection: psycopg.Connection, view: str) -> None:
    connection.execute("set role service_role")
    connection.execute(f"select * from public.{view}".encode())


def test_everything_that_is_seen_has_a_comment(connection: psycopg.Connection) -> None:
    silent = connection.execute("""
        select format('%s.%s', relnamespace::regnamespace, relname) from pg_class as c
        where relowner = 'kiwi_owner'::regrole and relkind in ('r', 'p', 'v') and relname <> 'alembic_version'
            and obj_description(c.oid, 'pg_class') is null
        union all
        select format('%s.%s', attrelid::regclass, attname) from pg_attribute
        where attrelid in ('kiwi.statements'::regclass, 'kiwi_private.statements'::regclass)
            and attnum > 0 and not attisdropped
            and col_description(attrelid, attnum) is null
        union all
        select oid::regprocedure::text from pg_proc as p
        where proowner = 'kiwi_owner'::regrole and pronamespace = 'public'::regnamespace
            and obj_description(p.oid, 'pg_proc') is null
    """).fetchall()
    assert silent == []


async def test_a_refusal_is_written_down_whichever_way_it_came(url: str, connection: psycopg.Connection) -> None:
    """Raised inside the session, it took the transaction with it, and its own record."""
    store = RegistryVectorStore(Connections(url), fingerprint=FINGERPRINT)
    stranger = admission("acme/forged", key=keys.generate("eve"))
    for attempt in (store.publish(stranger), store.put([records(stranger)])):
        with pytest.raises(RegistryRefused):
            await attempt
    await store.close()
    assert connection.execute("select count(*) from public.recent_rejections").fetchone() == (2,)
    assert connection.execute("select count(*) from kiwi.statements").fetchone() == (0,)
