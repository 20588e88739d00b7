"""OpenAI and Ollama providers against a real server on loopback that fails on purpose."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from pathlib import Path

import pytest

from kiwi_rag.embedding.ollama import OllamaEmbeddingProvider
from kiwi_rag.embedding.openai import OpenAIEmbeddingProvider
from kiwi_rag.embedding.remote import Endpoint
from kiwi_rag.embedding.usage import RemoteCall, UsageLog
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, KiwiError, ModelUnavailable, UsageError
from tests.embedding_server import EmbeddingServer, Failure

KEY = "sk-this-is-no-real-key"


def digests(texts: Sequence[str]) -> list[list[int]]:
    return [[byte + 1 for byte in hashlib.sha256(text.encode()).digest()[:8]] for text in texts]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(digests) as running:
        yield running


def openai(server: EmbeddingServer, dimension: int = 8, **changes: object) -> OpenAIEmbeddingProvider:
    usage = changes.pop("usage", None)
    model = changes.pop("model", "some-model")
    endpoint = Endpoint(f"{server.url}/v1", **{"api_key": KEY, "backoff": 0.01, "timeout": 5.0, **changes})
    return OpenAIEmbeddingProvider(endpoint, model, dimension, usage)


def test_answers_are_put_in_order_by_their_index(server: EmbeddingServer) -> None:
    texts = ["one", "two", "three"]
    for text, vector in zip(texts, openai(server).encode(texts), strict=True):
        assert vector.argsort().tolist() == OpenAIEmbeddingProvider.encode(openai(server), [text])[0].argsort().tolist()


async def test_many_texts_go_out_in_batches(server: EmbeddingServer) -> None:
    await openai(server).documents([str(n) for n in range(150)])
    assert [len(seen.body["input"]) for seen in server.seen] == [64, 64, 22]
    assert {seen.authorization for seen in server.seen} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_passing_failure_is_tried_again(server: EmbeddingServer, status: int) -> None:
    server.failures.extend([Failure(status), Failure(status)])
    assert len(openai(server).encode(["x"])) == 1
    assert len(server.seen) == 3


def test_retry_after_is_honoured_in_seconds(server: EmbeddingServer) -> None:
    server.failures.append(Failure(429, headers={"Retry-After": "1"}))
    started = time.monotonic()
    openai(server).encode(["x"])
    assert time.monotonic() - started >= 1.0


def test_retry_after_is_honoured_as_a_date(server: EmbeddingServer) -> None:
    server.failures.append(Failure(503, headers={"Retry-After": formatdate(time.time() + 2, usegmt=True)}))
    started = time.monotonic()
    openai(server).encode(["x"])
    assert time.monotonic() - started >= 0.9


def test_patience_ends_with_the_last_retry(server: EmbeddingServer) -> None:
    server.failures.extend([Failure(500)] * 9)
    with pytest.raises(EmbeddingError, match="answered 500"):
        openai(server, retries=2).encode(["x"])
    assert len(server.seen) == 3


@pytest.mark.parametrize(("status", "kind"), [(400, EmbeddingError), (401, EmbeddingError), (404, ModelUnavailable)])
def test_a_refusal_is_not_tried_again(server: EmbeddingServer, status: int, kind: type[KiwiError]) -> None:
    server.failures.append(Failure(status, b'{"error": "no"}'))
    with pytest.raises(kind, match=str(status)):
        openai(server).encode(["x"])
    assert len(server.seen) == 1


def test_the_key_is_in_no_message_and_no_log(
    server: EmbeddingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.failures.append(Failure(401, f"bad key {KEY}".encode()))
    log = tmp_path / "usage.jsonl"
    with pytest.raises(EmbeddingError) as caught:
        openai(server, usage=UsageLog(log)).encode(["x"])
    told = repr(caught.value) + caught.value.hint + caplog.text + log.read_text() + repr(openai(server).endpoint)
    assert KEY not in told
    assert "bad key" in caught.value.message


def test_a_redirect_is_refused_so_that_the_key_stays(server: EmbeddingServer) -> None:
    with EmbeddingServer(digests) as elsewhere:
        server.failures.append(Failure(307, headers={"Location": f"{elsewhere.url}/v1/embeddings"}))
        with pytest.raises(EmbeddingError, match="307"):
            openai(server).encode(["x"])
        assert elsewhere.seen == []


def test_a_server_that_never_answers_costs_its_timeout(server: EmbeddingServer) -> None:
    server.encode = lambda texts: time.sleep(1.5) or digests(texts)
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match="timed out"):
        openai(server, timeout=0.2, retries=1).encode(["x"])
    assert time.monotonic() - started < 1.4


def test_nobody_listening_fails_at_once(server: EmbeddingServer) -> None:
    provider = OllamaEmbeddingProvider(Endpoint("http://127.0.0.1:9", backoff=5.0), "all-minilm")
    started = time.monotonic()
    with pytest.raises(ModelUnavailable) as caught:
        provider.encode(["x"])
    assert time.monotonic() - started < 2
    assert "ollama pull all-minilm" in caught.value.hint


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": [{"index": 0}]}', b'{"data": 3}', b"null"])
def test_an_answer_in_another_format_is_a_typed_error(server: EmbeddingServer, body: bytes) -> None:
    server.failures.append(Failure(200, body))
    with pytest.raises(EmbeddingError):
        openai(server).encode(["x"])


@pytest.mark.parametrize(
    "body", [b"[]", b'{"embeddings": null}', b'{"embeddings": []}', b'{"embeddings": [[]]}', b'{"embeddings": [3]}']
)
def test_an_odd_answer_of_ollama_is_a_typed_error(server: EmbeddingServer, body: bytes) -> None:
    server.failures.append(Failure(200, body))
    with pytest.raises(EmbeddingError):
        OllamaEmbeddingProvider(Endpoint(server.url), "m").encode(["x"])


def test_vectors_of_another_dimension_are_refused(server: EmbeddingServer) -> None:
    with pytest.raises(FingerprintMismatch):
        openai(server, dimension=9).encode(["x"])


def test_the_dimension_is_learned_once_and_then_held(server: EmbeddingServer) -> None:
    provider = openai(server, dimension=0)
    assert provider.fingerprint.dimension == 8
    assert provider.fingerprint.dimension == 8
    assert len(server.seen) == 1


def test_a_configured_dimension_needs_no_call(server: EmbeddingServer) -> None:
    assert openai(server).fingerprint.dimension == 8
    assert server.seen == []


def test_only_models_that_can_shorten_are_asked_to(server: EmbeddingServer) -> None:
    openai(server, model="text-embedding-3-small").encode(["x"])
    openai(server).encode(["x"])
    assert [seen.body.get("dimensions") for seen in server.seen] == [8, None]


def test_fingerprints_tell_servers_models_and_dimensions_apart(server: EmbeddingServer) -> None:
    one = OllamaEmbeddingProvider(Endpoint("http://a"), "m", 8).fingerprint
    others = [
        OllamaEmbeddingProvider(Endpoint("http://b"), "m", 8).fingerprint,
        OllamaEmbeddingProvider(Endpoint("http://a"), "n", 8).fingerprint,
        OllamaEmbeddingProvider(Endpoint("http://a"), "m", 9).fingerprint,
        OpenAIEmbeddingProvider(Endpoint("http://a"), "m", 8).fingerprint,
    ]
    assert len({str(fingerprint) for fingerprint in (one, *others)}) == 5
    assert OllamaEmbeddingProvider(Endpoint("http://a/"), "m", 8).fingerprint == one


def test_blank_texts_are_sent_as_something_a_server_takes(server: EmbeddingServer) -> None:
    openai(server).encode(["", " ", "x"])
    assert server.seen[0].body["input"] == [".", ".", "x"]


@pytest.mark.parametrize("url", ["ftp://host", "host:80", "file:///etc/passwd", "https://user:pass@host/v1"])
def test_a_base_url_of_another_kind_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        Endpoint(url)


def entries(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_call_is_logged_with_tokens_time_and_cost(server: EmbeddingServer, tmp_path: Path) -> None:
    log = tmp_path / "deep" / "usage.jsonl"
    usage = UsageLog(log, {"some-model": 2.0})
    openai(server, usage=usage).encode(["two words", "and three words"])
    server.failures.append(Failure(400))
    with pytest.raises(EmbeddingError):
        openai(server, usage=usage).encode(["x"])
    first, second = entries(log)
    assert (first["provider"], first["model"], first["texts"], first["tokens"]) == ("openai", "some-model", 2, 5)
    assert first["cost_usd"] == pytest.approx(5 * 2.0 / 1e6)
    assert 0 < first["seconds"] < 5
    assert (first["outcome"], second["tokens"], second["cost_usd"]) == ("ok", None, None)
    assert "400" in str(second["outcome"])


def test_known_prices_and_ollama_and_unknown_models(tmp_path: Path) -> None:
    usage = UsageLog(tmp_path / "log")
    assert usage.cost(RemoteCall("openai", "text-embedding-3-small", 1, 1_000_000, 0.1)) == pytest.approx(0.02)
    assert usage.cost(RemoteCall("openai", "unheard-of", 1, 10, 0.1)) is None
    assert usage.cost(RemoteCall("ollama", "all-minilm", 1, 10, 0.1)) == 0.0


def test_a_log_that_cannot_be_written_does_not_cost_the_vectors(server: EmbeddingServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(openai(server, usage=UsageLog(tmp_path / "file" / "log")).encode(["x"])) == 1
