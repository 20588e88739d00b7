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


_FOLDERS, _ONCE = "kiwi-tests-", "kiwi-run-"


@pytest.hookimpl(tryfirst=True)  # before pytest reads the option
def pytest_configure(config: pytest.Config) -> None:
    """Run before the workers are started, which inherit the environment."""
    examples.register()
    gc.set_threshold(50_000, 20, 50)  # tests make much that lives long, and each ends before its garbage matters
    if "TMPDIR" not in os.environ and _fits_in_memory():
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # ask again
    if config.option.basetemp is None:
        config.option.basetemp = str(_own_folder(_FOLDERS))
    if FOLDER not in os.environ:
        os.environ[FOLDER] = str(_own_folder(_ONCE))
        Path(os.environ[FOLDER]).mkdir(exist_ok=True)
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True))


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


def _own_folder(kind: str) -> Path:
    """Name this run's folder, and remove those of runs that have ended.

    Below the folder that pytest shares between runs, each new run takes from others the right to pass, which root's
    Postgres needs, as it runs as another user.
    """
    shared = Path(tempfile.gettempdir())
    for left in shared.glob(f"{kind}*"):
        if not _is_running(int(left.name.removeprefix(kind))):
            shutil.rmtree(left, ignore_errors=True)
    return shared / f"{kind}{os.getpid()}"


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
