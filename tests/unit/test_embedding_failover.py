"""Several real servers on loopback behind one provider: who is asked when, and that models never mix."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from kiwi_rag.embedding.factory import (
    PROBE,
    FailoverEmbeddingProvider,
    ServerOptions,
    load_provider,
    remote_providers,
)
from kiwi_rag.embedding.remote import Breaker, OllamaEmbeddingProvider, OpenAIEmbeddingProvider, RemoteEmbeddingProvider
from kiwi_rag.endpoint import Endpoint
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, ModelUnavailable, TextsRefused, UsageError
from tests.embedding_server import EmbeddingServer, Failure
from tests.unit.test_embedding_remote import digests

GONE = "http://127.0.0.1:9"


def almost(texts: Sequence[str]) -> list[list[float]]:
    """The same model in another precision."""
    return [[round(number / 255, 3) for number in vector] for vector in digests(texts)]


def other(texts: Sequence[str]) -> list[list[int]]:
    return [vector[::-1] for vector in digests(texts)]


@pytest.fixture
def first() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(digests) as running:
        yield running


@pytest.fixture
def second() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(almost) as running:
        yield running


def openai(url: str, **changes: Any) -> OpenAIEmbeddingProvider:
    return OpenAIEmbeddingProvider(Endpoint(f"{url}/v1", **{"backoff": 0.01, **changes}), "m", 8)


def ollama(url: str, **changes: Any) -> OllamaEmbeddingProvider:
    return OllamaEmbeddingProvider(Endpoint(url, **{"backoff": 0.01, **changes}), "m:latest", 8)


def listed(
    folder: Path, *servers: RemoteEmbeddingProvider, identity: str = "", days: float = 0.0
) -> FailoverEmbeddingProvider:
    return FailoverEmbeddingProvider(servers, folder / "probes.sqlite", identity, lambda: 1e9 + days * 86_400)


def texts_of(server: EmbeddingServer) -> list[str]:
    return [text for seen in server.seen for text in seen.body["input"] if text != PROBE]


def test_while_the_first_is_well_no_other_is_asked(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path
) -> None:
    provider = listed(tmp_path, openai(first.url), ollama(second.url))
    provider.encode(["a", "b"])
    assert texts_of(first) == ["a", "b"]
    assert second.seen == []


def test_when_the_first_fails_the_next_embeds_under_the_same_fingerprint(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path
) -> None:
    provider = listed(tmp_path, openai(first.url), ollama(second.url))
    before = provider.fingerprint
    expected = provider.encode(["a"])[0]
    first.always = Failure(503)
    assert float(provider.encode(["a"])[0] @ expected) > 0.9999
    assert texts_of(second) == ["a"]
    assert provider.fingerprint == before == openai(first.url).fingerprint, "an index of before stays good"


def test_a_dead_server_is_not_asked_for_every_batch_and_comes_back(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path
) -> None:
    now = [0.0]
    primary = openai(first.url)
    primary.breaker = Breaker(15.0, lambda: now[0])
    provider = listed(tmp_path, primary, ollama(second.url))
    provider.encode(["warm"])
    first.always = Failure(500)
    asked = len(first.seen)
    for number in range(10):
        provider.encode([f"text {number}"])
    assert len(first.seen) - asked == 2, "one retry, as another can do the work, and then none"
    assert len(texts_of(second)) == 10
    now[0], first.always = 16.0, None
    provider.encode(["back"])
    assert texts_of(first)[-1] == "back"
    assert "back" not in texts_of(second)


def test_a_first_one_that_only_limits_is_not_waited_for(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path
) -> None:
    provider = listed(tmp_path, openai(first.url), ollama(second.url))
    provider.encode(["warm"])
    first.always = Failure(429, headers={"Retry-After": "30"})
    started = time.monotonic()
    provider.encode(["x"])
    assert time.monotonic() - started < 20
    assert texts_of(second) == ["x"]


def test_another_model_behind_the_list_is_refused(first: EmbeddingServer, tmp_path: Path) -> None:
    with EmbeddingServer(other) as stranger:
        provider = listed(tmp_path, openai(first.url), ollama(stranger.url))
        provider.encode(["a"])
        first.always = Failure(500)
        with pytest.raises(FingerprintMismatch, match=r"serves another model as .*\(cosine 0\.") as caught:
            provider.encode(["a"])
        assert texts_of(stranger) == []
        assert "KIWI_EMBEDDING_FALLBACKS" in caught.value.hint


def test_another_length_behind_the_list_is_refused(first: EmbeddingServer, tmp_path: Path) -> None:
    with EmbeddingServer(lambda texts: [vector[:5] for vector in digests(texts)]) as short:
        stand_in = OllamaEmbeddingProvider(Endpoint(short.url), "m", 0)
        provider = listed(tmp_path, openai(first.url), stand_in)
        provider.encode(["a"])
        first.always = Failure(500)
        with pytest.raises(FingerprintMismatch):
            provider.encode(["a"])


def test_while_the_first_never_answered_no_stand_in_is_trusted(second: EmbeddingServer, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="it is unknown whether both serve the same model"):
        listed(tmp_path, openai(GONE), ollama(second.url)).encode(["a"])
    assert second.seen == []


def test_a_later_process_judges_a_stand_in_by_what_is_remembered(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path
) -> None:
    listed(tmp_path, openai(first.url), ollama(second.url)).encode(["a"])
    first.always = Failure(500)
    listed(tmp_path, openai(first.url), ollama(second.url)).encode(["b"])
    assert texts_of(second) == ["b"]
    with EmbeddingServer(other) as stranger, pytest.raises(FingerprintMismatch):
        listed(tmp_path, openai(first.url), ollama(stranger.url)).encode(["c"])


def test_agreement_is_looked_at_once_a_day_and_not_once_a_process(first: EmbeddingServer, tmp_path: Path) -> None:
    for _ in range(3):
        listed(tmp_path, openai(first.url), ollama(GONE)).encode(["a"])
    assert sum(PROBE in seen.body["input"] for seen in first.seen) == 1


def test_other_weights_behind_a_known_name_are_noticed_by_verify_and_the_next_day(
    first: EmbeddingServer, tmp_path: Path
) -> None:
    provider = listed(tmp_path, openai(first.url), identity="ours")
    provider.encode(["a"])
    first.encode = other
    assert provider.verify()[0].startswith(f"{first.url}/v1: ")
    assert "serves another model as m than ours" in provider.verify()[0]
    listed(tmp_path, openai(first.url), identity="ours").encode(["b"])
    with pytest.raises(FingerprintMismatch, match="serves another model as m than ours"):
        listed(tmp_path, openai(first.url), identity="ours", days=1).encode(["c"])
    assert texts_of(first) == ["a", "b"]


def test_verify_asks_every_server_now(first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path) -> None:
    provider = listed(tmp_path, openai(first.url), ollama(second.url), ollama(GONE))
    [problem] = provider.verify()
    assert problem.startswith(GONE)
    assert (len(first.seen), len(second.seen)) == (1, 1)


def test_a_declared_identity_stays_when_addresses_change(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path
) -> None:
    one = listed(tmp_path, openai(first.url), ollama(second.url), identity="minilm")
    one.encode(["a"])
    turned = listed(tmp_path, ollama(second.url), openai(first.url), identity="minilm")
    assert one.fingerprint == turned.fingerprint
    assert one.fingerprint != listed(tmp_path, openai(first.url), identity="bge").fingerprint
    turned.encode(["b"])
    with EmbeddingServer(other) as stranger, pytest.raises(FingerprintMismatch, match="minilm"):
        listed(tmp_path, openai(stranger.url), identity="minilm").encode(["c"])


def test_texts_that_one_refuses_go_to_no_other(first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path) -> None:
    provider = listed(tmp_path, openai(first.url), ollama(second.url))
    provider.encode(["a"])
    first.failures.append(Failure(400))
    with pytest.raises(TextsRefused):
        provider.encode(["bad"])
    assert second.seen == []


def test_when_all_fail_the_first_ones_failure_is_told_with_the_others(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = listed(tmp_path, openai(first.url), ollama(second.url, retries=0))
    provider.encode(["a"])
    first.always, second.always = Failure(401, b"SECRET TEXT"), Failure(503)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(EmbeddingError, match=r"answered 401 .*; and the fallbacks: .*answered 503") as caught:
        provider.encode(["b"])
    assert "KIWI_EMBEDDING_API_KEY" in caught.value.hint
    assert "SECRET TEXT" not in caught.value.loggable_message + caplog.text


def test_a_probe_file_of_rubbish_is_as_none(first: EmbeddingServer, tmp_path: Path) -> None:
    file = tmp_path / "probes.sqlite"
    for rubbish in (b"", b"[]", b"\x00" * 5000, b"SQLite format 3\x00" + b"x" * 5000):
        file.write_bytes(rubbish)
        provider = listed(tmp_path, openai(first.url), ollama(GONE))
        provider.encode(["a"])
        provider.close()
        file.with_name(f"{file.name}-wal").unlink(missing_ok=True)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE vectors SET vector = ?", (b"\x00" * 7,))
    connection.close()
    listed(tmp_path, openai(first.url), ollama(GONE)).encode(["a"])
    assert sum(PROBE in seen.body["input"] for seen in first.seen) == 5
    assert texts_of(first) == ["a"] * 5


def test_a_file_that_cannot_be_written_costs_nothing_else(first: EmbeddingServer, tmp_path: Path) -> None:
    (tmp_path / "probes.sqlite").mkdir()
    provider = listed(tmp_path, openai(first.url), ollama(GONE))
    assert [len(provider.encode([text])) for text in "abc"] == [1, 1, 1]
    assert sum(PROBE in seen.body["input"] for seen in first.seen) == 1


def test_an_unknown_length_is_learned_from_whoever_answers(second: EmbeddingServer, tmp_path: Path) -> None:
    one = OllamaEmbeddingProvider(Endpoint(second.url), "m", 0)
    assert listed(tmp_path, one, identity="x").fingerprint.dimension == 8
    gone = OllamaEmbeddingProvider(Endpoint(GONE), "m", 0)
    assert listed(tmp_path, gone, identity="x").fingerprint.dimension == 8, "and is remembered"


def chain(folder: Path, **options: str) -> list[tuple[str, str, str, str]]:
    """Return provider, address, model and key of each server that the options name."""
    servers = remote_providers("openai", "m", folder, ServerOptions("http://first/v1", "sk-first", **options))
    return [(one.provider, one.endpoint.base_url, one.model, one.endpoint.api_key) for one in servers]


LISTS = [
    ("", []),
    ("http://a/v1", [("openai", "http://a/v1", "m", "")]),
    ("http://a/v1 n,  ollama http://b ,", [("openai", "http://a/v1", "n", ""), ("ollama", "http://b", "m", "")]),
]


@pytest.mark.parametrize(("text", "expected"), LISTS)
def test_a_list_of_servers_is_read(tmp_path: Path, text: str, expected: list[tuple[str, str, str, str]]) -> None:
    assert chain(tmp_path, fallbacks=text) == [("openai", "http://first/v1", "m", "sk-first"), *expected]


@pytest.mark.parametrize("text", ["ollama", "ollama http://a m n", "onnx http://a", "m http://a"])
def test_a_list_of_another_form_is_a_usage_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="embedding_fallbacks"):
        chain(tmp_path, fallbacks=text)


def test_keys_are_of_their_own_servers_and_hidden(tmp_path: Path) -> None:
    _, one, two = chain(tmp_path, fallbacks="http://a, http://b", fallback_keys=",sk-b")
    assert (one[-1], two[-1]) == ("", "sk-b")
    options = ServerOptions(api_key="sk-a", fallbacks="http://b", fallback_keys="sk-b")
    shown = repr(options) + "".join(repr(one.endpoint) for one in remote_providers("openai", "m", tmp_path, options))
    assert "sk-a" not in shown
    assert "sk-b" not in shown
    with pytest.raises(UsageError, match="more keys"):
        chain(tmp_path, fallbacks="http://a", fallback_keys="x,y")


def test_the_first_servers_key_goes_to_no_other_server(
    first: EmbeddingServer, second: EmbeddingServer, tmp_path: Path
) -> None:
    options = ServerOptions(f"{first.url}/v1", "sk-1", 8, fallbacks=f"{second.url}/v1, ollama {first.url} m:latest")
    provider = load_provider("openai", cache_dir=tmp_path, model="m", servers=options)
    assert isinstance(provider, CachedEmbeddingProvider)
    assert isinstance(provider.inner, FailoverEmbeddingProvider)
    provider.inner.verify()
    assert {seen.authorization for seen in first.seen} == {"Bearer sk-1"}
    assert {seen.authorization for seen in second.seen} == {""}
    assert {seen.path for seen in first.seen} == {"/v1/embeddings", "/api/embed"}
    assert provider.place == f"{first.url}/v1, {second.url}/v1, {first.url}"
