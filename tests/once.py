"""What a test run makes once for all of its workers: the first that needs it makes it, the others wait for that."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

FOLDER = "KIWI_TESTS_ONCE"
"""The environment variable that names the run's folder for it."""


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the run's folder `name`, which `make` has filled; it is only to be read."""
    shared = Path(os.environ.get(FOLDER) or _own_folder())
    place = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            draft = Path(tempfile.mkdtemp(dir=shared))
            make(draft)
            draft.rename(place)
    return place


def copy_of_cluster(data: Path, to: Path) -> None:
    """Copy a Postgres cluster, whose files keep their owner, as Postgres demands."""
    subprocess.run(["cp", "-a", data, to], check=True)


@cache
def _own_folder() -> str:
    folder = tempfile.mkdtemp(prefix="kiwi-once-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
