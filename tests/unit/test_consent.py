"""Consent: asked once for a host and a purpose, remembered, revocable, recorded without content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.consent import ASK, PURPOSES, Consents
from kiwi_rag.embedding.factory import ServerOptions, load_provider
from kiwi_rag.errors import ConfigError, ConsentRequired, NotFound, UsageError
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.telemetry import begin_run
from tests.embedding_server import EmbeddingServer
from tests.unit.test_embedding_remote import digests

HOST = "api.example.invalid"


class Consented:
    """A user who answers questions, and the records that are left."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "consent.json"
        self.questions: list[str] = []
        self.records: list[Any] = []

    def consents(self, setting: str = "") -> Consents:
        return Consents(self.path, setting, self.records.append)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(one["purpose"], one["outcome"]) for one in self.records]


@pytest.fixture
def user(tmp_path: Path) -> Consented:
    return Consented(tmp_path)


@pytest.fixture
def says(user: Consented) -> Iterator[list[bool]]:
    """What the user answers; a question without an answer is an error."""
    answers: list[bool] = []

    def ask(question: str) -> bool:
        user.questions.append(question)
        return answers.pop(0)

    token = ASK.set(ask)
    yield answers
    ASK.reset(token)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "", "/run/postgresql"])
def test_this_machine_needs_no_consent(user: Consented, host: str) -> None:
    user.consents().require(host, "chat", 10)
    assert not user.records
    assert not user.path.exists()


@pytest.mark.parametrize(
    "host", [HOST, "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0", "2130706433"]
)
def test_any_other_host_does(user: Consented, host: str) -> None:
    with pytest.raises(ConsentRequired) as caught:
        user.consents().require(host, "embedding", 4_000, 0.0123)
    assert caught.value.hint == f"kiwi consent allow {host} --purpose embedding"
    assert "4,000 bytes, about 1,000 tokens, about $0.0123" in caught.value.message
    assert (caught.value.host, caught.value.purpose) == (host, "embedding")
    assert user.outcomes == [("embedding", "refused")]


def test_a_question_names_host_purpose_amount_and_cost_and_its_answer_is_kept(
    user: Consented, says: list[bool]
) -> None:
    says.extend([False, True, True])
    with pytest.raises(ConsentRequired):
        user.consents().require(HOST, "chat", 4_000, 0.5)
    assert not user.path.exists(), "a refusal changes nothing"
    user.consents().require(HOST, "chat", 4_000, 0.5)
    user.consents().require(HOST, "chat", 9_000_000, 99.0)
    user.consents().require(HOST, "embedding", 4_000)
    assert len(user.questions) == 3, "one for each purpose, until it is allowed"
    for part in (HOST, "a chat model", "4,000 bytes", "1,000 tokens", "$0.5000", f"kiwi consent revoke {HOST}"):
        assert part in user.questions[0]
    assert "an unknown price" in user.questions[2]
    assert user.outcomes == [
        ("chat", "refused"), ("chat", "consent given"), ("chat", "allowed"), ("chat", "allowed"),
        ("embedding", "consent given"), ("embedding", "allowed"),
    ]  # fmt: skip
    assert user.path.stat().st_mode & 0o777 == 0o600


def test_what_was_allowed_can_be_revoked(user: Consented) -> None:
    user.consents().change(HOST.upper())
    for purpose in PURPOSES:
        user.consents().require(HOST, purpose)
    user.consents().change(HOST, ["chat"], allowed=False)
    user.consents().require(HOST, "embedding")
    with pytest.raises(ConsentRequired):
        user.consents().require(HOST, "chat")
    user.consents().change(HOST, allowed=False)
    assert user.consents().all() == {}


def test_the_setting_allows_hosts_for_all_purposes_or_one(user: Consented) -> None:
    setting = f"{HOST}:chat, other.example,2001:db8::1:download"
    user.consents(setting).require(HOST, "chat")
    user.consents(setting).require("other.example", "store")
    user.consents(setting).require("2001:db8::1", "download")
    with pytest.raises(ConsentRequired):
        user.consents(setting).require(HOST, "embedding")


def test_requests_of_one_run_leave_one_record(user: Consented) -> None:
    consents = user.consents(HOST)
    for run in ("index", "index again"):
        begin_run(run)
        for _ in range(50):
            consents.require(HOST, "embedding", 100)
    assert user.outcomes == [("embedding", "allowed")] * 2
    consents.require(HOST, "chat")
    consents.require(HOST, "chat")
    assert user.outcomes[2:] == [("chat", "allowed")] * 2, "each question is a call of its own"


