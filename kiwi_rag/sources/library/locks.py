"""Which version of a package a project uses: its lock files, read with bounds and without running anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.storage.safe_open import read_optional

MAX_BYTES = 32 << 20
_MAX_DEPTH = 40
Parse = Callable[[str, str, PurePosixPath], str | None]
"""Returns the version that a lock file (its text) names for a package, for the file at a path below its folder."""
_LONGEST = 500  # characters of a key or a property that are looked at: a file can repeat them millions of times
_VERSION = re.compile(r"\d[\w.+!-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Pin:
    """The version of a package that a lock file names."""

    file: Path
    version: str


def find_pin(path: Path, packages: Collection[tuple[str, str]]) -> Pin | None:
    """Return what the nearest lock file says about one of these packages, for the project with the file at `path`.

    Folders are searched from `path` up to the root of its git repository. A package is its ecosystem, which may be
    empty for any, and its name.

    Raises
    ------
    SourceUnreadable
        When a lock file is too large or cannot be parsed.
    """
    for folder in (path, *path.parents)[:_MAX_DEPTH]:
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        for file, (ecosystem, parse) in PARSERS.items():
            for name in sorted(name for kind, name in packages if kind in ("", ecosystem)):
                if version := read_version(folder / file, name, relative, parse):
                    return Pin(folder / file, version)
        if (folder / ".git").exists():
            break
    return None


def read_version(path: Path, name: str, relative: PurePosixPath, parse: Parse) -> str | None:
    """Return the version of a package in the lock file at `path`; None without one, or when it is no number."""
    data = read_optional(path, MAX_BYTES)
    if data is None:
        return None
    if len(data) > MAX_BYTES:
        raise SourceUnreadable(f"{path} is over {MAX_BYTES >> 20} MiB", hint="name the version")
    try:
        version = parse(data.decode("utf-8", "replace"), name, relative)
    except (ValueError, RecursionError, ElementTree.ParseError, LookupError, TypeError, AttributeError) as error:
        message = f"{path} cannot be read as a lock file"
        raise SourceUnreadable(message, hint="create it again, or name the version") from error
    return version if version and _VERSION.fullmatch(version) else None


def _package_lock(text: str, name: str, relative: PurePosixPath) -> str | None:
    """Return the version that Node.js finds from `relative`; files of version 1 have no `packages`."""
    data = json.loads(text)
    folders = [f"{folder}/node_modules/{name}".removeprefix("./") for folder in (relative, *relative.parents)]
    places = [data.get("packages", {}).get(folder) for folder in folders] + [data.get("dependencies", {}).get(name)]
    return next((str(place["version"]) for place in places if place and "version" in place), None)


_ENTRY = re.compile(r"^( {0,8})('[^'\n]*'|\"[^\"\n]*\"|[^\s'\"#][^\s]*?):(?: +(.*))?$", re.MULTILINE)


def _pnpm(text: str, name: str, relative: PurePosixPath) -> str | None:
    """Return the version of the folder that `relative` is in, else the only one that is in the file.

    The entries are read line by line, as pnpm writes them: a parser of YAML is slow on megabytes, and expands aliases.
    """
    direct: dict[str, str] = {}
    stored: set[str] = set()
    above: list[tuple[int, str]] = []
    is_direct = re.compile(rf"(?:importers\0(.+)\0)?\w*[dD]ependencies\0{re.escape(name)}(?:\0version)?")
    is_stored = re.compile(rf"packages\0/?{re.escape(name)}[@/](\d[^(_\0]*)[^\0]*")
    for indent, key, value in _ENTRY.findall(text):
        above = [*(step for step in above if step[0] < len(indent)), (len(indent), key[:_LONGEST].strip("'\""))]
        keys = "\0".join(step for _, step in above)
        if found := is_direct.fullmatch(keys):
            direct[found[1] or "."] = re.split(r"[(_]", value.strip("'\""))[0]
        elif found := is_stored.fullmatch(keys):
            stored.add(found[1])
    own = [direct[str(folder)] for folder in (relative, *relative.parents) if str(folder) in direct]
    return own[0] if own else _only(stored)


def _pom(text: str, name: str, _: PurePosixPath) -> str | None:
    """Return the version of a dependency whose artifact, or group and artifact, is `name`; with properties replaced."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities may expand to gigabytes
        raise ValueError("it has a document type")
    root = ElementTree.fromstring(re.sub(r'\sxmlns="[^"]*"', "", text, count=1))  # noqa: S314  # no entities, bounded
    properties = {entry.tag: (entry.text or "")[:_LONGEST] for entry in root.iterfind("properties/*")}
    for dependency in root.iter("dependency"):
        artifact, group, version = (dependency.findtext(tag) or "" for tag in ("artifactId", "groupId", "version"))
        if version and name in (artifact, f"{group}:{artifact}"):
            return re.sub(r"\$\{([^}]+)\}", lambda match: properties.get(match[1], ""), version.strip()[:_LONGEST])
    return None


def _listed(pattern: str, normal: Callable[[str], str] = str) -> Parse:
    """Return what reads a file in which each package is a match of `pattern`: its name, then its version."""

    def parse(text: str, name: str, _: PurePosixPath) -> str | None:
        found = re.findall(pattern, text, re.MULTILINE)
        return _only({version for other, version in found if normal(other) == normal(name)})

    return parse


def _only(versions: Collection[str]) -> str | None:
    """Return the version, if there is one alone: of several the file does not say which one the project imports."""
    return next(iter(versions)) if len(versions) == 1 else None


def normal_name(name: str) -> str:
    """Return a name of a Python package as its index has it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


_TOML = _listed(r'^name = "([^"\n]+)"\nversion = "([^"\n]+)"', normal_name)
PARSERS: dict[str, tuple[str, Parse]] = {
    "package-lock.json": ("npm", _package_lock),
    "pnpm-lock.yaml": ("npm", _pnpm),
    "yarn.lock": ("npm", _listed(r'^"?(@?[^@\s"]+)@[^\n]*:\n  version:? "?([^"\s]+)')),
    "uv.lock": ("pypi", _TOML),
    "poetry.lock": ("pypi", _TOML),
    "requirements.txt": ("pypi", _listed(r"^([\w.-]+)(?:\[[^\]\n]*\])?[ ]*===?[ ]*([^\s;#\\,]+)", normal_name)),
    "pom.xml": ("maven", _pom),
}
"""File → ecosystem and what reads it."""
