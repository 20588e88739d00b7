"""Set-up of every test run: temporary folders in memory, and how many examples Hypothesis makes."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests import examples
from tests.once import FOLDER

MEMORY = Path("/dev/shm")
ROOM = 6 << 30
"""So many bytes must be free in memory: a whole run fills less than a quarter of them."""


_PREFIX = "kiwi-run-"


@pytest.hookimpl(tryfirst=True)  # before pytest reads the option
def pytest_configure(config: pytest.Config) -> None:
    """Run before the workers are started, which inherit the environment."""
    examples.register()
    gc.set_threshold(50_000, 20, 50)  # tests make much that lives long, and each ends before its garbage matters
    if FOLDER not in os.environ:
        folder = _own_folder(MEMORY if "TMPDIR" not in os.environ and _fits_in_memory() else tempfile.gettempdir())
        os.environ[FOLDER] = str(folder / "once")
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # ask again
        Path(os.environ[FOLDER]).mkdir()
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True))
    if config.option.basetemp is None:
        config.option.basetemp = str(Path(os.environ["TMPDIR"], "pytest"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep the thousands of collected tests out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once; pytest does it five times more, which takes seconds over all libraries' objects."""
    gc.collect()
    gc.freeze()


def _own_folder(shared: Path | str) -> Path:
    """Make this run's folder, and remove those of runs that have ended, with all that a killed one left.

    Below the folder that pytest shares between runs, each new run takes from others the right to pass, which root's
    Postgres needs, as it runs as another user.
    """
    for left in Path(shared).glob(f"{_PREFIX}*"):
        if not _is_running(int(left.name.removeprefix(_PREFIX))):
            shutil.rmtree(left, ignore_errors=True)
    own = Path(shared, f"{_PREFIX}{os.getpid()}")
    own.mkdir()
    return own


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _fits_in_memory() -> bool:
    """Whether temporary files can stand in memory: nearly all waiting in tests is for a disk's fsync."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free >= ROOM
