"""Archives of packages from the indexes of their ecosystems, and documentation as files of its own.

The digest of an archive is checked, and nothing of a package is executed. Documentation is copied from where a package
is installed, or unpacked from its archive; no link is made or followed. An archive is read twice: for the names, then
for the files that were chosen, so that neither other files nor translations count.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import tarfile
import tempfile
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PathDistribution
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from kiwi_rag.consent import Allow, is_local
from kiwi_rag.endpoint import trusted_certificates
from kiwi_rag.errors import ArchiveRefused, DownloadFailed, NotFound, SourceUnreadable, UsageError
from kiwi_rag.signing.statement import is_nameable
from kiwi_rag.sources.library.discover import select
from kiwi_rag.sources.library.package import MAX_METADATA_BYTES, Package, npm_package, python_package
from kiwi_rag.sources.library.record import Library
from kiwi_rag.sources.library.versions import parse_pep440
from kiwi_rag.sources.workspace.source import walk
from kiwi_rag.storage.atomic import disk_errors, replace_folder
from kiwi_rag.storage.safe_open import read_below

if TYPE_CHECKING:
    import httpx
    from packaging.version import Version

Progress = Callable[[int], Callable[[int], object]]
"""Takes the bytes of the whole archive (0: not known), and returns what takes the bytes of each part that arrives."""
MAX_ARCHIVE = 200 << 20
MAX_FILES = 20_000
MAX_BYTES = 100 << 20
"""Bytes of the documentation of one library."""
MAX_UNPACKED = 1 << 30
"""Bytes of a whole archive, unpacked; most of it is skipped."""
MAX_MEMBERS = 200_000
_MAX_ANSWER = 64 << 20


class _Archive(NamedTuple):
    """An archive in an index; ``package`` is what the index says of it, None where only the archive does."""

    version: str
    url: str
    algorithm: str
    digest: str
    size: int = 0
    package: Package | None = None


@contextmanager
def download(
    ecosystem: str, name: str, version: str, *, allow: Allow, progress: Progress
) -> Iterator[tuple[Package, Path]]:
    """Yield a package of the ecosystem ``npm`` or ``pypi``, and its archive for `unpack`.

    Without a version it is the newest release. The indexes are those that ``PIP_INDEX_URL`` and ``npm_config_registry``
    name in the environment, else pypi.org and registry.npmjs.org. The archive is removed when the block ends.

    Raises
    ------
    ConsentRequired
        When `allow`, which is called before each connection, does not allow its host.
    NotFound
        When the index has no such package or version, or no source archive of it.
    DownloadFailed
        When the index cannot be reached or answers with something else.
    ArchiveRefused
        When the archive differs from its digest, is too large or cannot be read.
    """
    index, origin = index_url(ecosystem), f"{ecosystem}:{name}"
    with tempfile.TemporaryDirectory(prefix="kiwi-") as folder, _client(allow, index) as client:
        try:
            found = _FINDERS[ecosystem][0](client, index, name, version)
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise DownloadFailed(f"the index does not describe {origin} as its protocol says") from error
        path = Path(folder, "archive")
        _fetch(client, origin, found, path, progress)
        yield found.package or _described(path, name, found.version), path


def index_url(ecosystem: str) -> str:
    """Return the address of the index that the archives of an ecosystem are looked up in."""
    _, setting, default = _FINDERS[ecosystem]
    return (os.environ.get(setting) or default).rstrip("/")


def index_hosts(ecosystem: str) -> Sequence[str]:
    """Return the hosts that an archive of an ecosystem comes from, as far as they are known before."""
    host = urlsplit(index_url(ecosystem)).hostname or ""
    return [host, "files.pythonhosted.org"] if host == "pypi.org" else [host]


def _client(allow: Allow, index: str) -> httpx.Client:
    """Return a client that asks before each request, those after a redirect included."""
    import httpx

    def ask(request: httpx.Request) -> None:
        asked = httpx.URL(index)
        if request.url.scheme not in ("https", asked.scheme):
            raise DownloadFailed(f"{request.url.host} is not to be reached without encryption")
        if is_local(request.url.host.rstrip(".")) and not is_local(asked.host):  # which needs no consent
            raise DownloadFailed(f"{asked.host} leads to this machine itself")
        allow(request.url.host, "download", request.extensions["bytes"], None)

    hooks = {"request": [ask]}
    return httpx.Client(verify=trusted_certificates(), event_hooks=hooks, follow_redirects=True, timeout=30)


def _receive(client: httpx.Client, url: str, what: str, size: int = 0, accept: str = "*/*") -> Iterator[bytes]:
    """Yield what a server answers; an error names `what` and quotes no URL, because it may have a password in it."""
    import httpx

    try:
        address = httpx.URL(url)
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        with client.stream("GET", address, headers=headers, extensions={"bytes": size}) as response:
            if response.status_code in (404, 410):
                raise NotFound(f"{address.host} does not have it: {what}", hint="check the name and the version")
            if response.status_code != 200:
                raise DownloadFailed(f"{address.host} answers {response.status_code}: {what}", hint="try again later")
            yield from response.iter_raw()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        message = f"the index cannot be reached ({type(error).__name__}): {what}"
        raise DownloadFailed(message, hint="check the network and the address of the index") from error


def _json(client: httpx.Client, url: str, origin: str, accept: str) -> Any:
    data = bytearray()
    for part in _receive(client, url, f"look up {origin}", accept=accept):
        data += part
        if len(data) > _MAX_ANSWER:
            raise DownloadFailed(f"the index answers over {_MAX_ANSWER >> 20} MiB for {origin}")
    return json.loads(data)


def _find_npm(client: httpx.Client, registry: str, name: str, version: str) -> _Archive:
    """Look a version up: https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md, ``getpackageversion``."""
    address = f"{registry}/{quote(name, safe='@')}/{quote(version or 'latest')}"
    manifest = _json(client, address, f"npm:{name}@{version or 'latest'}", "application/json")
    package, dist = npm_package(manifest, name), manifest["dist"]
    if package is None:
        raise LookupError(name)
    if version not in ("", package.version):
        raise DownloadFailed(f"the index answers with {package.origin}@{package.version} for {version}")
    (digest,) = (part.removeprefix("sha512-") for part in dist["integrity"].split() if part.startswith("sha512-"))
    hexadecimal = base64.b64decode(digest, validate=True).hex()
    return _Archive(package.version, urljoin(address, dist["tarball"]), "sha512", hexadecimal, package=package)


def _find_pypi(client: httpx.Client, index: str, name: str, version: str) -> _Archive:
    """Look a source archive up: https://packaging.python.org/en/latest/specifications/simple-repository-api/."""
    from packaging.version import Version

    origin, address = f"pypi:{name}", f"{index}/{name}/"
    files = _json(client, address, origin, "application/vnd.pypi.simple.v1+json")["files"]
    there = [(found, file) for file in files if (found := _version_of(file["filename"]))]
    current = [found for found, file in there if not file.get("yanked")]
    wanted = Version(version) if version else max([one for one in current if not one.is_prerelease] or current)
    archives = [file for found, file in there if found == wanted and file["filename"].endswith(".tar.gz")]
    if not archives:
        newest = ", ".join(map(str, sorted({found for found, _ in there}, reverse=True)[:10]))
        raise NotFound(f"{origin} has no source archive of {wanted}; its newest versions are {newest}", hint="name one")
    url, digest, size = urljoin(address, archives[0]["url"]), archives[0]["hashes"]["sha256"], archives[0].get("size")
    return _Archive(str(wanted), url, "sha256", digest, size if isinstance(size, int) else 0)


