"""Migrations: idempotent, safe to run at once, and the printed script does the same."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from kiwi_rag.errors import RegistryOutdated, RegistryRefused, RegistryUnreachable
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import migrate
from kiwi_rag.registry import migrate as scripts
from kiwi_rag.registry.pool import Connections
from kiwi_rag.registry.postgres_binaries import binaries, run
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.sql.databases import database


def dump(url: str) -> str:
    """The schema, less what pg_dump draws at random for each run."""
    text = run([binaries() / "pg_dump", "--schema-only", "--dbname", url], as_user=None)
    return re.sub(r"^\\(un)?restrict .*$", "", text, flags=re.MULTILINE)


def test_migrating_twice_changes_nothing() -> None:
    with database() as url:
        assert (migrate.schema_version(url), migrate.is_current(url)) == (None, False)
        assert migrate.bring_up_to_date(url, audience="acme")
        first = dump(url)
        assert migrate.is_current(url)
        assert migrate.schema_version(url) == scripts.head()
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


def test_two_migrators_at_once_both_succeed() -> None:
    with database() as url, ThreadPoolExecutor(4) as threads:
        assert list(threads.map(_migrate, [url] * 4)) == [True] * 4


def _migrate(url: str) -> bool:
    run([_python(), "-c", f"from kiwi_rag.registry.migrate import migrate; migrate({url!r})"], as_user=None)
    return migrate.is_current(url)


def _python() -> str:
    import sys

    return sys.executable


def test_the_printed_script_gives_the_same_schema() -> None:
    with database() as migrated, database() as scripted:
        migrate.migrate(migrated)
        with psycopg.connect(scripted, autocommit=True) as connection:
            connection.execute(migrate.script().encode())
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


def test_a_failed_migration_leaves_nothing() -> None:
    with database() as url:
        with psycopg.connect(url) as connection:
            connection.execute("create extension vector schema public")
        with pytest.raises(RegistryRefused, match="schema public") as refused:
            migrate.migrate(url)
        assert refused.value.hint.startswith("ALTER EXTENSION")
        assert migrate.schema_version(url) is None
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
