"""Pinned digests: a file is what it should be, or it is not used.

Hashing 90 MB takes 50–100 ms, a fifth of a cold start, so a file that was found right is *stamped*: path, size,
modification time, inode and digest go into a small file in the cache folder. The next start compares the stamp
and hashes again as soon as anything differs. A stamp guards against damage and mix-ups, not against somebody who can
write to the cache folder: such a person could as well replace this program.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.errors import ModelUnavailable
from kiwi_rag.storage.atomic import atomic_write


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of the file at `path`."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_mismatch(path: Path | str, expected: str, got: str) -> ModelUnavailable:
    """Return the error for a file that is not the pinned one; it names the file and both digests."""
    return ModelUnavailable(
        f"{path} is not the pinned model file: expected sha256 {expected}, got {got}",
        hint=f"delete {path}, or restore it from where it came",
    )


@dataclass(frozen=True, slots=True)
class Stamps:
    """The folder that remembers which files were found right."""

    folder: Path

    def require(self, path: Path, expected: str) -> Path:
        """Return `path` if its SHA-256 is `expected`.

        Raises
        ------
        ModelUnavailable
            If the file cannot be read, or has another digest.
        """
        try:
            stamp = _stamp(path, expected)
            if self._read(path) == stamp:
                return path
            got = file_sha256(path)
        except OSError as error:
            raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
        if got != expected:
            raise digest_mismatch(path, expected, got)
        self._write(path, stamp)
        return path

    def _place(self, path: Path) -> Path:
        key = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
        return self.folder / f"{path.name}-{key}.json"

    def _read(self, path: Path) -> object:
        try:
            return json.loads(self._place(path).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def _write(self, path: Path, stamp: dict[str, object]) -> None:
        # A stamp only saves time: where it cannot be written, the file is hashed again at the next start.
        try:
            atomic_write(self._place(path), json.dumps(stamp).encode(), durable=False)
        except OSError:
            return


def _stamp(path: Path, digest: str) -> dict[str, object]:
    facts = path.stat()
    return {
        "path": str(path.absolute()),
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "inode": facts.st_ino,
        "sha256": digest,
    }
