"""Files of other programs on disk: read with checks, backed up before the first change, replaced in one step."""

from __future__ import annotations

import contextlib
import difflib
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.integrations.client_hooks import HookEntries
from kiwi_rag.integrations.config_edit import ClientFileError, ConfigEntries, Malformed, ManagedBlock, NameTaken
from kiwi_rag.model import sha256_hex
from kiwi_rag.storage.atomic import acquire_lock, atomic_write
from kiwi_rag.storage.safe_open import NotRegularFile, read_regular

_BOM = b"\xef\xbb\xbf"
_WAIT_SECONDS = 10
MAX_BYTES = 16 << 20

Editor = ConfigEntries | HookEntries | ManagedBlock


class MalformedClientFile(ClientFileError, code="client-malformed"):
    """A client's file is malformed; nothing was written."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A file as it was read: where it is, links followed, and its bytes, or None where it is not there."""

    path: Path
    data: bytes | None

    @classmethod
    def read(cls, path: Path, inside: Sequence[Path]) -> ClientFile:
        """Read a file that links may lead to any place in the folders `inside`, and nowhere else.

        Raises
        ------
        ClientFileError
            When a link leads elsewhere, or the file cannot be read, is no regular file, or is too large.
        """
        with _explained("read", path):
            real = path.resolve()
            if not any(real.is_relative_to(folder.resolve()) for folder in inside):
                raise ClientFileError(f"{path} leads out of {inside[0]}, to {real}", hint="replace the link by a file")
            return cls(real, _content(real))

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
        """Replace the file in one step, or remove it (None); `mode` is a new file's.

        Raises
        ------
        ClientFileError
            When it is read-only, when its folder is, or when another program changed it since it was read.
        """
        with _explained("write", self.path):
            if _content(self.path) != self.data:
                raise ClientFileError(f"{self.path} was changed just now by another program", hint="run this again")
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
    """What files were before Kiwi's first change to them, in a private folder of the user.

    They are not beside the files: in a project they would be committed, and some clients read every file in a folder.
    """

    folder: Path

    def place(self, path: Path) -> Path:
        """Return where the backup of a file is, or would be."""
        return self.folder / f"{sha256_hex(str(path).encode())[:12]}-{path.name}"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make other setups of this user wait.

        Raises
        ------
        ClientFileError
            When another setup has held the lock for ten seconds.
        """
        busy = ClientFileError("another kiwi setup is running", hint="run this again when it has ended")
        with _explained("write", self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = acquire_lock(self.folder / "setup.lock", _WAIT_SECONDS, lambda: busy)
        with lock:
            yield


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that is to be changed.

    Parameters
    ----------
    file
        The file as it is.
    after
        Its new bytes; None: it is to be removed.
    backup
        Where to keep the file as it is, since nothing of Kiwi's is in it yet; None: it is not to be kept.
    """

    file: ClientFile
    after: bytes | None
    backup: Path | None = None

    @property
    def action(self) -> str:
        """``write`` or ``remove``."""
        return "remove" if self.after is None else "write"

    @property
    def kept_at(self) -> str | None:
        """Where the file as it is will be kept, if that is to be done."""
        return str(self.backup) if self.backup and self.file.data is not None else None

    def __str__(self) -> str:
        verb = "removed" if self.after is None else "wrote"
        return f"{verb} {self.file.path}{f'; backup: {self.kept_at}' if self.kept_at else ''}"

    def diff(self) -> str:
        """Return the change as a unified diff, whatever the ends of lines."""
        old, new = self.file, ClientFile(self.file.path, self.after)
        names = ["/dev/null" if one.data is None else str(one.path) for one in (old, new)]
        lines = difflib.unified_diff(old.text().splitlines(), new.text().splitlines(), names[0], names[1], lineterm="")
        return "\n".join(lines)

    def apply(self, mode: int) -> None:
        """Write it, the backup first; raise `ClientFileError` when that fails."""
        if self.backup:
            with _explained("write", self.backup):
                if self.file.data is None:
                    self.backup.unlink(missing_ok=True)
                else:
                    atomic_write(self.backup, self.file.data, keep_rights=True)
        self.file.write(self.after, mode)


def plan_changes(
    edits: Mapping[Path, Editor], inside: Sequence[Path], backups: Backups, *, remove: bool
) -> Sequence[FileChange]:
    """Return what putting Kiwi's part into files, or taking it out, changes; nothing is written.

    Raises
    ------
    ClientFileError
        When a file cannot be read, is malformed, or has another entry of the same name.
    """
    changes = []
    for path, editor in edits.items():
        file = ClientFile.read(path, inside)
        if ".git" in file.path.parts:
            raise ClientFileError(f"{path} leads into a git repository's data, to {file.path}", hint="remove the link")
        try:
            changes.append(_removal(file, editor, backups) if remove else _addition(file, editor, backups))
        except Malformed as error:
            hint = "repair the file, or move it away, and run this again; nothing was written"
            raise MalformedClientFile(f"{file.path}:{error.line}: {error.what}", hint=hint) from error
        except NameTaken as error:
            raise NameTaken(f"{file.path}: {error.message}", hint="rename that one, and run this again") from error
    return [change for change in changes if change.after != change.file.data]


def _addition(file: ClientFile, editor: Editor, backups: Backups) -> FileChange:
    text = file.text()
    edited = editor.put(text)
    backup = backups.place(file.path) if editor.take(text) == text else None
    return FileChange(file, file.data if edited == text else file.encoded(edited), backup)


def _removal(file: ClientFile, editor: Editor, backups: Backups) -> FileChange:
    """Return the file without Kiwi's part; as in the backup where nothing else changed, gone where there is none."""
    before = ClientFile.read(backups.place(file.path), [backups.folder])
    text = file.text()
    left = editor.take(text)
    if left == text:
        return FileChange(file, file.data)
    # The comparison is of what is left: which options Kiwi's part had at the time does not matter.
    is_as_before = left == editor.take(editor.put(before.text()))
    return FileChange(file, before.data if is_as_before else file.encoded(left))


def _content(path: Path) -> bytes | None:
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
def _explained(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # before Python 3.13, a loop of links is a RuntimeError
        reason = getattr(error, "strerror", None) or "its links form a loop"
        raise ClientFileError(f"cannot {action} {path}: {reason}", hint="check the file's owner and rights") from error
