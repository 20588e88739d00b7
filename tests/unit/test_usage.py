"""The usage log: what a line holds and never holds, many writers, rotation; and what is added up from it."""

from __future__ import annotations

import asyncio
import contextvars
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag import render
from kiwi_rag.cli.setup import first_day
from kiwi_rag.embedding.remote import OpenAIEmbeddingProvider
from kiwi_rag.embedding.usage import OLDER_FILES, RemoteCall, UsageLog, parse_prices, percentile, usage_rows
from kiwi_rag.endpoint import Endpoint
from kiwi_rag.errors import EmbeddingError, TextsRefused, UsageError
from kiwi_rag.telemetry import begin_run
from tests.embedding_server import EmbeddingServer, Failure
from tests.shared import ROOT
from tests.unit.test_embedding_remote import digests

KEY = "sk-this-is-no-real-key"
CALL = RemoteCall("openai", "m", 2, 5, 0.25, "ok", "host:1")


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(digests) as running:
        yield running


def files(path: Path) -> list[Path]:
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, OLDER_FILES + 1))]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for name in files(path) if name.exists() for line in name.read_text().splitlines()]


def write(path: Path, *changes: dict[str, Any]) -> None:
    good = {
        "at": "2026-05-01T10:00:00+00:00", "provider": "openai", "model": "m", "texts": 10, "tokens": 100,
        "seconds": 0.5, "outcome": "ok", "server": "h", "cost_usd": 0.001,
    }  # fmt: skip
    path.write_text("".join(json.dumps({**good, **change}) + "\n" for change in changes))


