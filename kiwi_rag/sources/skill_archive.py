"""Archives of skills, made and read in memory: a gzipped tar file or a zip file with ``SKILL.md`` at its root.

An archive is read only within limits, and refused for any name, link or device that a folder of a skill must not have.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple, NoReturn

from kiwi_rag.errors import Rejected
from kiwi_rag.formats import skill
from kiwi_rag.formats.source import MAX_SIGNATURE_BYTES
from kiwi_rag.model import Finding
from kiwi_rag.signing.statement import is_nameable

MAX_BYTES = 8 << 20
"""Bytes of an archive."""
SIGNATURE = "SKILL.md.sig"
_MAX_MEMBERS = 1_000
_ZIP_ENTRY, _MAX_ZIP_ENTRIES = b"PK\x01\x02", 4 * _MAX_MEMBERS
"""What each entry of a zip file's list begins with, and how many may be there, those of zip files within included."""
_MAX_UNPACKED = 16 << 20
_MAX_RATIO, _RATIO_FROM = 200, 1 << 20
_DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError, OverflowError,
)  # fmt: skip
"""What the readers of damaged archives raise."""
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", 0: "file"}


class _Member(NamedTuple):
    """A file, folder, link or device of an archive; ``size`` is what the archive says of it."""

    name: str
    kind: str
    is_executable: bool
    size: int
    read: Callable[[], bytes]


def pack(files: Mapping[str, bytes], executables: Collection[str]) -> bytes:
    """Return files as a gzipped tar file, which is the same for the same files."""
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as data, tarfile.open(fileobj=data, mode="w") as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o755 if name in executables else 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    return packed.getvalue()


def unpack(data: bytes, path: str) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the files of an archive, with the signature if it has one, and which of them may be executed.

    Raises
    ------
    Rejected
        When it is damaged or too large, or has something that a skill must not have; `path` is named.
    """
    try:
        members = [member for member in _members(data, path) if member.name != "."]
        if problem := next(_problems(members), None):
            refuse(path, *problem)
        files = {member.name: member.read() for member in members if member.kind == "file"}
    except _DAMAGED as error:
        refuse(path, "archive.damaged", f"the archive cannot be read: {error}", "pack or download it again")
    if len(files.get(SIGNATURE, b"")) > MAX_SIGNATURE_BYTES:
        refuse(path, "archive.size", f"{SIGNATURE} has over {MAX_SIGNATURE_BYTES >> 20} MiB", "do not use it")
    own = [len(data) for name, data in files.items() if name != SIGNATURE]
    if exceeded := skill.exceeded_limit(len(own), sum(own), path):
        raise Rejected(path, [exceeded])
    return files, tuple(sorted(member.name for member in members if member.kind == "file" and member.is_executable))


def refuse(path: str, code: str, message: str, hint: str) -> NoReturn:
    """Raise `Rejected` with one finding about the file at `path`."""
    raise Rejected(path, [Finding(code, message, path=path, hint=hint)])


def _members(data: bytes, path: str) -> Sequence[_Member]:
    if len(data) > MAX_BYTES:
        refuse(path, "archive.size", f"the archive has over {MAX_BYTES >> 20} MiB", "split the skill")
    limit = min(_MAX_UNPACKED, _RATIO_FROM + len(data) * _MAX_RATIO)
    if data.startswith(b"PK"):
        members = list(_zip_members(data, path))
        unpacked = sum(member.size for member in members)
    elif data.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            tar = packed.read(limit + 1)
        members, unpacked = list(_tar_members(tar)) if len(tar) <= limit else [], len(tar)
    else:
        refuse(path, "archive.format", "it is no gzipped tar file and no zip file", "pack it as .tar.gz")
    if unpacked > limit:
        refuse(path, "archive.bomb", f"the archive unpacks to over {limit >> 10} KiB", "do not use it")
    return members


def _tar_members(data: bytes) -> Iterator[_Member]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        for member in islice(tar, _MAX_MEMBERS + 1):  # a header may lead back to itself
            kind = "link" if member.issym() or member.islnk() else "folder" if member.isdir() else "device"
            kind = "file" if member.isreg() and not member.issparse() else kind
            content = data[member.offset_data : member.offset_data + member.size] if kind == "file" else b""
            if kind == "file" and len(content) != member.size:
                raise EOFError("it ends within a file")
            yield _Member(_plain(member.name), kind, bool(member.mode & 0o111), member.size, partial(bytes, content))


def _zip_members(data: bytes, path: str) -> Iterator[_Member]:
    if data.count(_ZIP_ENTRY) > _MAX_ZIP_ENTRIES:  # which takes no time, while ZipFile reads all of them at once
        refuse(path, "archive.files", f"the archive has over {_MAX_ZIP_ENTRIES} entries", "split the skill")
    archive = zipfile.ZipFile(io.BytesIO(data))
    for info in archive.infolist():
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # which are unpacked in bounded parts
            refuse(path, "archive.format", "it is not compressed by deflate", "pack it as .tar.gz")
        mode = info.external_attr >> 16
        kind = "folder" if info.orig_filename.endswith("/") else _KINDS.get(stat.S_IFMT(mode), "device")
        name = _plain(info.orig_filename)
        yield _Member(name, kind, bool(mode & 0o111), info.file_size, partial(archive.read, info))


def _plain(name: str) -> str:
    """Return a member's name without the ``./`` and ``/`` that programs put around it."""
    return name.removeprefix("./").removesuffix("/") or "."


def _problems(members: Sequence[_Member]) -> Iterator[tuple[str, str, str]]:
    """Yield a code, a message and a hint for each reason why the members cannot be the files of a skill."""
    if len(members) > _MAX_MEMBERS:
        yield "archive.files", f"the archive has over {_MAX_MEMBERS} entries", "split the skill"
    files = [_folded(member.name) for member in members if member.kind == "file"]
    spelled: dict[str, str] = {}
    for member in members:
        shown = member.name.encode("ascii", "backslashreplace").decode()[:80]
        if not is_nameable(member.name):
            yield "archive.path", f"{shown!r} is not a path below the skill", "do not use it"
        if member.kind in ("link", "device"):
            yield f"archive.{member.kind}", f"{shown!r} is a {member.kind}", "pack the file itself"
        if any(step.startswith(".") or step == "__pycache__" for step in member.name.split("/")):
            yield "archive.hidden", f"{shown!r} is hidden or a cache", "pack the skill without it"
        folders = [str(folder) for folder in PurePosixPath(member.name).parents][:-1]
        for path in (member.name, *folders):
            if (other := spelled.setdefault(_folded(path), path)) != path:
                yield "archive.twins", f"{shown!r} differs from {other[:80]!a} in case only", "rename one"
        if not {*map(_folded, folders)}.isdisjoint(files):
            yield "archive.twins", f"{shown!r} is below a file", "rename one"
    if len(files) > len(set(files)):
        yield "archive.twins", "a file is there twice", "pack it again"
    if not any(member.name == "SKILL.md" and member.kind == "file" for member in members):
        hint = "pack the files of the skill without a folder"
        yield "archive.no-skill", "the archive has no SKILL.md at its root", hint


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