def _version_of(filename: str) -> Version | None:
    """Return the version in the name of a wheel or a source archive; None for any other file."""
    from packaging.utils import parse_sdist_filename, parse_wheel_filename

    with suppress(ValueError):
        return (parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename)(filename)[1]
    return None


_FINDERS = {
    "npm": (_find_npm, "npm_config_registry", "https://registry.npmjs.org"),
    "pypi": (_find_pypi, "PIP_INDEX_URL", "https://pypi.org/simple"),
}
"""Ecosystem → what looks an archive up, the variable that names the index, and the index without one."""


def _fetch(client: httpx.Client, origin: str, found: _Archive, path: Path, progress: Progress) -> None:
    """Download an archive to `path`, and compare its digest with that of the index."""
    digest, done, advance = hashlib.new(found.algorithm), 0, None
    with path.open("wb") as file:
        for part in _receive(client, found.url, f"download {origin} in version {found.version}", found.size):
            done += len(part)
            if done > MAX_ARCHIVE:
                raise ArchiveRefused(f"the archive of {origin} is over {MAX_ARCHIVE >> 20} MiB")
            digest.update(part)
            file.write(part)
            advance = advance or progress(found.size)  # not before the consent
            advance(len(part))
    if digest.hexdigest() != str(found.digest).lower():
        hint = "somebody may have changed it on its way: try another network"
        raise ArchiveRefused(f"the archive of {origin} has not the digest that the index names", hint=hint)


