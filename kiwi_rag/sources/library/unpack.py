"""The documentation of a package as files of its own: copied from where it is installed, or out of its archive.

Nothing of a package is executed, and no link is made or followed. An archive is read twice: for the names, then for the
files that were chosen, so that neither other files nor translations count.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kiwi_rag.errors import ArchiveRefused, StoreError
from kiwi_rag.signing.statement import is_nameable
from kiwi_rag.sources.library.discover import select
from kiwi_rag.sources.library.package import Package
from kiwi_rag.sources.workspace.source import walk
from kiwi_rag.storage.atomic import replace_folder
from kiwi_rag.storage.safe_open import read_below

MAX_FILES = 20_000
MAX_BYTES = 100 << 20
"""Bytes of the documentation of one library."""
MAX_UNPACKED = 1 << 30
"""Bytes of a whole archive, unpacked; most of it is skipped."""


@dataclass(frozen=True)
class Unpacked:
    """How many files were written, and how many bytes they have together."""

    files: int
    size: int


def unpack(package: Package, target: Path, archive: Path | None = None, *, code: bool = False) -> Unpacked:
    """Replace the folder `target` by the documentation of a package, from its archive or where it is installed.

    With `code`, source code is unpacked, too.

    Raises
    ------
    ArchiveRefused
        When the archive is damaged, has devices, names or links that lead out of it, names of documentation that are
        equal but for case, or too much in it.
    SourceUnreadable
        When an installed file cannot be read.
    StoreError
        When `target` cannot be written.
    """
    sizes = _archived(archive) if archive else _installed(package)
    chosen = select(sizes, code=code)
    size = sum(sizes[path] for path in chosen)
    if len(chosen) > MAX_FILES or size > MAX_BYTES:
        message = f"{package.origin} has {len(chosen)} files of documentation, {size >> 20} MiB"
        raise ArchiveRefused(message, hint=f"up to {MAX_FILES} files and {MAX_BYTES >> 20} MiB are unpacked")
    names = [unicodedata.normalize("NFC", path).casefold() for path in chosen]
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    if len(set(names)) < len(names) or not folders.isdisjoint(names):
        raise ArchiveRefused(f"{package.origin} has files whose names are equal but for case", hint="report it")
    files = dict(_read_archive(archive, chosen) if archive else _read_installed(package, chosen))
    if not any(path.lower().startswith("readme") for path in files):
        files |= {name: text.encode() for name, text in package.texts.items()}
    try:
        replace_folder(target, {path: (data, 0o600) for path, data in files.items()})
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from error
    return Unpacked(len(files), sum(map(len, files.values())))


def _installed(package: Package) -> Mapping[str, int]:
    folder = package.folder or Path()
    if not package.files:
        return {file.path: file.size for file in walk(folder)}
    return {
        path: (folder / path).stat().st_size
        for path in package.files
        if is_nameable(path) and (folder / path).is_file()
    }


def _read_installed(package: Package, chosen: Collection[str]) -> Iterator[tuple[str, bytes]]:
    folder = (package.folder or Path()).resolve()
    for path in chosen:
        yield path, read_below(folder, path, MAX_BYTES)[0]


def _archived(archive: Path) -> Mapping[str, int]:
    """Return the size of each file in an archive, by its path below the one folder at the top."""
    sizes: Counter[str] = Counter()
    for member, _ in _members(archive):
        if member.isfile() and is_nameable(path := member.name.partition("/")[2]):
            sizes[path] += member.size  # of a name that is there twice, tar takes the last
    return sizes


def _read_archive(archive: Path, chosen: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for member, tar in _members(archive):
        path = member.name.partition("/")[2]
        if member.isfile() and path in chosen and (file := tar.extractfile(member)):
            yield path, file.read()


def read_member(archive: Path, name: str, max_bytes: int) -> bytes:
    """Return the file `name` in the folder at the top of an archive; empty without one, or where it is too large."""
    for member, tar in _members(archive):
        is_it = member.isfile() and member.name.partition("/")[2] == name and member.size <= max_bytes
        if is_it and (file := tar.extractfile(member)):
            return file.read()
    return b""


def _members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield the members of a gzipped tar file, as a stream: each can be read until the next one is taken."""
    try:
        with gzip.open(archive) as data, tarfile.open(fileobj=_Bounded(data), mode="r|") as tar:
            for member in tar:
                # The file system's root as the destination would let every name pass.
                yield tarfile.data_filter(member, str(archive.parent)), tar
    except tarfile.FilterError as error:
        raise ArchiveRefused(f"the archive is hostile: {error}", hint="report it to the index") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise ArchiveRefused(f"the archive is damaged: {error}", hint="download it again") from error


class _Bounded(io.BytesIO):
    """What is decompressed, up to a limit: a few kilobytes can decompress to any size."""

    def __init__(self, data: gzip.GzipFile) -> None:
        super().__init__()
        self._data, self._left = data, MAX_UNPACKED

    def read(self, size: int | None = -1) -> bytes:
        found = self._data.read(size)
        self._left -= len(found)
        if self._left < 0:
            raise ArchiveRefused(f"the archive has over {MAX_UNPACKED >> 20} MiB")
        return found
