"""docs/supabase.md, walked: a hosted project's operator, who is no superuser, sets up a registry and runs it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
import pytest

from kiwi_rag.errors import RegistryRefused
from kiwi_rag.model import Filters
from kiwi_rag.registry.migrate import bring_up_to_date, migrate
from kiwi_rag.registry.pool import Connections
from kiwi_rag.registry.server import binaries
from kiwi_rag.registry.supabase import SupabaseApi
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, KEY, REGISTRY, admission, query, records
from tests.registry_calls import store_passages
from tests.shared import ROOT
from tests.supabase.cli import Cluster
from tests.supabase.postgrest import PUBLISHABLE, SECRET_KEY, PostgRest, project, token


@dataclass(frozen=True)
class Project:
    """A project's database by its roles, and its API."""

    cluster: Cluster
    name: str
    api: PostgRest

    def url(self, user: str) -> str:
        return self.cluster.url(self.name, user, user)


@pytest.fixture
def operated(cluster: Cluster, migrated: str, request: pytest.FixtureRequest) -> Iterator[Project]:
    """A project as the operator leaves it who followed the page."""
    name = request.node.name[-50:]
    operator = cluster.clone(name, migrated)
    with psycopg.connect(operator, autocommit=True) as editor:
        editor.execute("select set_audience('test')")
        editor.execute("select enrol_signer(%s, 'ada@acme', '{acme/*}')", [KEY.public_key.hex()])
        for role, right in (("indexer", "kiwi_indexer"), ("ci", "kiwi_publisher")):
            if editor.execute("select from pg_roles where rolname = %s", [role]).fetchone() is None:
                editor.execute(f"create role {role} login password '{role}'".encode())
                editor.execute(f"grant {right} to {role}".encode())
    with project(cluster.admin(name)) as api:
        yield Project(cluster, name, api)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RegistryVectorStore]:
    store = RegistryVectorStore(Connections(url), fingerprint=FINGERPRINT)
    yield store
    await store.close()


@asynccontextmanager
async def over_api(api: PostgRest, bearer: str = "", key: str = PUBLISHABLE) -> AsyncIterator[RegistryVectorStore]:
    store = RegistryVectorStore(SupabaseApi(api.url, key, bearer), fingerprint=FINGERPRINT)
    yield store
    await store.close()


async def test_each_role_does_its_part(operated: Project) -> None:
    by_user, by_ci = admission("acme/by-user"), admission("acme/by-ci")
    async with over_api(operated.api, token()) as publisher:
        await publisher.publish(by_user)
    async with connected(operated.url("ci")) as ci:
        await ci.publish(by_ci)
        with pytest.raises(RegistryRefused):
            await store_passages(ci, records(by_ci))
    async with connected(operated.url("indexer")) as indexer:
        assert [sequence for sequence, _ in await indexer.client.pending_items(FINGERPRINT)] == [1, 2]
        await store_passages(indexer, records(by_user))
        await store_passages(indexer, records(by_ci, seed=9))
    for opened in (over_api(operated.api), connected(operated.url("ci")), connected(operated.url("indexer"))):
        async with opened as reader:
            assert {item.ref.item_id for item in await reader.list(Filters())} == {"acme/by-user", "acme/by-ci"}
            found = await reader.search(query("restart", await reader.statistics(("restart",))))
            assert len(found.items) == 2


async def test_no_key_of_the_project_gets_past_the_gate(operated: Project) -> None:
    """Not even the secret one, that passes over every policy."""
    async with over_api(operated.api, key=SECRET_KEY) as service:
        with pytest.raises(RegistryRefused, match="may not sign"):
            await service.publish(admission("beta/not-hers"))
        with pytest.raises(RegistryRefused):
            await store_passages(service, records(admission("acme/one")))


