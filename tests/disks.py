"""A small disk that a test can fill, and folders that become read-only: as root, whom modes of files do not stop."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of a size, such as 2m, at a new folder; skip the test where that is not possible."""
    folder.mkdir()
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield folder


@contextmanager
def full_disk(disk: Path) -> Iterator[None]:
    """Take all the space that a small disk has left, to the last byte."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while filler.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    yield
    (disk / "filler").unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nothing be written in a folder; skip the test where that is not possible."""
    with _mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield


@contextmanager
def _mounted(folder: Path, *arguments: str) -> Iterator[None]:
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting needs root")
    if subprocess.run(["mount", *arguments, str(folder)], check=False).returncode:
        pytest.skip("this machine does not let root mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