def test_a_record_that_cannot_be_written_prevents_the_call(user: Consented) -> None:
    def full(_about: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Consents(user.path, HOST, full).require(HOST, "chat")


@pytest.mark.parametrize("text", ["[]", "{", '{"a": {"everything": "x"}}', '{"a": ["chat"]}', '{"a": {"chat": 1}}'])
def test_a_file_that_holds_something_else_allows_nothing(user: Consented, text: str) -> None:
    user.path.write_text(text)
    user.path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"consent\.json"):
        user.consents().require("a", "chat")
    with pytest.raises(ConfigError):
        user.consents().change("a.example")
    assert user.path.read_text() == text


def test_a_file_of_others_or_behind_a_link_allows_nothing(user: Consented, tmp_path: Path) -> None:
    user.consents().change(HOST)
    user.path.chmod(0o664)
    with pytest.raises(ConfigError, match="other users") as caught:
        user.consents().require(HOST, "chat")
    assert caught.value.hint == f"chmod 600 {user.path}"
    user.path.chmod(0o600)
    user.path.rename(tmp_path / "elsewhere")
    user.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        user.consents().require(HOST, "chat")


@pytest.mark.parametrize(
    "host",
    [
        "https://api.example",
        "api.example/v1",
        "api.example:443",
        "",
        "a b",
        "a,b",
        "-x",
        "ä.example",
        "openai",
        "gpu-1",
    ],
)
def test_what_is_no_host_is_refused(user: Consented, host: str) -> None:
    with pytest.raises(UsageError, match="not the name of a host") as caught:
        user.consents().change(host)
    assert "as api.openai.com" in caught.value.hint
    assert not user.path.exists()


def test_a_host_in_the_local_network_is_one_word_and_needs_a_purpose(user: Consented) -> None:
    with pytest.raises(ConsentRequired) as caught:
        user.consents().require("gpu-1", "chat")
    assert caught.value.hint == "kiwi consent allow gpu-1 --purpose chat"
    user.consents().change("gpu-1", ["chat"])
    user.consents().require("gpu-1", "chat")
    user.consents().change("gpu-1", allowed=False)


@pytest.mark.parametrize(("host", "purposes"), [("other.example", []), (HOST, ["store"])])
def test_what_is_not_allowed_cannot_be_revoked(user: Consented, host: str, purposes: list[str]) -> None:
    user.consents().change(HOST, ["chat"])
    with pytest.raises(NotFound, match=f"{host} is not allowed for .*store, so nothing was revoked") as caught:
        user.consents().change(host, purposes, allowed=False)
    assert caught.value.hint.startswith("kiwi consent list")
    assert user.outcomes == [("chat", "consent given")]


def test_a_remote_model_asks_before_it_gets_a_text(user: Consented, tmp_path: Path) -> None:
    servers = ServerOptions(base_url=f"http://{HOST}:11434")
    provider = load_provider("ollama", cache_dir=tmp_path, servers=servers, allow=user.consents().require).uncached
    with pytest.raises(ConsentRequired):
        provider.encode(["our secret plan"])
    assert "secret" not in json.dumps(user.records)
    with EmbeddingServer(digests) as server:
        here = ServerOptions(base_url=server.url)
        local = load_provider("ollama", cache_dir=tmp_path, servers=here, allow=user.consents().require).uncached
        assert len(local.encode(["x"])) == 1
    assert len(user.records) == 1


@pytest.mark.parametrize(
    "environment",
    [
        {"KIWI_WORKSPACE_STORE": "qdrant", "KIWI_QDRANT_URL": f"https://{HOST}:6333"},
        {"KIWI_WORKSPACE_STORE": "registry", "KIWI_REGISTRY_URL": f"postgresql://ada@{HOST}/kiwi"},
        {"KIWI_WORKSPACE_STORE": "registry", "KIWI_REGISTRY_URL": f"postgresql:///kiwi?host={HOST}"},
        {"KIWI_WORKSPACE_STORE": "registry", "SUPABASE_URL": f"https://{HOST}", "SUPABASE_KEY": "sb_publishable_x"},
    ],
    ids=["qdrant", "registry", "option", "supabase"],
)
async def test_a_store_on_another_machine_asks_and_the_users_audit_log_has_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environ = {"KIWI_HOME": str(tmp_path / "home"), "KIWI_CACHE_DIR": str(tmp_path / "cache"), **environment}
    async with Services.open(environ, tmp_path) as app, Workspace(app) as workspace:
        with pytest.raises(ConsentRequired) as caught:
            _ = workspace.tier
        assert caught.value.hint == f"kiwi consent allow {HOST} --purpose store"
        app.consent.change(HOST, ["store"])
        assert workspace.tier.store
        records = app.local("user").audit.newest()
    assert [(one.event, one.ref, one.details["outcome"]) for one in records] == [
        ("consent", HOST, "refused"), ("consent", HOST, "consent given"), ("consent", HOST, "allowed"),
    ]  # fmt: skip
    assert all(one.details["caller"] for one in records)
