"""The owner of a store's folder, and the lock of its writer.

A catalog or a Chroma folder that came with a cloned repository is never opened. The folder has an ``owner-100.json``
with a random catalog id and an HMAC of it, whose key is a token of this user on this machine. It is verified before
SQLite or Chroma read any foreign byte: both parse their files, and Chroma may even run code from them. A catalog that
does not match is moved aside, and the store starts empty.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from kiwi_rag.errors import SourceUnreadable, StoreBusy
from kiwi_rag.storage.atomic import acquire_lock, atomic_write, create_file, disk_errors, make_derived_folder
from kiwi_rag.storage.safe_open import read_optional

CATALOG_NAME = "catalog-100.sqlite3"
CHROMA_NAME = "chroma-100"
MARK_NAME = "owner-100.json"
_OLD_CATALOG_NAME = "catalog.sqlite3"
_CHROMA_MARK_NAME = "kiwi-owner"
_MAX_MARK_BYTES = 4096
WAIT_SECONDS = 4.0


class Ownership:
    """The owner's marks of one store's folder.

    Parameters
    ----------
    folder
        The store's folder of derived data.
    token
        A secret of this user on this machine, kept outside every repository.
    """

    def __init__(self, folder: Path, token: str) -> None:
        self._folder = folder
        self._token = token.encode()
        self._mark = folder / MARK_NAME
        self.chroma_folder = folder / CHROMA_NAME

    def catalog_id(self) -> str | None:
        """Return the catalog's id if this user made the folder, otherwise None."""
        if (self._folder / CATALOG_NAME).is_symlink():
            return None
        try:
            document = json.loads(read_optional(self._mark, _MAX_MARK_BYTES) or b"")
            catalog_id, mark = str(document["catalog_id"]), str(document["mark"])
        except (SourceUnreadable, ValueError, KeyError, TypeError, RecursionError):
            return None
        return catalog_id if hmac.compare_digest(mark.encode(), self._sign("catalog", catalog_id)) else None

    def claim(self) -> str:
        """Mark the folder as this user's under a new catalog id; return the id."""
        catalog_id = secrets.token_hex(16)
        mark = self._sign("catalog", catalog_id).decode()
        atomic_write(self._mark, json.dumps({"catalog_id": catalog_id, "mark": mark}).encode())
        return catalog_id

    def owns_chroma(self, catalog_id: str) -> bool:
        """Whether this user made the Chroma folder, for this catalog."""
        if self.chroma_folder.is_symlink():
            return False
        try:
            mark = read_optional(self.chroma_folder / _CHROMA_MARK_NAME, _MAX_MARK_BYTES)
        except SourceUnreadable:
            return False
        return hmac.compare_digest(mark or b"", self._sign("chroma", catalog_id))

    def claim_chroma(self, catalog_id: str) -> None:
        """Make the Chroma folder and mark it as this user's."""
        atomic_write(self.chroma_folder / _CHROMA_MARK_NAME, self._sign("chroma", catalog_id))

    def _sign(self, purpose: str, catalog_id: str) -> bytes:
        message = f"kiwi:{purpose}:{catalog_id}".encode()
        return hmac.new(self._token, message, hashlib.sha256).hexdigest().encode()


def find_old_catalog(folder: Path) -> Path | None:
    """Return the catalog of a pre-release Kiwi, as long as it is the only one in a store's folder; otherwise None.

    This Kiwi neither reads nor changes it: the next index run makes a new one beside it.
    """
    old = folder / _OLD_CATALOG_NAME
    return old if old.is_file() and not (folder / CATALOG_NAME).exists() else None


def owner_token(user_dir: Path) -> str:
    """Return the user's secret that marks the folders made on this machine; it is made when missing.

    Raises
    ------
    StoreError
        When it cannot be written or read.
    """
    path = user_dir / "owner-token"
    with disk_errors(path, "keep"):
        create_file(path, secrets.token_hex(32).encode())
        return path.read_text(encoding="ascii")


class WriterLock:
    """The writer's lock of one store's folder; it is counted, so that the store that holds it may acquire it again.

    The operating system releases the lock on ``writer.lock`` when the process ends, even when it is killed.
    ``writer.json`` names the process for those that have to wait; it may be left over, and has no effect.
    """

    def __init__(self, folder: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        self._path = folder / "writer.lock"
        self._wait_seconds = wait_seconds
        self._file_lock = ExitStack()
        self._holder_file = folder / "writer.json"
        self._depth = 0
        self._mutex = threading.Lock()  # guards `_depth`: threads of one store share the lock

    def acquire(self) -> None:
        """Acquire the lock, or count one more acquisition by this store. Blocks for `wait_seconds` at most.

        Raises
        ------
        StoreBusy
            Naming the process that holds it.
        StoreFull, StoreError
            When its file cannot be made.
        """
        with self._mutex:
            if not self._depth:
                with disk_errors(self._path.parent):
                    make_derived_folder(self._path.parent)
                    self._file_lock.enter_context(acquire_lock(self._path, self._wait_seconds, self._busy))
                with suppress(OSError):  # on a full disk the lock holds without a name
                    self._holder_file.write_text(json.dumps(_this_process()), encoding="utf-8")
            self._depth += 1

    def release(self) -> None:
        """Undo one `acquire`; the last one releases the file."""
        with self._mutex:
            self._depth -= 1
            if not self._depth:
                self._holder_file.unlink(missing_ok=True)
                self._file_lock.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _busy(self) -> StoreBusy:
        try:
            holder = "pid {pid} on {host} since {since}: {command}".format(**json.loads(self._holder_file.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            holder = "an unknown process"
        hint = "wait until it ends, or stop it; searches work meanwhile"
        return StoreBusy(f"another process is writing to {self._path.parent}: {holder}", hint=hint)


def _this_process() -> dict[str, object]:
    words = [Path(sys.argv[0]).name or "python", *sys.argv[1:3]]  # an argument after these may be a text
    command, since = " ".join(words)[:200], datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "command": command, "host": socket.gethostname(), "since": since}
