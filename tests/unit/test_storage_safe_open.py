"""Reading files that others may have put there: no link, no pipe, no more than the limit."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.storage.safe_open import NotRegularFile, read_below, read_linked, read_optional, read_regular


def test_a_file_is_never_read_by_way_of_a_link(tmp_path: Path):
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("outside")
    (tmp_path / "root/a.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "root/up").symlink_to(tmp_path)
    for path in ("a.md", "up/secret.md"):
        with pytest.raises(SourceUnreadable, match="link"):
            read_below(tmp_path / "root", path, 100)
    os.mkfifo(tmp_path / "root/pipe")
    with pytest.raises(SourceUnreadable, match="regular"):
        read_below(tmp_path / "root", "pipe", 100)
    assert read_optional(tmp_path / "root/a.md", 100) is None
    assert read_optional(tmp_path / "root/pipe", 100) is None


def test_a_folder_that_is_exchanged_for_a_link_lets_nothing_out(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "d", outside):
        folder.mkdir(parents=True)
        (folder / "f").write_text(folder.name)
    (root / "l").symlink_to(outside)
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            (root / "d").rename(root / "x")
            (root / "l").rename(root / "d")
            (root / "d").rename(root / "l")
            (root / "x").rename(root / "d")

    thread = threading.Thread(target=exchange)
    thread.start()
    seen = set()
    try:
        for _ in range(5_000):
            try:
                seen.add(read_below(root, "d/f", 100)[0])
            except (FileNotFoundError, SourceUnreadable):
                continue
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"d"}


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_socket])
def test_what_is_no_file_is_never_read_and_not_waited_for(tmp_path: Path, make) -> None:
    make(tmp_path / "x")
    with pytest.raises((NotRegularFile, OSError)):
        read_regular(tmp_path / "x", 100)
    with pytest.raises(SourceUnreadable):
        read_below(tmp_path, "x", 100)
    with pytest.raises(SourceUnreadable):
        read_linked(tmp_path / "x", tmp_path, 100)
    assert read_optional(tmp_path / "x", 100) is None


def test_links_are_followed_where_that_is_wanted_and_to_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    assert read_regular(tmp_path / "link", 100, follow_links=True)[0] == b"content"
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(tmp_path / "link", 100)
    with pytest.raises(NotRegularFile):
        read_regular(tmp_path / "to-pipe", 100, follow_links=True)


def test_a_link_below_a_root_may_lead_anywhere_below_it_and_nowhere_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub/file").write_bytes(b"inside")
    (root / "in").symlink_to("sub/file")
    (root / "folder").symlink_to("sub")
    (root / "up").symlink_to("..")
    (root / "circle").symlink_to("circle")
    (tmp_path / "secret").write_bytes(b"outside")
    assert read_linked(root / "in", root, 100) == read_linked(root / "folder/file", root, 100) == b"inside"
    with pytest.raises(SourceUnreadable, match="leaves"):
        read_linked(root / "up/secret", root, 100)
    with pytest.raises(SourceUnreadable, match="circle cannot be read"):
        read_linked(root / "circle", root, 100)


def test_one_byte_more_than_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert len(read_regular(tmp_path / "file", 10)[0]) == 11
    assert len(read_below(tmp_path, "file", 10)[0]) == 11
    assert len(read_linked(tmp_path / "file", tmp_path, 10)) == 11
    assert len(read_optional(tmp_path / "file", 10) or b"") == 11


def test_a_missing_file_is_told_from_one_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert read_optional(tmp_path / "none", 10) is None
    assert read_optional(tmp_path / "file/below", 10) is None
    assert read_optional(tmp_path / "file", 10) == b""
    with pytest.raises(FileNotFoundError):
        read_below(tmp_path, "none", 10)
    with pytest.raises(FileNotFoundError):
        read_below(tmp_path, "half\0name", 10)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts the open files of this process")
def test_no_file_stays_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("pipe", "none", "none/below"):
        with pytest.raises((SourceUnreadable, FileNotFoundError)):
            read_below(tmp_path, path, 10)
        read_optional(tmp_path / path, 10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
