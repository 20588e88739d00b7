"""``kiwi usage`` as a user runs it, after remote calls that really were made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.embedding_server import EmbeddingServer, Failure, vectors_of
from tests.interfaces.conftest import Kiwi, note, with_server
from tests.interfaces.mcp_server import connected


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(vectors_of) as running:
        yield running


@pytest.fixture
def remote(ready: Kiwi, server: EmbeddingServer) -> Kiwi:
    """A user whose model is behind a server."""
    ready = with_server(ready, server)
    ready.extra["KIWI_EMBEDDING_PRICES"] = "some-model=2"
    ready.write("knowledge/acme/staging.md", note())
    ready.run("sign", ".ai")
    return ready


def test_what_was_embedded_is_counted_and_priced(remote: Kiwi, server: EmbeddingServer) -> None:
    assert "nothing was embedded remotely" in remote.run("usage").stderr
    remote.run("index")
    shown = remote.run("usage")
    [row] = remote.json("usage", "--since", "7d")["rows"]
    assert (row["provider"], row["model"], row["failures"]) == ("openai", "some-model", 0)
    assert row["calls"] == len(server.seen)
    assert row["tokens"] == sum(len(text.split()) for seen in server.seen for text in seen.body["input"])
    assert row["cost_usd"] == pytest.approx(row["tokens"] * 2 / 1e6)
    line = next(line for line in shown.stdout.splitlines() if "openai some-model" in line)
    assert line.split()[3:6] == [str(row[name]) for name in ("calls", "texts", "tokens")]
    log = (remote.home / "cache/usage.jsonl").read_text()
    assert "staging" not in log
    assert "sk-nobody" not in log


async def test_costs_are_shown_for_each_command_query_and_tool_call(remote: Kiwi) -> None:
    remote.run("index")
    remote.run("search", "a query that no cache has")
    async with connected(remote, "--toolsets", "items") as client:
        await client.call_tool("kiwi_search", {"query": "another query of an agent"})
    rows = remote.json("usage", "--by", "run")["rows"]
    costs = {row["run"].partition("Z ")[2]: row["cost_usd"] for row in rows}
    assert costs.keys() >= {"kiwi index", "kiwi search", "kiwi mcp kiwi_search"}
    assert costs["kiwi search"] == pytest.approx(6 * 2 / 1e6)
    assert costs["kiwi mcp kiwi_search"] == pytest.approx(5 * 2 / 1e6)
    by_day = remote.json("usage")["rows"]
    assert sum(row["cost_usd"] for row in by_day) == pytest.approx(sum(costs.values()))
    shown = remote.run("usage", "--by", "run").stdout.splitlines()
    assert shown[0].startswith("run ")
    assert any("Z kiwi search " in line and "openai some-model" in line for line in shown)


def test_a_wrong_day_is_a_usage_error(remote: Kiwi) -> None:
    assert remote.run("usage", "--since", "soon", expect=2).stderr.startswith("kiwi: ")


def test_too_many_requests_forever_end_the_index_with_a_clear_error(remote: Kiwi, server: EmbeddingServer) -> None:
    server.always = Failure(429, headers={"Retry-After": "7200"})
    failed = remote.run("index", expect=None)
    assert failed.returncode in (1, 3)
    assert "the server accepts requests in 7200 s" in failed.stdout + failed.stderr
    server.always = None
    remote.run("index")


def test_a_stand_in_takes_over_and_the_index_is_one(remote: Kiwi, server: EmbeddingServer) -> None:
    with EmbeddingServer(vectors_of) as stand_in:
        remote.extra["KIWI_EMBEDDING_FALLBACKS"] = f"{stand_in.url}/v1"
        remote.run("index")
        assert stand_in.seen == []
        server.always = Failure(503)
        remote.write("knowledge/acme/other.md", note(extra="It is another one."))
        remote.run("sign", ".ai")
        told = remote.run("index").stderr
        assert f"{server.url.removeprefix('http://')} does not embed" in told
        assert stand_in.seen
        assert sum(row["failures"] for row in remote.json("usage")["rows"]) >= 1
        found = remote.json("search", "staging at night", "--source", "project")
    assert len(found["hits"]) == 2
