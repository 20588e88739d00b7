"""The folder of data that Kiwi derives from files, such as ``.ai/vectors``, which a cloned repository may contain."""

from __future__ import annotations

import stat
from pathlib import Path

from kiwi_rag.errors import StoreError
from kiwi_rag.storage.atomic import create_file


def make_derived_folder(folder: Path) -> None:
    """Make a folder that git ignores, and remove links, pipes and devices from it.

    A write to a link would change another file, and reading a pipe would wait.

    Raises
    ------
    StoreError
        When the folder itself is a link, which may lead anywhere.
    """
    if folder.is_symlink():
        raise StoreError(f"{folder} is a link, and Kiwi writes derived data through no link", hint=f"rm {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if not _is_plain(path):
            path.unlink(missing_ok=True)
    create_file(folder / ".gitignore", b"*\n", mode=0o644)


def _is_plain(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # another process has just removed it
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
