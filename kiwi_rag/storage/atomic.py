"""Writing whole files: a reader, or a machine that crashes, sees the old content or the new, never a part of it.

The new content is written to a temporary file in the same folder, which has mode 0600 until its rights are set, and
replaces the file by one system call. A link at the path is replaced and not followed. After any failure the temporary
file is removed. All functions raise `OSError`, unless they say otherwise.

Beside them the locks between processes that write; the operating system frees one when its process ends, however that
happens.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kiwi_rag.errors import KiwiError, StoreError, StoreFull
from kiwi_rag.system import HAS_MODES, OPENS_FOLDERS

CHECK = "check its owner, its mode and the disk"
FULL = (errno.ENOSPC, errno.EDQUOT)


def disk_error(path: Path | str, error: OSError, action: str = "use") -> StoreError:
    """Return the error for a file or folder that the operating system does not let be used: `StoreFull` for no space"""
    if error.errno in FULL:
        return StoreFull(f"no space left for {path}; nothing was half-written", hint="free some space")
    return StoreError(f"cannot {action} {path}: {error.strerror or error}", hint=CHECK)


@contextmanager
def disk_errors(path: Path, action: str = "use") -> Iterator[None]:
    """Raise a `disk_error` for an `OSError` of the block, which uses the file or folder at `path`."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error, action) from error


def atomic_write(
    path: Path, data: bytes, *, mode: int = 0o600, keep_rights: bool = False, durable: bool = True
) -> None:
    """Replace the file at `path`; the parameters are those of `atomic_file`."""
    with atomic_file(path, mode=mode, keep_rights=keep_rights, durable=durable) as file:
        file.write(data)


@contextmanager
def atomic_file(
    path: Path, *, mode: int = 0o600, keep_rights: bool = False, durable: bool = True
) -> Iterator[IO[bytes]]:
    """Yield a file to write to, which replaces the one at `path` when the block ends, unless it raises.

    Parameters
    ----------
    path
        The file; its folder is created if it is missing.
    mode
        The new file's mode.
    keep_rights
        Give the new file the mode of the file that it replaces, and its owner where that is permitted.
    durable
        Also survive a power cut right after the call. Without it, the old content may come back then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path) as file:
        _set_rights(file.fileno(), mode, path if keep_rights else None)
        yield file
        _flush(file)
        file.close()  # Windows does not rename an open file
        Path(file.name).replace(path)
    if durable:
        _sync_folder(path.parent)


def create_file(path: Path, data: bytes = b"", *, mode: int = 0o600) -> bool:
    """Create the file at `path` with `data` in it, unless the path exists; return whether it was created.

    If several processes do so at once, one of them succeeds. A missing folder is created with mode 0700.
    """
    if os.path.lexists(path):
        return False
    with new_file(path) as draft:
        with draft.open("wb") as file:
            _set_rights(file.fileno(), mode)
            file.write(data)
            _flush(file)
        return link_new(draft, path)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of an empty file of mode 0600 beside `path`, for `link_new`; it is removed when the block ends."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _temporary(path) as file:
        # Closed before it has its name: for a database, closing it later would drop the locks that SQLite holds on it
        # in this process (sqlite.org/howtocorrupt.html, section 2.2).
        file.close()
        yield Path(file.name)


def link_new(draft: Path, path: Path) -> bool:
    """Give the file at `draft` the name `path` too, unless that exists; return whether it did not."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    except OSError:  # the file system has no hard links; any other fault makes rename() raise
        if os.path.lexists(path):
            return False
        draft.rename(path)
    _sync_folder(path.parent)
    return True


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file that only the user may read.

    Raises
    ------
    StoreFull, StoreError
        When it cannot be written.
    """
    with disk_errors(path, "write"):
        atomic_write(path, json.dumps(value, indent=1).encode() + b"\n")


def write_user_files(files: Mapping[Path, bytes], *, keep_rights: bool = False) -> None:
    """Replace files that the user may show to others: mode 0644, or that of the file before with `keep_rights`.

    None is replaced before all are on the disk, so that a full one changes none.

    Raises
    ------
    StoreFull, StoreError
        When one cannot be written.
    """
    with ExitStack() as stack:
        for path, data in files.items():
            stack.enter_context(disk_errors(path, "write"))
            file = stack.enter_context(atomic_file(path, mode=0o644, keep_rights=keep_rights))
            file.write(data)
            _flush(file)


def replace_folder(path: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Replace the folder at `path` by one that has exactly `files`: name (with slashes) → content and mode.

    The new folder is written beside it, under a hidden name, and exchanged with the old one by one system call where
    the system has such a call; elsewhere the folder is missing for a moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_folder(path) as temporary:
        draft = Path(temporary, "new")
        for name, (data, mode) in files.items():
            atomic_write(draft / name, data, mode=mode, durable=False)  # its folder follows
        for folder in (draft, *(inner for inner in draft.rglob("*") if inner.is_dir())):
            folder.chmod(0o755)
            _sync_folder(folder)
        if not os.path.lexists(path):
            draft.rename(path)
        elif not _exchange(draft, path):
            path.rename(Path(temporary, "old"))
            draft.rename(path)
        _sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder and what is in it; whoever reads it meanwhile finds all of it or nothing."""
    if os.path.lexists(path):
        with _temporary_folder(path) as temporary:
            path.rename(Path(temporary, "old"))
            _sync_folder(path.parent)


