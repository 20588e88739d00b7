"""`kiwi` as a user runs it, in an empty home, with every socket but loopback closed.

`Kiwi.run` runs a command inside the test process; `start` and `talk` fork a process for it, for what is about
processes: signals, pipes, two at once; `run_process` and `start_python` start a new Python.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from kiwi_rag import endpoint, retry
from tests.embedding_server import EmbeddingServer
from tests.interfaces import in_process
from tests.interfaces.forked import NO_NETWORK, ForkedProcess
from tests.once import made_once
from tests.shared import ROOT

PASSPHRASE = "correct horse"
PATIENCE = 120.0
"""Seconds after which something that has to happen counts as not happening: far more than a busy machine needs."""


def wait_until(condition: Callable[[], object]) -> None:
    """Return once `condition` holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)


@dataclass
class Kiwi:
    """One user's home and current project folder."""

    home: Path
    cwd: Path
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "KIWI_CACHE_DIR", "TMPDIR", "LANG") if name in os.environ}
        kept.setdefault("KIWI_CACHE_DIR", str(ROOT / ".cache/kiwi"))
        return {
            **kept,
            "HOME": str(self.home),
            "KIWI_KEY_PASSPHRASE": PASSPHRASE,
            "KIWI_DEADLINE": "60",  # seconds; on a busy machine a search may take longer than the default
            "PYTHONPATH": str(NO_NETWORK),
            "PYTHONWARNINGS": "ignore",
            **self.extra,
        }

    def start(self, *arguments: str, **streams: int) -> ForkedProcess:
        """Start it in a process of its own, which has its libraries already."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        return ForkedProcess(arguments, self.environment(), self.cwd, **given)

    def start_python(self, *arguments: str, **streams: int) -> subprocess.Popen[str]:
        """Start it in a new Python, for what is about its start."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        command = [sys.executable, "-m", "kiwi_rag.cli", *arguments]
        return subprocess.Popen(command, cwd=self.cwd, env=self.environment(), text=True, **given)

    def talk(self, *arguments: str) -> ForkedProcess:
        """Start it with a stdin to write to."""
        return self.start(*arguments, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def run(self, *arguments: str, expect: int | None = 0, stdin: bytes = b"") -> subprocess.CompletedProcess:
        """Run a command to its end inside this process."""
        return _expected(expect, arguments, *in_process.run(arguments, self.environment(), self.cwd, stdin))

    def run_process(self, *arguments: str, expect: int | None = 0) -> subprocess.CompletedProcess:
        """Run a command to its end in a new Python."""
        return _ended(self.start_python(*arguments), expect, arguments)

    def run_forked(self, *arguments: str, expect: int | None = 0) -> subprocess.CompletedProcess:
        """Run a command to its end in a process of its own, which has its libraries already."""
        return _ended(self.start(*arguments), expect, arguments)

    def json(self, *arguments: str, expect: int | None = 0):
        return json.loads(self.run("--json", *arguments, expect=expect).stdout)

    def at(self, cwd: Path) -> Kiwi:
        cwd.mkdir(parents=True, exist_ok=True)
        return Kiwi(self.home, cwd, self.extra)

    def write(self, relative: str, text: str | bytes) -> Path:
        path = self.cwd / ".ai" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    @property
    def vectors(self) -> Path:
        """The index that this user has of the project."""
        token = (self.home / ".ai/owner-token").read_bytes()
        return self.cwd / ".ai/vectors" / hashlib.sha256(token).hexdigest()[:12]

    def copy(self, ai_dir: Path) -> None:
        shutil.copytree(ai_dir, self.cwd / ".ai", dirs_exist_ok=True)
        for path in (self.cwd / ".ai").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


def with_server(kiwi: Kiwi, server: EmbeddingServer) -> Kiwi:
    """The same user, whose vectors are made by `server` and are in no cache yet."""
    chosen = {
        "KIWI_CACHE_DIR": str(kiwi.home / "cache"), "KIWI_EMBEDDING_PROVIDER": "openai",
        "KIWI_EMBEDDING_BASE_URL": f"{server.url}/v1", "KIWI_EMBEDDING_MODEL": "some-model",
        "KIWI_EMBEDDING_API_KEY": "sk-nobody-may-see-this",
    }  # fmt: skip
    return replace(kiwi, extra={**kiwi.extra, **chosen})


def _ended(process: subprocess.Popen[str] | ForkedProcess, expect: int | None, arguments: tuple[str, ...]):
    out, err = process.communicate(timeout=300)
    return _expected(expect, arguments, process.returncode, out, err)


def _expected(expect: int | None, arguments: tuple[str, ...], code: int, out: str, err: str):
    assert expect in (None, code), f"kiwi {' '.join(arguments)}: {code}\n{out}\n{err}"
    return subprocess.CompletedProcess(arguments, code, out, err)


@pytest.fixture
def kiwi(tmp_path: Path):
    """A user with an empty home, in an empty project folder."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "project").mkdir()
    tmp_path.chmod(0o755)
    yield (user := Kiwi(home, tmp_path / "project"))
    if (home / ".ai/registry").exists():
        user.run("registry", "stop", expect=None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands inside this process try again at once what failed."""
    patient = SimpleNamespace(sleep=lambda _: asyncio.sleep(0), get_running_loop=asyncio.get_running_loop)
    monkeypatch.setattr(retry, "asyncio", patient)
    monkeypatch.setattr(endpoint, "random", SimpleNamespace(uniform=lambda *_: 0.0))


@pytest.fixture
def ready(kiwi: Kiwi) -> Kiwi:
    """A user with a project and a key."""
    kiwi.run("init")
    kiwi.run("keys", "new", "--principal", "ada@acme.example")
    return kiwi


@pytest.fixture
def author(tmp_path: Path) -> Kiwi:
    """A user with one signed skill, `tests.interfaces.test_skill.FILES`."""
    return author_in(tmp_path)


def author_in(folder: Path) -> Kiwi:
    """Make a user with one signed skill in an empty folder."""
    folder.chmod(0o755)
    shutil.copytree(made_once("author", _sign_skill), folder, dirs_exist_ok=True)
    user = Kiwi(folder / "home", folder / "project")
    user.run("index")  # nothing is embedded
    return user


def _sign_skill(folder: Path) -> None:
    from tests.interfaces.test_skill import write_skill

    for name in ("home", "project"):
        (folder / name).mkdir()
    user = Kiwi(folder / "home", folder / "project")
    user.run("init")
    user.run("keys", "new", "--principal", "ada@acme.example")
    write_skill(user)
    user.run("add", ".ai/skills")


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Kiwi:
    """A user with the example items, signed and indexed; tests leave items and index as they are."""
    folder = tmp_path_factory.mktemp("acme")
    folder.chmod(0o755)
    shutil.copytree(made_once("acme", _index_acme), folder, dirs_exist_ok=True)
    user = Kiwi(folder / "home", folder / "project")
    user.run("index")  # nothing is embedded; where a project was indexed last is noted by its path
    return user


def _index_acme(folder: Path) -> None:
    for name in ("home", "project"):
        (folder / name).mkdir()
    user = Kiwi(folder / "home", folder / "project")
    user.run("init")
    user.run("keys", "new", "--principal", "ada@acme.example")
    user.copy(ROOT / "examples/acme/.ai")
    user.run("sign", ".ai")
    user.run("index")


# Callers of a module's own user, whose service runs.


def with_token(user: Kiwi, role: str) -> Iterator[httpx.Client]:
    """A program with a token of this role."""
    url = service_url(user)
    token = user.run("serve", "token", "new", f"a-{role}", "--role", role).stdout.strip()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client
    user.run("serve", "token", "remove", f"a-{role}")


@contextmanager
def signed_in(user: Kiwi) -> Iterator[httpx.Client]:
    """A browser that `kiwi ui` has opened, which sends forms from the service's own pages."""
    url = service_url(user)
    with httpx.Client(base_url=url, headers={"Origin": url}, follow_redirects=True, timeout=60) as client:
        first = client.get(user.run("ui", "--no-browser").stdout.strip())
        assert (first.status_code, str(first.url)) == (200, f"{url}/")
        yield client


def service_url(user: Kiwi) -> str:
    return user.json("status")["service"]["url"]


@pytest.fixture(scope="module")
def url(user: Kiwi) -> str:
    return service_url(user)


@pytest.fixture(scope="module")
def reader(user: Kiwi) -> Iterator[httpx.Client]:
    yield from with_token(user, "reader")


@pytest.fixture(scope="module")
def admin(user: Kiwi) -> Iterator[httpx.Client]:
    yield from with_token(user, "admin")


@pytest.fixture(scope="module")
def browser(user: Kiwi) -> Iterator[httpx.Client]:
    with signed_in(user) as client:
        yield client


NOTE = """---
title: How we cut the staging cluster's bill
description: Night-time scale-down of staging, what it saves and how to pause it.
version: "{version}"
category: acme
author: ada
tags: [cost, staging]
---

# Night-time scale-down

Every evening at eight the staging cluster shrinks to one node. {extra}
"""


def note(version: str = "1.0.0", extra: str = "It wakes at seven.") -> str:
    """Return a knowledge entry that the gate admits."""
    return NOTE.format(version=version, extra=extra)
