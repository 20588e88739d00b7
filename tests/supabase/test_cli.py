"""supabase/ with the real CLI: what it pushes is what `kiwi registry migrate` makes, and its advisors find nothing."""

from __future__ import annotations

import re

import psycopg

from kiwi_rag.registry.migrate import bring_up_to_date, is_current, migrate
from tests.conformance.items import KEY
from tests.supabase.cli import Cluster, Supabase


def test_a_push_onto_an_empty_postgres_gives_the_schema_that_alembic_gives(
    plain_cluster: Cluster, supabase: Supabase
) -> None:
    pushed, migrated = (plain_cluster.database(name, hosted=False) for name in ("pushed", "migrated"))
    assert "Applying migration" in supabase.push(pushed)
    migrate(migrated)
    assert plain_cluster.schema("pushed") == plain_cluster.schema("migrated")
    assert len(plain_cluster.schema("pushed")) > 100_000
    assert supabase.advisors(pushed) == []


def test_a_hosted_projects_operator_who_is_no_superuser_can_do_either(
    cluster: Cluster, supabase: Supabase, pushed: str, migrated: str
) -> None:
    assert cluster.schema(pushed) == cluster.schema(migrated)
    assert supabase.advisors(cluster.url(pushed, "operator", "operator")) == []  # so they find nothing in the other


def test_kiwi_takes_a_pushed_registry_for_what_it_is(cluster: Cluster, supabase: Supabase, pushed: str) -> None:
    assert not is_current(cluster.database("not_pushed"))
    url = cluster.clone("recognised", pushed)
    assert is_current(url)
    assert not bring_up_to_date(url)
    assert "up to date" in supabase.push(url)


def test_the_advisors_would_find_something(cluster: Cluster, supabase: Supabase, pushed: str) -> None:
    """That they found nothing above means something."""
    url = cluster.clone("advised", pushed)
    with psycopg.connect(url) as connection:
        connection.execute("create table public.open_to_all (a int); grant all on public.open_to_all to anon")
        connection.execute("create view public.leak as select * from kiwi.settings")
        connection.execute("grant select on public.leak to anon")
    found = {finding["name"] for finding in supabase.advisors(url, expect=1)}
    assert found >= {"rls_disabled_in_public", "security_definer_view"}


def test_a_failed_push_leaves_nothing_behind(cluster: Cluster, supabase: Supabase) -> None:
    url = cluster.database("failed")
    (file,) = (supabase.folder / "migrations").glob("*.sql")
    file.write_text(file.read_text() + "\nselect 1 / 0;\n")
    assert "division by zero" in supabase.push(url, expect=1)
    with psycopg.connect(url) as connection:
        assert connection.execute("select to_regnamespace('kiwi')").fetchone() == (None,)


def test_a_push_onto_a_migrated_registry_says_how_to_go_on(cluster: Cluster, supabase: Supabase) -> None:
    url = cluster.database("both_ways")
    migrate(url)
    before = cluster.schema("both_ways")
    error = re.search(r"^ERROR: .*", supabase.push(url, expect=1), re.MULTILINE)
    assert error is not None
    assert "migration repair --status applied" in error[0]
    (file,) = (supabase.folder / "migrations").glob("*.sql")
    supabase.run("migration", "repair", f"--remote={url}", "--status", "applied", file.name.partition("_")[0])
    assert "up to date" in supabase.push(url)
    assert cluster.schema("both_ways") == before


def test_the_seed_names_a_local_registry_and_enrols_nobody(cluster: Cluster, supabase: Supabase) -> None:
    url = cluster.database("seeded")
    supabase.push(url, "--include-seed")
    with psycopg.connect(url) as connection:
        assert connection.execute("select public.registry_status() ->> 'audience'").fetchone() == ("kiwi",)
        assert connection.execute("select count(*) from kiwi.signers").fetchone() == (0,)


def test_the_operators_sql_editor_administers(cluster: Cluster, pushed: str) -> None:
    url = cluster.clone("administered", pushed)
    with psycopg.connect(url, autocommit=True) as editor:
        editor.execute("select set_audience('acme')")
        row = editor.execute("select enrol_signer(%s, 'ada@acme', '{acme/*}')", [KEY.public_key.hex()]).fetchone()
        assert row == (KEY.key_id,)
        assert editor.execute("select retire_signer(%s, 'left')", [KEY.key_id]).fetchone() == (True,)
        assert editor.execute("select revoke_signer(%s, 'stolen')", [KEY.key_id]).fetchone() == (True,)
        assert editor.execute("select yank_item('knowledge', 'acme/none')").fetchone() == (0,)
        assert editor.execute("select verify_audit()").fetchone() == (None,)
