"""Spans and the log: what they say, what they never say, and that neither can break what they are about."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kiwi_rag import telemetry
from kiwi_rag.config import resolve
from kiwi_rag.errors import ConfigError, MissingExtra, StoreBusy, UsageError
from kiwi_rag.mcp.context import trace_call
from kiwi_rag.telemetry import span, tracing

SECRET = "zebra-7731"
OLDER = f"{telemetry.LOG_NAME}.1"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans that stay in this process."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(telemetry, "_tracers", [provider.get_tracer("test")])
    return kept


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Kiwi's logger; what a test adds to the root logger is taken off again."""
    root, own = logging.getLogger(), logging.getLogger("kiwi_rag")
    before, level = list(root.handlers), own.level
    yield logging.getLogger("kiwi_rag.test")
    root.handlers[:] = before
    own.setLevel(level)


def lines(user_dir: Path, name: str = telemetry.LOG_NAME) -> list[dict]:
    path = user_dir / "logs" / name
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def python(program: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)


def test_a_span_costs_no_import_while_nobody_traces() -> None:
    program = """if True:
        import sys
        from kiwi_rag.telemetry import span, tracing
        with tracing({"OTEL_TRACES_EXPORTER": "none"}), span("kiwi.test", number=1) as note:
            note(more=2)
        print(*(name for name in sys.modules if name.startswith("opentelemetry")))"""
    done = python(program)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


async def test_spans_nest_over_tasks_and_threads(traced: InMemorySpanExporter) -> None:
    @span("in-thread")
    def work() -> None:
        return None

    async def task() -> None:
        with span("in-task", tier="user") as note:
            note(rows=3)
            await asyncio.to_thread(work)

    with span("outer"):
        await asyncio.gather(task(), task())
    found = traced.get_finished_spans()
    (outer,) = (s for s in found if s.name == "outer")
    tasks = [s for s in found if s.name == "in-task"]
    threads = [s for s in found if s.name == "in-thread"]
    assert {s.parent.span_id for s in tasks} == {outer.context.span_id}
    assert {s.parent.span_id for s in threads} == {s.context.span_id for s in tasks}
    assert dict(tasks[0].attributes) == {"kiwi.tier": "user", "kiwi.rows": 3}


def test_a_span_tells_the_code_of_an_error_and_not_its_message(traced: InMemorySpanExporter) -> None:
    for error, told in ((StoreBusy(SECRET), "busy"), (ValueError(SECRET), "ValueError")):
        with pytest.raises(type(error)), span("failing"):
            raise error
        one = traced.get_finished_spans()[-1]
        assert one.attributes["error.type"] == told
        assert one.status.is_ok is False
        assert SECRET not in one.to_json()


def test_an_exporter_that_is_not_there_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra) as missing, tracing({"OTEL_TRACES_EXPORTER": "otlp"}):
        pass
    assert "pip install 'kiwi-rag[otel]'" in missing.value.hint
    environ = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "pigeon"}
    with pytest.raises(UsageError, match="pigeon"), tracing(environ):
        pass


def test_tracing_can_be_switched_off_by_the_standard_variable(capfd: pytest.CaptureFixture[str]) -> None:
    for environ, spans_told in (({}, True), ({"OTEL_SDK_DISABLED": "true"}, False)):
        with tracing({"OTEL_TRACES_EXPORTER": "console", **environ}), span("kiwi.test"):
            pass
        told = capfd.readouterr()
        assert ('"kiwi.test"' in told.err, told.out) == (spans_told, "")


def test_a_record_is_one_line_for_its_owner_alone(tmp_path: Path) -> None:
    telemetry.append_error(tmp_path, "search", "unreachable", "no\nanswer \x1b[31m\u202e\udcff" + "x" * 9000)
    (line,) = (tmp_path / "logs/kiwi.jsonl").read_bytes().splitlines()
    assert line.isascii()
    assert b"\x1b" not in line
    record = json.loads(line)
    assert (record["command"], record["code"], record["level"]) == ("search", "unreachable", "ERROR")
    assert (record["pid"], len(record["message"])) == (os.getpid(), 500)
    record["message"].encode()  # no half of a character
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "logs/kiwi.jsonl").stat().st_mode) == 0o600


