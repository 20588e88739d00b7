"""A shared index: a build writes it under a key that readers trust with documents, in Qdrant or in the registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interfaces.conftest import Kiwi
from tests.qdrant_server import QdrantServer
from tests.stand_in import API_KEY
from tests.weaviate_server import WeaviateServer

STORES = ["qdrant", "registry"]


@pytest.fixture
def qdrant() -> Iterator[str]:
    with QdrantServer() as server:
        yield server.url


@pytest.fixture(params=STORES)
def build(request: pytest.FixtureRequest, kiwi: Kiwi, tmp_path: Path) -> Kiwi:
    """A build with a key, and an empty shared index."""
    kiwi.extra |= {
        "KIWI_WORKSPACE_STORE": request.param,
        "KIWI_QDRANT_URL": request.getfixturevalue("qdrant") if request.param == "qdrant" else "",
        "KIWI_WORKSPACE_NAME": "harbour",
    }
    kiwi.run("keys", "new", "--principal", "ci@acme.example")
    (kiwi.cwd / "docs").mkdir()
    (kiwi.cwd / "docs/tides.md").write_text("# Tides\n\nThe tide turns an hour later every day.\n")
    (kiwi.cwd / "docs/cranes.md").write_text("# Cranes\n\nCrane four lifts twelve tons.\n")
    return kiwi


def trusting(kiwi: Kiwi, who: Kiwi, items: str = "harbour/*") -> None:
    """Let `kiwi` trust the key of `who` with documents, and with items as before."""
    public = (who.home / ".ai/keys/default.pub").read_text().strip()
    kinds = [word for kind in ("directive", "script", "knowledge", "document") for word in ("--type", kind)]
    kiwi.run("trust", "add", public, "--principal", "ci@acme.example", "--items", items, *kinds)


def test_a_key_of_items_signs_no_documents_until_it_may(build: Kiwi):
    report = build.json("workspace", "index", expect=3)
    assert {row["path"] for row in report["failed"]} == {"docs/tides.md", "docs/cranes.md"}
    assert "may not sign a document" in report["failed"][0]["message"]
    assert build.json("workspace", "stats")["documents"] == 0


def test_what_a_build_indexed_is_found_and_verified_by_those_who_trust_it(build: Kiwi, tmp_path: Path):
    trusting(build, build)
    assert sorted(build.json("workspace", "index")["indexed"]) == ["docs/cranes.md", "docs/tides.md"]
    assert build.json("workspace", "index")["encoded"] == 0
    hit = build.json("workspace", "search", "when does the tide turn")["hits"][0]
    assert (hit["path"], hit["signer"], hit["verified"], hit["changed"]) == (
        "docs/tides.md",
        "ci@acme.example",
        True,
        False,
    )
    elsewhere = build.at(tmp_path / "another-checkout")
    assert elsewhere.json("workspace", "search", "when does the tide turn")["hits"][0]["changed"] is None
    stranger = Kiwi(tmp_path / "stranger", tmp_path / "another-checkout", dict(build.extra))
    stranger.home.mkdir()
    if build.extra["KIWI_WORKSPACE_STORE"] == "qdrant":
        reply = stranger.json("workspace", "search", "when does the tide turn", expect=3)
        assert (reply["hits"], {row["code"] for row in reply["refused"]}) == ([], {"unknown-signer"})
        trusting(stranger, build)
        assert stranger.json("workspace", "search", "when does the tide turn")["hits"][0]["path"] == "docs/tides.md"


def test_what_another_checkout_indexed_stays_until_it_is_pruned(build: Kiwi, tmp_path: Path):
    trusting(build, build)
    build.run("workspace", "index")
    other = build.at(tmp_path / "other")
    (other.cwd / "locks.md").write_text("# Locks\n\nThe lock opens at seven.\n")
    assert other.json("workspace", "index")["removed"] == []
    assert {row["path"] for row in build.json("workspace", "list")} == {"docs/cranes.md", "docs/tides.md", "locks.md"}
    assert build.json("workspace", "index")["removed"] == []
    assert build.json("workspace", "index", "--prune")["removed"] == ["locks.md"]
    (build.cwd / "docs/cranes.md").write_text("# Cranes\n\nCrane four is out of order.\n")
    assert build.json("workspace", "index", "--prune")["indexed"] == ["docs/cranes.md"]
    hit = build.json("workspace", "search", "which crane is out of order")["hits"][0]
    assert "out of order" in hit["text"]


def test_an_index_in_weaviate_is_made_searched_and_emptied(kiwi: Kiwi):
    (kiwi.cwd / "docs").mkdir()
    (kiwi.cwd / "docs/tides.md").write_text("# Tides\n\nThe tide turns an hour later every day.\n")
    (kiwi.cwd / "docs/cranes.md").write_text("# Cranes\n\nCrane four lifts twelve tons.\n")
    with WeaviateServer(api_key=API_KEY) as server:
        kiwi.extra |= {
            "KIWI_WORKSPACE_STORE": "weaviate",
            "KIWI_WEAVIATE_URL": server.url,
            "KIWI_WEAVIATE_GRPC_URL": server.grpc_url,
            "KIWI_WEAVIATE_API_KEY": API_KEY,
            "KIWI_WORKSPACE_NAME": "har-bour",
        }
        kiwi.run("keys", "new", "--principal", "ci@acme.example")
        trusting(kiwi, kiwi, "har-bour/*")
        assert sorted(kiwi.json("workspace", "index")["indexed"]) == ["docs/cranes.md", "docs/tides.md"]
        assert list(server.classes) == ["KiwiDocument_har_2d_bour"]
        hit = kiwi.json("workspace", "search", "when does the tide turn")["hits"][0]
        assert (hit["path"], hit["signer"], hit["verified"]) == ("docs/tides.md", "ci@acme.example", True)
        (kiwi.cwd / "docs/cranes.md").unlink()
        assert kiwi.json("workspace", "index", "--prune")["removed"] == ["docs/cranes.md"]
        assert kiwi.json("workspace", "stats")["documents"] == 1
        kiwi.run("workspace", "index", "--rebuild")
        assert kiwi.json("workspace", "stats")["documents"] == 1
