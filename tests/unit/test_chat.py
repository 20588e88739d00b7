"""Chat models against a server on loopback that speaks both protocols, and fails and lies on purpose."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.answers import chat
from kiwi_rag.answers.chat import MAX_TOKENS, ChatModel, ChatReply
from kiwi_rag.consent import Consents
from kiwi_rag.embedding.usage import RemoteCall, UsageLog, parse_prices
from kiwi_rag.endpoint import Endpoint
from kiwi_rag.errors import ChatError, ConsentRequired, UsageError
from tests.chat_server import ChatServer
from tests.embedding_server import Failure

KEY = "sk-this-is-no-real-key"
MESSAGES = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "[1]\nWhat?"}]
TEXT = "One sentence [1]. Another one, with ünïcödé [1]."
PATHS = {"openai": "/v1", "ollama": ""}


@pytest.fixture(params=["openai", "ollama"])
def provider(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(script=lambda _passages, _question: TEXT) as running:
        yield running


def model(
    server: ChatServer, provider: str, tmp_path: Path, url: str = "", consents: Consents | None = None
) -> ChatModel:
    usage = UsageLog(tmp_path / "usage.jsonl", parse_prices("m=1/10"))
    allow = usage.priced((consents or Consents(tmp_path / "consent.json")).require, provider, "m", MAX_TOKENS)
    place = url or f"{server.url}{PATHS[provider]}"
    endpoint = Endpoint(place, KEY, backoff=0.01, timeout=30.0, retries=2, purpose="chat", allow=allow)
    return ChatModel(provider, "m", endpoint, usage)


async def read(asked: ChatModel) -> ChatReply:
    reply = ChatReply()
    pieces = [piece async for piece in asked.stream(MESSAGES, 1, reply)]
    assert "".join(pieces) == reply.text
    return reply


def logged(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "usage.jsonl").read_text().splitlines()]


async def test_a_reply_is_streamed_counted_and_logged(server: ChatServer, provider: str, tmp_path: Path) -> None:
    assert await read(model(server, provider, tmp_path)) == ChatReply(TEXT, True, "", 100, 20)
    (seen,) = server.seen
    assert (seen.authorization, seen.body["stream"], seen.body["messages"]) == (f"Bearer {KEY}", True, MESSAGES)
    (line,) = logged(tmp_path)
    assert (line["provider"], line["model"], line["texts"], line["outcome"]) == (provider, "m", 1, "ok")
    assert line["cost_usd"] == pytest.approx((100 * 1 + 20 * 10) / 1e6)
    assert KEY not in str(line) and "sentence" not in str(line)


async def test_ollama_gets_room_for_the_whole_prompt(server: ChatServer, tmp_path: Path) -> None:
    reply = ChatReply()
    long = [{"role": "user", "content": "word " * 6_000}]
    async with aclosing(model(server, "ollama", tmp_path).stream(long, 1, reply)) as pieces:
        assert [piece async for piece in pieces]
    assert server.seen[0].body["options"]["num_ctx"] >= 30_000 / 3 + MAX_TOKENS


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_failure_before_the_first_line_is_tried_again(
    server: ChatServer, provider: str, tmp_path: Path, status: int
) -> None:
    server.failures.extend([Failure(status), Failure(status)])
    assert (await read(model(server, provider, tmp_path))).text == TEXT
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "KIWI_CHAT_API_KEY"), (404, "KIWI_CHAT_MODEL"), (429, "wait"), (500, "")]
)
async def test_a_lasting_failure_is_an_error_that_names_the_setting(
    server: ChatServer, provider: str, tmp_path: Path, status: int, hint: str
) -> None:
    server.failures.extend([Failure(status, b"no, " + KEY.encode())] * 9)
    with pytest.raises(ChatError, match=str(status)) as caught:
        await read(model(server, provider, tmp_path))
    assert hint in caught.value.hint
    assert "EMBEDDING" not in caught.value.hint
    assert KEY not in caught.value.message
    assert str(status) in logged(tmp_path)[0]["outcome"]


@pytest.mark.parametrize(
    "body", [b"<html><h1>Sign in</h1></html>", b"", b"data: {nonsense\n\n", b'{"error": "no"}\n', b"data: []\n\n"]
)
async def test_what_is_no_reply_is_an_error(server: ChatServer, provider: str, tmp_path: Path, body: bytes) -> None:
    server.failures.append(Failure(200, body))
    with pytest.raises(ChatError, match="no text in") as caught:
        await read(model(server, provider, tmp_path))
    assert "KIWI_CHAT_PROVIDER" in caught.value.hint
    assert len(server.seen) == 1


async def test_a_stream_that_breaks_off_is_kept_and_marked(server: ChatServer, provider: str, tmp_path: Path) -> None:
    server.cut_after = 3
    reply = await read(model(server, provider, tmp_path))
    assert reply.text and TEXT.startswith(reply.text)
    assert "middle" in reply.cut
    assert len(server.seen) == 1, "what was shown is not asked for again"
    assert logged(tmp_path)[0]["outcome"] == "cut"


async def test_endless_output_is_cut(server: ChatServer, provider: str, tmp_path: Path) -> None:
    server.is_endless, server.piece = True, 40
    reply = await read(model(server, provider, tmp_path))
    assert f"{MAX_TOKENS:,} tokens" in reply.cut
    assert len(reply.text) < 4 * MAX_TOKENS


async def test_one_endless_line_is_cut(server: ChatServer, provider: str, tmp_path: Path) -> None:
    server.script, server.piece = lambda _passages, _question: "word " * 600_000, 3_000_000
    reply = await read(model(server, provider, tmp_path))
    assert reply.cut
    assert len(reply.text) <= 6_000


async def test_a_reply_takes_a_bounded_time(
    server: ChatServer, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "SECONDS", 0.4)
    server.is_endless, server.script = True, lambda _passages, _question: "x"
    server.events = lambda _path, _text: [b": wait\n" if provider == "openai" else b"\n"]  # type: ignore[method-assign]
    started = time.monotonic()
    with pytest.raises(ChatError, match="timed out"):
        await read(model(server, provider, tmp_path))
    assert time.monotonic() - started < 30


async def test_a_slow_first_byte_is_waited_for_and_a_silent_server_is_not(
    server: ChatServer, provider: str, tmp_path: Path
) -> None:
    server.pause = 0.3
    patient = model(server, provider, tmp_path)
    assert (await read(patient)).text == TEXT
    with pytest.raises(ChatError, match="timed out"):
        await read(replace(patient, endpoint=replace(patient.endpoint, timeout=0.1, retries=0)))


async def test_counts_that_are_none_are_not_believed(server: ChatServer, provider: str, tmp_path: Path) -> None:
    server.usage = (-1, "many")
    reply = await read(model(server, provider, tmp_path))
    assert (reply.tokens, reply.output_tokens) == (None, None)
    assert logged(tmp_path)[0]["cost_usd"] is None


async def test_a_reader_that_stops_ends_the_request(server: ChatServer, provider: str, tmp_path: Path) -> None:
    server.is_endless = True
    async with aclosing(model(server, provider, tmp_path).stream(MESSAGES, 1, ChatReply())) as pieces:
        assert await anext(pieces)
    assert logged(tmp_path)[0]["outcome"] == "stopped"


async def test_nothing_is_sent_to_another_machine_without_consent(
    server: ChatServer, provider: str, tmp_path: Path
) -> None:
    records: list[Any] = []
    consents = Consents(tmp_path / "consent.json", record=records.append)
    remote = model(server, provider, tmp_path, "https://chat.example.invalid/v1", consents)
    with pytest.raises(ConsentRequired) as caught:
        await read(remote)
    assert caught.value.hint == "kiwi consent allow chat.example.invalid --purpose chat"
    assert [(one["host"], one["purpose"], one["outcome"]) for one in records] == [
        ("chat.example.invalid", "chat", "refused")
    ]
    assert records[0]["cost_usd"] >= MAX_TOKENS * 10 / 1e6
    consents.change("chat.example.invalid")
    with pytest.raises(ChatError, match="cannot be reached"):
        await read(remote)


def test_a_key_is_sent_over_tls_or_to_this_machine_only() -> None:
    with pytest.raises(UsageError, match="TLS"):
        Endpoint("http://chat.example/v1", KEY, purpose="chat")
    for url, key in (("http://chat.example/v1", ""), ("https://chat.example", KEY), ("http://[::1]:8000", KEY)):
        assert Endpoint(url, key, purpose="chat").base_url == url


def test_prices_of_what_is_read_and_written(tmp_path: Path) -> None:
    assert parse_prices("a/b=0.5/2, c=1") == {"a/b": 0.5, "a/b (written)": 2.0, "c": 1.0}
    for wrong in ("a=1/cheap", "a=/1", "a=1/2/3"):
        with pytest.raises(UsageError, match="chat_prices"):
            parse_prices(wrong, "chat_prices")
    usage = UsageLog(tmp_path / "log", parse_prices("one=2"))
    call = RemoteCall("openai", "gpt-4o-mini", 1, 1_000_000, 0.1, output_tokens=1_000_000)
    assert usage.cost(call) == pytest.approx(0.15 + 0.60)
    assert usage.cost(replace(call, model="one")) == pytest.approx(4.0)
    assert usage.cost(replace(call, model="unknown")) is None
    assert usage.cost(replace(call, output_tokens=None)) is None
    assert usage.cost(replace(call, provider="ollama", model="x", tokens=None, output_tokens=None)) == 0.0


async def test_what_needs_no_consent_does_not_go_through_a_proxy(
    server: ChatServer, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert (await read(model(server, provider, tmp_path))).text == TEXT