async def test_a_revocation_in_the_editor_is_seen_at_once(operated: Project) -> None:
    one = admission("acme/one")
    async with connected(operated.url("indexer")) as indexer, over_api(operated.api, token()) as publisher:
        await publisher.publish(one)
        await store_passages(indexer, records(one))
        asked = query("restart", await publisher.statistics(("restart",)))
        assert len((await publisher.search(asked)).items) == 1
        with psycopg.connect(operated.url("operator")) as editor:
            editor.execute("select revoke_signer(%s, 'laptop stolen')", [KEY.key_id])
        assert (await publisher.search(asked)).items == ()
        with pytest.raises(RegistryRefused, match="compromised"):
            await publisher.publish(admission("acme/two"))


def dumped(operated: Project) -> str:
    """A backup, as the page says to take one."""
    command = [binaries() / "pg_dump", "--schema=kiwi", "--schema=kiwi_private", "--restrict-key=kiwi"]
    done = subprocess.run([*command, operated.url("operator")], check=True, capture_output=True, text=True)
    return done.stdout


def restored(cluster: Cluster, name: str, dump: str) -> tuple[str, str]:
    """A new project with the backup in it, as the page says to put it there; its URL, and what psql complained of."""
    url = cluster.database(name)
    migrate(url)
    with psycopg.connect(url) as editor:
        editor.execute("drop schema kiwi, kiwi_private cascade")
    command = [binaries() / "psql", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--file=-", url]
    done = subprocess.run(command, input=dump, capture_output=True, text=True)
    if done.returncode == 0:
        with psycopg.connect(url) as editor:
            editor.execute("delete from kiwi.settings where name = 'sql_digest'")
        assert bring_up_to_date(url)
    return url, done.stderr


async def test_a_restore_checks_every_signature_again(operated: Project) -> None:
    one = admission("acme/one", "restart the service")
    async with connected(operated.url("indexer")) as indexer, over_api(operated.api, token()) as publisher:
        await publisher.publish(one)
        await store_passages(indexer, records(one))
    dump = dumped(operated)
    url, complaint = restored(operated.cluster, f"{operated.name[-40:]}_restored", dump)
    assert complaint == ""
    assert operated.cluster.schema(operated.name) == operated.cluster.schema(f"{operated.name[-40:]}_restored")
    with psycopg.connect(url) as connection:
        row = connection.execute("select item_id, content from kiwi.statements, kiwi.blobs").fetchone()
        assert row == ("acme/one", b"restart the service")
        assert connection.execute("select verify_audit()").fetchone() == (None,)
        assert connection.execute("select registry_status() ->> 'audience'").fetchone() == (REGISTRY,)

    for number, (true, false, constraint) in enumerate(
        (
            (b"restart the service", b"destroy the service", "blobs_digest"),
            (b'"item_id":"acme/one"', b'"item_id":"acme/two"', "statements_signature"),
        )
    ):
        altered = dump.replace(true.hex(), false.hex())
        assert altered != dump
        _, complaint = restored(operated.cluster, f"{operated.name[-40:]}_altered{number}", altered)
        assert constraint in complaint


def statements() -> list[str]:
    """Every SQL statement of the page, in its order, with real values where it has placeholders."""
    blocks = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs/supabase.md").read_text(), re.MULTILINE | re.DOTALL)
    text = re.sub(
        r"create role (\w+) login password '<password>'", r"create role \1 login password '\1'", "".join(blocks)
    )
    text = text.replace("<public key>", KEY.public_key.hex()).replace("<key id>", KEY.key_id)
    return [line.partition("--")[0].strip() for line in text.splitlines() if line]


def test_every_statement_of_the_page_runs_as_the_operator(cluster: Cluster) -> None:
    with psycopg.connect(cluster.socket, autocommit=True) as superuser:
        superuser.execute("drop role if exists ci, indexer")
    url = cluster.database("walked")
    migrate(url)
    with psycopg.connect(url, autocommit=True) as editor:
        for statement in statements():
            editor.execute(statement.encode())
        assert editor.execute("select status, item_patterns from signer_activity").fetchall() == [
            ("compromised", ["acme/*", "ops/runbooks/*"])
        ]
    assert len(statements()) >= 16
