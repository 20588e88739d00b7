"""A command inside the test process does what one in a process of its own does, and leaves nothing behind."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading
import warnings
from pathlib import Path

import click
import pytest

from kiwi_rag.cli import setup as project
from kiwi_rag.registry import server
from tests.interfaces.conftest import Kiwi, note


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("search", "staging scale-down"),
        ("--json", "list"),
        ("search", "x", "--source", "nowhere"),
        ("show", "acme/none"),
        ("validate", ".ai/knowledge/acme/empty.md"),
        ("no-such-command",),
    ],
    ids=" ".join,
)
def test_output_and_exit_code_are_those_of_a_process(ready: Kiwi, arguments: tuple[str, ...]) -> None:
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    ready.write("knowledge/acme/empty.md", "")
    here, there = (run(*arguments, expect=None) for run in (ready.run, ready.run_process))
    assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)


def state() -> dict[str, object]:
    """What a command of a process's own cannot change here."""
    mask = os.umask(0o077)
    os.umask(mask)
    root = logging.getLogger()
    return {
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "streams": (sys.argv, sys.stdin, sys.stdout, sys.stderr),
        "umask": mask,
        "logging": (root.handlers[:], root.level, logging.getLogger("kiwi_rag").level),
        "warnings": warnings.filters[:],
        "sockets": (socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo),
        "end": (atexit.register, dict(server._user_locks)),
    }


def test_nothing_is_left_behind(ready: Kiwi) -> None:
    from chromadb.api.shared_system_client import SharedSystemClient

    before, threads = state(), set(threading.enumerate())
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    ready.run("publish", "--all")
    ready.run("search", "staging scale-down", "--source", "all")
    assert state() == before
    assert not [thread for thread in set(threading.enumerate()) - threads if thread.name == "kiwi"]
    assert not SharedSystemClient._identifier_to_system
    assert not server.server_state(ready.home / ".ai/registry").running, "its last user has ended"
    held = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
    assert not [path for path in held if path.startswith(str(ready.home.parent))]


def test_the_network_is_closed_and_what_nobody_caught_is_a_traceback(
    kiwi: Kiwi, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def calls_home() -> None:
        socket.create_connection(("192.0.2.1", 80))

    monkeypatch.setattr(project, "init", calls_home)
    done = kiwi.run("init", expect=1)
    assert "Traceback" in done.stderr
    assert "the network is closed in tests" in done.stderr