def test_a_folder_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o755)
    telemetry.append_error(tmp_path, "search", "busy", "")
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    assert len(lines(tmp_path)) == 1


WRITER = """if True:
    import logging, sys
    from pathlib import Path
    from kiwi_rag import telemetry
    telemetry.MAX_BYTES = int(sys.argv[3])
    telemetry.configure_log(Path(sys.argv[1]), "info")
    log = logging.getLogger("kiwi_rag.test")
    for number in range(1000):
        log.info("%s %d", sys.argv[2], number)"""


@pytest.mark.parametrize("limit", [1 << 20, 200_000], ids=["one file", "moved aside in between"])
def test_two_processes_lose_and_tear_no_line(tmp_path: Path, limit: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, name, str(limit)], stderr=subprocess.PIPE) for name in "ab"]
    for writer in writers:
        assert writer.communicate(timeout=60)[1] == b""
    told = [record["message"] for name in (OLDER, telemetry.LOG_NAME) for record in lines(tmp_path, name)]
    assert sorted(told) == sorted(f"{name} {number}" for name in "ab" for number in range(1000))
    for name in "ab":
        assert [m for m in told if m.startswith(name)] == [f"{name} {n}" for n in range(1000)]
    assert (tmp_path / "logs" / OLDER).exists() == (limit < 1 << 20)


def test_the_log_keeps_one_older_file_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MAX_BYTES", 2000)
    for number in range(100):
        telemetry.append_error(tmp_path, "search", "busy", str(number))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert set(sizes) == {telemetry.LOG_NAME, OLDER}
    assert max(sizes.values()) <= 2000
    newest = [record["message"] for record in telemetry.read_last_errors(tmp_path, 12)]
    assert newest == [str(number) for number in range(99, 87, -1)], "the newest first, over both files"


def make_link(user_dir: Path, elsewhere: Path) -> None:
    (user_dir / "logs").symlink_to(elsewhere)


def make_link_of_file(user_dir: Path, elsewhere: Path) -> None:
    (user_dir / "logs").mkdir()
    (user_dir / "logs/kiwi.jsonl").symlink_to(elsewhere / "kiwi.jsonl")


def make_pipe(user_dir: Path, _elsewhere: Path) -> None:
    (user_dir / "logs").mkdir()
    os.mkfifo(user_dir / "logs/kiwi.jsonl")


def make_file(user_dir: Path, _elsewhere: Path) -> None:
    (user_dir / "logs").write_text("in the way")


def make_folder_of_file(user_dir: Path, _elsewhere: Path) -> None:
    (user_dir / "logs/kiwi.jsonl").mkdir(parents=True)


def make_nothing(user_dir: Path, _elsewhere: Path) -> None:
    user_dir.rmdir()


@pytest.mark.parametrize(
    "make", [make_link, make_link_of_file, make_pipe, make_file, make_folder_of_file, make_nothing]
)
def test_what_is_no_log_is_left_alone(tmp_path: Path, make) -> None:
    user_dir, elsewhere = tmp_path / "ai", tmp_path / "elsewhere"
    user_dir.mkdir()
    elsewhere.mkdir()
    make(user_dir, elsewhere)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    telemetry.append_error(user_dir, "search", "busy", "x")
    assert telemetry.read_last_errors(user_dir, 3) == []
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_neither_written_nor_read(tmp_path: Path) -> None:
    telemetry.append_error(tmp_path, "search", "busy", "x")
    os.chown(tmp_path / "logs", 12345, 12345)
    telemetry.append_error(tmp_path, "search", "busy", "y")
    assert len(lines(tmp_path)) == 1
    assert telemetry.read_last_errors(tmp_path, 3) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_a_folder_that_is_read_only_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o500)
    for path in (tmp_path, tmp_path / "logs"):
        os.chown(path, 12345, 12345)
    program = """if True:
        import json, os
        from pathlib import Path
        from kiwi_rag import telemetry
        os.setuid(12345)
        telemetry.append_error(Path("."), "search", "busy", "x")
        print(telemetry.read_last_errors(Path("."), 3), os.listdir("logs"))"""
    done = python(program, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[] []", "")


def test_a_disk_that_takes_no_more_breaks_nothing(tmp_path: Path) -> None:
    program = """if True:
        import resource, sys
        from pathlib import Path
        from kiwi_rag import telemetry
        telemetry.append_error(Path(sys.argv[1]), "search", "busy", "before")
        size = (Path(sys.argv[1]) / "logs/kiwi.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
        telemetry.append_error(Path(sys.argv[1]), "search", "busy", "half of this is written")
        telemetry.append_error(Path(sys.argv[1]), "search", "busy", "nothing of this")
        print([record["message"] for record in telemetry.read_last_errors(Path(sys.argv[1]), 5)])"""
    done = python(program, str(tmp_path))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "['before']", "")
    telemetry.append_error(tmp_path, "search", "busy", "after")
    assert [record["message"] for record in telemetry.read_last_errors(tmp_path, 5)] == ["after", "before"]


