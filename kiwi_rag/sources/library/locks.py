"""Which version of a package a project uses: its lock files, read with bounds and without running anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.storage.safe_open import read_optional

MAX_BYTES = 32 << 20
_MAX_DEPTH = 40


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
    for folder in _folders(path):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        for file, (ecosystem, parse) in _PARSERS.items():
            names = sorted(name for kind, name in packages if kind in ("", ecosystem))
            text = _read(folder / file) if names else ""
            for name in names if text else ():
                try:
                    version = parse(text, name, relative)
                except (ValueError, RecursionError, ElementTree.ParseError, TypeError, AttributeError) as error:
                    message = f"{folder / file} cannot be read as a lock file"
                    raise SourceUnreadable(message, hint="create it again, or name the version") from error
                if version:
                    return Pin(folder / file, version)
    return None


def _folders(path: Path) -> Iterator[Path]:
    for folder in (path, *path.parents)[:_MAX_DEPTH]:
        yield folder
        if (folder / ".git").exists():
            return


def _read(path: Path) -> str:
    data = read_optional(path, MAX_BYTES) or b""
    if len(data) > MAX_BYTES:
        raise SourceUnreadable(f"{path} is over {MAX_BYTES >> 20} MiB", hint="name the version")
    return data.decode("utf-8", "replace")


def _package_lock(text: str, name: str, relative: PurePosixPath) -> str | None:
    """Return the version that Node.js finds from `relative`; files of version 1 have no `packages`."""
    data = json.loads(text)
    packages = data.get("packages") or {}
    for folder in (relative, *relative.parents):
        if found := packages.get(f"{folder}/node_modules/{name}".removeprefix("./"), {}).get("version"):
            return str(found)
    found = (data.get("dependencies") or {}).get(name, {}).get("version")
    return str(found) if found else None


_LINE = re.compile(r"( *)(?:'([^'\n]*)'|\"([^\"\n]*)\"|([^\s'\"#][^\s]*?)):(?: +(.*))?")


def _pnpm(text: str, name: str, relative: PurePosixPath) -> str | None:
    """Return the version of the folder that `relative` is in, else the only one that is in the file.

    The file is read line by line, as pnpm writes it: a parser of YAML is slow on megabytes, and expands aliases.
    """
    direct: dict[str, str] = {}
    stored = set()
    for keys, value in _entries(text):
        own = keys[:-1] if keys[-1] == "version" else keys
        importer = own[1] if own[0] == "importers" else "."
        is_direct = len(own) == (4 if own[0] == "importers" else 2) and own[-2].lower().endswith("dependencies")
        if is_direct and own[-1] == name and value[:1].isdigit():
            direct[importer] = value
        elif keys[0] == "packages" and len(keys) == 2:
            key = keys[1].removeprefix("/")
            if key.startswith((f"{name}@", f"{name}/")) and key[len(name) + 1].isdigit():
                stored.add(re.split(r"[(_]", key[len(name) + 1 :])[0])
    for folder in (relative, *relative.parents):
        if str(folder) in direct:
            return re.split(r"[(_]", direct[str(folder)])[0]
    return stored.pop() if len(stored) == 1 else None


def _entries(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the path of keys and the value of each entry of block mappings."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            indent = len(match[1])
            above = [*(step for step in above if step[0] < indent), (indent, match[2] or match[3] or match[4] or "")]
            yield [key for _, key in above], (match[5] or "").strip("'\"")


def _yarn(text: str, name: str, _: PurePosixPath) -> str | None:
    entry = rf'^"?(?:[^\n]*, "?)?{re.escape(name)}@[^\n]*:\n  version:? "?([^"\s]+)'
    return _only(re.findall(entry, text, re.MULTILINE))


def _python_lock(text: str, name: str, _: PurePosixPath) -> str | None:
    found = re.findall(r'^\[\[package\]\]\s{1,9}name = "([^"\n]+)"\s{1,9}version = "([^"\n]+)"', text, re.MULTILINE)
    return _only([version for other, version in found if _normal(other) == _normal(name)])


def _requirements(text: str, name: str, _: PurePosixPath) -> str | None:
    found = re.findall(r"^([\w.-]{1,100})(?:\[[^\]\n]{0,200}\])?[ ]*===?[ ]*([^\s;#\\,]+)", text, re.MULTILINE)
    return _only([version for other, version in found if _normal(other) == _normal(name) and "*" not in version])


def _pom(text: str, name: str, _: PurePosixPath) -> str | None:
    """Return the version of a dependency whose artifact, or group and artifact, is `name`; with properties replaced."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities may expand to gigabytes
        raise ValueError("it has a document type")
    root = ElementTree.fromstring(re.sub(r'\sxmlns="[^"]*"', "", text, count=1))  # noqa: S314  # no entities, bounded
    properties = {entry.tag: entry.text or "" for entry in root.iterfind("properties/*")}
    properties["project.version"] = root.findtext("version") or ""
    for dependency in root.iter("dependency"):
        artifact, group = dependency.findtext("artifactId") or "", dependency.findtext("groupId") or ""
        version = (dependency.findtext("version") or "").strip()
        if version and name in (artifact, f"{group}:{artifact}"):
            return re.sub(r"\$\{([^}]+)\}", lambda match: properties.get(match[1], ""), version) or None
    return None


def _only(versions: list[str]) -> str | None:
    """Return the version, if there is one alone: of several the file does not say which one the project imports."""
    return versions[0] if len(set(versions)) == 1 else None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_PARSERS: dict[str, tuple[str, Callable[[str, str, PurePosixPath], Any]]] = {
    "package-lock.json": ("npm", _package_lock),
    "pnpm-lock.yaml": ("npm", _pnpm),
    "yarn.lock": ("npm", _yarn),
    "uv.lock": ("pypi", _python_lock),
    "poetry.lock": ("pypi", _python_lock),
    "requirements.txt": ("pypi", _requirements),
    "pom.xml": ("maven", _pom),
}
