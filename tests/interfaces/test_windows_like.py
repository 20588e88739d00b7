"""Search, index, sign and MCP in a Python that has only what Python has on Windows: `windows_like` says how far."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skills
from tests.interfaces.conftest import PATIENCE, Kiwi, note
from tests.interfaces.forked import ForkedProcess
from tests.shared import ROOT

SERVER = "tests.interfaces.windows_like"
PROGRAM = ROOT / "tests/interfaces/windows_like.py"
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the imitation reads /proc")
pytestmark = needs_proc


def run(user: Kiwi, *arguments: str, expect: int = 0) -> str:
    """Run a command there; return what it wrote to stdout."""
    process = ForkedProcess(
        arguments, user.environment() | {"PYTHONIOENCODING": "cp1252"}, user.cwd, server=SERVER, text=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = (stream.decode("cp1252") for stream in process.communicate(timeout=PATIENCE))
    assert process.returncode == expect, f"kiwi {' '.join(arguments)}: {process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err
    return out


def test_items_from_a_key_to_a_hit(kiwi: Kiwi) -> None:
    run(kiwi, "init")
    run(kiwi, "keys", "new", "--principal", "ada@acme.example")
    path = kiwi.write("knowledge/acme/staging.md", note())
    run(kiwi, "validate", ".ai")
    run(kiwi, "sign", ".ai")
    assert "1 admitted" in run(kiwi, "index")
    found = json.loads(run(kiwi, "search", "scale-down of staging", "--format", "json"))
    assert [hit["ref"] for hit in found] == ["knowledge:acme/staging@1.0.0"]
    assert "acme/staging@1.0.0" in run(kiwi, "search", "scale-down of staging")
    assert "verified" in run(kiwi, "verify")
    run(kiwi, "sync", "--to", "user")
    shutil.rmtree(kiwi.cwd / ".ai")
    run(kiwi, "init")
    run(kiwi, "get", "knowledge:acme/staging")
    assert path.read_text() == note()
    run(kiwi, "status")
    # A key's file has a mode that says everyone may read it; on Windows that says nothing, and it is not complained of.
    assert "chmod" not in run(kiwi, "doctor")


def test_a_skill_whose_file_may_be_executed_is_verified_and_written_again(ready: Kiwi) -> None:
    skills.write(ready.cwd / ".ai")
    ready.run("add", ".ai")
    run(ready, "index")
    assert f"skill:{skills.ID}@1.0.0  verified" in run(ready, "verify")
    run(ready, "sync", "--to", "user")
    (ready.home / ".ai/skills" / skills.ID / "NOTICE").write_text("changed")
    assert "changed" in run(ready, "verify", "--source", "user", expect=3)
    run(ready, "sync", "--to", "user", "--force")
    written = skills.on_disk(ready.home / ".ai/skills" / skills.ID)
    assert {name: data for name, (data, _) in written.items() if name in skills.FILES} == skills.FILES
    installed = ready.cwd / ".agents/skills/pdf-forms"
    run(ready, "install", skills.ID)
    assert skills.on_disk(installed).keys() == {*skills.FILES, "SKILL.md.sig"}
    (installed / "NOTICE").write_text("changed")
    assert ".agents/skills/pdf-forms/NOTICE was edited" in run(ready, "verify", expect=3)


def test_the_documents_of_a_workspace(kiwi: Kiwi) -> None:
    shutil.copytree(ROOT / "tests/data/workspace/decisions", kiwi.cwd / "decisions")
    (kiwi.cwd / "node_modules").mkdir()
    (kiwi.cwd / "link.md").symlink_to("decisions")
    report = json.loads(run(kiwi, "--json", "workspace", "index"))
    assert (bool(report["indexed"]), report["failed"]) == (True, [])
    assert json.loads(run(kiwi, "--json", "workspace", "index"))["indexed"] == []
    found = json.loads(run(kiwi, "--json", "workspace", "search", "why"))
    assert found["hits"][0]["path"].startswith("decisions/")
    run(kiwi, "workspace", "stats")


def test_a_session_of_an_agent(kiwi: Kiwi) -> None:
    (kiwi.cwd / "docs").mkdir()
    (kiwi.cwd / "docs/harbour.md").write_text("# Harbour\n\nShips are unloaded at night.\n")
    run(kiwi, "workspace", "index")
    calls = [
        ("initialize", INITIALIZE),
        ("tools/list", {}),
        ("tools/call", {"name": "workspace_search", "arguments": {"query": "when are ships unloaded"}}),
    ]
    messages = [{"id": number, "method": method, "params": given} for number, (method, given) in enumerate(calls)]
    messages.insert(1, {"method": "notifications/initialized"})
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "mcp"], cwd=kiwi.cwd, env=kiwi.environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin and process.stdout
    process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
    process.stdin.flush()
    answers = {one["id"]: one for one in (json.loads(process.stdout.readline()) for _ in calls)}
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Traceback" in errors) == (0, False), errors
    assert answers[2]["result"]["structuredContent"]["hits"][0]["path"] == "docs/harbour.md"


def test_what_does_not_run_there_says_so(ready: Kiwi) -> None:
    ready.write("knowledge/acme/staging.md", note())
    ready.run("sign", ".ai")
    for command, reason in ((("serve",), "local service"), (("registry", "start"), "embedded Postgres")):
        run_and_refused = subprocess.run(
            [sys.executable, PROGRAM, *command], cwd=ready.cwd, env=ready.environment(), capture_output=True,
            text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert run_and_refused.returncode == 1
        assert f"the {reason} does not run on Windows" in run_and_refused.stderr
