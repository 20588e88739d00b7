"""The services: frozen, built when they are first used, with the trust of the moment."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from kiwi_rag.errors import ConfigError, ConsentRequired, MissingExtra
from kiwi_rag.services import Services
from kiwi_rag.services.documents import store_hosts
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.trust import Signer


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project/.ai").mkdir(parents=True)
    return Services.open({"HOME": str(tmp_path)}, tmp_path / "project")


def test_services_cannot_be_changed(services: Services) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        services.cwd = Path("/")  # type: ignore[misc]


def test_a_signer_who_is_trusted_now_counts_at_once_everywhere(services: Services) -> None:
    tier, key = services.local("project"), keys.generate("ada")
    gate = services.gate
    assert not (services.trust.by_key or tier.trust().by_key or gate.trust.by_key)
    trust_file.save(
        services.user_trust, trust_file.load(services.user_trust).with_signer(Signer("ada", key.public_key))
    )
    for trust in (services.trust, tier.trust(), services.gate.trust, services.writer.gate.trust):
        assert list(trust.by_key) == [key.key_id]


async def test_closing_ends_all_even_when_one_part_fails(services: Services) -> None:
    closed: list[str] = []
    services._opened.callback(closed.append, "first")

    async def fail() -> None:
        closed.append("second")
        raise RuntimeError("cannot be closed")

    services._opened.push_async_callback(fail)
    with pytest.raises(RuntimeError):
        await services.close()
    assert closed == ["second", "first"]
    await services.close()
    assert closed == ["second", "first"]


@pytest.mark.parametrize(("store", "package"), [("qdrant", "qdrant_client"), ("weaviate", "weaviate")])
def test_an_index_on_a_server_without_its_package_names_the_extra(
    services: Services, monkeypatch: pytest.MonkeyPatch, store: str, package: str
) -> None:
    environment = {"KIWI_WORKSPACE_STORE": store, f"KIWI_{store.upper()}_URL": "https://store.example"}
    app = Services.open({"HOME": str(services.cwd.parent), **environment}, services.cwd)
    for module in [name for name in sys.modules if name.startswith((f"kiwi_rag.stores.{store}", f"{package}."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra) as caught:
        _ = Workspace(app).tier
    assert f"kiwi-rag[{store}]" in caught.value.hint


@pytest.mark.parametrize("store", ["qdrant", "weaviate"])
def test_an_index_on_a_server_needs_its_address(services: Services, store: str) -> None:
    app = Services.open({"HOME": str(services.cwd.parent), "KIWI_WORKSPACE_STORE": store}, services.cwd)
    with pytest.raises(ConfigError, match=f"{store}_url is not set"):
        _ = Workspace(app).tier


def test_a_workspace_is_a_partition_of_the_one_collection_that_is_set(services: Services) -> None:
    environment = {
        "KIWI_WORKSPACE_STORE": "qdrant",
        "KIWI_QDRANT_URL": "http://localhost",
        "KIWI_WORKSPACE_NAME": "harbour",
    }
    for one, (name, partition) in {"": ("kiwi100-harbour", ""), "team": ("team", "harbour")}.items():
        variables = {"HOME": str(services.cwd.parent), **environment, "KIWI_QDRANT_COLLECTION": one}
        store = Workspace(Services.open(variables, services.cwd)).tier.store
        assert (store._name, store._partition) == (name, partition)


def test_both_hosts_of_weaviate_need_consent(services: Services) -> None:
    environment = {"KIWI_WORKSPACE_STORE": "weaviate", "KIWI_WEAVIATE_URL": "https://rest.example",
                   "KIWI_WEAVIATE_GRPC_URL": "https://grpc.example:443"}  # fmt: skip
    app = Services.open({"HOME": str(services.cwd.parent), **environment}, services.cwd)
    assert store_hosts(app.settings, "weaviate") == ["rest.example", "grpc.example"]
    with pytest.raises(ConsentRequired, match=r"rest\.example"):
        _ = Workspace(app).tier