def test_others_messages_are_not_kept(tmp_path: Path, logger: logging.Logger) -> None:
    telemetry.configure_log(tmp_path, "debug")
    stranger = logging.getLogger("stranger.client")
    stranger.setLevel(logging.DEBUG)
    try:
        raise ValueError(SECRET)
    except ValueError:
        stranger.exception("request %s failed", SECRET, extra={"body": SECRET})
    logger.debug("own")
    theirs, own = lines(tmp_path)
    assert SECRET not in json.dumps(theirs)
    assert (theirs["logger"], theirs["exception"]) == ("stranger.client", "ValueError")
    assert theirs["message"].startswith("test_telemetry:")
    assert own["message"] == "own"


def test_the_level_decides_what_is_logged(tmp_path: Path, logger: logging.Logger) -> None:
    for level, told in (("warning", 1), ("info", 2), ("debug", 3)):
        telemetry.configure_log(tmp_path, level)
        before = len(lines(tmp_path))
        logger.warning("w")
        logger.info("i")
        logger.debug("d")
        assert len(lines(tmp_path)) - before == told, level


def test_what_is_logged_goes_to_stderr_too_where_that_is_asked_for(
    tmp_path: Path, logger: logging.Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    telemetry.configure_log(tmp_path, "info", verbose=True)
    logger.info("once")
    (record,) = lines(tmp_path)
    assert [json.loads(line) for line in capfd.readouterr().err.splitlines()] == [record]


def test_a_level_is_one_of_four_and_not_a_projects_to_set(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    environ = {"KIWI_HOME": str(home), "KIWI_LOG_LEVEL": "loud"}
    with pytest.raises(ConfigError, match="log_level loud is not debug, info, warning or error"):
        resolve(environ)
    assert resolve({**environ, "KIWI_LOG_LEVEL": "debug"}).settings.log_level == "debug"
    project.mkdir()
    (project / "config.yaml").write_text("log_level: debug\n")
    with pytest.raises(ConfigError, match="may not set"):
        resolve({"KIWI_HOME": str(home)}, project)


def test_a_call_of_a_tool_is_one_record_without_what_was_asked(
    tmp_path: Path, logger: logging.Logger, traced: InMemorySpanExporter
) -> None:
    telemetry.configure_log(tmp_path, "info")
    with trace_call("kiwi_search") as call:
        failed = {"tier": "registry", "error": {"code": "unreachable", "message": SECRET}}
        call.record_answer({"complete": False, "tiers": [{"tier": "project", "error": None}, failed]})
    for error in (UsageError(SECRET), StoreBusy("pid 7 is writing"), ValueError(SECRET)):
        with pytest.raises(type(error)), trace_call("kiwi_get"):
            raise error
    told = [(r["level"], r["tool"], r["outcome"], r.get("code"), r["message"]) for r in lines(tmp_path)]
    assert told == [
        ("ERROR", "kiwi_search", "partly", "unreachable", "registry: unreachable"),
        ("INFO", "kiwi_get", "failed", "usage", "call"),
        ("ERROR", "kiwi_get", "failed", "busy", "pid 7 is writing"),
        ("ERROR", "kiwi_get", "failed", "ValueError", "an error that Kiwi did not expect"),
    ]
    assert all(record["milliseconds"] >= 0 for record in lines(tmp_path))
    assert [s.attributes["kiwi.outcome"] for s in traced.get_finished_spans()] == ["partly", *["failed"] * 3]
    assert SECRET not in (tmp_path / "logs/kiwi.jsonl").read_text()
    assert SECRET not in "".join(s.to_json() for s in traced.get_finished_spans())
