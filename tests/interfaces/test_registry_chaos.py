"""`kiwi publish` and the indexer while the registry's server is killed, is full, or is not there."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import psycopg
import pytest

from kiwi_rag import retry
from kiwi_rag.model import Filters, StoredItem
from kiwi_rag.registry import client, server
from kiwi_rag.registry.calls import ANSWER_SECONDS, time_limit
from kiwi_rag.registry.pool import Connections
from kiwi_rag.signing import dsse
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.interfaces.conftest import PATIENCE, Kiwi, note, wait_until

RECEIPT = re.compile(r"^(?:published|already published) +(\w+:[\w/-]+)@", re.MULTILINE)


def write_notes(kiwi: Kiwi, count: int) -> set[str]:
    for number in range(count):
        kiwi.write(f"knowledge/acme/n{number}.md", note(extra=f"Pump {number} feeds the basin number {number * 7}."))
    kiwi.run("--quiet", "sign", ".ai")
    return {f"knowledge:acme/n{number}" for number in range(count)}


def listed(kiwi: Kiwi) -> set[str]:
    return {f"{row['item_type']}:{row['item_id']}" for row in kiwi.json("list", "--source", "registry")}


def found(kiwi: Kiwi) -> set[str]:
    hits = kiwi.json("search", "which pump feeds the basin", "--source", "registry", "--limit", "200")["hits"]
    return {f"{hit['item_type']}:{hit['item_id']}" for hit in hits}


def next_line(process) -> str:
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line


CONNECTIONS = 40
"""What a server has here, for tests that use all of them, in place of 200."""


@pytest.fixture
def few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_CONNECTIONS", CONNECTIONS)


@pytest.fixture
def registry(ready: Kiwi) -> Iterator[Kiwi]:
    """A user whose registry runs until the test ends."""
    ready.run("registry", "start")
    return ready


def state_of(kiwi: Kiwi) -> server.ServerState:
    return server.server_state(kiwi.home / ".ai/registry")


def test_the_server_is_killed_while_items_are_published(registry: Kiwi):
    everything = write_notes(registry, 20)
    process = registry.start("--quiet", "publish", "--all")
    told = [next_line(process) for _ in range(3)]
    killed = state_of(registry).pid
    os.kill(killed, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    receipts = set(RECEIPT.findall("".join(told) + out))
    assert process.returncode in (0, 3), err
    assert state_of(registry).pid not in (None, killed)  # the next user started it again
    assert receipts <= listed(registry)
    registry.run("publish", "--all")
    assert listed(registry) == found(registry) == everything
    assert registry.run("registry", "verify", "--all").returncode == 0


@pytest.mark.usefixtures("few_connections")
@pytest.mark.usefixtures("impatient")
def test_no_free_connection_is_told_and_waited_for(registry: Kiwi):
    everything = write_notes(registry, 2)
    registry.run("publish", "--all")
    taken = []
    with pytest.raises(psycopg.OperationalError, match="too many clients"):
        while True:
            taken.append(psycopg.connect(state_of(registry).uri))
    assert len(taken) >= CONNECTIONS - 10
    registry.extra["KIWI_DEADLINE"] = "1"
    search = registry.run("search", "which pump feeds the basin", "--source", "registry", expect=1)
    assert "registry: error: the registry is busy: " in search.stderr
    assert "too many clients" in search.stderr
    assert "no tier answered" in search.stderr
    assert "too many clients" in registry.run("publish", "--all", expect=None).stderr
    log, refusals = registry.home / ".ai/registry/log", "too many clients"
    before = log.read_text().count(refusals)
    process = registry.start("publish", "--all")
    wait_until(lambda: log.read_text().count(refusals) > before)
    for connection in taken[:20]:
        connection.close()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert set(RECEIPT.findall(out)) == everything
    for connection in taken[20:]:
        connection.close()


@pytest.mark.usefixtures("few_connections")
async def test_more_clients_at_once_than_there_are_connections(registry: Kiwi):
    write_notes(registry, 4)
    registry.run("publish", "--all")
    url = state_of(registry).uri
    store = RegistryVectorStore(Connections(url))
    items = [await store.get(item.ref) for item in await store.list(Filters())]
    await store.close()

    async def hand_in(number: int) -> str:
        lines = Connections(url)

        answer = None
        try:
            for attempt in retry.attempts((0.5,) * 200):
                async with attempt, time_limit(ANSWER_SECONDS), lines.session() as caller:
                    answer = await caller.value("publish_item", arguments(items[number % 4]))
            return client.parse_receipt(answer).digest
        finally:
            await lines.close()

    digests = await asyncio.gather(*map(hand_in, range(CONNECTIONS + 20)))
    assert sorted(digests) == sorted(item.digest for item in items for _ in range(CONNECTIONS // 4 + 5))


def arguments(item: StoredItem) -> dict[str, object]:
    """Return the arguments of ``publish_item`` for an item that is there already."""
    files = {name: base64.b64encode(content).decode() for name, content in item.files.items()}
    return {"envelope": dsse.encode(item.envelope), "files": files}


def test_publishers_at_once_all_get_their_receipts(registry: Kiwi):
    everything = write_notes(registry, 4)
    users = [registry.start("--quiet", "publish", "--all") for _ in range(4)]
    outs = [user.communicate(timeout=PATIENCE) for user in users]
    assert [user.returncode for user in users] == [0] * 4, outs
    assert all(set(RECEIPT.findall(out)) == everything for out, _ in outs)
    assert (
        sum(line.startswith("published") for out, _ in outs for line in out.splitlines()) == 4
    )  # each item by one of them


def test_a_registry_that_is_not_there_is_told_with_what_was_not_published(ready: Kiwi, monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(retry, "asyncio", SimpleNamespace(sleep=pause))
    write_notes(ready, 3)
    away = Kiwi(ready.home, ready.cwd, {"KIWI_REGISTRY_URL": "postgresql://x@127.0.0.1:9/none"})
    result = away.run("publish", "--all", expect=3)
    assert result.stdout == ""
    assert "3 not published; run the command again to continue" in result.stderr
    assert "cannot be reached" in result.stderr
    assert 0 < len(pauses) <= 4 * len(retry.WRITING), "one preparation, and a few attempts an item"


def test_publishing_goes_on_where_it_was_killed(registry: Kiwi):
    everything = write_notes(registry, 30)
    process = registry.start("--quiet", "publish", "--all")
    told = [next_line(process) for _ in range(8)]
    process.kill()
    told.append(process.communicate()[0])
    before = set(RECEIPT.findall("".join(told)))
    there = listed(registry)
    assert before <= there < everything
    rows = registry.json("publish", "--all")["published"]
    new = {row["ref"].split("@")[0] for row in rows if not row["already_published"]}
    # The server ends what it was doing for a client that is gone, also after it was asked what there is.
    assert new <= everything - there and len(everything - there - new) <= 3
    assert listed(registry) == found(registry) == everything


def test_watching_indexes_what_a_publisher_may_not_and_stops_cleanly(registry: Kiwi):
    everything = write_notes(registry, 6)
    url = state_of(registry).uri
    registry.run("publish", "--all")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role only_publisher login in role kiwi_publisher")
    watchers = [registry.start("registry", "index", "--watch", "--every", "0.5") for _ in range(2)]
    assert all("waiting for published items" in watcher.stderr.readline() for watcher in watchers)
    registry.write("knowledge/acme/late.md", note(extra="Pump 99 feeds the late basin."))
    registry.run("--quiet", "sign", ".ai")
    publisher = Kiwi(registry.home, registry.cwd, {"KIWI_REGISTRY_URL": url.replace("postgres@", "only_publisher@")})
    told = publisher.run("publish", "--all")
    assert "not searchable yet" in told.stderr
    wait_until(lambda: found(registry) == {*everything, "knowledge:acme/late"})
    for watcher, number in zip(watchers, (signal.SIGINT, signal.SIGTERM), strict=True):
        watcher.send_signal(number)
    outs = [watcher.communicate(timeout=PATIENCE) for watcher in watchers]
    assert [watcher.returncode for watcher in watchers] == [0, 0], outs
    assert sum("indexed  knowledge:acme/late" in out for out, _ in outs) == 1  # by one of the two
    assert all("stopped" in err for _, err in outs)


def test_a_watcher_survives_its_server(registry: Kiwi):
    write_notes(registry, 1)
    registry.run("publish", "--all")
    watcher = registry.start("registry", "index", "--watch", "--every", "0.5")
    watcher.stderr.readline()
    with psycopg.connect(state_of(registry).uri, autocommit=True) as connection:
        listening = "select from pg_stat_activity where query ilike 'listen %' and state = 'idle'"
        wait_until(lambda: connection.execute(listening).fetchone() is not None)
    os.kill(state_of(registry).pid, signal.SIGKILL)
    assert "again in" in watcher.stderr.readline()
    wait_until(lambda: state_of(registry).running)
    watcher.send_signal(signal.SIGTERM)
    assert watcher.communicate(timeout=PATIENCE) and watcher.returncode == 0


def test_verify_names_what_was_attached_by_another_hand(registry: Kiwi):
    write_notes(registry, 3)
    registry.run("publish", "--all")
    assert "3 items checked, 0 with differences" in registry.run("registry", "verify").stderr
    with psycopg.connect(state_of(registry).uri, autocommit=True) as connection:
        connection.execute(
            "update kiwi.passages as e set embedding = o.embedding from kiwi.passages as o"
            " where o.passage_id <> e.passage_id and e.passage_id = (select min(passage_id) from kiwi.passages)"
            " and o.ordinal = 1"
        )
    told = registry.run("registry", "verify", "--sample", "3", expect=3)
    assert re.search(
        r"differs +knowledge:acme/n\d@1.0.0 +passage 0 +has another vector than the model computes", told.stdout
    )
    assert registry.json("registry", "verify", "--all", expect=3)["checked"] == 3
