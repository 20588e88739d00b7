"""The first requests of a session, sent at once: none fails because another one imports the same modules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.examples import MULTIPLE
from tests.interfaces.conftest import Kiwi

INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
REF = "directive:acme/deploy/rollback"
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("initialize", INITIALIZE),
    ("resources/list", {}),
    ("tools/call", {"name": "kiwi_search", "arguments": {"query": "undo a bad release"}}),
    ("tools/call", {"name": "kiwi_get", "arguments": {"ref": REF}}),
    ("resources/read", {"uri": "kiwi://project/directive/acme/deploy/rollback"}),
    ("tools/call", {"name": "kiwi_status", "arguments": {}}),
    ("tools/call", {"name": "workspace_index_stats", "arguments": {}}),
]
# Imports of the package that both searching and listing use take long here, so that the two meet.
SLOW_IMPORTS = """
import sys, time
sys.addaudithook(lambda event, given: time.sleep(0.1 * (event == "import" and given[0].startswith("kiwi_rag.search"))))
"""
IMPORTS_BESIDE_THE_MAIN_THREAD = """
import importlib._bootstrap as bootstrap, os, sys, threading
load = bootstrap._find_and_load
def is_loaded(name):
    return name in sys.modules and not getattr(sys.modules[name].__spec__, "_initializing", False)
def find_and_load(name, importer):
    beside = threading.current_thread() is not threading.main_thread()
    shared = name.partition(".")[0] in ("kiwi_rag", "cryptography", "rfc8785")
    if shared and beside and not is_loaded(name):
        with open(os.environ["KIWI_TEST_IMPORTS"], "a") as file:
            file.write(f"{threading.current_thread().name} {name}\\n")
    return load(name, importer)
bootstrap._find_and_load = find_and_load
"""


# What imports more: checks of drafts of every type, and a search of a registry, though there is none.
IN_THREADS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "kiwi_search", "arguments": {"query": "undo a bad release", "source": "all"}}),
    *(
        ("tools/call", {"name": "kiwi_validate", "arguments": {"item_type": kind, "item_id": "a/b", "content": "x"}})
        for kind in ("directive", "script", "knowledge", "skill")
    ),
]


def answered(kiwi: Kiwi, *requests: tuple[str, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Send requests at once to a server of its own; return the answers by number, from 0."""
    messages = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
        for number, (method, given) in enumerate(requests)
    ]
    messages.insert(1, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    process = kiwi.start_python("mcp", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
    process.stdin.flush()
    given = [json.loads(process.stdout.readline()) for _ in requests]
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    return {answer["id"]: answer for answer in given}


def with_code(kiwi: Kiwi, folder: Path, code: str, **variables: str) -> Kiwi:
    """The same user, whose Python runs `code` when it starts."""
    (folder / "sitecustomize.py").write_text(code)
    return Kiwi(kiwi.home, kiwi.cwd, {**variables, "PYTHONPATH": str(folder)})


def errors(answers: dict[int, dict[str, Any]]) -> list[Any]:
    return [
        answer
        for answer in answers.values()
        if "error" in answer or (answer["result"].get("isError") and answer["id"] != 7)
    ]  # the workspace is not indexed, which 7 says


@pytest.mark.parametrize("run", range(max(1, int(MULTIPLE))))
def test_resources_can_be_listed_right_after_the_start(acme: Kiwi, run: int):
    answers = answered(acme, *REQUESTS[:2])
    assert errors(answers) == []
    assert len(answers[1]["result"]["resources"]) == 52


def test_listing_and_searching_at_once_import_the_same_package(acme: Kiwi, tmp_path: Path):
    answers = answered(with_code(acme, tmp_path, SLOW_IMPORTS), *REQUESTS[:3])
    assert errors(answers) == []
    assert answers[2]["result"]["structuredContent"]["hits"]


def test_calls_import_nothing_that_several_threads_use(acme: Kiwi, tmp_path: Path):
    """Two threads that import from one package may each wait for the other."""
    seen = tmp_path / "imports"
    slow = with_code(acme, tmp_path, IMPORTS_BESIDE_THE_MAIN_THREAD, KIWI_TEST_IMPORTS=str(seen))
    assert errors(answered(slow, *REQUESTS, *IN_THREADS)) == []
    assert not seen.exists(), seen.read_text()
