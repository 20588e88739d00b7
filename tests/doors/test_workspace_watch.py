"""A watch on a real folder, told by the operating system: saves, bursts, checkouts, a root that goes and comes back."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from tests.doors.conftest import Kiwi


class Watch:
    """A `kiwi workspace watch` under way, and the reports that it gave."""

    def __init__(self, kiwi: Kiwi) -> None:
        self.process = kiwi.start("--json", "workspace", "watch")
        self.reports: queue.Queue[dict] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.reports.put(json.loads(line))

    def next(self, seconds: float = 30) -> dict:
        """The next report of a run that changed something."""
        until = time.monotonic() + seconds
        while True:
            report = self.reports.get(timeout=max(0.01, until - time.monotonic()))
            if report["indexed"] or report["removed"] or report["moved"]:
                return report


@contextlib.contextmanager
def watching(kiwi: Kiwi) -> Iterator[Watch]:
    watch = Watch(kiwi)
    try:
        assert watch.reports.get(timeout=60)  # the first look at everything
        time.sleep(0.3)
        yield watch
        assert watch.process.poll() is None
    finally:
        watch.process.send_signal(signal.SIGTERM)
        watch.process.communicate(timeout=30)


@pytest.fixture
def repository(kiwi: Kiwi) -> Kiwi:
    (kiwi.cwd / "docs").mkdir()
    (kiwi.cwd / "docs/a.md").write_text("# Alpha\n\nThe first note.\n")
    return kiwi


def git(kiwi: Kiwi, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", *identity, *arguments], cwd=kiwi.cwd, check=True, capture_output=True)


def test_what_is_saved_is_found_within_two_seconds(repository: Kiwi):
    with watching(repository) as watch:
        started = time.monotonic()
        (repository.cwd / "docs/b.md").write_text("# Beta\n\nThe quartermaster counts the lifebelts.\n")
        report = watch.next()
        assert (report["indexed"], time.monotonic() - started < 2) == (["docs/b.md"], True)
        hits = repository.json("workspace", "search", "who counts the lifebelts")["hits"]
        assert hits[0]["path"] == "docs/b.md"
        (repository.cwd / "docs/b.md").unlink()
        assert watch.next()["removed"] == ["docs/b.md"]
        (repository.cwd / "docs").rename(repository.cwd / "papers")
        assert watch.next()["moved"] == [{"path": "papers/a.md", "from": "docs/a.md"}]


def test_a_checkout_of_hundreds_of_files_is_one_run(repository: Kiwi):
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "one")
    git(repository, "checkout", "-q", "-b", "many")
    for n in range(300):
        (repository.cwd / f"docs/{n:03d}.txt").write_text(f"pier {n}\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "two")
    git(repository, "checkout", "-q", "main")
    with watching(repository) as watch:
        git(repository, "checkout", "-q", "many")
        assert len(watch.next(60)["indexed"]) == 300
        git(repository, "checkout", "-q", "main")
        assert len(watch.next()["removed"]) == 300


def test_what_is_left_out_wakes_nobody(repository: Kiwi):
    (repository.cwd / ".gitignore").write_text("build/\n")
    with watching(repository) as watch:
        (repository.cwd / "build").mkdir()
        (repository.cwd / "build/x.md").write_text("# X\n")
        (repository.cwd / "node_modules").mkdir()
        (repository.cwd / "node_modules/y.md").write_text("# Y\n")
        (repository.cwd / "docs/c.md").write_text("# C\n")
        assert watch.next()["indexed"] == ["docs/c.md"]
        (repository.cwd / ".gitignore").write_text("docs/c.md\n")
        report = watch.next()
        assert (report["removed"], report["indexed"]) == (["docs/c.md"], ["build/x.md"])


def test_it_outlives_the_deletion_of_its_root(repository: Kiwi, tmp_path):
    with watching(repository) as watch:
        shutil.copytree(repository.cwd / "docs", tmp_path / "kept")
        shutil.rmtree(repository.cwd)
        time.sleep(1.2)
        repository.cwd.mkdir()
        shutil.copytree(tmp_path / "kept", repository.cwd / "docs")
        (repository.cwd / "docs/new.md").write_text("# New\n\nAfter the flood.\n")
        assert set(watch.next()["indexed"]) == {"docs/a.md", "docs/new.md"}
        (repository.cwd / "docs/later.md").write_text("# Later\n")
        assert watch.next()["indexed"] == ["docs/later.md"]
