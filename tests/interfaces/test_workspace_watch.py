"""A watch on a real folder, told by the operating system: saves, bursts, checkouts, a root that goes and comes back."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kiwi_rag.sources.workspace.watch import BURST_MS, QUIET_MS
from tests.interfaces.conftest import PATIENCE, Kiwi, wait_until


class Watch:
    """A `kiwi workspace watch` under way, or another watch, and the reports that it gave."""

    def __init__(self, kiwi: Kiwi, *command: str) -> None:
        self.process = kiwi.start("--json", *(command or ("workspace", "watch")))
        self.reports: queue.Queue[dict] = queue.Queue()
        self.notices: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=lambda: self.notices.extend(self.process.stderr), daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.reports.put(json.loads(line))

    def begun(self) -> Watch:
        """Return the watch once it has compared everything for the first time, which begins once it listens."""
        assert self.reports.get(timeout=PATIENCE)
        return self

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)

    def next(self, *changes: str) -> dict:
        """The next report of a run that changed something; with `changes` named, that made one of these."""
        while True:
            report = self.reports.get(timeout=PATIENCE)
            if any(report[change] for change in changes or ("indexed", "removed", "moved")):
                return report


@contextlib.contextmanager
def watching(kiwi: Kiwi) -> Iterator[Watch]:
    watch = Watch(kiwi)
    try:
        yield watch.begun()
        assert watch.process.poll() is None
    finally:
        watch.end()


@pytest.fixture
def repository(kiwi: Kiwi) -> Kiwi:
    (kiwi.cwd / "docs").mkdir()
    (kiwi.cwd / "docs/a.md").write_text("# Alpha\n\nThe first note.\n")
    return kiwi


def git(kiwi: Kiwi, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", *identity, *arguments], cwd=kiwi.cwd, check=True, capture_output=True)


def test_what_is_saved_is_found(repository: Kiwi):
    assert BURST_MS + QUIET_MS < 2_000, "two seconds after the last of many saves at most"
    with watching(repository) as watch:
        (repository.cwd / "docs/b.md").write_text("# Beta\n\nThe quartermaster counts the lifebelts.\n")
        assert watch.next()["indexed"] == ["docs/b.md"]
        # Found by words at once: the exit code is 3 as long as its vector is missing, and 0 after that.
        reply = repository.json("workspace", "search", "who counts the lifebelts", expect=None)
        assert reply["hits"][0]["path"] == "docs/b.md"
        wait_until(lambda: repository.json("workspace", "stats")["embedded"] == 1)
        assert repository.json("workspace", "search", "who counts the lifebelts")["complete"]
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
        assert len(watch.next()["indexed"]) == 300
        git(repository, "checkout", "-q", "main")
        assert len(watch.next()["removed"]) == 300


def test_what_is_left_out_wakes_nobody(repository: Kiwi, tmp_path: Path):
    (repository.cwd / ".gitignore").write_text("build/\n")
    with watching(repository) as watch:
        (repository.cwd / "build").mkdir()
        (repository.cwd / "build/x.md").write_text("# X\n")
        (repository.cwd / "node_modules").mkdir()
        (repository.cwd / "node_modules/y.md").write_text("# Y\n")
        (repository.cwd / "docs/c.md").write_text("# C\n")
        assert watch.next()["indexed"] == ["docs/c.md"]
        (tmp_path / "new").write_text("docs/c.md\n")
        (tmp_path / "new").replace(repository.cwd / ".gitignore")  # at once: an empty one would be another change
        report = watch.next()
        assert (report["removed"], report["indexed"]) == (["docs/c.md"], ["build/x.md"])


def test_it_outlives_the_deletion_of_its_root(repository: Kiwi, tmp_path: Path):
    with watching(repository) as watch:
        wait_until(lambda: repository.json("workspace", "stats")["embedded"] == 1)  # it writes below the root
        shutil.copytree(repository.cwd / "docs", tmp_path / "kept/docs")
        (tmp_path / "kept/docs/new.md").write_text("# New\n\nAfter the flood.\n")
        repository.cwd.rename(tmp_path / "deleted")  # at once: a run that meets half of it pauses before the next
        shutil.rmtree(tmp_path / "deleted")
        wait_until(lambda: any("does not exist; waiting for it" in line for line in watch.notices))
        (tmp_path / "kept").rename(repository.cwd)  # with all its files, so that one run finds them
        assert set(watch.next("indexed")["indexed"]) == {"docs/a.md", "docs/new.md"}
        (repository.cwd / "docs/later.md").write_text("# Later\n")
        assert watch.next()["indexed"] == ["docs/later.md"]
