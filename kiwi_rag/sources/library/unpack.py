"""The documentation of a package as files of its own: copied from where it is installed, or out of its archive.

Nothing of a package is executed, and no link is made or followed. An archive is read twice: for the names, then for the
files that were chosen, so that neither other files nor translations count.
"""

from __future__ import annotations

import gzip
import tarfile
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from kiwi_rag.errors import ArchiveRefused, NotFound, StoreError
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
MAX_MEMBERS = 200_000


def unpack(
    package: Package, target: Path, archive: Path | None = None, *, include: Sequence[str] = (), code: bool = False
) -> Mapping[str, int]:
    """Replace the folder `target` by the documentation of a package, from its archive or where it is installed.

    Return the path of each file that was written, and its bytes.
    Of the package only the folders `include` count, if there are any; with `code`, source code counts, too.

    Raises
    ------
    NotFound
        When it has no documentation.
    ArchiveRefused
        When the archive is damaged, has devices, names or links that lead out of it, names of documentation that are
        equal but for case, or too much in it.
    SourceUnreadable
        When an installed file cannot be read.
    StoreError
        When `target` cannot be written.
    """
    sizes = _archived(archive) if archive else _installed(package)
    chosen = select(sizes, include, code=code)
    size = sum(sizes[path] for path in chosen)
    if len(chosen) > MAX_FILES or size > MAX_BYTES:
        message = f"{package.origin} has {len(chosen)} files of documentation, {size >> 20} MiB"
        raise ArchiveRefused(message, hint=f"up to {MAX_FILES} files and {MAX_BYTES >> 20} MiB are unpacked")
    names = [unicodedata.normalize("NFC", path).casefold() for path in chosen]
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    if len(set(names)) < len(names) or not folders.isdisjoint(names):
        raise ArchiveRefused(f"{package.origin} has files whose names are equal but for case", hint="report it")
    files = dict(read_archive(archive, chosen)) if archive else _read_installed(package, chosen)
    if not any(path.lower().startswith("readme") for path in files):
        files |= {name: text.encode() for name, text in package.texts.items()}
    if not files:
        raise NotFound(
            f"{package.origin}@{package.version} has no documentation in it",
            hint="name its folder of documentation with --docs FOLDER",
        )
    try:
        replace_folder(target, {path: (data, 0o600) for path, data in files.items()})
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from error
    return {path: len(data) for path, data in files.items()}


def _installed(package: Package) -> Mapping[str, int]:
    folder = package.folder or Path()
    if not package.files and not package.origin.startswith("pypi:"):  # whose folder other packages share
        return {file.path: file.size for file in walk(folder)}
    named = (path for path in package.files if is_nameable(path) and (folder / path).is_file())
    return {path: (folder / path).stat().st_size for path in named}


def _read_installed(package: Package, chosen: Collection[str]) -> dict[str, bytes]:
    folder = (package.folder or Path()).resolve()
    return {path: read_below(folder, path, MAX_BYTES)[0] for path in chosen}


def _archived(archive: Path) -> Mapping[str, int]:
    sizes: Counter[str] = Counter()
    for member, _ in _members(archive):
        if member.isfile() and is_nameable(path := member.name.partition("/")[2]):
            sizes[path] += member.size  # of a name that is there twice, tar takes the last
    return sizes


def read_archive(archive: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield those files of an archive that `names` has, by their paths below the one folder at the top."""
    for member, tar in _members(archive):
        path = member.name.partition("/")[2]
        if path in names and member.isfile() and member.size <= MAX_BYTES and (file := tar.extractfile(member)):
            yield path, file.read()


def _members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield the members of a gzipped tar file, as a stream: each can be read until the next one is taken."""
    try:
        with _Bounded(archive) as data, tarfile.open(fileobj=data, mode="r|") as tar:
            for count, member in enumerate(tar):
                if count >= MAX_MEMBERS:
                    raise ArchiveRefused(f"the archive has over {MAX_MEMBERS} entries")
                yield tarfile.data_filter(member, str(archive.parent)), tar
    except tarfile.FilterError as error:
        raise ArchiveRefused(f"the archive is hostile: {error}", hint="report it to the index") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise ArchiveRefused(f"the archive is damaged: {error}", hint="download it again") from error


class _Bounded(gzip.GzipFile):
    """What is decompressed, up to a limit: a few kilobytes can decompress to any size."""

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if self.tell() > MAX_UNPACKED:
            raise ArchiveRefused(f"the archive has over {MAX_UNPACKED >> 20} MiB")
        return found
