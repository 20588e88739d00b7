"""A model's server that fails in the middle of a workspace: each file says so, and nothing that was there is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.embedding_server import EmbeddingServer, Failure, vectors_of
from tests.interfaces.conftest import Kiwi, with_server


def answer(vector: object) -> bytes:
    return json.dumps({"data": [{"index": 0, "embedding": vector}], "model": "some-model"}).encode()


FAILURES = {
    "429 for ever": Failure(429, headers={"Retry-After": "0"}),
    "not JSON": Failure(200, b"<html>welcome to the hotel's network</html>"),
    "no vector": Failure(200, answer("a text")),
    "another dimension": Failure(200, answer([1.0, 2.0, 3.0])),
    "refused": Failure(401),
}


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(vectors_of) as running:
        yield running


@pytest.fixture
def remote(kiwi: Kiwi, server: EmbeddingServer) -> Kiwi:
    kiwi = with_server(kiwi, server)
    for name in ("a", "b"):
        (kiwi.cwd / f"{name}.md").write_text(f"# {name}\n\nWhat stands in {name}.\n")
    kiwi.run("workspace", "index")
    return kiwi


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("failure", FAILURES)
def test_a_server_that_fails_costs_vectors_alone_and_the_next_run_makes_them(
    remote: Kiwi, server: EmbeddingServer, failure: str
) -> None:
    before = {row["path"]: row["sha256"] for row in remote.json("workspace", "list")}
    (remote.cwd / "a.md").write_text("# a\n\nSomething else.\n")
    (remote.cwd / "c.md").write_text("# c\n\nSomething new.\n")
    server.always = FAILURES[failure]
    report = remote.json("workspace", "index", expect=3)
    assert sorted(row["path"] for row in report["failed"]) == ["a.md", "c.md"]
    assert all(row["message"] and row["code"] for row in report["failed"])
    assert "nobody-may-see" not in json.dumps(report)
    after = {row["path"]: row["sha256"] for row in remote.json("workspace", "list")}
    assert sorted(path for path in after if after[path] != before.get(path)) == ["a.md", "c.md"]
    server.always = None
    found = remote.json("workspace", "search", "something new", expect=3)
    assert "c.md" in {hit["path"] for hit in found["hits"]} and not found["complete"]
    report = remote.json("workspace", "index")
    assert (report["indexed"], report["embedded"], report["complete"]) == ([], 2, True)
    assert remote.json("workspace", "search", "something new")["complete"]


def test_without_a_server_it_says_so_at_once(remote: Kiwi, server: EmbeddingServer) -> None:
    remote.extra["KIWI_EMBEDDING_BASE_URL"] = "http://127.0.0.1:9/v1"
    (remote.cwd / "c.md").write_text("# c\n\nSomething new.\n")
    done = remote.run("workspace", "index", expect=3)
    assert "cannot be reached" in done.stderr