def test_every_call_is_logged_with_tokens_time_and_cost(server: EmbeddingServer, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "usage.jsonl"
    provider = OpenAIEmbeddingProvider(Endpoint(f"{server.url}/v1", KEY), "m", 8, UsageLog(path, {"m": 2.0}))
    provider.encode(["two words", "and three words"])
    server.failures.append(Failure(400))
    with pytest.raises(TextsRefused):
        provider.encode(["x"])
    first, second = lines(path)
    assert (first["provider"], first["model"], first["texts"], first["tokens"]) == ("openai", "m", 2, 5)
    assert first["cost_usd"] == pytest.approx(5 * 2.0 / 1e6)
    assert first["server"] == server.url.removeprefix("http://")
    assert 0 < first["seconds"] < 5
    assert (first["outcome"], second["tokens"], second["cost_usd"]) == ("ok", None, None)
    assert second["outcome"] == "texts-refused 400"


def test_no_text_and_no_key_is_in_the_log_whatever_the_server_says(server: EmbeddingServer, tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    provider = OpenAIEmbeddingProvider(Endpoint(f"{server.url}/v1", KEY), "m", 8, UsageLog(path))
    for answer in (Failure(400, f"bad: our secret plan, {KEY}".encode()), Failure(200, b"our secret plan")):
        server.failures.append(answer)
        with pytest.raises(EmbeddingError):
            provider.encode(["our secret plan"])
    assert [line["outcome"] for line in lines(path)] == ["texts-refused 400", "answer"]
    assert "secret" not in path.read_text()
    assert KEY not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_not_asked_is_not_logged(server: EmbeddingServer, tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    provider = OpenAIEmbeddingProvider(Endpoint(f"{server.url}/v1", retries=0), "m", 8, UsageLog(path))
    server.always = Failure(500)
    for _ in range(3):
        with pytest.raises(EmbeddingError):
            provider.encode(["x"])
    assert len(lines(path)) == len(server.seen) == 1


def test_known_prices_and_ollama_and_unknown_models(tmp_path: Path) -> None:
    usage = UsageLog(tmp_path / "log", {"mine": 1.0, "served": 3.0})
    calls = {model: RemoteCall("openai", model, 1, 1_000_000, 0.1) for model in ("text-embedding-3-small", "mine", "?")}
    assert {model: usage.cost(call) for model, call in calls.items()} == {
        "text-embedding-3-small": pytest.approx(0.02), "mine": 1.0, "?": None,
    }  # fmt: skip
    assert usage.cost(RemoteCall("ollama", "all-minilm", 1, None, 0.1)) == 0.0
    assert usage.cost(RemoteCall("ollama", "served", 1, 1_000_000, 0.1)) == 3.0
    assert usage.cost(RemoteCall("openai", "mine", 1, None, 0.1)) is None


def test_the_table_of_prices_names_its_source_and_day() -> None:
    table = json.loads((ROOT / "kiwi_rag/embedding/prices.json").read_text())
    assert table["usd_per_million_tokens"]["text-embedding-3-large"] == 0.13
    assert "https://" in table["source"]
    assert date.fromisoformat(table["read"]) <= date.today()


def test_prices_of_ones_own_are_read() -> None:
    assert parse_prices("a=0.5, b/c:d = 0,") == {"a": 0.5, "b/c:d": 0.0}
    assert parse_prices("a=b=1") == {"a=b": 1.0}
    for wrong in ("a", "a=", "=1", "a=-1", "a=nan", "a=inf", "a=cheap"):
        with pytest.raises(UsageError, match="embedding_prices"):
            parse_prices(wrong)


def test_a_full_file_is_moved_aside_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    log = UsageLog(path, max_bytes=1000)
    for number in range(60):
        log.record(RemoteCall("openai", "m", number, 1, 0.1))
    kept = [name for name in files(path) if name.exists()]
    assert len(kept) == OLDER_FILES + 1
    assert all(name.stat().st_size <= 1000 for name in kept)
    texts = sorted(line["texts"] for line in lines(path))
    assert texts == list(range(60 - len(texts), 60)), "the newest are kept, none twice"


WRITER = """
import sys
from pathlib import Path
from kiwi_rag.embedding.usage import RemoteCall, UsageLog
log = UsageLog(Path(sys.argv[1]), max_bytes=20_000)
for number in range(100):
    log.record(RemoteCall("openai", sys.argv[2], number, 1, 0.1))
"""


def test_processes_that_write_and_rotate_together_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"m{number}"], cwd=ROOT) for number in range(4)
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    assert sum(1 for name in files(path) if name.exists()) > 2, "it was rotated meanwhile"
    rows = usage_rows(path)
    assert [(row["model"], row["calls"], row["texts"]) for row in rows] == [(f"m{n}", 100, 4950) for n in range(4)]


def test_a_log_that_cannot_be_written_does_not_cost_the_vectors(server: EmbeddingServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "file" / "log", tmp_path / "link"):
        assert len(OpenAIEmbeddingProvider(Endpoint(f"{server.url}/v1"), "m", 8, UsageLog(path)).encode(["x"])) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_calls_are_added_up_by_day_and_model(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    write(
        path,
        *({"seconds": second / 100} for second in range(1, 101)),
        {"outcome": "rate-limited 429", "tokens": None, "cost_usd": None, "seconds": 60.0},
        {"model": "n", "tokens": None, "cost_usd": None},
        {"at": "2026-05-02T00:00:01+00:00", "texts": 1},
    )
    one, other, later = usage_rows(path)
    assert (one["day"], one["model"], one["calls"], one["failures"]) == ("2026-05-01", "m", 101, 1)
    assert (one["texts"], one["tokens"], one["tokens_unknown"]) == (1000, 10_000, 0)
    assert one["cost_usd"] == pytest.approx(0.1)
    assert (one["p50_seconds"], one["p95_seconds"]) == (0.5, 0.95)
    assert (other["tokens"], other["tokens_unknown"], other["cost_unknown"]) == (0, 1, 1)
    assert usage_rows(path, date(2026, 5, 2)) == [later]
    assert usage_rows(tmp_path / "none") == []


def test_lines_that_are_no_record_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    write(path, {}, {"at": "yesterday"}, {"seconds": "1"}, {"tokens": "5"}, {"texts": None}, {"model": 3})
    with path.open("ab") as file:
        file.write(b'{"at": "2026-05-01T1\n\xff\xfe\n[]\n3\n\n' + b"[" * 100_000 + b"\n")
    assert [row["calls"] for row in usage_rows(path)] == [1]


def test_percentiles_are_nearest_ranks() -> None:
    assert percentile([], 0.5) == 0.0
    assert (percentile([3.0], 0.5), percentile([3.0], 0.95)) == (3.0, 3.0)
    assert (percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.95)) == (2, 4)


def test_the_table_says_what_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    write(
        path, {}, {"tokens": None, "cost_usd": None}, {"model": "n", "tokens": None, "cost_usd": None},
        {"model": "bad\x1b[31m", "outcome": "model"},
    )  # fmt: skip
    heading, bad, known, unknown, total = render.usage_lines(usage_rows(path))
    assert heading.split() == ["day", "model", "calls", "texts", "tokens", "cost", "p50", "p95", "failures"]
    assert known.split() == [
        "2026-05-01",
        "openai",
        "m",
        "2",
        "20",
        "100+",
        "$0.001000+",
        "500",
        "ms",
        "500",
        "ms",
        "0",
    ]
    assert unknown.split()[5:7] == ["?", "?"]
    assert bad.split()[-1] == "1"
    assert "\x1b" not in bad
    assert total.split() == ["all", "4", "30", "100+", "$0.001000+", "1"]


def test_since_is_a_day_or_so_many_days() -> None:
    today = date(2026, 5, 31)
    assert [first_day(text, today).isoformat() for text in ("1d", "7d", "30", "0d", "2026-01-02")] == [
        "2026-05-31", "2026-05-25", "2026-05-02", "2026-05-31", "2026-01-02",
    ]  # fmt: skip
    for wrong in ("soon", "-1d", "2026-13-01", "", "99999999d"):
        with pytest.raises(UsageError, match="is not a day or a number of days"):
            first_day(wrong, today)
    with pytest.raises(UsageError, match="is not a day or a number of days"):
        first_day("99999d", date(1, 5, 1))


def test_calls_are_counted_to_the_run_that_needed_them(server: EmbeddingServer, tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    provider = OpenAIEmbeddingProvider(Endpoint(f"{server.url}/v1"), "m", 8, UsageLog(path, {"m": 2.0}))

    def run(what: str, *texts: str) -> None:
        if what:
            begin_run(what)
        for text in texts:
            asyncio.run(provider.query(text))  # encodes in a thread

    for what, texts in (("", ["before"]), ("kiwi index", ["one", "two words"]), ("kiwi search", ["and three words"])):
        contextvars.Context().run(run, what, *texts)  # not the current one: another test may have begun a run
    unknown, index, search = usage_rows(path, by="run")
    assert (unknown["run"], unknown["calls"]) == ("", 1)
    assert [row["run"].partition("Z ")[2] for row in (index, search)] == ["kiwi index", "kiwi search"]
    assert datetime.fromisoformat(index["run"].partition(" ")[0]).date() == datetime.now(UTC).date()
    assert [(row["calls"], row["tokens"]) for row in (index, search)] == [(2, 3), (1, 3)]
    assert search["cost_usd"] == pytest.approx(3 * 2 / 1e6)
    shown = render.usage_lines([unknown, index, search])
    assert shown[0].split()[0] == "run"
    assert [line.split("  ")[0] for line in shown[1:]] == ["unknown", index["run"], search["run"], "all"]
