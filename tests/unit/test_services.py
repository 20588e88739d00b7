"""The services: frozen, built when they are first used, with the trust of the moment."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from kiwi_rag.errors import MissingExtra
from kiwi_rag.services import Services
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


def test_an_index_in_qdrant_without_its_package_names_the_extra(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"KIWI_WORKSPACE_STORE": "qdrant", "KIWI_QDRANT_URL": "https://qdrant.example"}
    app = Services.open({"HOME": str(services.cwd.parent), **environment}, services.cwd)
    for module in ("qdrant", "qdrant_connection", "qdrant_payload"):
        monkeypatch.delitem(sys.modules, f"kiwi_rag.stores.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    with pytest.raises(MissingExtra) as caught:
        _ = Workspace(app).tier
    assert "kiwi-rag[qdrant]" in caught.value.hint
