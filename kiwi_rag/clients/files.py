"""Clients' files on disk: read with care, kept before the first change, replaced in one step."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.clients.refusals import ClientFileError, Malformed
from kiwi_rag.model import sha256_hex
from kiwi_rag.storage.atomic import atomic_write
from kiwi_rag.storage.locks import acquire_lock
from kiwi_rag.storage.safe_open import NotRegularFile, read_regular

_BOM = b"\xef\xbb\xbf"
_WAIT_SECONDS = 10
MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A file as it was read: where it is, links followed, and its bytes, or None where it is not there."""

    path: Path
    data: bytes | None

    @classmethod
    def read(cls, path: Path, inside: Sequence[Path]) -> ClientFile:
        """Read a file that links may take to any of the folders `inside`, and nowhere else.

        Raises
        ------
        ClientFileError
            When a link leads elsewhere, or the file cannot be read.
        """
        with _explained("read", path):
            real = path.resolve()
            if not any(real.is_relative_to(folder.resolve()) for folder in inside):
                raise ClientFileError(
                    f"{path} leads out of {inside[0]}, to {real}", hint="put a file in the link's place"
                )
            if ".git" in real.parts:
                raise ClientFileError(f"{path} leads into a repository's own files, to {real}", hint="remove the link")
            return cls(real, content(real))

    def text(self) -> str:
        """Return its text, without a byte order mark, lines ended as on Unix; empty where the file is not there.

        Raises
        ------
        Malformed
            When it is not UTF-8.
        """
        data = (self.data or b"").removeprefix(_BOM)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Malformed("it is not UTF-8 text", data.count(b"\n", 0, error.start) + 1) from error
        return text.replace("\r\n", "\n") if self._has_crlf() else text

    def encoded(self, text: str) -> bytes:
        """Return a new text as bytes, with this file's byte order mark and ends of lines."""
        mark = _BOM if (self.data or b"").startswith(_BOM) else b""
        return mark + (text.replace("\n", "\r\n") if self._has_crlf() else text).encode()

    def write(self, data: bytes | None, mode: int) -> None:
        """Replace the file in one step, or remove it; `mode` is a new file's.

        Raises
        ------
        ClientFileError
            When it is read-only, when its folder is, or when somebody changed it since it was read.
        """
        with _explained("write", self.path):
            if content(self.path) != self.data:
                raise ClientFileError(f"{self.path} was changed just now by somebody else", hint="run this again")
            if self.data is not None and not self.path.stat().st_mode & stat.S_IWUSR:
                raise ClientFileError(f"{self.path} is read-only", hint=f"chmod u+w {self.path}, and run this again")
            if data is None:
                self.path.unlink(missing_ok=True)
            else:
                atomic_write(self.path, data, mode=mode, keep_rights=True)

    def _has_crlf(self) -> bool:
        lines = (self.data or b"").count(b"\n")
        return lines > 0 and (self.data or b"").count(b"\r\n") == lines


@dataclass(frozen=True, slots=True)
class Backups:
    """What files said before Kiwi's first change to them, in a folder of the user's alone.

    They do not lie beside the files: a project would get them committed, and some clients read whatever is in a folder.
    """

    folder: Path

    def place(self, path: Path) -> Path:
        """Return where the backup of a file is, or would be."""
        return self.folder / f"{sha256_hex(str(path).encode())[:12]}-{path.name}"

    def of(self, path: Path) -> ClientFile:
        """Return a file as it was, which may be: not there."""
        return ClientFile.read(self.place(path), [self.folder])

    def keep(self, file: ClientFile) -> None:
        """Keep what a file says, or that it is not there, in place of what was kept before."""
        place = self.place(file.path)
        with _explained("write", place):
            if file.data is None:
                place.unlink(missing_ok=True)
            else:
                atomic_write(place, file.data, keep_rights=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other setup of this user waiting.

        Raises
        ------
        ClientFileError
            When one has been at work for ten seconds.
        """
        busy = ClientFileError("another setup is at work", hint="run this again when it is done")
        with _explained("write", self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = acquire_lock(self.folder / "setup.lock", _WAIT_SECONDS, lambda: busy)
        with lock:
            yield


def content(path: Path) -> bytes | None:
    """Return a file's bytes, None where it is not there.

    Raises
    ------
    ClientFileError
        When it is no file, or too large.
    """
    try:
        data, _ = read_regular(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularFile as error:
        raise ClientFileError(f"{path} is not a file", hint="move it away, and run this again") from error
    if len(data) > MAX_BYTES:
        raise ClientFileError(f"{path} is over {MAX_BYTES >> 20} MB", hint="move it away, and run this again")
    return data


@contextlib.contextmanager
def _explained(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # before Python 3.13, a loop of links is a RuntimeError
        reason = getattr(error, "strerror", None) or "its links lead in a circle"
        raise ClientFileError(f"cannot {what} {path}: {reason}", hint="check the file's owner and rights") from error
