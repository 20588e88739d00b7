"""A change of the registry's model as its operator and its users see it: built beside the old one, then switched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.embedding_server import EmbeddingServer
from tests.interfaces.conftest import Kiwi, note
from tests.sql.shelves import SmallModel

QUERY = ("search", "which pump feeds the basin", "--source", "registry")


@pytest.fixture
def other() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(SmallModel().encode) as serving:
        yield serving


def with_model(kiwi: Kiwi, serving: EmbeddingServer, model: str = "small") -> Kiwi:
    """The same user, having chosen another model."""
    chosen = {
        "KIWI_EMBEDDING_PROVIDER": "ollama",
        "KIWI_EMBEDDING_BASE_URL": serving.url,
        "KIWI_EMBEDDING_MODEL": model,
    }
    return Kiwi(kiwi.home, kiwi.cwd, {**kiwi.extra, **chosen})


def models(kiwi: Kiwi) -> dict[str, tuple[str, int, int]]:
    rows = kiwi.json("registry", "status")["models"]
    return {row["fingerprint"].split("/")[0]: (row["state"], row["items"], row["waiting"]) for row in rows}


def test_a_model_is_changed_without_downtime(ready: Kiwi, other: EmbeddingServer):
    ready.run("registry", "start")
    for number in range(3):
        ready.write(f"knowledge/acme/n{number}.md", note(extra=f"Pump {number} feeds the basin."))
    ready.run("--quiet", "sign", ".ai")
    ready.run("publish", "--all")
    new = with_model(ready, other)

    # Whoever merely publishes, watches or searches with another model starts nothing.
    ready.write("knowledge/acme/n3.md", note(extra="Pump 3 feeds the basin."))
    ready.run("--quiet", "sign", ".ai")
    published = new.run("publish", "--all")
    assert "published  knowledge:acme/n3@1.0.0" in published.stdout
    assert "none of small/" in published.stderr
    assert "wanted" in new.run_forked("registry", "index", "--watch", expect=1).stderr
    reply = new.json(*QUERY, expect=1)
    assert [tier["state"] for tier in reply["tiers"]] == ["stale"]
    assert models(ready) == {"all-MiniLM-L6-v2-int8": ("active", 3, 1)}

    # The indexer with the old model goes on beside; the one with the new model builds, and switches when complete.
    ready.run("registry", "index")
    told = new.run("registry", "index")
    assert "searches use the active model until they are complete" in told.stderr
    assert told.stdout.count("indexed  ") == 4
    assert "active: small/" in told.stderr
    assert models(ready) == {"all-MiniLM-L6-v2-int8": ("superseded", 4, 0), "small": ("active", 4, 0)}
    assert len(new.json(*QUERY)["hits"]) == len(ready.json(*QUERY)["hits"]) == 4
    assert new.run("registry", "verify", "--all").returncode == 0

    assert "8 passages" in new.run("registry", "index", "--drop-old").stdout
    assert list(models(ready)) == ["small"]
    assert [tier["state"] for tier in ready.json(*QUERY, expect=1)["tiers"]] == ["stale"]


def test_a_build_that_is_stopped_goes_on(ready: Kiwi, other: EmbeddingServer):
    ready.run("registry", "start")
    for number in range(12):
        ready.write(f"knowledge/acme/n{number}.md", note(extra=f"Pump {number} feeds the basin."))
    ready.run("--quiet", "sign", ".ai")
    ready.run("publish", "--all")
    new = with_model(ready, other)
    process = new.start("registry", "index")
    assert process.stdout.readline().startswith("indexed")
    process.kill()
    process.communicate()
    state, items, waiting = models(ready)["small"]
    assert (state, items + waiting) == ("building", 12)
    if waiting:
        reply = new.json(*QUERY, expect=1)
        assert f"{items} of 12 items" in reply["tiers"][0]["error"]["message"]
    assert len(ready.json(*QUERY, "--limit", "20")["hits"]) == 12
    again = new.run("registry", "index")
    assert again.stdout.count("indexed  ") == waiting
    assert models(ready)["small"] == ("active", 12, 0)


def test_a_model_of_another_dimension_is_built_and_searched_beside_the_active_one(ready: Kiwi, other: EmbeddingServer):
    ready.run("registry", "start")
    for number in range(3):
        ready.write(f"knowledge/acme/n{number}.md", note(extra=f"Pump {number} feeds the basin."))
    ready.run("--quiet", "sign", ".ai")
    ready.run("publish", "--all")
    narrow = other.encode
    other.encode = lambda texts: [[*vector, *([0.0] * (1536 - len(vector)))] for vector in narrow(texts)]
    wide = with_model(ready, other, "wide")
    wide.extra["KIWI_EMBEDDING_DIMENSION"] = "1536"
    assert wide.run("registry", "index").stdout.count("indexed  ") == 3
    assert models(ready) == {"all-MiniLM-L6-v2-int8": ("superseded", 3, 0), "wide": ("active", 3, 0)}
    assert len(wide.json(*QUERY)["hits"]) == len(ready.json(*QUERY)["hits"]) == 3
    assert wide.run("registry", "verify", "--all").returncode == 0
