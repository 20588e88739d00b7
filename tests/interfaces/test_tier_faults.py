"""`kiwi search` while a tier is dead, silent, damaged or lying: the others' hits come, in time, with exit 3."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg
import pytest

from kiwi_rag.registry import server
from tests.interfaces.conftest import Kiwi, note

QUERY = "which pump feeds the basin"
DEADLINE = 2.0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user in a project with three items, and a registry with three others; reached by its URL, as any server is.

    Made once; each test mends what it broke.
    """
    folder = tmp_path_factory.mktemp("faults")
    folder.chmod(0o755)
    (folder / "home").mkdir()
    (folder / "there").mkdir()
    there = Kiwi(folder / "home", folder / "there")
    there.run("init")
    there.run("keys", "new", "--principal", "ada@acme.example")
    for number in range(3):
        there.write(f"knowledge/reg/n{number}.md", note(extra=f"Pump {number} feeds the basin number {number}."))
    there.run("--quiet", "sign", ".ai")
    there.run("registry", "start")
    there.run("publish", "--all")
    here = there.at(folder / "here")
    here.run("init")
    for number in range(3):
        here.write(f"knowledge/own/n{number}.md", note(extra=f"The basin of our own has pump {number}."))
    here.run("--quiet", "sign", ".ai")
    here.run("index")
    url = server.server_state(here.home / ".ai/registry").uri
    yield Kiwi(here.home, here.cwd, {"KIWI_REGISTRY_URL": url, "KIWI_DEADLINE": str(DEADLINE)})
    here.run("registry", "stop", expect=None)


def hits(reply: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(h["item_id"], h["tier"], h["text"], h["score"]) for h in reply["hits"]]


def states(reply: dict[str, Any]) -> dict[str, str]:
    return {tier["tier"]: tier["state"] for tier in reply["tiers"]}


def search(kiwi: Kiwi, *arguments: str, expect: int = 0) -> dict[str, Any]:
    return kiwi.json("search", QUERY, *arguments, expect=expect)


def backends(kiwi: Kiwi) -> list[psutil.Process]:
    pid = server.server_state(kiwi.home / ".ai/registry").pid
    assert pid
    postmaster = psutil.Process(pid)
    return [postmaster, *postmaster.children(recursive=True)]


def test_a_registry_that_was_killed(both: Kiwi):
    alone = search(both, "--source", "project")
    assert len(hits(search(both, "--source", "all"))) == 6
    os.kill(backends(both)[0].pid, signal.SIGKILL)
    reply = search(both, "--source", "all", expect=3)
    assert states(reply) == {"project": "ok", "user": "ok", "registry": "error"}
    assert hits(reply) == hits(alone)
    told = both.run("search", QUERY, "--source", "all", expect=3)
    assert "registry: error: " in told.stderr
    Kiwi(both.home, both.cwd).run("registry", "start")
    assert len(hits(search(both, "--source", "all"))) == 6


def test_a_registry_that_says_nothing_any_more(both: Kiwi):
    alone = search(both, "--source", "project")
    stopped = backends(both)
    for process in stopped:
        process.suspend()
    try:
        told = both.run("--json", "search", QUERY, "--source", "all", expect=3)
        assert {process.status() for process in stopped} == {psutil.STATUS_STOPPED}, "the answer came without it"
    finally:
        for process in stopped:
            process.resume()
    reply = json.loads(told.stdout)
    assert states(reply) == {"project": "ok", "user": "ok", "registry": "timeout"}
    assert hits(reply) == hits(alone)
    assert told.stderr.splitlines()[0].startswith("registry: timeout: no answer within 2 s")
    assert len(hits(search(both, "--source", "all"))) == 6


def test_a_registry_that_lies(both: Kiwi):
    alone = search(both, "--source", "project")
    with psycopg.connect(both.extra["KIWI_REGISTRY_URL"], autocommit=True) as connection:
        honest = "select pg_get_functiondef('public.collection_statistics'::regproc)"
        (definition,) = connection.execute(honest).fetchone() or ("",)
        connection.execute(
            "create or replace function public.collection_statistics("
            "terms text[], model_fingerprint text default null, collection text default 'items')"
            """ returns jsonb language sql as $$ select '{"passages": -3, "total_length": 1, "items": 3,
                "document_frequency": {}}'::jsonb $$"""
        )
        reply = search(both, "--source", "all", expect=3)
        connection.execute(definition)
    assert states(reply)["registry"] == "error"
    assert hits(reply) == hits(alone)


def test_a_catalog_with_corrupt_pages(both: Kiwi):
    alone = search(both, "--source", "registry")
    catalog = both.vectors / "catalog-100.sqlite3"
    with sqlite3.connect(catalog) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
        (size,) = connection.execute("pragma page_size").fetchone()
    whole = catalog.read_bytes()
    catalog.write_bytes(whole[: size * 2] + os.urandom(len(whole) - size * 2))
    reply = search(both, "--source", "all", expect=3)
    told = both.run("search", QUERY, "--source", "all", expect=3)
    catalog.write_bytes(whole)
    assert states(reply) == {"project": "error", "user": "ok", "registry": "ok"}
    assert hits(reply) == hits(alone)
    assert "doctor --repair" in told.stderr