def _described(archive: Path, name: str, version: str) -> Package:
    """Return the package that the metadata in a source archive describes."""
    data = dict(_read_archive(archive, ["PKG-INFO"])).get("PKG-INFO", b"")
    (archive.parent / "PKG-INFO").write_bytes(data[:MAX_METADATA_BYTES])
    try:
        package = python_package(PathDistribution(archive.parent), name)
    except (SourceUnreadable, UsageError) as error:
        raise ArchiveRefused(f"the archive of pypi:{name} has no valid metadata") from error
    if parse_pep440(package.version) != parse_pep440(version):
        raise ArchiveRefused(f"the archive of pypi:{name} is of version {package.version}, and not {version}")
    return package


def unpack(package: Package, library: Library, archive: Path | None = None) -> None:
    """Replace the folder of a library by the documentation of its package, from its archive or where it is installed.

    Raises
    ------
    NotFound
        When the package, or one of the folders that the library includes, has no documentation.
    ArchiveRefused
        When the archive is damaged, has devices, names or links that lead out of it, names of documentation that are
        equal but for case, or too much in it.
    SourceUnreadable
        When an installed file cannot be read.
    StoreError
        When the folder cannot be written.
    """
    sizes = _archived(archive) if archive else _installed(package)
    chosen = select(sizes, library.include, code=library.code)
    size = sum(sizes[path] for path in chosen)
    if len(chosen) > MAX_FILES or size > MAX_BYTES:
        message = f"{package.origin} has {len(chosen)} files of documentation, {size >> 20} MiB"
        raise ArchiveRefused(message, hint=f"up to {MAX_FILES} files and {MAX_BYTES >> 20} MiB are unpacked")
    names = [unicodedata.normalize("NFC", path).casefold() for path in chosen]
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    if len(set(names)) < len(names) or not folders.isdisjoint(names):
        raise ArchiveRefused(f"{package.origin} has files whose names are equal but for case", hint="report it")
    files = dict(_read_archive(archive, chosen)) if archive else _read_installed(package, chosen)
    if not library.include and not any(path.lower().startswith("readme") for path in files):
        files |= {name: text.encode() for name, text in package.texts.items()}
    missing = [folder for folder in library.include if not any(path.startswith(f"{folder}/") for path in files)]
    if missing or not files:
        where, hint = missing[0] if missing else "it", "name its folder of documentation with --docs FOLDER"
        raise NotFound(f"{package.origin}@{package.version} has no documentation in {where}", hint=hint)
    with disk_errors(library.root, "write"):
        replace_folder(library.root, {path: (data, 0o600) for path, data in files.items()})


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


def _read_archive(archive: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
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
