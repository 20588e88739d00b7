"""`kiwi registry tune` as an operator runs it, and what the indexer does of it by itself."""

from __future__ import annotations

import psycopg

from tests.interfaces.conftest import Kiwi, note

QUERY = ("search", "when does the gate wake", "--source", "registry")


def plan(kiwi: Kiwi) -> str:
    """How the registry's vectors are searched, as its status says and as a search says."""
    (told,) = kiwi.json("registry", "status")["vectors"]
    (tier,) = kiwi.json(*QUERY)["tiers"]
    assert tier["plan"] == told["plan"]
    return str(told["plan"])


def test_an_index_is_built_by_hand_and_again_when_it_is_due(ready: Kiwi) -> None:
    url = ready.run("registry", "start").stdout.strip()
    for number in range(2):
        ready.write(f"knowledge/acme/n{number}.md", note(extra=f"Gate {number} wakes at {number}."))
    ready.run("--quiet", "sign", ".ai")
    ready.run("publish", "--all")
    assert plan(ready) == "exact"
    assert "no index" in ready.run("registry", "tune", "--dry-run").stdout

    done = ready.run("registry", "tune", "--method", "ivfflat", "--recall", "0.9")
    assert "required 0.9" in done.stdout
    assert "comparing with exact answers" in done.stderr
    assert plan(ready) == "ivfflat"

    told = ready.json("registry", "tune", "--method", "hnsw")
    assert (told["method"], told["wanted_recall"]) == ("hnsw", 0.9)
    assert len(told["removed"]) == 1
    assert plan(ready) == "hnsw"
    assert "no vectors of" in ready.run("registry", "tune", "--model", "other", expect=1).stderr
    assert "recall nan is not between" in ready.run("registry", "tune", "--recall", "nan", expect=2).stderr

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update kiwi_private.collections set passages = 20000")
        before = connection.execute("select tuned_at from kiwi_private.vector_indexes").fetchone()
        assert ready.json("registry", "status")["vectors"][0]["due"]
        assert "tuned: hnsw" in ready.run("registry", "index").stderr
        assert connection.execute("select tuned_at from kiwi_private.vector_indexes").fetchone() != before
        assert not ready.json("registry", "status")["vectors"][0]["due"]
