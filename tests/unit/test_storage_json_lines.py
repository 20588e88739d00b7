"""Rotating JSON lines: rotation by one process alone, folders and files that are not written to, and full disks."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from kiwi_rag.storage.json_lines import RotatingLines


def held(lines: RotatingLines) -> list[list[bytes]]:
    return [data.splitlines() for data in lines.contents()]


def test_a_full_file_is_moved_aside_by_one_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = RotatingLines(tmp_path / "log", 20)
    lines.append(b"old old old old\n")
    lock = fcntl.flock

    def other_is_first(folder: int, kind: int) -> None:
        (tmp_path / "log").rename(tmp_path / "log.1")
        lines.append(b"other\n")
        lock(folder, kind)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", other_is_first)
        lines.append(b"ours ours\n")
    assert held(lines) == [[b"other", b"ours ours"], [b"old old old old"]]
    folder = os.open(tmp_path, os.O_RDONLY)
    lock(folder, fcntl.LOCK_EX)
    lines.append(b"while another is at it\n")
    assert held(lines)[0] == [b"other", b"ours ours", b"while another is at it"]
    os.close(folder)


def test_so_many_older_files_are_kept_and_no_more(tmp_path: Path) -> None:
    lines = RotatingLines(tmp_path / "log", 4, older=2)
    for number in range(10):
        lines.append(b"%d\n" % number)
    assert held(lines) == [[b"8", b"9"], [b"6", b"7"], [b"4", b"5"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2"]


def test_a_file_that_is_moved_aside_while_it_is_read_comes_once(tmp_path: Path) -> None:
    lines = RotatingLines(tmp_path / "log", 4)
    lines.append(b"one\n")
    contents = lines.contents()
    assert next(contents) == b"one\n"
    lines.append(b"two\n")
    assert list(contents) == []
    assert held(lines) == [[b"two"], [b"one"]]


def test_half_a_line_that_a_full_disk_took_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = RotatingLines(tmp_path / "log", 1000)
    lines.append(b"whole\n")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[:4]))
        lines.append(b"halved\n")
    lines.append(b"whole again\n")
    assert held(lines) == [[b"whole", b"whole again"]]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_file_is_neither_written_nor_moved_nor_read(tmp_path: Path, make) -> None:
    lines = RotatingLines(tmp_path / "log", 1000)
    make(lines.path)
    with pytest.raises(OSError):
        lines.append(b"x\n")
    assert b"".join(lines.contents()) == b""
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_private_folder_is_closed_and_may_be_no_link(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("open")
    RotatingLines(tmp_path / "link/log", 1000).append(b"x\n")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755
    with pytest.raises(OSError):
        RotatingLines(tmp_path / "link/log", 1000, private=True).append(b"y\n")
    RotatingLines(tmp_path / "open/log", 1000, private=True).append(b"z\n")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o700
    assert (tmp_path / "open/log").read_bytes() == b"x\nz\n"
    assert stat.S_IMODE((tmp_path / "open/log").stat().st_mode) == 0o600
