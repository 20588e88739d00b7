"""How often one caller may be refused, what becomes of its further calls, and that it holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from kiwi_rag.errors import RefusedTooOften
from kiwi_rag.model import Admission
from kiwi_rag.signing import keys
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission
from tests.sql.publication import published
from tests.sql.test_lock_order import publish, waiting

ONE = admission("acme/x")
BAD = "select public.publish_item('[]', '{}')"
COUNTED = """
select details ->> 'by', details ->> 'minute', (details ->> 'count')::integer from kiwi.audit
where details ->> 'code' = 'KW019' order by seq
"""
READ = "select count(*) from kiwi.audit where event = 'refused' and details ->> 'code' <> 'KW019'"
LOG_IN = "select set_config('request.jwt.claims', %s, false)"


def set_minute(connection: psycopg.Connection, minute: int) -> None:
    """Stop the clock by which refusals are counted at a minute after noon."""
    connection.execute(f"""
        create or replace function kiwi.this_minute() returns timestamptz language sql
        as $$ select '2026-01-01T12:{minute:02}:00Z'::timestamptz $$
    """)


@pytest.fixture
def limited(connection: psycopg.Connection) -> psycopg.Connection:
    """A registry that reads three refused calls of a caller within a minute, at noon."""
    connection.execute("select public.set_refusal_limit(3)")
    set_minute(connection, 0)
    return connection


@pytest.fixture
def login(limited: psycopg.Connection, url: str) -> Iterator[psycopg.Connection]:
    """A connection of a role of its own, which may publish."""
    limited.execute("create role mallory login in role kiwi_publisher")
    try:
        with psycopg.connect(url, user="mallory", autocommit=True) as connection:
            yield connection
    finally:
        limited.execute("drop role mallory")


def refuse(connection: psycopg.Connection, calls: int) -> list[str]:
    """Hand in garbage; return the codes."""
    return [connection.execute(BAD).fetchone()[0]["code"] for _ in range(calls)]


def values(connection: psycopg.Connection, query: str) -> list[Any]:
    """The rows of a query of one column, in a list."""
    return [row[0] for row in connection.execute(query)]  # type: ignore[arg-type]


def test_a_caller_that_is_never_accepted_gets_one_record_a_minute(limited: psycopg.Connection) -> None:
    for minute in range(2):
        set_minute(limited, minute)
        assert refuse(limited, 8) == ["KW001"] * 3 + ["KW019"] * 5
    set_minute(limited, 2)
    refuse(limited, 1)
    noon = "2026-01-01T12:0{}Z"
    assert limited.execute(COUNTED).fetchall() == [("postgres", noon.format(0), 5), ("postgres", noon.format(1), 5)]
    assert values(limited, READ) == [7]
    assert values(limited, "select public.verify_audit()") == [None]


def test_the_next_record_of_anybody_is_preceded_by_the_counts_of_minutes_that_are_over(
    limited: psycopg.Connection, login: psycopg.Connection
) -> None:
    refuse(login, 20)
    assert "sequence" in published(limited, ONE)
    assert limited.execute(COUNTED).fetchall() == []  # the minute is not over
    set_minute(limited, 1)
    assert "sequence" in published(limited, admission("acme/y"))
    assert limited.execute(COUNTED).fetchall() == [("mallory", "2026-01-01T12:00Z", 17)]
    assert values(limited, "select event from kiwi.audit order by seq desc limit 2") == ["publish", "refused"]
    assert values(limited, "select caller from kiwi_private.refusals") == []


async def test_calls_that_come_at_once_are_counted_as_those_that_come_in_turn(
    limited: psycopg.Connection, url: str
) -> None:
    holder, *callers = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(9)]
    async with holder.transaction():
        await holder.execute("select kiwi.lock_audit()")
        calls = [asyncio.create_task(line.execute(BAD)) for line in callers]
        await waiting(holder, len(callers))
    await asyncio.gather(*calls)
    assert values(limited, READ) == [3]  # before: a record for each of the eight
    assert limited.execute("select refused, unread from kiwi_private.refusals").fetchall() == [(3, 5)]
    for line in (holder, *callers):
        await line.close()


CHANGES = (
    "set application_name = 'somebody else'",
    "set role kiwi_publisher",
    """set request.jwt.claims = '{"sub": "00000000-0000-0000-0000-000000000001", "role": "authenticated"}'""",
    "set kiwi.refusals_per_minute = 1000",
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_login_sets_makes_it_no_other_caller(
    limited: psycopg.Connection, login: psycopg.Connection, change: str
) -> None:
    assert refuse(login, 3) == ["KW001"] * 3
    login.execute(change)  # type: ignore[arg-type]
    assert refuse(login, 2) == ["KW019"] * 2
    assert values(limited, "select caller from kiwi_private.refusals") == ["mallory"]


@pytest.mark.parametrize("sub", ["00000000-0000-0000-0000-00000000000{}", "google|user-{}"])
def test_a_logged_in_user_that_is_refused_hinders_no_other(limited: psycopg.Connection, sub: str) -> None:
    limited.execute("set role authenticated")
    for number in (1, 2):
        limited.execute(LOG_IN, [f'{{"sub": "{sub.format(number)}"}}'])
        # before: all users whose id is no uuid were counted as one
        assert refuse(limited, 8) == ["KW001"] * 3 + ["KW019"] * 5
    limited.execute(LOG_IN, [f'{{"sub": "{sub.format(3)}"}}'])
    assert "sequence" in published(limited, ONE)


def test_a_call_that_was_not_read_and_is_not_committed_holds_up_nobody(
    limited: psycopg.Connection, login: psycopg.Connection, url: str
) -> None:
    refuse(login, 3)
    with psycopg.connect(url, user="mallory") as uncommitted:
        assert refuse(uncommitted, 1) == ["KW019"]
        set_minute(limited, 1)
        for connection in (login, limited):
            connection.execute("set lock_timeout = '5s'")
        assert refuse(login, 1) == ["KW001"]  # before: it waited for the row, and held the lock of the whole audit
        assert "sequence" in published(limited, ONE)
    published(limited, admission("acme/y"))
    assert limited.execute(COUNTED).fetchall() == [("mallory", "2026-01-01T12:00Z", 1)]


@pytest.fixture
def impatient(limited: psycopg.Connection) -> psycopg.Connection:
    """A registry that ends a publisher who holds a lock for 0.45 seconds."""
    wait(limited, "150ms")
    return limited


def wait(connection: psycopg.Connection, time: str) -> None:
    """Set how long it waits for a lock before it ends those that hold one for three times as long."""
    connection.execute(f"alter function kiwi.take_locks set lock_timeout = '{time}'")  # type: ignore[arg-type]


def publish_one(connection: psycopg.Connection, one: Admission) -> None:
    assert "sequence" in published(connection, one)


def yank_one(connection: psycopg.Connection, one: Admission) -> None:
    connection.execute("select public.yank_item('directive', %s)", [str(one.ref.item_id)])


def revoke_signer(connection: psycopg.Connection, one: Admission) -> None:
    assert values(connection, f"select public.revoke_signer('{one.key_id}', 'stolen')") == [True]


HOLD = "set local idle_in_transaction_session_timeout = 0; set local statement_timeout = 0"


@pytest.mark.usefixtures("login")
@pytest.mark.parametrize(
    ("call", "then"), [(publish_one, "select pg_sleep(600)"), (yank_one, "select 1"), (revoke_signer, "select 1")]
)
def test_a_publisher_does_not_hold_up_the_registry(
    impatient: psycopg.Connection, url: str, call: Callable[[psycopg.Connection, Admission], None], then: str
) -> None:
    """Before, it held the audit's lock, that of an item, or a signer's row for as long as it liked."""
    publish_one(impatient, ONE)
    held = psycopg.connect(url, user="mallory")
    again = ONE if call is yank_one else admission("acme/y")  # what is published already is locked, too
    publish_one(held, again)
    refuse(held, 1)
    held.execute(HOLD)
    impatient.execute("set statement_timeout = '60s'")
    held.pgconn.send_query(then.encode())
    call(impatient, ONE)
    with pytest.raises(psycopg.OperationalError):
        held.pgconn.consume_input()
        held.execute("select 1")
    held.close()


@pytest.mark.usefixtures("login")
async def test_who_waits_for_the_publisher_that_is_ended_goes_on(impatient: psycopg.Connection, url: str) -> None:
    holder, *others = [await psycopg.AsyncConnection.connect(url, user="mallory") for _ in range(4)]
    await holder.execute(BAD)
    calls = [asyncio.create_task(publish_once(line, number)) for number, line in enumerate(others)]
    await asyncio.gather(*calls)
    with pytest.raises(psycopg.errors.AdminShutdown):
        await holder.execute("select 1")
    for line in (holder, *others):
        await line.close()


async def publish_once(line: psycopg.AsyncConnection, number: int) -> None:
    """Publish an item, and commit it."""
    async with line.transaction():
        await publish(line, admission(f"acme/z{number}"))


@pytest.mark.parametrize("role", ["kiwi_admin", "kiwi_indexer"])
def test_admins_and_indexers_are_not_ended(
    impatient: psycopg.Connection, url: str, login: psycopg.Connection, role: str
) -> None:
    impatient.execute(f"grant {role} to mallory")  # type: ignore[arg-type]
    wait(impatient, "20ms")
    with psycopg.connect(url, user="mallory") as held:
        refuse(held, 1)
        with pytest.raises(psycopg.errors.LockNotAvailable):  # after twelve waits
            published(impatient, ONE)
        assert values(held, "select 1") == [1]


def test_nobody_is_ended_where_the_owner_may_end_no_connection(
    impatient: psycopg.Connection, login: psycopg.Connection, url: str
) -> None:
    wait(impatient, "20ms")
    with psycopg.connect(url, user="mallory") as held, impatient.transaction(force_rollback=True):
        refuse(held, 1)
        impatient.execute("revoke pg_signal_backend from kiwi_owner")
        with pytest.raises(psycopg.errors.LockNotAvailable), impatient.transaction():
            published(impatient, ONE)
        assert values(held, "select 1") == [1]


def test_what_its_caller_rolls_back_leaves_no_trace_and_counts_until_then(
    limited: psycopg.Connection, login: psycopg.Connection
) -> None:
    before = values(limited, "select kiwi.audit_head()")
    with login.transaction(force_rollback=True):
        assert refuse(login, 5) == ["KW001"] * 3 + ["KW019"] * 2
    assert values(limited, "select kiwi.audit_head()") == before
    assert refuse(login, 1) == ["KW001"]


def test_the_limit_is_set_by_an_admin_and_recorded(connection: psycopg.Connection) -> None:
    assert values(connection, "select kiwi.refusal_limit()") == [60]
    connection.execute("set role kiwi_admin")
    connection.execute("select public.set_refusal_limit(7)")
    for wrong in ("0", "null", "100001"):
        with pytest.raises(psycopg.Error, match="a number from 1 to 100,000"):
            connection.execute(f"select public.set_refusal_limit({wrong})")  # type: ignore[arg-type]
    connection.execute("reset role")
    assert values(connection, "select kiwi.refusal_limit()") == [7]
    newest = "select event || ' ' || ref from kiwi.audit order by seq desc limit 1"
    assert values(connection, newest) == ["refusal-limit 7"]


@pytest.mark.parametrize("role", ["kiwi_publisher", "kiwi_indexer", "authenticated", "service_role", "anon"])
def test_nobody_else_sets_the_limit(rolled_back: psycopg.Connection, role: str) -> None:
    rolled_back.execute(f"set role {role}")  # type: ignore[arg-type]
    for attempt in (
        "select public.set_refusal_limit(7)",
        "insert into kiwi.settings values ('refusals_per_minute', '7')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), rolled_back.transaction():
            rolled_back.execute(attempt)  # type: ignore[arg-type]


def test_the_overview_counts_the_calls_that_were_not_read(limited: psycopg.Connection) -> None:
    refuse(limited, 12)
    set_minute(limited, 1)
    published(limited, ONE)
    assert values(limited, "select refused_today from public.registry_overview") == [12]


async def test_the_client_says_when_to_try_again(store: RegistryVectorStore, limited: psycopg.Connection) -> None:
    unknown = admission("acme/y", key=keys.generate("nobody"))
    refuse(limited, 3)
    with pytest.raises(RefusedTooOften) as told:
        await store.publish(unknown)
    assert (told.value.code, told.value.state) == ("refused-too-often", "KW019")
    assert told.value.message == "over 3 calls of this login were refused within this minute"
    assert 1 <= told.value.retry_after <= 60
    assert told.value.hint == f"try again in {told.value.retry_after:g} seconds"
