"""Migrations: idempotent, safe to run at once, and the printed script does the same."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from kiwi_rag.errors import RegistryOutdated, RegistryRefused, RegistryUnreachable
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import migrate
from kiwi_rag.registry import migrate as scripts
from kiwi_rag.registry.pool import Connections
from kiwi_rag.registry.server import binaries, run
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.shared import ROOT
from tests.sql.databases import database, template


def dump(url: str) -> str:
    """The schema, less what pg_dump draws at random for each run."""
    text = run([binaries() / "pg_dump", "--schema-only", "--dbname", url])
    return re.sub(r"^\\(un)?restrict .*$", "", text, flags=re.MULTILINE)


def test_migrating_twice_changes_nothing() -> None:
    with database() as url:
        assert (migrate.applied(url), migrate.is_current(url)) == ((None, None), False)
        assert migrate.bring_up_to_date(url, audience="acme")
        first = dump(url)
        assert migrate.is_current(url)
        assert migrate.applied(url)[0] == scripts.head()
        migrate.migrate(url, audience="other")
        assert dump(url) == first
        assert not migrate.bring_up_to_date(url)
        with psycopg.connect(url) as connection:
            assert connection.execute("select value from kiwi.settings where name = 'audience'").fetchone() == ("acme",)


def test_a_changed_function_is_noticed_and_mended() -> None:
    with database() as url:
        migrate.migrate(url)
        first = dump(url)
        with psycopg.connect(url) as connection:
            connection.execute(
                "drop function public.verify_audit; update kiwi.settings set value = '' where name = 'sql_digest'"
            )
        assert not migrate.is_current(url)
        migrate.migrate(url)
        assert dump(url) == first


def test_what_was_counted_by_caller_alone_gets_its_record(url_of_0100: str) -> None:
    assert migrate.bring_up_to_date(url_of_0100)
    with psycopg.connect(url_of_0100, autocommit=True) as connection:
        for _ in range(2):
            connection.execute("select public.publish_item('[]', '{}')")
        found = connection.execute(
            "select details ->> 'by', details ->> 'count' from kiwi.audit where details ? 'count'"
        )
        assert found.fetchall() == [("eve", "7")]
        assert connection.execute("select caller, refused from kiwi_private.refusals").fetchall() == [("postgres", 2)]


@pytest.fixture
def url_of_0100() -> Iterator[str]:
    """A registry as revision 0100 left it, with calls that were refused unread."""
    with database(like=template()) as url:
        with psycopg.connect(url) as connection:
            connection.execute(
                "alter table kiwi_private.refusals drop constraint refusals_pkey, add primary key (caller)"
            )
            connection.execute("update kiwi.alembic_version set version_num = '0100'")
            connection.execute("insert into kiwi_private.refusals values ('eve', '2026-01-01T12:00Z', 60, 7)")
        yield url


def test_two_migrators_at_once_both_succeed() -> None:
    with database() as url, ThreadPoolExecutor(2) as threads:
        assert list(threads.map(_migrate, [url] * 2)) == [True] * 2


def _migrate(url: str) -> bool:
    run([_python(), "-c", f"from kiwi_rag.registry.migrate import migrate; migrate({url!r})"])
    return migrate.is_current(url)


def _python() -> str:
    import sys

    return sys.executable


def script() -> str:
    """What `alembic upgrade head --sql` prints in a checkout."""
    command = [_python(), "-m", "alembic", "upgrade", "head", "--sql"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_the_printed_script_gives_the_same_schema() -> None:
    with database() as migrated, database() as scripted:
        migrate.migrate(migrated)
        with psycopg.connect(scripted, autocommit=True) as connection:
            connection.execute(script().encode())
        assert dump(scripted) == dump(migrated)
        assert migrate.is_current(scripted)


def test_a_registry_that_is_newer_than_this_kiwi_is_left_alone() -> None:
    with database() as url:
        migrate.migrate(url)
        with psycopg.connect(url) as connection:
            connection.execute("update kiwi.alembic_version set version_num = '9999'")
        with pytest.raises(RegistryOutdated, match="9999") as newer:
            migrate.migrate(url)
        assert "newer" in newer.value.hint


def everything(url: str) -> str:
    """The schema and the rows, less what pg_dump draws at random for each run."""
    text = run([binaries() / "pg_dump", "--inserts", "--dbname", url])
    return re.sub(r"^\\(un)?restrict .*$", "", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def pre_release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a registry that a pre-release Kiwi made: tests/data/pre-release/README.md."""
    template()  # the roles, which a dump of one database does not hold
    with database() as url:
        dump = tmp_path_factory.mktemp("dump") / "registry.sql"
        dump.write_bytes(gzip.decompress((ROOT / "tests/data/pre-release/registry.sql.gz").read_bytes()))
        run([binaries() / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, "--dbname", url])
        yield url


def test_a_registry_of_a_pre_release_kiwi_is_refused_before_any_change(pre_release: str) -> None:
    before = everything(pre_release)
    with pytest.raises(RegistryRefused, match="pre-release Kiwi") as refused:
        migrate.migrate(pre_release)
    assert "use an empty database and publish again" in refused.value.hint
    with psycopg.connect(pre_release, autocommit=True) as connection:
        for text in (script(), *(p.read_text() for p in (ROOT / "supabase/migrations").glob("*.sql"))):
            with pytest.raises(psycopg.Error, match="pre-release Kiwi"):
                connection.execute(text.encode())
            connection.execute("rollback")
        connection.execute("drop table kiwi.alembic_version")  # as `supabase db push` would have brought it there
    with pytest.raises(RegistryRefused, match="pre-release Kiwi"):
        migrate.migrate(pre_release)
    without = everything(pre_release)
    assert "create table kiwi.alembic_version" not in without.lower()
    assert without.count("\n") < before.count("\n")


def test_a_failed_migration_leaves_nothing() -> None:
    with database() as url:
        with psycopg.connect(url) as connection:
            connection.execute("create extension vector schema public")
        with pytest.raises(RegistryRefused, match="schema public") as refused:
            migrate.migrate(url)
        assert refused.value.hint.startswith("ALTER EXTENSION")
        assert migrate.applied(url) == (None, None)
        with psycopg.connect(url) as connection:
            assert connection.execute("select to_regnamespace('kiwi')").fetchone() == (None,)


async def test_a_database_without_a_registry_is_outdated_not_empty() -> None:
    with database() as url:
        store = RegistryVectorStore(Connections(url))
        with pytest.raises(RegistryOutdated) as outdated:
            await store.get(ItemRef(ItemType.SCRIPT, "acme/x"))
        assert outdated.value.hint == "kiwi registry migrate"
        await store.close()


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:9/none", "postgresql://x@/y?host=/nonexistent"])
async def test_no_server_is_unreachable_at_once(url: str) -> None:
    with pytest.raises(RegistryUnreachable):
        migrate.is_current(url)
    store = RegistryVectorStore(Connections(url))
    with pytest.raises(RegistryUnreachable):
        await store.status()
