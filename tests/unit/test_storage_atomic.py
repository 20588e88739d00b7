"""Atomic writes: the old content or the new, the right mode from the start, no link followed, nothing left behind."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from kiwi_rag.errors import StoreError
from kiwi_rag.storage.atomic import atomic_file, atomic_write, create_file, write_user_files


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_an_atomic_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with pytest.raises(TypeError):
        atomic_write(path, "not bytes")  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError), atomic_file(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
@pytest.mark.parametrize("write", [atomic_write, create_file])
def test_a_disk_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, write) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "file", b"new")
    assert names(tmp_path) == []


@pytest.mark.parametrize("write", [atomic_write, create_file])
def test_the_mode_is_set_before_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    sizes = []
    set_mode = os.fchmod

    def note(descriptor: int, mode: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        set_mode(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", note)
    for mode in (0o600, 0o644):
        write(tmp_path / f"{mode:o}", b"content", mode=mode)
        assert mode_of(tmp_path / f"{mode:o}") == mode
    assert sizes == [0, 0]


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"kept")
    for name in ("kept", "nothing"):
        (tmp_path / "link").symlink_to(name)
        atomic_write(tmp_path / "link", b"new")
        assert not (tmp_path / "link").is_symlink()
        (tmp_path / "link").unlink()
    assert (names(tmp_path), (tmp_path / "kept").read_bytes()) == (["kept"], b"kept")


def test_rights_are_kept_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_bytes(b"old")
    path.chmod(0o750)
    write_user_files({path: b"new"}, keep_rights=True)
    assert (mode_of(path), path.read_bytes()) == (0o750, b"new")
    write_user_files({path: b"newer"})
    assert mode_of(path) == 0o644
    write_user_files({tmp_path / "deep/new": b"x"}, keep_rights=True)
    assert mode_of(tmp_path / "deep/new") == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_leaves_a_users_file_to_the_user(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 12345, 12345)
    atomic_write(path, b"new", keep_rights=True)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12345)


def test_file_and_folder_are_on_the_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []

    def note(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))

    monkeypatch.setattr(os, "fsync", note)
    atomic_write(tmp_path / "a", b"x")
    create_file(tmp_path / "b", b"x")
    assert synced == [False, True] * 2, "the content before the name"
    atomic_write(tmp_path / "a", b"x", durable=False)
    assert synced[4:] == [False]


def test_a_user_file_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        write_user_files({tmp_path / "file/below": b"x"})


@pytest.mark.parametrize("hard_links", [True, False], ids=["hard links", "no hard links"])
def test_what_stands_there_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    if not hard_links:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "deep/file"
    assert create_file(path, b"first")
    assert not create_file(path, b"second")
    (tmp_path / "deep/link").symlink_to("nothing")
    assert not create_file(tmp_path / "deep/link", b"x")
    assert path.read_bytes() == b"first"
    assert names(tmp_path / "deep") == ["file", "link"]
    monkeypatch.setattr(os.path, "lexists", lambda _: False)  # it came after the first look
    assert not hard_links or not create_file(path, b"third")
    assert path.read_bytes() == b"first"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads which files this process has open")
def test_a_new_file_is_closed_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, still_open = os.link, []

    def note(source: Path, target: Path) -> None:
        inode = Path(source).stat().st_ino
        still_open.append([fd for fd in Path("/proc/self/fd").iterdir() if fd.exists() and fd.stat().st_ino == inode])
        link(source, target)

    monkeypatch.setattr(os, "link", note)
    assert create_file(tmp_path / "file", b"x")
    assert still_open == [[]], "closing it later would drop the locks that SQLite holds on it"


def test_of_many_at_once_one_makes_the_file(tmp_path: Path) -> None:
    made: list[int] = []
    start = threading.Barrier(8)

    def make(number: int) -> None:
        start.wait()
        if create_file(tmp_path / "file", str(number).encode()):
            made.append(number)

    threads = [threading.Thread(target=make, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(number).encode() for number in made] == [(tmp_path / "file").read_bytes()]
    assert names(tmp_path) == ["file"]
