"""Whose folder this is: a catalog or a Chroma folder that came with a clone is never opened.

A tier folder carries ``owner.json`` with a random catalog id and an HMAC of it under a token that only this user's
machine knows. It is checked before SQLite or Chroma see a single foreign byte: both parse, and Chroma may even run,
what their files say. What does not match is moved aside, and the tier starts empty.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import stat
import sys
import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.errors import SourceUnreadable, StoreBusy, StoreError
from kiwi_rag.storage.atomic import atomic_write, create_file
from kiwi_rag.storage.locks import acquire_lock
from kiwi_rag.storage.safe_open import read_optional

CATALOG_NAME = "catalog.sqlite3"
CHROMA_NAME = "chroma"
_MARK_NAME = "owner.json"
_CHROMA_MARK_NAME = "kiwi-owner"
_MAX_MARK_BYTES = 4096


class Ownership:
    """The owner's marks of one tier folder.

    Parameters
    ----------
    folder
        The tier's folder for derived data.
    token
        A secret of this user on this machine, kept outside every repository.
    """

    def __init__(self, folder: Path, token: str) -> None:
        self._folder = folder
        self._token = token.encode()
        self._mark = folder / _MARK_NAME
        self.chroma_folder = folder / CHROMA_NAME

    def catalog_id(self) -> str | None:
        """Return the catalog's id when the folder is ours, else None."""
        if (self._folder / CATALOG_NAME).is_symlink():
            return None
        try:
            note = json.loads(read_optional(self._mark, _MAX_MARK_BYTES) or b"")
            catalog_id, mark = str(note["catalog_id"]), str(note["mark"])
        except (SourceUnreadable, ValueError, KeyError, TypeError, RecursionError):
            return None
        return catalog_id if hmac.compare_digest(mark.encode(), self._sign("catalog", catalog_id)) else None

    def claim(self) -> str:
        """Mark the folder as ours under a new catalog id, and return that id."""
        catalog_id = secrets.token_hex(16)
        mark = self._sign("catalog", catalog_id).decode()
        atomic_write(self._mark, json.dumps({"catalog_id": catalog_id, "mark": mark}).encode())
        return catalog_id

    def owns_chroma(self, catalog_id: str) -> bool:
        """Whether the Chroma folder was made here, for this catalog."""
        if self.chroma_folder.is_symlink():
            return False
        try:
            mark = read_optional(self.chroma_folder / _CHROMA_MARK_NAME, _MAX_MARK_BYTES)
        except SourceUnreadable:
            return False
        return hmac.compare_digest(mark or b"", self._sign("chroma", catalog_id))

    def claim_chroma(self, catalog_id: str) -> None:
        """Make the Chroma folder and mark it as ours."""
        atomic_write(self.chroma_folder / _CHROMA_MARK_NAME, self._sign("chroma", catalog_id))

    def _sign(self, purpose: str, catalog_id: str) -> bytes:
        message = f"kiwi:{purpose}:{catalog_id}".encode()
        return hmac.new(self._token, message, hashlib.sha256).hexdigest().encode()


def make_folder(folder: Path) -> None:
    """Make a tier's folder; take out of it what leads a write elsewhere or makes a reader wait: links, pipes, devices.

    The catalog and the Chroma folder have their own checks, which move them aside.

    Raises
    ------
    StoreError
        When the folder itself is a link: it may lead into another tier, or anywhere.
    """
    if folder.is_symlink():
        raise StoreError(f"{folder} is a link, and derived data are never written through one", hint=f"rm {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in (CATALOG_NAME, CHROMA_NAME) and not _is_plain(path):
            path.unlink(missing_ok=True)


def _is_plain(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # another process has just removed it
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def owner_token(user_dir: Path) -> str:
    """Return a user's own secret, by which a tier's folder is known as made here and not cloned; make it if need be.

    Raises
    ------
    StoreError
        When it cannot be kept.
    """
    path = user_dir / "owner-token"
    try:
        create_file(path, secrets.token_hex(32).encode())
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise StoreError(f"cannot keep {path}: {error.strerror}", hint="check the folder's owner and space") from error


WAIT_SECONDS = 4.0


class WriterLock:
    """The writer's lock of one tier folder; counted, so that one store may take it again.

    The lock itself is the operating system's, so it is gone the moment its process is. ``writer.json`` is only a
    note for whoever has to wait.
    """

    def __init__(self, folder: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        self._path = folder / "writer.lock"
        self._wait_seconds = wait_seconds
        self._held = ExitStack()
        self._note = folder / "writer.json"
        self._depth = 0
        self._mutex = threading.Lock()

    @property
    def held(self) -> bool:
        """Whether this store holds the lock now."""
        return self._depth > 0

    def acquire(self) -> None:
        """Take the lock, or count one more holder in this store. Blocks for a few seconds at most.

        Raises
        ------
        StoreBusy
            Naming the process that holds it.
        """
        with self._mutex:
            if not self._depth:
                self._take()
            self._depth += 1

    def release(self) -> None:
        """Give back what one `acquire` took."""
        with self._mutex:
            self._depth -= 1
            if not self._depth:
                self._note.unlink(missing_ok=True)
                self._held.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> None:
        self._held.enter_context(acquire_lock(self._path, self._wait_seconds, self._busy))
        self._note.write_text(json.dumps(_me()), encoding="utf-8")

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"another process is writing to {self._path.parent}: {self._holder()}",
            hint="wait for it to end, or stop it; searching works meanwhile",
        )

    def _holder(self) -> str:
        try:
            note: dict[str, Any] = json.loads(self._note.read_text(encoding="utf-8"))
            return f"pid {note['pid']} on {note['host']} since {note['since']}: {note['command']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "it has not said who it is"


def _me() -> dict[str, object]:
    command = " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]])[:200]
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "command": command, "host": socket.gethostname(), "since": since}
