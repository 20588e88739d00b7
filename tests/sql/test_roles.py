"""Who may do what, role by role: nobody writes a table, and each function has its callers."""

from __future__ import annotations

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql
from psycopg.types.json import Jsonb

from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import translate_error
from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, admission, records, unit_vector
from tests.sql import publication
from tests.sql.databases import ADA

ROLES = ("anon", "authenticated", "service_role", "kiwi_publisher", "kiwi_indexer", "kiwi_admin")
_CONTENT = {
    "statements": "payload",
    "statement_files": "path",
    "blobs": "content",
    "passages": "embedding",
    "postings": "frequency",
    "term_statistics": "passages",
}
A_COLUMN = {
    **{("kiwi", table): column for table, column in _CONTENT.items()},
    **{("kiwi_private", table): column for table, column in _CONTENT.items()},
    **{("kiwi_private", f"all_{table}"): column for table, column in _CONTENT.items()},
    ("kiwi", "signers"): "status",
    ("kiwi", "settings"): "value",
    ("kiwi", "audit"): "hash",
    ("kiwi_private", "collections"): "passages",
    ("kiwi_private", "index_queue"): "problem",
    ("kiwi_private", "vector_indexes"): "effort",
    ("kiwi_private", "removed_documents"): "signer",
    ("kiwi_private", "refusals"): "refused",
    ("kiwi_private", "locks"): "name",
}
ONE = admission("acme/x")
PUBLISH = (publication.CALL, publication.arguments(ONE))
STORE = (
    "select public.store_passages(%s, %s, %s)",
    [ONE.digest, FINGERPRINT, Jsonb([rows.passage_object(records(ONE)[0])])],
)
SEARCH = ("select * from public.search_embeddings(%s::extensions.vector)", [rows.vector_text(unit_vector(1))])
CALLS = {
    "search_embeddings": (SEARCH, set(ROLES)),
    "search_lexical": (("select * from public.search_lexical('zebra')", []), set(ROLES)),
    "get_item": (("select * from public.get_item(null, 'acme/x')", []), set(ROLES)),
    "list_items": (("select * from public.list_items()", []), set(ROLES)),
    "item_status": (("select * from public.item_status('acme/x')", []), set(ROLES)),
    "list_signers": (("select * from public.list_signers()", []), set(ROLES)),
    "registry_status": (("select public.registry_status()", []), set(ROLES)),
    "index_status": (("select public.index_status()", []), {"kiwi_indexer", "kiwi_admin", "service_role"}),
    "publish_item": (PUBLISH, set(ROLES) - {"anon", "kiwi_indexer"}),
    "store_passages": (STORE, {"kiwi_indexer"}),
    "pending_items": (("select * from public.pending_items('x')", []), {"kiwi_indexer"}),
    "yank_item": (
        ("select public.yank_item('directive', 'acme/none')", []),
        {"authenticated", "service_role", "kiwi_publisher", "kiwi_admin"},
    ),
    "enrol_signer": (("select public.enrol_signer(%s, 'eve', '{*}')", [ADA.public_key.hex()]), {"kiwi_admin"}),
    "retire_signer": (("select public.retire_signer(%s)", [ADA.key_id]), {"kiwi_admin"}),
    "revoke_signer": (("select public.revoke_signer(%s)", [ADA.key_id]), {"kiwi_admin"}),
    "verify_audit": (("select public.verify_audit()", []), {"kiwi_admin"}),
}


def become(connection: psycopg.Connection, role: str) -> None:
    connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(role)))


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def filled(module_url: str) -> None:
    """Put one item with its passage into the module's registry."""
    store = RegistryVectorStore(Connections(module_url))
    await store.put([records(ONE, ["zebra"])])
    await store.close()


@pytest.mark.parametrize("role", ROLES)
def test_no_role_writes_a_table(shared: psycopg.Connection, role: str) -> None:
    become(shared, role)
    for table, column in A_COLUMN.items():
        names = {"table": sql.Identifier(*table), "column": sql.Identifier(column)}
        for statement in (
            "insert into {table} default values",
            "update {table} set {column} = default",
            "delete from {table}",
            "truncate {table}",
            "copy {table} from stdin",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                shared.execute(sql.SQL(statement).format(**names))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", CALLS)
def test_each_function_has_its_callers(rolled_back: psycopg.Connection, role: str, name: str) -> None:
    (call, arguments), allowed = CALLS[name]
    become(rolled_back, role)
    if role in allowed:
        rolled_back.execute(call, arguments)
        return
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as error:
        rolled_back.execute(call, arguments)
    told = translate_error(error.value)
    assert told.code == "registry-refused"
    assert "kiwi_publisher" in told.hint


@pytest.mark.parametrize("role", ROLES)
def test_nobody_logs_in_as_a_role_or_becomes_the_owner(shared: psycopg.Connection, role: str) -> None:
    query = "select rolcanlogin, rolsuper, rolbypassrls from pg_roles where rolname = 'kiwi_owner'"
    assert shared.execute(query).fetchone() == (False, False, False)
    become(shared, role)
    for statement in (
        "set role kiwi_owner",
        "set role kiwi_indexer" if role != "kiwi_indexer" else "set role kiwi_admin",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shared.execute(statement)  # type: ignore[call-overload]


def test_every_function_has_a_fixed_search_path(shared: psycopg.Connection) -> None:
    """Not the empty one: with that Postgres looks for types in pg_temp first (see test_shadowing)."""
    loose = """
        select oid::regprocedure::text from pg_proc
        where pronamespace in ('kiwi'::regnamespace, 'public'::regnamespace) and proowner = 'kiwi_owner'::regrole
            and not coalesce(proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']
    """
    assert shared.execute(loose).fetchall() == []
    definers = "select count(*) from pg_proc where pronamespace = 'public'::regnamespace and prosecdef"
    assert shared.execute(definers).fetchone() == (0,)


def test_everything_belongs_to_the_owner_nobody_can_be(shared: psycopg.Connection) -> None:
    others = """
        select relname from pg_class
        where relnamespace in ('kiwi'::regnamespace, 'kiwi_private'::regnamespace) and relowner <> 'kiwi_owner'::regrole
        union all
        select proname from pg_proc where pronamespace = 'kiwi'::regnamespace and proowner <> 'kiwi_owner'::regrole
    """
    assert shared.execute(others).fetchall() == []
    open_tables = """
        select relname from pg_class
        where relnamespace in ('kiwi'::regnamespace, 'kiwi_private'::regnamespace) and relkind in ('r', 'p')
            and not relrowsecurity and relname <> 'alembic_version'
    """
    assert shared.execute(open_tables).fetchall() == []
