"""OpenAI and Ollama providers against a real server on loopback that fails on purpose."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kiwi_rag.embedding.remote import (
    Breaker,
    OllamaEmbeddingProvider,
    OpenAIEmbeddingProvider,
    estimated_tokens,
    truncate,
)
from kiwi_rag.embedding.usage import UsageLog
from kiwi_rag.endpoint import Endpoint
from kiwi_rag.errors import (
    AnswerMalformed,
    EmbeddingError,
    FingerprintMismatch,
    KiwiError,
    ModelUnavailable,
    RateLimited,
    TextsRefused,
    UsageError,
)
from kiwi_rag.registry import supabase
from tests.embedding_server import EmbeddingServer, Failure

KEY = "sk-this-is-no-real-key"
SOON = 15.0
"""Seconds within which a busy machine has done what takes an idle one less than two."""


def digests(texts: Sequence[str]) -> list[list[int]]:
    return [[byte + 1 for byte in hashlib.sha256(text.encode()).digest()[:8]] for text in texts]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(digests) as running:
        yield running


def openai(server: EmbeddingServer, dimension: int = 8, **changes: object) -> OpenAIEmbeddingProvider:
    usage = changes.pop("usage", None)
    model = changes.pop("model", "some-model")
    limits = changes.pop("limits", {})
    endpoint = Endpoint(f"{server.url}/v1", **{"api_key": KEY, "backoff": 0.01, "timeout": 5.0, **changes})
    return OpenAIEmbeddingProvider(endpoint, model, dimension, usage, **limits)


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


REFUSALS = [
    (400, TextsRefused), (413, TextsRefused), (422, TextsRefused),
    (401, EmbeddingError), (403, EmbeddingError), (404, ModelUnavailable),
]  # fmt: skip


@pytest.mark.parametrize(("status", "kind"), REFUSALS)
def test_a_refusal_is_not_tried_again(server: EmbeddingServer, status: int, kind: type[KiwiError]) -> None:
    server.failures.append(Failure(status, b'{"error": "no"}'))
    with pytest.raises(kind, match=str(status)) as caught:
        openai(server).encode(["x"])
    assert type(caught.value) is kind
    assert caught.value.status == status
    assert ("KIWI_EMBEDDING_BASE_URL" in caught.value.hint) == (status == 404)
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
    over = threading.Event()
    server.encode = lambda texts: over.wait(2 * SOON) or digests(texts)
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match="timed out"):
        openai(server, timeout=0.2, retries=1).encode(["x"])
    assert time.monotonic() - started < SOON
    over.set()


def test_nobody_listening_fails_at_once(server: EmbeddingServer) -> None:
    provider = OllamaEmbeddingProvider(Endpoint("http://127.0.0.1:9", backoff=2 * SOON), "all-minilm")
    started = time.monotonic()
    with pytest.raises(ModelUnavailable) as caught:
        provider.encode(["x"])
    assert time.monotonic() - started < SOON
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


URLS = [
    "ftp://host", "host:80", "file:///etc/passwd", "https://user:pass@host/v1", "http://", "http://host:port",
    "http://host/v1?key=secret", "http://host/v1#top",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_base_url_of_another_kind_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        Endpoint(url)


def test_a_log_that_cannot_be_written_does_not_cost_the_vectors(server: EmbeddingServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(openai(server, usage=UsageLog(tmp_path / "file" / "log")).encode(["x"])) == 1


def test_too_many_requests_forever_end_with_a_clear_error(server: EmbeddingServer) -> None:
    server.always = Failure(429, b"slow down")
    started = time.monotonic()
    with pytest.raises(RateLimited, match=r"answered 429 .*slow down \(tried \d+ times\)") as caught:
        openai(server, backoff=0.1, retries=1000, patience=0.8).encode(["x"])
    assert time.monotonic() - started < SOON
    assert 2 <= len(server.seen) <= 6
    assert "KIWI_EMBEDDING_FALLBACKS" in caught.value.hint


def test_a_rest_longer_than_patience_is_not_begun(server: EmbeddingServer) -> None:
    server.always = Failure(429, headers={"Retry-After": "3600"})
    started = time.monotonic()
    with pytest.raises(RateLimited, match="tried once; the server accepts requests in 3600 s"):
        openai(server).encode(["x"])
    assert time.monotonic() - started < SOON
    assert len(server.seen) == 1


def test_an_account_without_credit_is_told_at_once(server: EmbeddingServer) -> None:
    server.always = Failure(429, b'{"error": {"code": "insufficient_quota"}}')
    with pytest.raises(RateLimited) as caught:
        openai(server).encode(["x"])
    assert "no credit" in caught.value.hint
    assert len(server.seen) == 1


@pytest.mark.parametrize("url", ["http://no-such-host.invalid/v1", "http://127.0.0.1:9/v1"])
def test_without_a_way_there_it_says_so_at_once(url: str) -> None:
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        OpenAIEmbeddingProvider(Endpoint(url, backoff=2 * SOON), "m", 8).encode(["x"])
    assert time.monotonic() - started < SOON


@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN])
def test_without_a_network_it_says_so_at_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    tried = []

    def connect(*arguments: object) -> None:
        tried.append(arguments)
        raise OSError(number, "no way there")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(ModelUnavailable, match="no way there"):
        OllamaEmbeddingProvider(Endpoint("http://10.0.0.1", backoff=30.0), "m", 8).encode(["x"])
    assert len(tried) == 1


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "nonsense://127.0.0.1:9", "http://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_told_at_once(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setitem(sys.modules, "socksio", None)  # how Python marks what cannot be imported
    with pytest.raises(ModelUnavailable, match=r"cannot be reached: (?!.*tried)"):
        OllamaEmbeddingProvider(Endpoint("http://10.0.0.1", backoff=30.0), "m", 8).encode(["x"])


async def test_a_caller_with_a_running_loop_is_served(server: EmbeddingServer) -> None:
    assert len(openai(server).encode(["x"])) == 1


def embeddings(*rows: str) -> bytes:
    data = ", ".join(f'{{"index": {index}, "embedding": {row}}}' for index, row in enumerate(rows))
    return f'{{"data": [{data}]}}'.encode()


ONE = "[1, 2, 3, 4, 5, 6, 7, 8]"
GARBAGE = {
    "html": b"<html>log in first</html>",
    "not UTF-8": b"\xff\xfe\x00",
    "cut-short": embeddings(ONE)[:-9],
    "deep": b"[" * 100_000,
    "NaN": embeddings(ONE.replace("3", "NaN")),
    "infinite": embeddings(ONE.replace("3", "1e999")),
    "out-of-range": embeddings(ONE.replace("3", "1e300")),
    "null": embeddings(ONE.replace("3", "null")),
    "words": embeddings('["1", "2", "3", "4", "5", "6", "7", "8"]'),
    "truths": embeddings("[true, true, true, true, true, true, true, true]"),
    "nested": embeddings("[[1], [2], [3], [4], [5], [6], [7], [8]]"),
    "ragged-inside": embeddings("[[1], 2, 3, 4, 5, 6, 7, 8]"),
    "zeros": embeddings("[0, 0, 0, 0, 0, 0, 0, 0]"),
    "empty": embeddings("[]"),
    "none": embeddings(),
    "too-many": embeddings(ONE, ONE),
    "object": b'{"data": {"0": 1}}',
    "same-index": b'{"data": [{"index": 1, "embedding": [1]}]}',
    "wild-index": b'{"data": [{"index": 1e999, "embedding": [1]}]}',
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_vector_a_text_is_a_malformed_answer(server: EmbeddingServer, body: bytes) -> None:
    server.always = Failure(200, body)
    with pytest.raises(AnswerMalformed):
        openai(server).encode(["x"])
    assert len(server.seen) == 1


def test_fewer_vectors_than_texts_are_refused(server: EmbeddingServer) -> None:
    server.always = Failure(200, embeddings(ONE, ONE))
    with pytest.raises(AnswerMalformed, match=r"returned 2 vectors for 3 texts"):
        openai(server).encode(["a", "b", "c"])


def test_two_vectors_for_one_text_and_none_for_another_are_refused(server: EmbeddingServer) -> None:
    server.always = Failure(200, embeddings(ONE, ONE).replace(b'"index": 1', b'"index": 0'))
    with pytest.raises(AnswerMalformed, match="without a unique index for each text"):
        openai(server).encode(["a", "b"])


def test_an_answer_that_breaks_off_is_tried_again(server: EmbeddingServer) -> None:
    whole = embeddings(ONE)
    server.failures.append(Failure(200, whole[:-20], {"Content-Length": str(len(whole))}))
    assert len(openai(server).encode(["x"])) == 1
    assert len(server.seen) == 2


def test_an_answer_without_end_is_not_read_to_it(server: EmbeddingServer) -> None:
    server.always = Failure(200, b" " * (8 << 20))
    with pytest.raises(AnswerMalformed, match="more than"):
        openai(server).encode(["x"])


def trickling(start: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    """What a server does that sends a piece now and then, for longer than anybody should wait."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(start)
        until = time.monotonic() + 2 * SOON
        while time.monotonic() < until:  # the client hangs up, which ends this earlier
            connection.sendall(piece)
            time.sleep(0.05)

    return speak


