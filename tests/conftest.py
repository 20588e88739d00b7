"""Set-up of every test run: temporary folders in memory, and how many examples Hypothesis makes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests import examples

MEMORY = Path("/dev/shm")
ROOM = 6 << 30
"""So many bytes must be free in memory: a whole run fills less than a quarter of them."""


def pytest_configure() -> None:
    """Run before the workers are started, which inherit the environment."""
    examples.register()
    if "TMPDIR" not in os.environ and _fits_in_memory():
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # ask again


def _fits_in_memory() -> bool:
    """Whether temporary files can stand in memory: nearly all waiting in tests is for a disk's fsync."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free >= ROOM
