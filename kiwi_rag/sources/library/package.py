"""Where the documentation of a library comes from: a folder, or a package that is installed in a project."""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import Distribution, MetadataPathFinder
from pathlib import Path
from typing import Any

from kiwi_rag.errors import NotFound, SourceUnreadable, UsageError
from kiwi_rag.sources.library.record import PATH, check_id, check_version
from kiwi_rag.sources.library.versions import normal_name, read_parsed
from kiwi_rag.sources.workspace.config import git_folder

MAX_METADATA_BYTES = 4 << 20
_ECOSYSTEMS = ("npm", "pypi")
_NAME = re.compile(r"(?:@[a-z0-9~-][\w.~-]{0,99}/)?[a-z0-9~-][\w.~-]{0,99}", re.ASCII | re.IGNORECASE)
_REPOSITORY = re.compile(
    r"(?:(?:^|[/@.:])(?:github\.com|gitlab\.com|codeberg\.org)[/:]+|^(?:github:|gitlab:)?)"
    r"(?!sponsors/)([\w-][\w.-]*)/([\w.-]+?)(?:\.git)?/?(?:[/#?].*)?$",
    re.ASCII,
)
_REMOTE = re.compile(r"^\s*url = (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """A folder with documentation, or a package, and what it says of itself.

    ``origin`` is as in `Library`. ``version`` is empty where a folder does not tell it. ``folder`` has the files; None
    for a package that is not on this machine. ``files`` are paths below it, where other packages share the folder.
    ``texts`` has the README that a Python distribution has in its metadata.
    """

    origin: str
    version: str
    id: str
    title: str
    aliases: tuple[str, ...] = ()
    folder: Path | None = None
    files: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


def parse_origin(text: str) -> tuple[str, str, str]:
    """Return ecosystem, name and version of ``npm:NAME[@V]`` or ``pypi:NAME[@V]``; ecosystem ``path`` for a path.

    Raises
    ------
    UsageError
        When the name or the version is not allowed.
    """
    ecosystem, separator, rest = text.partition(":")
    if not separator or ecosystem not in _ECOSYSTEMS:
        return PATH, text, ""
    at = rest.find("@", 1)
    name, version = (rest[:at], check_version(rest[at + 1 :])) if at > 0 else (rest, "")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r} cannot be the name of a package", hint="as in npm:vite or pypi:flask@3.1.0")
    return ecosystem, normal_name(name) if ecosystem == "pypi" else name, version


def locate(origin: str, from_folder: Path) -> Package | None:
    """Return the package that `origin` names, as it is installed for the project in `from_folder`, or a folder.

    None for a package that is not installed there, or not in the version that `origin` names.

    Raises
    ------
    NotFound
        When the folder does not exist.
    UsageError
        When `origin` cannot name one.
    SourceUnreadable
        When its metadata cannot be read.
    """
    ecosystem, name, version = parse_origin(origin)
    if ecosystem == PATH:
        return _at(from_folder / os.path.expanduser(name))  # noqa: PTH111  # Path raises where there is no such user
    found = (_npm if ecosystem == "npm" else _pypi)(name, from_folder)
    return next((package for package in found if version in ("", package.version)), None)


def _at(folder: Path) -> Package:
    """Return a folder of the user as a package; what it does not say of itself is empty, or from its name."""
    if not folder.is_dir():
        raise NotFound(f"{folder} is no folder", hint="name a folder, npm:NAME or pypi:NAME")
    npm = _table(read_parsed(folder / "package.json", json.loads))
    project = _table(_table(read_parsed(folder / "pyproject.toml", tomllib.loads)).get("project"))
    git = git_folder(folder)
    remotes = read_parsed(git / "config", _REMOTE.findall) if git else None
    own = re.sub(r"[^a-z0-9._~-]+", "-", folder.resolve().name.lower()).lstrip("._~-") or "folder"
    names = [table["name"] for table in (npm, project) if isinstance(table.get("name"), str)]
    versions = [table["version"] for table in (npm, project) if isinstance(table.get("version"), str)]
    addresses = [_repository(npm)[0], *map(str, _table(project.get("urls")).values()), *(remotes or ())]
    found = (repository_id(addresses) or f"/local/{own}", (names or [own])[0], tuple(names))
    return Package(PATH, (versions or [""])[0], *found, folder)


def _npm(name: str, start: Path) -> Iterator[Package]:
    """Yield the versions of a package in `node_modules`, the one that the project imports first."""
    for folder in (start.absolute(), *start.absolute().parents):
        modules = folder / "node_modules"
        # pnpm keeps what nothing at the top depends on in a folder of its own for each version.
        stored = sorted(modules.glob(f".pnpm/{name.replace('/', '+')}@*/node_modules/{name}"))
        for place in (modules / name, modules / ".pnpm/node_modules" / name, *stored):
            manifest = _table(read_parsed(place.resolve() / "package.json", json.loads))
            if package := npm_package(manifest, name, place.resolve()):
                yield package


def npm_package(manifest: Mapping[str, Any], name: str, folder: Path | None = None) -> Package | None:
    """Return the package that a ``package.json`` describes; None if it is another one, or has no version."""
    version = manifest.get("version")
    if manifest.get("name") != name or not isinstance(version, str):
        return None
    url, directory = _repository(manifest)
    named = (f"npm:{name}", check_version(version), _id_of(repository_id([url]), name, "npm", shared=bool(directory)))
    return Package(*named, name, (name, name.rpartition("/")[2]), folder)


def _repository(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the address of the repository that a ``package.json`` names, and the folder in it."""
    repository = manifest.get("repository")
    fields = _table(repository) or {"url": repository}
    return str(fields.get("url") or ""), str(fields.get("directory") or "")


def _id_of(repository: str, name: str, ecosystem: str, *, shared: bool) -> str:
    """Return the repository as the id; of other packages than its main one in a `shared` repository, the name."""
    first, last = (re.sub(r"\.js$|[-_.]", "", text.rpartition("/")[2].lower()) for text in (repository, name))
    return repository if repository and (first == last or not shared) else f"/{ecosystem}/{name.lower()}"


def _pypi(name: str, start: Path) -> Iterator[Package]:
    """Yield the distribution in the environments of the project, then in the active one."""
    folders = (start.absolute(), *start.absolute().parents)
    places = [folder / environment for folder in folders for environment in (".venv", "venv")]
    places += [Path(os.environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    for place in places:
        for site in (*sorted(place.glob("lib/python3*/site-packages")), *place.glob("Lib/site-packages")):
            context = MetadataPathFinder.Context(name=name, path=[str(site)])
            for found in MetadataPathFinder.find_distributions(context):
                yield python_package(found, name, site)


def python_package(found: Distribution, name: str, site: Path | None = None) -> Package:
    """Return the package that the metadata of a distribution describes, installed in `site`.

    Raises
    ------
    SourceUnreadable
        When its metadata cannot be parsed.
    UsageError
        When it has no valid version.
    """
    try:
        metadata: Any = found.metadata
        urls = [value.rpartition(",")[2].strip() for value in metadata.get_all("Project-URL") or []]
        # The repository's own address is mostly the shortest: others lead to its issues and releases.
        repository = repository_id([*sorted(urls, key=len), str(metadata.get("Home-page") or "")])
        chosen = _id_of(repository, name, "pypi", shared=any("/tree/" in url for url in urls))
        readme = "README.md" if "markdown" in str(metadata.get("Description-Content-Type")) else "README.rst"
        texts = {readme: str(metadata.get("Description") or metadata.get_payload() or "")}
        version, title = check_version(str(metadata.get("Version") or "")), str(metadata.get("Name") or name)
        files = tuple(path.as_posix() for path in (found.files or ())) if site else ()
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, csv.Error) as error:
        message = f"the metadata of pypi:{name} in {site} cannot be parsed"
        raise SourceUnreadable(message, hint="install it again") from error
    return Package(f"pypi:{name}", version, chosen, title, (name, title), site, files, texts)


def repository_id(urls: Sequence[str]) -> str:
    """Return the id that the first address of a repository gives; empty when none is one."""
    for url in urls:
        if match := _REPOSITORY.search(url[:2_000]):
            with suppress(UsageError):
                return check_id(f"/{match[1]}/{match[2]}")
    return ""


def _table(value: object) -> dict[str, Any]:
    """Return the members of a JSON object or a TOML table; none for another value."""
    return value if isinstance(value, dict) else {}