def remove_leftovers(path: Path) -> None:
    """Remove what `replace_folder` and `remove_folder` left beside a folder when their process was killed.

    The caller holds a lock that everybody holds who replaces or removes this folder.
    """
    for folder in path.parent.glob(".*.????????"):
        with suppress(OSError):  # it is a file, or may not be read or removed
            is_temporary = folder.name[:-9] == f".{path.name}" and not folder.is_symlink()
            if is_temporary and {inner.name for inner in folder.iterdir()} <= {"new", "old"}:
                shutil.rmtree(folder)


def _temporary_folder(path: Path) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.", ignore_cleanup_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders by one system call; return False where there is none, or the file system lacks it."""
    if not OPENS_FOLDERS:  # Windows: neither such a call nor a library of that name
        return False
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(first), os.fsencode(second)
    if hasattr(library, "renameat2"):  # Linux: RENAME_EXCHANGE, relative to AT_FDCWD
        return bool(library.renameat2(-100, paths[0], -100, paths[1], 2) == 0)
    if hasattr(library, "renamex_np"):  # macOS: RENAME_SWAP
        return bool(library.renamex_np(*paths, 2) == 0)
    return False


@contextmanager
def _temporary(path: Path) -> Iterator[IO[bytes]]:
    prefix = f".{path.name}."
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=prefix, delete=False) as file:
            try:
                yield file
            finally:
                Path(file.name).unlink(missing_ok=True)
    except OSError as error:
        if not error.filename or Path(error.filename).name.startswith(prefix):
            error.filename = str(path)  # a user knows it by this name
        raise


def _set_rights(descriptor: int, mode: int, model: Path | None = None) -> None:
    """Set the rights of an open file that is still empty, so that its content is never readable with other rights."""
    if not HAS_MODES:
        return
    if model and model.exists():
        before = model.stat()
        mode = stat.S_IMODE(before.st_mode)
        with suppress(PermissionError):  # a file that root edits stays its user's
            os.chown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, mode)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Flush the folder, which holds the new name, to the disk. On Windows the file system writes it by itself."""
    if not OPENS_FOLDERS:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
        with suppress(FileNotFoundError):  # another process has just removed it
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                path.unlink()
    create_file(folder / ".gitignore", b"*\n", mode=0o644)


def make_private(folder: Path) -> None:
    """Make a folder as `make_derived_folder` does, which its owner alone can read; `StoreError` if that fails."""
    with disk_errors(folder):
        make_derived_folder(folder)
        folder.chmod(0o700)


def acquire_lock(path: Path, seconds: float, busy: Callable[[], KiwiError]) -> AbstractContextManager[Any]:
    """Lock the file at `path`, and return what unlocks it at the end of a ``with`` block.

    Raises
    ------
    KiwiError
        What `busy` returns, when another process or thread has held it for `seconds`.
    OSError
        When the file cannot be made.
    """
    from filelock import FileLock, Timeout

    try:
        return FileLock(path, thread_local=False).acquire(timeout=seconds)
    except Timeout as error:
        raise busy() from error


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed, at once or not at all; return whether it is. POSIX only."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
