"""What each file was when it was last read: kept beside every index, never believed from a cloned repository."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kiwi_rag.errors import StoreBusy, StoreError, UsageError
from kiwi_rag.model.refs import ItemType
from kiwi_rag.sources import file_states
from kiwi_rag.sources.file_states import FileStates, RunState
from kiwi_rag.storage import sqlite
from kiwi_rag.stores.base import SourceStamp


def stamp(path: str = ".ai/directives/acme/deploy.md", size: int = 10) -> SourceStamp:
    return SourceStamp(path, size, 1_700_000_000_000_000_001, "aa", "bb", "gate-1", ItemType.DIRECTIVE, "acme/one", "d")


@pytest.fixture
def states(tmp_path: Path) -> Iterator[FileStates]:
    made = FileStates(tmp_path / "vectors", "owner")
    yield made
    made.close()


def test_stamps_and_the_state_of_the_run_come_back(states: FileStates):
    states.put([stamp(), stamp("b.md", size=2**40)])
    states.put([stamp(size=11)])
    states.set_run_state(RunState.BEGUN)
    states.set_run_state(RunState.COMPLETE, "a" * 40)
    states.set_run_state(RunState.COMPLETE)
    again = FileStates(states.path.parent, "owner")
    assert again.all() == {stamp().path: stamp(size=11), "b.md": stamp("b.md", size=2**40)}
    assert (again.get("b.md"), again.get("c.md")) == (stamp("b.md", size=2**40), None)
    assert (again.run_state(), again.run_commit()) == (RunState.COMPLETE, "a" * 40)
    again.delete("b.md")
    again.delete("b.md")
    assert list(again.all()) == [stamp().path]
    again.clear()
    assert (again.all(), again.run_state()) == ({}, "complete")
    assert (states.path.parent / ".gitignore").read_text() == "*\n"
    again.close()


def test_reading_makes_nothing(states: FileStates):
    assert (states.all(), states.run_state(), states.run_commit()) == ({}, "", "")
    assert not states.path.parent.exists()


def test_several_stamps_are_stored_together_or_not_at_all(states: FileStates):
    states.put([stamp()])
    with pytest.raises(StoreError):
        states.put([stamp("b.md"), stamp("c.md", size="many")])  # type: ignore[arg-type]
    assert list(states.all()) == [stamp().path]


def test_what_came_with_a_cloned_repository_is_not_believed(states: FileStates, tmp_path: Path):
    theirs = FileStates(states.path.parent, "their secret")
    theirs.put([stamp()])
    theirs.close()
    assert states.all() == {}
    elsewhere = FileStates(tmp_path / "elsewhere", "owner")  # of this user, and published by accident
    elsewhere.put([stamp()])
    elsewhere.close()
    (states.path.parent / elsewhere.path.name).write_bytes(elsewhere.path.read_bytes())
    assert states.all() == {}
    states.put([stamp("b.md")])
    assert list(states.all()) == ["b.md"]


def test_a_link_is_not_followed(states: FileStates, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    states.path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="link"):
        states.put([stamp()])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def scribbled(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(20_000))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def of_another_type(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE stamps SET item_type = 'recipe'")


@pytest.mark.parametrize("damage", [scribbled, cut_short, of_another_type])
def test_a_damaged_file_is_moved_aside_and_an_empty_one_takes_its_place(states: FileStates, damage):
    states.put([stamp(f"{number}.md") for number in range(100)])
    states.close()
    damage(states.path)
    assert states.all() == {}
    states.put([stamp()])
    assert list(states.all()) == [stamp().path]
    assert states.path.with_name(f"{states.path.name}.damaged-1").exists()


def test_a_file_of_another_format_is_not_read(states: FileStates, monkeypatch: pytest.MonkeyPatch):
    states.put([stamp()])
    monkeypatch.setattr(file_states, "FORMAT", 999)
    later = FileStates(states.path.parent, "owner")
    assert later.all() == {}
    later.put([stamp("b.md")])
    assert list(later.all()) == ["b.md"]
    assert list(states.all()) == [stamp().path]
    later.close()


def test_threads_and_objects_write_at_the_same_time(states: FileStates):
    others = [states, FileStates(states.path.parent, "owner")]

    def write(number: int) -> None:
        for step in range(10):
            others[number % 2].put([stamp(f"{number}/{step}.md")])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states.all()) == 40
    others[1].close()


def test_a_file_that_stays_locked_is_an_error(states: FileStates, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    states.put([stamp()])
    other = sqlite3.connect(states.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        states.put([stamp("b.md")])
    assert list(states.all()) == [stamp().path]  # reading goes on meanwhile
    other.close()


def test_a_path_that_is_no_unicode_is_an_error_of_its_own(states: FileStates):
    with pytest.raises(UsageError, match="Unicode"):
        states.put([stamp("b\udcff.md")])


WRITER = """
import sys
from pathlib import Path
from kiwi_rag.sources.file_states import FileStates
from tests.unit.test_file_states import stamp
states = FileStates(Path(sys.argv[1]), "owner")
for number in range(100_000):
    states.put([stamp(f"{number}/{half}.md") for half in "ab"])
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_was_acknowledged(states: FileStates):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(states.path.parent)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    done = [int(writer.stdout.readline()) for _ in range(20)]
    writer.kill()
    done += [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    writer.wait()
    written = {path.partition("/")[0] for path in states.all()}
    assert {str(number) for number in done} <= written
    assert len(states.all()) == 2 * len(written)
