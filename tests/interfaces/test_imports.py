"""What commands do not import: libraries that only others need. And what a search imports in which thread."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from tests.interfaces.conftest import Kiwi, note
from tests.interfaces.test_mcp_start import IMPORTS_BESIDE_THE_MAIN_THREAD, with_code
from tests.shared import ROOT

_COMMANDS = """
import json, sys
from kiwi_rag.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as end:
        assert not end.code, end.code
    packages = {name.partition(".")[0] for name in sys.modules}
    print("imported", *sorted(packages.union(sys.modules)), flush=True)
"""
LOCAL = (("--version",), ("list",), ("sign", ".ai"), ("index",), ("verify",), ("workspace", "index"))
SERVERS = {
    "chromadb",
    "httpx",
    "mcp",
    "onnx",
    "psycopg",
    "pydantic",
    "qdrant_client",
    "sqlalchemy",
    "supabase",
    "weaviate",
}


REMOTE = {"kiwi_rag.endpoint", "kiwi_rag.answers"}
"""Modules for what leaves this machine."""


def imported(kiwi: Kiwi, *commands: Sequence[str]) -> list[set[str]]:
    """Run commands in one new Python; return the packages and modules that have been imported at the end of each."""
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, json.dumps(commands)],
        cwd=kiwi.cwd, env=kiwi.environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("imported ")]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Kiwi:
    """A user with one item and one document, both indexed."""
    folder = tmp_path_factory.mktemp("indexed")
    (folder / "home").mkdir()
    user = Kiwi(folder / "home", folder).at(folder / "project")
    user.run("init")
    user.run("keys", "new")
    user.write("knowledge/acme/staging.md", note())
    user.run("add", ".ai")
    (user.cwd / "harbour.md").write_text("# Harbour\n\nShips are unloaded at night.\n")
    user.run("workspace", "index")
    return user


@pytest.fixture(scope="module")
def imported_locally(indexed: Kiwi) -> dict[tuple[str, ...], set[str]]:
    """What has been imported after each of the commands that need no server, run one after the other."""
    return dict(zip(LOCAL, imported(indexed, *LOCAL), strict=True))


def test_searches_import_nothing_for_servers(indexed: Kiwi) -> None:
    # A text that no cache of vectors knows, so that the model is loaded.
    (found,) = imported(indexed, ("--json", "search", f"staging {uuid4()}", "--source", "project"))
    assert {"kiwi_rag", "onnxruntime"} <= found, "it went as far as the model"
    assert found & (SERVERS | REMOTE) == set()
    (found,) = imported(indexed, ("--json", "workspace", "search", f"harbour {uuid4()}"))
    assert {"kiwi_rag", "onnxruntime"} <= found, "it went as far as the model"
    assert found & (SERVERS | REMOTE) == set()


@pytest.mark.parametrize("command", LOCAL, ids=" ".join)
def test_commands_without_a_server_import_nothing_for_servers(
    imported_locally: dict[tuple[str, ...], set[str]], command: tuple[str, ...]
) -> None:
    assert imported_locally[command] & SERVERS == set()


@pytest.mark.parametrize("command", [["search"], ["workspace", "search"]], ids=" ".join)
def test_no_thread_imports_modules_of_kiwi_while_the_model_is_loaded(
    indexed: Kiwi, tmp_path: Path, command: list[str]
) -> None:
    """The main thread imports Kiwi's meanwhile, and two that import from one package may wait for each other."""
    seen = tmp_path / "imports"
    watched = with_code(indexed, tmp_path, IMPORTS_BESIDE_THE_MAIN_THREAD, KIWI_TEST_IMPORTS=str(seen))
    watched.run_process(*command, f"ships at night {uuid4()}")
    beside = seen.read_text().splitlines() if seen.exists() else []
    # Which keys lost trust is read in a thread too, but after the query was embedded.
    read_later = {"kiwi_rag.monitor", "kiwi_rag.monitor.pinned_state"}
    assert {name for _, name in map(str.split, beside) if name.startswith("kiwi_rag")} <= read_later
