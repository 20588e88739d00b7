"""The archive of a package, from the index of its ecosystem; its digest is checked, and nothing in it is executed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from kiwi_rag.consent import Allow, is_local
from kiwi_rag.embedding.endpoint import trusted_certificates
from kiwi_rag.errors import ArchiveRefused, DownloadFailed, NotFound, SourceUnreadable, UsageError
from kiwi_rag.sources.library.package import MAX_METADATA_BYTES, Package, npm_package, parse_origin, python_package
from kiwi_rag.sources.library.unpack import read_archive
from kiwi_rag.sources.library.versions import parse_pep440

if TYPE_CHECKING:
    import httpx
    from packaging.version import Version

Progress = Callable[[int], Callable[[int], object]]
"""Takes the bytes of the whole archive (0: not known), and returns what takes the bytes of each part that arrives."""
MAX_ARCHIVE = 200 << 20
_MAX_ANSWER = 64 << 20


class _Archive(NamedTuple):
    """An archive in an index; ``package`` is what the index says of it, None where only the archive does."""

    origin: str
    version: str
    url: str
    algorithm: str
    digest: str
    size: int
    package: Package | None = None


def _no_progress(_total: int) -> Callable[[int], None]:
    return lambda _count: None


@contextmanager
def download(
    origin: str, *, allow: Allow, progress: Progress = _no_progress, env: Mapping[str, str] = os.environ
) -> Iterator[tuple[Package, Path]]:
    """Yield the package that ``npm:NAME[@V]`` or ``pypi:NAME[@V]`` names, and its archive for `unpack`.

    Without a version it is the newest release. The indexes are those that `env` names as ``PIP_INDEX_URL`` and
    ``npm_config_registry``, else pypi.org and registry.npmjs.org. The archive is removed when the block ends.

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
    ecosystem, name, version = parse_origin(origin)
    if ecosystem not in _FINDERS:
        raise UsageError(f"{origin} is no package", hint="name one: npm:vite or pypi:fastapi")
    find = _FINDERS[ecosystem][0]
    with tempfile.TemporaryDirectory(prefix="kiwi-") as folder, _client(allow, index_url(ecosystem, env)) as client:
        try:
            found = find(client, index_url(ecosystem, env), name, version)
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise DownloadFailed(f"the index does not describe {origin} as its protocol says") from error
        path = Path(folder, "archive")
        _fetch(client, found, path, progress)
        yield found.package or _described(path, name, found.version), path


def index_url(ecosystem: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the address of the index that the archives of an ecosystem are looked up in."""
    _, setting, default = _FINDERS[ecosystem]
    return (env.get(setting) or default).rstrip("/")


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
        extensions = {"bytes": size}
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        with client.stream("GET", address, headers=headers, extensions=extensions) as response:
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
    if version not in ("", package.version):
        raise DownloadFailed(f"the index answers with {package.origin}@{package.version} for {version}")
    (digest,) = (part.removeprefix("sha512-") for part in dist["integrity"].split() if part.startswith("sha512-"))
    hexadecimal = base64.b64decode(digest, validate=True).hex()
    return _Archive(
        package.origin, package.version, urljoin(address, dist["tarball"]), "sha512", hexadecimal, 0, package
    )


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
    return _Archive(origin, str(wanted), url, "sha256", digest, size if isinstance(size, int) else 0)


def _version_of(filename: str) -> Version | None:
    is_wheel = filename.endswith(".whl")
    parts = [*filename.split("-"), ""] if is_wheel else ["", filename.removesuffix(".tar.gz").rpartition("-")[2]]
    return parse_pep440(parts[1]) if is_wheel or filename.endswith(".tar.gz") else None


_FINDERS = {
    "npm": (_find_npm, "npm_config_registry", "https://registry.npmjs.org"),
    "pypi": (_find_pypi, "PIP_INDEX_URL", "https://pypi.org/simple"),
}
"""Ecosystem → what looks an archive up, the variable that names the index, and the index without one."""


def _fetch(client: httpx.Client, found: _Archive, path: Path, progress: Progress) -> None:
    """Download an archive to `path`, and compare its digest with that of the index."""
    digest, done, advance = hashlib.new(found.algorithm), 0, None
    with path.open("wb") as file:
        for part in _receive(client, found.url, f"download {found.origin}@{found.version}", found.size):
            done += len(part)
            if done > MAX_ARCHIVE:
                raise ArchiveRefused(f"the archive of {found.origin} is over {MAX_ARCHIVE >> 20} MiB")
            digest.update(part)
            file.write(part)
            advance = advance or progress(found.size)  # not before the consent
            advance(len(part))
    if digest.hexdigest() != str(found.digest).lower():
        hint = "somebody may have changed it on its way: try another network"
        raise ArchiveRefused(f"the archive of {found.origin} has not the digest that the index names", hint=hint)


def _described(archive: Path, name: str, version: str) -> Package:
    """Return the package that the metadata in a source archive describes."""
    data = dict(read_archive(archive, ["PKG-INFO"])).get("PKG-INFO", b"")
    (archive.parent / "PKG-INFO").write_bytes(data[:MAX_METADATA_BYTES])
    try:
        package = python_package(PathDistribution(archive.parent), name)
    except (SourceUnreadable, UsageError) as error:
        raise ArchiveRefused(f"the archive of pypi:{name} has no valid metadata") from error
    if parse_pep440(package.version) != parse_pep440(version):
        raise ArchiveRefused(f"the archive of pypi:{name} is of version {package.version}, and not {version}")
    return package
