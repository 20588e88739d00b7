"""Pinned digests of the model's files: a file with another digest is not used.

Hashing 90 MB takes 50–100 ms, a fifth of a cold start. Therefore a verified file gets a *stamp*: path, size,
modification time, inode and digest are written to a small file in the cache folder. The next start compares the stamp
and hashes the file again if anything differs. A stamp protects against damage and mix-ups, not against an attacker who
can write to the cache folder, and who could replace this program as well.
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
    """Return the error for a file that is not the pinned one; with the file and both digests."""
    return ModelUnavailable(
        f"{path} is not the pinned model file: expected sha256 {expected}, got {got}",
        hint=f"delete {path}, or restore it from its source",
    )


@dataclass(frozen=True, slots=True)
class Stamps:
    """The folder of the stamps."""

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

    def _stamp_file(self, path: Path) -> Path:
        key = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
        return self.folder / f"{path.name}-{key}.json"

    def _read(self, path: Path) -> object:
        try:
            return json.loads(self._stamp_file(path).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def _write(self, path: Path, stamp: dict[str, object]) -> None:
        # A stamp only saves time: if it cannot be written, the next start hashes the file again.
        try:
            atomic_write(self._stamp_file(path), json.dumps(stamp).encode(), durable=False)
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
