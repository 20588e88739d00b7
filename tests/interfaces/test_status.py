"""`kiwi status`, the log and the spans of real processes: what they tell, and what they never do."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider

from kiwi_rag.embedding.weights import INT8_MODEL, MODEL, ONNX_SHA256
from kiwi_rag.telemetry import EXPORT_SECONDS
from tests.embedding_server import EmbeddingServer, Failure
from tests.interfaces.collector import collecting
from tests.interfaces.conftest import PATIENCE, Kiwi, note
from tests.interfaces.mcp_server import StrictClient, connected

QUERY = "undo a bad zebra-7731 release"
NOWHERE = "postgresql://ada:hush-hush@127.0.0.1:9/none"


def with_variables(kiwi: Kiwi, **variables: str) -> Kiwi:
    return Kiwi(kiwi.home, kiwi.cwd, {**kiwi.extra, **variables})


def log_of(kiwi: Kiwi) -> Path:
    return kiwi.home / ".ai/logs/kiwi.jsonl"


def records(kiwi: Kiwi) -> list[dict]:
    return [json.loads(line) for line in log_of(kiwi).read_text().splitlines()] if log_of(kiwi).exists() else []


def fail(kiwi: Kiwi, *, expect: int = 1) -> str:
    """Search a registry that is not there, and return what was said."""
    done = with_variables(kiwi, KIWI_REGISTRY_URL=NOWHERE).run("search", QUERY, "--source", "registry", expect=expect)
    return done.stderr


def test_status_tells_tiers_model_and_cache(ready: Kiwi, tmp_path: Path):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    told = ready.json("status")
    assert set(told) == {"tiers", "model", "cache", "errors", "service", "project", "trusted_signers"}
    assert told["tiers"][0]["items"] == 1
    model = told["model"]
    assert (model["provider"], model["name"], model["problem"]) == ("onnx", "all-MiniLM-L6-v2-int8", "")
    assert model["fingerprint"] == told["tiers"][0]["model"]
    assert Path(model["place"]).is_dir()
    assert (told["cache"]["path"], told["errors"]) == (ready.environment()["KIWI_CACHE_DIR"], [])
    text = ready.run("status").stdout
    assert f"model  onnx  {model['fingerprint']}  {model['place']}" in text
    assert "\nerror" not in text

    cache = tmp_path / "cache"
    (cache / "models/other").mkdir(parents=True)
    (cache / "models/other/weights").write_bytes(b"x" * 1_500_000)
    (cache / "not-kiwis").write_bytes(b"x" * 9_000_000)
    elsewhere = with_variables(ready, KIWI_CACHE_DIR=str(cache))
    assert elsewhere.json("status")["cache"] == {"path": str(cache), "bytes": 1_500_000}
    assert f"cache  {cache}  1.5 MB" in elsewhere.run("status").stdout


def test_status_tells_of_the_workspace_once_it_is_indexed(ready: Kiwi):
    assert "workspace" not in {row["tier"] for row in ready.json("status")["tiers"]}
    (ready.cwd / "tides.md").write_text("# Tides\n\nHigh water is at noon.\n")
    ready.run("workspace", "index", ".")
    row = next(row for row in ready.json("status")["tiers"] if row["tier"] == "workspace")
    assert (row["documents"], row["passages"], row["problems"]) == (1, 1, "")
    assert "workspace  1 document  1 passage  " in ready.run("status").stdout
    catalog = ready.vectors / "documents/catalog-100.sqlite3"
    catalog.write_bytes(b"no catalog" * 1000)
    told = ready.run("--json", "status", expect=3).stdout
    assert "is damaged" in next(row for row in json.loads(told)["tiers"] if row["tier"] == "workspace")["problems"]


def test_status_says_where_the_model_is_or_that_it_is_not(ready: Kiwi, tmp_path: Path):
    for variables, place, problem in (
        ({"KIWI_EMBEDDING_MODEL_DIR": str(tmp_path / "none")}, "", "not on this machine"),
        ({"KIWI_EMBEDDING_PROVIDER": "ollama"}, "http://127.0.0.1:11434", ""),
        ({"KIWI_EMBEDDING_PROVIDER": "openai", "KIWI_EMBEDDING_DIMENSION": "0"}, "https://api.openai.com/v1", ""),
        ({"KIWI_EMBEDDING_PROVIDER": "parrot"}, "", "no embedding provider 'parrot'"),
    ):
        model = with_variables(ready, **variables).json("status")["model"]
        assert model["place"] == place
        assert problem in model["problem"]
        assert bool(problem) == bool(model["problem"])


def test_status_makes_no_log_and_no_cache(kiwi: Kiwi, tmp_path: Path):
    assert with_variables(kiwi, KIWI_CACHE_DIR=str(tmp_path / "cache")).json("status")["cache"]["bytes"] == 0
    assert not (tmp_path / "cache").exists()
    assert not (kiwi.home / ".ai/logs").exists()


def test_status_shows_what_failed_before(ready: Kiwi):
    said = [fail(ready) for _ in range(4)]
    ready.run("search", "", expect=2)
    ready.run("add", str(ready.write("directives/acme/note.md", "no item at all")), expect=4)
    told = ready.json("status")["errors"]
    assert len(told) == 4, "neither a mistake in the command line nor a refusal of the gate is one of Kiwi's errors"
    assert {(error["what"], error["code"]) for error in told} == {("search", "unreachable")}
    assert told[0]["message"].removeprefix("registry: ")[:40] in said[0]
    lines = [line for line in ready.run("status").stdout.splitlines() if line.startswith("error")]
    assert len(lines) == 3
    assert all("search  unreachable  registry: " in line for line in lines)
    logged = log_of(ready).read_text()
    for secret in ("zebra", "hush", "no item at all"):
        assert secret not in logged
    assert stat.S_IMODE(log_of(ready).stat().st_mode) == 0o600


def test_what_a_server_repeats_of_a_query_is_not_logged(acme: Kiwi):
    log_of(acme).unlink(missing_ok=True)
    with EmbeddingServer(lambda _: []) as server:
        server.failures.append(Failure(422, json.dumps({"input": QUERY}).encode()))
        variables = {"KIWI_EMBEDDING_PROVIDER": "ollama", "KIWI_EMBEDDING_BASE_URL": server.url}
        said = with_variables(acme, **variables).run("search", QUERY, expect=1).stderr
    assert "zebra" in said
    (record,) = records(acme)
    assert (record["command"], record["code"]) == ("search", "texts-refused")
    assert record["message"].startswith(f"{server.url}/api/embed answered 422 ")
    assert record["message"].endswith(": …")


def test_a_command_that_fails_is_remembered_by_its_name(ready: Kiwi):
    ready.run("show", "acme/none@project", expect=1)  # what is not there is an answer, and no trouble
    with_variables(ready, KIWI_REGISTRY_URL=NOWHERE).run("show", "acme/none@registry", expect=1)
    (error,) = ready.json("status")["errors"]
    assert (error["what"], error["code"]) == ("show", "unreachable")


def broken_folders(user_dir: Path, elsewhere: Path):
    yield "a link", lambda: (user_dir / "logs").symlink_to(elsewhere)
    yield "a file", lambda: (user_dir / "logs").write_text("in the way")
    yield "a pipe nobody reads", lambda: ((user_dir / "logs").mkdir(), os.mkfifo(user_dir / "logs/kiwi.jsonl"))
    if os.geteuid() == 0:
        yield "somebody else's", lambda: ((user_dir / "logs").mkdir(), os.chown(user_dir / "logs", 12345, 12345))


def test_a_log_that_cannot_be_written_changes_nothing(ready: Kiwi, tmp_path: Path):
    user_dir, elsewhere = ready.home / ".ai", tmp_path / "elsewhere"
    elsewhere.mkdir()
    usual = fail(ready)
    for path in (log_of(ready), user_dir / "logs"):
        path.unlink() if path.is_file() else path.rmdir()
    for number, (what, make) in enumerate(broken_folders(user_dir, elsewhere)):
        make()
        assert fail(ready).split("(")[0] == usual.split("(")[0], what
        assert ready.json("status")["errors"] == [], what
        (user_dir / "logs").rename(tmp_path / f"gone-{number}")
    assert list(elsewhere.iterdir()) == []


def spans_of(stderr: str) -> list[dict]:
    """Read what the console exporter wrote: JSON objects, one after the other, among lines of text."""
    found, decoder, at = [], json.JSONDecoder(), stderr.find("{\n")
    while at >= 0:
        value, end = decoder.raw_decode(stderr, at)
        found.append(value)
        at = stderr.find("{\n", end)
    return found


def test_a_search_is_one_trace_on_the_console(acme: Kiwi):
    usual = acme.run("search", QUERY, "--format", "paths")
    done = with_variables(acme, OTEL_TRACES_EXPORTER="console").run("search", QUERY, "--format", "paths")
    assert done.stdout == usual.stdout
    told = spans_of(done.stderr)
    (search,) = (span for span in told if span["name"] == "kiwi.search")
    assert search["parent_id"] is None
    assert search["attributes"]["kiwi.hits"] == len(usual.stdout.splitlines())
    assert search["attributes"]["kiwi.complete"] is True
    assert {span["name"] for span in told} == {"kiwi.search", "kiwi.embed", "kiwi.store"}
    assert {span["context"]["trace_id"] for span in told} == {search["context"]["trace_id"]}
    assert {span["parent_id"] for span in told if span is not search} == {search["context"]["span_id"]}
    stores = [span["attributes"] for span in told if span["name"] == "kiwi.store"]
    assert {s["kiwi.step"] for s in stores} == {"statistics", "candidates", "verification"}
    assert "exact" in {s.get("kiwi.plan") for s in stores}
    assert "zebra" not in done.stderr
    assert "ollback" not in done.stderr, "nothing of an item either"


def test_the_gate_and_the_store_are_traced_when_an_item_is_added(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note("1.0.0", "Wakes at zebra o'clock."))
    done = with_variables(ready, OTEL_TRACES_EXPORTER="console").run("add", str(path))
    told = {(span["name"], span["attributes"].get("kiwi.step")) for span in spans_of(done.stderr)}
    assert told >= {("kiwi.gate", "inspect"), ("kiwi.gate", "admit"), ("kiwi.store", "upsert"), ("kiwi.embed", None)}
    assert "zebra" not in done.stderr


def test_a_collector_gets_the_spans_of_a_command_that_ends(acme: Kiwi):
    with collecting() as collector:
        traced = with_variables(acme, OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        traced.run("search", QUERY)
    assert {span.name for span in collector.spans} == {"kiwi.search", "kiwi.embed", "kiwi.store"}
    assert b"kiwi" in collector.bodies[0]
    for body in collector.bodies:
        for secret in (b"zebra", b"rollback", str(acme.home).encode()):
            assert secret not in body


def test_a_collector_that_is_silent_costs_seconds_and_nothing_else(acme: Kiwi, monkeypatch: pytest.MonkeyPatch):
    patience = []

    class Exporter(OTLPSpanExporter):
        def __init__(self, timeout: float | None) -> None:
            patience.append(timeout)
            super().__init__(timeout=0.2)

    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter", Exporter)
    usual = acme.run("search", QUERY, "--format", "paths")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        traced = with_variables(acme, OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=url)
        assert traced.run("search", QUERY, "--format", "paths").stdout == usual.stdout
    assert patience == [EXPORT_SECONDS]
    assert EXPORT_SECONDS < 5


async def test_a_server_that_is_told_to_end_sends_what_it_traced(acme: Kiwi):
    with collecting() as collector:
        variables = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        server = with_variables(acme, **variables, OTEL_BSP_SCHEDULE_DELAY="600000").start("mcp", "--http", "--port=0")
        url = server.stderr.readline().split("serving ")[1].split(";")[0]
        async with StrictClient(url) as client:
            draft = {"item_type": "knowledge", "item_id": "acme/draft", "content": note()}
            assert not (await client.call_tool("kiwi_validate", draft)).is_error
        assert collector.bodies == []
        server.terminate()
        assert server.communicate(timeout=PATIENCE)[1] == ""
        assert server.returncode == 0
    assert {"kiwi.tool", "kiwi.gate"} <= {span.name for span in collector.spans}


async def test_calls_of_agents_are_logged_and_traced_without_what_they_asked(acme: Kiwi):
    log_of(acme).unlink(missing_ok=True)
    with collecting() as collector:
        variables = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        async with connected(with_variables(acme, **variables, KIWI_REGISTRY_URL=NOWHERE)) as client:
            with TracerProvider().get_tracer("agent").start_as_current_span("agent") as agent:
                await client.call_tool("kiwi_search", {"query": QUERY})
            await client.call_tool("kiwi_search", {"query": QUERY, "source": "all"})
            assert (await client.call_tool("kiwi_get", {"ref": "acme/zebra", "source": "all"})).is_error
            refused = await client.call_tool("kiwi_search", {"query": QUERY, "zebra": 1})
            assert refused.is_error and "zebra" in refused.content[0].text
            with pytest.raises(Exception, match="zebra"):
                await client.call_tool("kiwi_zebra", {})
            status = (await client.call_tool("kiwi_status", {})).structured_content
    told = [(r["level"], r.get("tool"), r["outcome"], r.get("code")) for r in records(acme) if "outcome" in r]
    assert told[:5] == [
        ("INFO", "kiwi_search", "ok", None),
        ("ERROR", "kiwi_search", "partly", "unreachable"),
        ("ERROR", "kiwi_get", "failed", "unreachable"),
        ("INFO", "kiwi_search", "failed", "usage"),
        ("INFO", None, "failed", "usage"),
    ]
    assert status["errors"][0]["what"] == "kiwi_get"
    assert status["errors"][1]["message"] == "registry: unreachable"
    assert "zebra" not in log_of(acme).read_text()
    assert "hush" not in log_of(acme).read_text()
    calls = [span for span in collector.spans if span.name == "kiwi.tool"]
    searches = {span.parent_span_id for span in collector.spans if span.name == "kiwi.search"}
    assert searches <= {call.span_id for call in calls}
    assert len(calls) == 6
    assert int.from_bytes(calls[0].trace_id) == agent.get_span_context().trace_id, "an agent's own trace goes on"
    assert b"zebra" not in b"".join(collector.bodies)


def test_config_and_doctor_say_which_variable_of_another_program_is_not_used(ready: Kiwi) -> None:
    here = replace(ready, extra={"QDRANT_URL": "http://a.example", "KIWI_QDRANT_URL": "http://b.example"})
    for command in ("config", "doctor"):
        assert "QDRANT_URL is not used: KIWI_QDRANT_URL sets qdrant_url" in here.run(command, expect=None).stderr
    assert "qdrant_url: http://b.example  # KIWI_QDRANT_URL" in here.run("config", "--resolved").stdout


def test_doctor_finds_a_damaged_model_file_that_looks_unchanged(ready: Kiwi, tmp_path: Path):
    """Size and times are as before, as on a disk that loses bits; the command that is shown puts it right."""
    cache, folder = tmp_path / "cache", f"models/{MODEL}/onnx-{ONNX_SHA256[INT8_MODEL][:12]}"
    shutil.copytree(Path(ready.environment()["KIWI_CACHE_DIR"]) / folder, cache / folder)
    kiwi = with_variables(ready, KIWI_CACHE_DIR=str(cache))
    kiwi.run("doctor")
    model = cache / folder / "model.onnx"
    data, before = bytearray(model.read_bytes()), model.stat()
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    (problem,) = kiwi.json("doctor", expect=3)["problems"]
    assert f"{model} is not the pinned model file" in problem
    command = problem[problem.index("rm -rf ") : -1]
    subprocess.run(shlex.split(command), check=True)
    assert not model.exists()
    kiwi.run("doctor")
