"""`kiwi workspace hooks` as a user runs it: git merges and checks out, and the real `kiwi` finds what came."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.interfaces.conftest import PATIENCE, Kiwi


@pytest.fixture
def repository(kiwi: Kiwi) -> Kiwi:
    """A user with an indexed repository, whose PATH has a `kiwi` that is this one."""
    program = kiwi.home / "bin/kiwi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kiwi_rag.cli "$@"\n')
    program.chmod(0o755)
    names = {f"GIT_{who}_{what}": "ada" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kiwi.extra |= {"PATH": f"{program.parent}:{kiwi.environment()['PATH']}", "GIT_CONFIG_NOSYSTEM": "1", **names}
    git(kiwi, "init", "-q", "-b", "main")
    commit(kiwi, "docs/harbour.md", "# Harbour\n\nShips are unloaded at night.\n")
    kiwi.run("workspace", "index")
    return kiwi


def git(kiwi: Kiwi, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=kiwi.cwd, env=kiwi.environment(), check=True, timeout=60)


def commit(kiwi: Kiwi, path: str, text: str) -> None:
    file = kiwi.cwd / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    git(kiwi, "add", path)
    git(kiwi, "commit", "-q", "-m", path)


def documents(kiwi: Kiwi, wanted: int) -> int:
    """Wait for a number of documents."""
    found, deadline = -1, time.monotonic() + PATIENCE
    while found != wanted and time.monotonic() < deadline:
        wait_for_runs(kiwi)
        found = kiwi.json("workspace", "stats")["documents"]
    return found


def wait_for_runs(kiwi: Kiwi) -> None:
    state = kiwi.cwd / ".git/kiwi"
    for _ in range(100):
        time.sleep(0.1)
        if not (state / "lock").exists() and not (state / "again").exists():
            break


def test_what_a_merge_brings_is_found_and_what_a_checkout_takes_away_is_not(repository: Kiwi) -> None:
    git(repository, "checkout", "-q", "-b", "tide")
    commit(repository, "docs/tide.md", "# Tide\n\nThe sluice opens twice a day.\n")
    git(repository, "checkout", "-q", "main")
    told = repository.run("workspace", "hooks")
    assert "set core.hooksPath to .githooks" in told.stderr
    git(repository, "merge", "-q", "tide")
    assert documents(repository, 2) == 2, (repository.cwd / ".git/kiwi/log").read_text()
    assert repository.json("workspace", "search", "when does the sluice open")["hits"][0]["path"] == "docs/tide.md"
    git(repository, "checkout", "-q", "HEAD~1")
    assert documents(repository, 1) == 1
    assert "1 removed" in (repository.cwd / ".git/kiwi/log").read_text()
    repository.run("workspace", "hooks", "--remove")
    assert not (repository.cwd / ".githooks").exists()
    assert "ooksPath" not in (repository.cwd / ".git/config").read_text()
