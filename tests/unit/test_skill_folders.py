"""The lock file, and folders of installed skills that are replaced as a whole, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import NotFound, StoreFull
from kiwi_rag.integrations.skill_folders import LockedSkill, SkillLock, SkillPlace, write_skill
from kiwi_rag.model import Envelope
from kiwi_rag.signing import keys, statement
from kiwi_rag.storage import atomic
from tests import skills

ADA = keys.generate("ada")
_FEW = ("SKILL.md", "scripts/compare.sh", "references/deep/nested/limits.txt")
OLD = {name: data for name, data in skills.files("1.0.0").items() if name in _FEW}
NEW = {**OLD, "SKILL.md": skills.files("1.1.0")["SKILL.md"], "LICENSE": b"MIT\n"}


def envelope(files: dict[str, bytes]) -> Envelope:
    return ADA.sign(skills.item(files), "kiwi")


def on_disk(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {name: one for name, one in skills.on_disk(folder).items() if name != "SKILL.md.sig"}


def place(folder: Path) -> SkillPlace:
    return SkillPlace("project", folder, folder / "kiwi.lock")


def skill(item_id: str, version: str = "1.0.0") -> LockedSkill:
    return LockedSkill(item_id, version, "0" * 64, "1" * 64, 'Ada "the first" <ada@acme>', "kiwi", ("agents", "claude"))


def test_a_lock_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    lock = SkillLock("acme", (skill("acme/a"), skill("b")))
    place(tmp_path).write_lock(lock)
    assert place(tmp_path).read_lock() == lock
    place(tmp_path).write_lock(SkillLock())
    assert place(tmp_path).read_lock() == SkillLock()


def test_entries_are_found_by_id_and_name_and_stay_sorted() -> None:
    one, other = skill("zoo/a"), skill("acme/b")
    lock = SkillLock("acme").with_skill(one).with_skill(other)
    assert lock.skills == (other, one)
    assert lock.get("a") == lock.get("zoo/a") == lock.require("a") == one
    assert lock.with_skill(skill("zoo/a", "2.0.0")).skills == (other, skill("zoo/a", "2.0.0"))
    assert lock.with_skill(skill("acme/a")).skills == (skill("acme/a"), other)
    assert lock.without(one).skills == (other,)
    assert [lock.complete(name) for name in ("a", "c", "zoo/c")] == ["zoo/a", "acme/c", "zoo/c"]
    assert SkillLock().complete("c") == "c"
    with pytest.raises(NotFound):
        lock.require("c")


def test_a_written_folder_is_as_it_was_signed(tmp_path: Path) -> None:
    folder = tmp_path / "skills/pdf-forms"
    for files in (OLD, NEW):
        signed = envelope(files)
        write_skill(folder, signed, files)
        assert on_disk(folder) == {name: (data, name in skills.EXECUTABLES) for name, data in files.items()}
        assert statement.read_signature_file((folder / "SKILL.md.sig").read_bytes()) == signed
        assert place(tmp_path).check(folder, skills.ID) == signed
    assert [*folder.parent.iterdir()] == [folder]
    assert place(tmp_path).check(folder.with_name("other"), skills.ID) is None


def _steps(act: Callable[[], None]) -> Any:
    """Call `act` before each step that `write_skill` takes on the disk."""

    def stepping(name: str, real: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            act()
            return real(*arguments, **options)

        return name, step

    return [
        (owner, *stepping(name, getattr(owner, name)))
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "rename"), (atomic, "_exchange"))
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="the exchange of two folders is one system call on Linux")
def test_kill_9_at_any_step_leaves_the_old_folder_or_the_new_one(tmp_path: Path) -> None:
    # In a new Python: a fork of this process, which has threads, may wait for ever for a lock that one of them holds.
    program = f"import sys; from {__name__} import kill_at_each_step; kill_at_each_step(sys.argv[1])"
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True)
    states = set()
    for folder in tmp_path.glob("*/pdf-forms"):
        found = {name: data for name, (data, _) in on_disk(folder).items()}
        states.add("old" if found == OLD else "new" if found == NEW else f"mixed in {folder}")
        assert place(folder.parent).check(folder, skills.ID) is not None
    assert len([*tmp_path.iterdir()]) > len(NEW) + 1
    assert states == {"old", "new"}


def kill_at_each_step(home: str) -> None:
    """Write the new files of a skill over the old ones in processes that are killed before one step each."""
    before, after = envelope(OLD), envelope(NEW)
    for step in count():
        folder = Path(home, str(step), "pdf-forms")
        write_skill(folder, before, OLD)
        if not _killed_at(step, partial(write_skill, folder, after, NEW)):
            return


def _killed_at(step: int, work: Callable[[], None]) -> bool:
    """Run `work` in a process that is killed before a step; return whether it came to that."""
    child = os.fork()
    if not child:
        taken = count()
        for owner, name, stepping in _steps(lambda: next(taken) == step and os.kill(os.getpid(), signal.SIGKILL)):
            setattr(owner, name, stepping)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_disk_that_is_full_at_any_step_leaves_the_old_folder(tmp_path: Path) -> None:
    folder, signed = tmp_path / "pdf-forms", envelope(NEW)
    write_skill(folder, envelope(OLD), OLD)
    before = skills.on_disk(folder)
    for step in range(len(NEW)):
        taken = count()

        def fill(step: int = step, taken: Any = taken) -> None:
            if next(taken) == step:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.MonkeyPatch.context() as full, pytest.raises(StoreFull, match="no space left"):
            for patch in _steps(fill):
                full.setattr(*patch)
            write_skill(folder, signed, NEW)
        assert skills.on_disk(folder) == before
        assert [*tmp_path.iterdir()] == [folder]