def hear(connection: socket.socket) -> None:
    """Read a whole request: what is left unread would break the connection off when it is closed."""
    with connection.makefile("rb") as reading:
        length = 0
        while line := reading.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        reading.read(length)


@contextlib.contextmanager
def speaking(speak: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the URL of a server that takes a request and then sends bytes of its own choice."""

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with (
            contextlib.suppress(OSError),
            connection,
            tls.wrap_socket(connection, server_side=True) if tls else connection as opened,
        ):
            hear(opened)
            speak(opened)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        port = listening.getsockname()[1]
        yield f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"


TRICKLES = {
    "status line": trickling(b"", b"H"),
    "header": trickling(b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "headers": trickling(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
    "100 Continue": trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": trickling(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"a"),
    "body without a length": trickling(b"HTTP/1.0 200 OK\r\n\r\n", b" "),
    "chunk": trickling(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "chunk size": trickling(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
}


@pytest.mark.parametrize("speak", TRICKLES.values(), ids=TRICKLES)
def test_an_answer_that_trickles_is_not_waited_for(speak: Callable[[socket.socket], None]) -> None:
    before = threading.active_count()
    with speaking(speak) as url:
        started = time.monotonic()
        with pytest.raises(ModelUnavailable, match="timed out"):
            OllamaEmbeddingProvider(Endpoint(url, timeout=0.4, retries=0), "m", 8).encode(["x"])
        assert time.monotonic() - started < SOON
    assert threading.active_count() <= before + 1, "no timer is left; the server may still be there"


def test_a_whole_answer_without_end_of_the_connection_is_not_taken() -> None:
    """Cut off by the deadline, a body without a length looks complete."""
    answer = b'HTTP/1.0 200 OK\r\n\r\n{"embeddings": [[1, 2, 3, 4, 5, 6, 7, 8]]}'
    with speaking(trickling(answer, b"")) as url, pytest.raises(ModelUnavailable, match="timed out"):
        OllamaEmbeddingProvider(Endpoint(url, timeout=0.3, retries=0), "m", 8).encode(["x"])


def test_a_refusal_that_trickles_is_told_in_time() -> None:
    with speaking(trickling(b"HTTP/1.1 400 no\r\nContent-Length: 4000\r\n\r\n", b"a")) as url:
        started = time.monotonic()
        with pytest.raises(TextsRefused, match=r"answered 400 Bad Request: a+$"):
            OllamaEmbeddingProvider(Endpoint(url, timeout=1.0, retries=0), "m", 8).encode(["x"])
        assert time.monotonic() - started < SOON


def test_a_handshake_that_never_comes_is_not_waited_for() -> None:
    with speaking(trickling(b"", b"")) as url:
        started = time.monotonic()
        with pytest.raises(ModelUnavailable, match="timed out"):
            endpoint = Endpoint(url.replace("http:", "https:"), timeout=0.4, retries=0)
            OllamaEmbeddingProvider(endpoint, "m", 8).encode(["x"])
        assert time.monotonic() - started < SOON


def certificate(folder: Path) -> Path:
    """Make a key and a certificate for localhost, signed with itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / "localhost.pem"
    path.write_bytes(plain + made.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize("name", ["header", "body without a length"])
def test_an_answer_that_trickles_through_tls_is_not_waited_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with speaking(TRICKLES[name], context) as url:
        started = time.monotonic()
        with pytest.raises(ModelUnavailable, match="timed out"):
            OllamaEmbeddingProvider(Endpoint(url, timeout=0.6, retries=0), "m", 8).encode(["x"])
        assert time.monotonic() - started < SOON
    answer = b'HTTP/1.0 200 OK\r\n\r\n{"embeddings": [[1, 2, 3, 4, 5, 6, 7, 8]]}'
    with speaking(lambda connection: connection.sendall(answer), context) as url:
        assert len(OllamaEmbeddingProvider(Endpoint(url, retries=0), "m", 8).encode(["x"])) == 1


async def test_a_registry_behind_an_api_is_trusted_as_a_model_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def inspect(_response: object) -> None: ...

    path = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with speaking(lambda connection: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n"), context) as url:
        async with supabase._http_client(inspect) as client:
            assert (await client.get(url)).status_code == 200


ESCAPES = "\x1b]0;owned\x07\x1b[31m\u202e\u200b\x9b2J red\r\n\tnext"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 \x1b[31mx\r\nContent-Length: 40\r\n\r\n" + ESCAPES.encode().ljust(40),
        b"HTTP/1.1 200\x1b[31m OK\r\n\r\n",
        b"\x1b]0;owned\x07\r\n\r\n",
        b"HTTP/1.1 404 " + b"\x1b[2J" * 999 + b"\r\n\r\n",
    ],
    ids=["refusal", "status", "no HTTP", "reason"],
)
def test_no_terminal_obeys_what_a_server_says(answer: bytes) -> None:
    with speaking(lambda connection: connection.sendall(answer)) as url, pytest.raises(EmbeddingError) as caught:
        OllamaEmbeddingProvider(Endpoint(url, timeout=2.0, retries=0), "m", 8).encode(["x"])
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 500
    assert caught.value.message.endswith("red next") == (b"400" in answer)
    assert "[2J" not in caught.value.loggable_message
    assert "owned" not in caught.value.loggable_message


def test_a_key_at_the_end_of_what_is_shown_is_not_shown_in_part(server: EmbeddingServer) -> None:
    server.failures.append(Failure(401, b"x" * 290 + KEY.encode()))
    with pytest.raises(EmbeddingError) as caught:
        openai(server).encode(["x"])
    assert KEY[:6] not in caught.value.message


def test_odd_counts_of_tokens_do_not_cost_the_vectors(server: EmbeddingServer, tmp_path: Path) -> None:
    provider = openai(server, usage=UsageLog(tmp_path / "usage.jsonl"))
    for told in (b"null", b"[]", b'{"prompt_tokens": "many"}', b'{"prompt_tokens": -1}', b'{"prompt_tokens": true}'):
        server.failures.append(Failure(200, embeddings(ONE)[:-1] + b', "usage": ' + told + b"}"))
        assert len(provider.encode(["x"])) == 1
    assert (tmp_path / "usage.jsonl").read_text().count('"tokens": null') == 5
    assert len(server.seen) == 5


def test_a_wrong_dimension_names_the_one_that_came(server: EmbeddingServer) -> None:
    with pytest.raises(FingerprintMismatch, match="vectors of 8 numbers for some-model, not of 9") as caught:
        openai(server, dimension=9).encode(["x"])
    assert "KIWI_EMBEDDING_DIMENSION=8" in caught.value.hint


@pytest.mark.parametrize("key", ["sk-one\n", "sk one\r\nHost: elsewhere", "schlüssel"])
def test_a_key_that_no_header_takes_is_a_usage_error_that_does_not_show_it(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint("http://127.0.0.1", key)
    assert key.strip() not in caught.value.message + caught.value.hint


def test_a_server_that_failed_is_left_alone_for_a_while(server: EmbeddingServer) -> None:
    now = [0.0]
    provider = openai(server, retries=3)
    provider.breaker = Breaker(15.0, lambda: now[0])
    server.always = Failure(503)
    with pytest.raises(EmbeddingError, match="503"):
        provider.encode(["x"])
    with pytest.raises(EmbeddingError, match=r"503 .*no further request for 15 s"):
        provider.encode(["x"])
    assert len(server.seen) == 4
    now[0] = 16.0
    with pytest.raises(EmbeddingError, match="503"):
        provider.encode(["x"])
    assert len(server.seen) == 5, "after its rest one try tells"
    now[0], server.always = 32.0, None
    provider.encode(["x"])
    server.failures.extend([Failure(503)] * 3)
    provider.encode(["y"])
    assert len(server.seen) == 10, "well again, it is given all its tries"


def test_refused_texts_do_not_make_a_server_rest(server: EmbeddingServer) -> None:
    provider = openai(server)
    server.failures.append(Failure(400))
    with pytest.raises(TextsRefused):
        provider.encode(["bad"])
    assert len(provider.encode(["good"])) == 1


def test_a_request_holds_no_more_than_its_limits(server: EmbeddingServer) -> None:
    texts = ["four" * n for n in (1, 30, 30, 1, 1, 1, 90, 1)]
    vectors = openai(server, limits={"batch_texts": 3, "batch_tokens": 100}).encode(texts)
    sent = [seen.body["input"] for seen in server.seen]
    assert [text for run in sent for text in run] == texts
    assert all(len(run) <= 3 and (len(run) == 1 or sum(map(estimated_tokens, run)) <= 100) for run in sent)
    assert len(sent) == 4
    assert len(vectors) == len(texts)


def test_a_request_to_openai_stays_below_its_300_000_tokens(server: EmbeddingServer) -> None:
    openai(server).encode(["word " * 6000] * 64)
    assert len(server.seen) > 1
    assert all(sum(map(estimated_tokens, seen.body["input"])) <= 300_000 for seen in server.seen)


def test_an_over_long_text_is_cut_by_estimate_at_a_whole_character(server: EmbeddingServer) -> None:
    openai(server).encode(["语" * 10_000, "short"])
    long, short = sorted(server.seen[0].body["input"], key=len, reverse=True)
    assert (len(long), short) == (OpenAIEmbeddingProvider.max_tokens, "short")
    assert truncate("aé" * 3, 1) == "aé"
    assert truncate("aéé", 1) == "aé"
    assert truncate("é" * 99, 0) == "é" * 99
