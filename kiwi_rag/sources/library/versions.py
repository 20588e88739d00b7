"""Which library and which version a caller means: never another version than the one that was named.

Without a version, that is the one in the lock file of the caller's project, read with bounds and without running
anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from kiwi_rag.errors import NoSuchLibrary, SourceUnreadable, UsageError, VersionNotIndexed
from kiwi_rag.sources.library.record import Library
from kiwi_rag.storage.safe_open import read_optional

_NEWEST = ("latest", "newest")
_SHOWN = 20
_LONGEST = 500  # characters of a name, a version, a key or a property that are looked at
_BARE = re.compile(r"v?\d[\w.+!-]*", re.ASCII)
_RANGE = re.compile(r"[\d*xX]")  # without any of them, parsers take a text for all versions
_WILDCARD = re.compile(r"(?:^|\.)[xX](?:\.|$)")
_ENOUGH = 0.6
"""Score from which a name is taken to mean a library."""


MAX_BYTES = 32 << 20
"""Bytes of a lock file, or of the description of a package."""
_MAX_DEPTH = 40
_NUMBER = re.compile(r"\d[\w.+!-]{0,63}", re.ASCII)
Parse = Callable[[str, str, PurePosixPath], str | None]
"""Returns the version that a lock file (its text) names for a package, for the file at a path below its folder."""


@dataclass(frozen=True)
class Resolution:
    """The library that was meant. ``notice`` must be shown: the lock file of the project names another version."""

    library: Library
    notice: str = ""


def resolve(libraries: Sequence[Library], query: str, path_context: Path | None = None) -> Resolution:
    """Return the library that `query` names, by id, canonical id or alias, in the version that is meant.

    Parameters
    ----------
    libraries
        All libraries of this user.
    query
        ``/owner/name``, ``/owner/name@version``, ``/owner/name/version``, or an alias, also with ``@version``. That is
        a version, a range of npm or PEP 440, or ``latest``. Without it the version in the lock file of the project
        that `path_context` belongs to is taken, else the newest one.
    path_context
        A file or folder of a project, as an absolute path.

    Raises
    ------
    NoSuchLibrary
        When none has this id or alias; the hint names those that are similar, or all.
    VersionNotIndexed
        When it is not indexed in that version; the message lists those that are there.
    UsageError
        When an alias means several libraries.
    """
    versions, wanted = _named(libraries, query)
    # A folder of the user may be of any ecosystem: its aliases are looked for.
    packages = {(one.ecosystem, one.package) for one in versions if one.package}
    packages |= {("", alias) for one in versions for alias in one.aliases if not one.package}
    pin, notice = None, ""
    try:
        pin = find_pin(path_context, packages) if path_context else None
    except SourceUnreadable as error:
        notice = f"{error.message}; the versions in it are not known"
    locked = _equal(versions, pin[1]) if pin else None
    found = choose(versions, wanted) if wanted else locked or choose(versions, "latest")
    if pin and not locked:
        notice = f"{pin[0]} names {found.id}@{pin[1]}, which is not indexed; this is {found.canonical}"
        notice += (adding := _adding(found, pin[1])) and f"; {adding}"
    return Resolution(found, notice)


def newest_first(libraries: Iterable[Library]) -> list[Library]:
    """Return versions of one library, the newest first; pre-releases after all releases."""
    return sorted(libraries, key=lambda one: _parsed(one.version, one.ecosystem), reverse=True)


def rank(libraries: Iterable[Library], name: str) -> list[Library]:
    """Return the libraries that a name may mean, in every version: the best first, and of one id the newest."""
    from rapidfuzz import fuzz

    plain = _split_version(name[:_LONGEST].strip().lower())[0]
    found = list[tuple[float, Library]]()
    for one in newest_first(libraries):
        names = {text.lower() for text in (one.id, one.title, *one.aliases)}
        # Only a name that is the same has the score 1.
        score = 1.0 if plain in names else max(fuzz.WRatio(plain, text) for text in names) / 101
        found += [(round(score, 3), one)] if score >= _ENOUGH else []
    return [one for _, one in sorted(found, key=lambda scored: (-scored[0], scored[1].id))]


def choose(versions: Sequence[Library], wanted: str) -> Library:
    """Return the newest of the versions of one library that `wanted` allows: a version, a range or ``latest``.

    Raises
    ------
    VersionNotIndexed
        When there is none.
    """
    if wanted.lower() in _NEWEST:
        return newest_first(versions)[0]
    if found := _equal(versions, wanted) or next(iter(newest_first(_in_range(versions, wanted))), None):
        return found
    one, newest = versions[0], newest_first(versions)
    there = ", ".join(each.version for each in newest[:_SHOWN]) + (" …" if len(newest) > _SHOWN else "")
    part = f"{wanted}.x means any of them; all: " if _in_range(versions, f"{wanted}.x") else ""
    hint = _adding(one, wanted) or f"{part}kiwi library list"
    raise VersionNotIndexed(f"{one.id} is not indexed in the version {wanted[:80]}; there are {there}", hint=hint)


def _adding(one: Library, named: str) -> str:
    """Return how to add the version of a package that was named; empty where it is no complete version."""
    return f"add it: kiwi library add {one.origin}@{named}" if one.package and _parsed(named, one.ecosystem)[1] else ""


def _named(libraries: Sequence[Library], query: str) -> tuple[list[Library], str]:
    """Return all versions of the one library that a query names, and the version that it names."""
    text = query.strip()
    head, _, tail = text.rpartition("/")
    options = [(text, ""), _split_version(text), (head, tail) if head else (text, "")]
    for name, version in options:
        folded = name.lower() or "/"  # a folder has no package, whose name is empty
        ids = {one.id for one in libraries if folded in (one.id, one.package and one.origin.lower(), *one.aliases)}
        ids = {folded} if folded in ids else ids
        if len(ids) > 1:
            raise UsageError(f"{name} may be {', '.join(sorted(ids))}", hint="name one of these ids")
        if ids:
            return [one for one in libraries if one.id in ids], version
    similar = dict.fromkeys(one.id for one in rank(libraries, text))
    shown = [*similar, *sorted({one.id for one in libraries} - similar.keys())][:_SHOWN]
    there = f"there are {', '.join(shown)}; all: kiwi library list" if shown else "none was added yet"
    raise NoSuchLibrary(f"no such library: {text[:80]}", hint=f"{there}; to add one: kiwi library add --help")


def _split_version(text: str) -> tuple[str, str]:
    at = text.rfind("@")
    return (text, "") if at <= text.rfind("/") + 1 or not at else (text[:at], text[at + 1 :])


def _equal(versions: Sequence[Library], wanted: str) -> Library | None:
    equal = [one for one in versions if _parsed(one.version, one.ecosystem) == _parsed(wanted, one.ecosystem)]
    return min(equal, key=lambda one: one.version != wanted, default=None)


def _in_range(versions: Sequence[Library], wanted: str) -> list[Library]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    # One version is no range: 1.2 is 1.2.0, and 1.2.x any patch of it.
    is_bare = _BARE.fullmatch(wanted[:_LONGEST]) and not _WILDCARD.search(wanted)
    if len(wanted) > _LONGEST or is_bare or not _RANGE.search(wanted):
        return []
    try:
        specifiers = SpecifierSet(wanted)
    except InvalidSpecifier:
        return [one for one in versions if _satisfies(one, wanted)]
    parsed = [(one, parse_pep440(one.version)) for one in versions]
    allowed = bool(specifiers.prereleases)
    return [one for one, v in parsed if v is not None and specifiers.contains(v, prereleases=allowed)]


def _satisfies(library: Library, wanted: str) -> bool:
    """Whether a version is in a range of npm; one of PEP 440 is read as the semantic version with its numbers."""
    import nodesemver

    version, parsed = library.version, parse_pep440(library.version)
    if library.ecosystem != "npm" and parsed is not None:
        version = f"{parsed.major}.{parsed.minor}.{parsed.micro}{'-a' if parsed.is_prerelease else ''}"
    with suppress(ValueError):
        return bool(nodesemver.satisfies(version, wanted, loose=True))
    return False


def parse_pep440(version: str) -> Any:
    """Return a version of Python packages; None for a text that is none."""
    from packaging.version import InvalidVersion, Version

    with suppress(InvalidVersion):
        return Version(version[:_LONGEST])
    return None


def _parsed(version: str, ecosystem: str) -> tuple[bool, int, Any]:
    """Return whether a version is a release, and what it is compared by: SemVer for npm, else PEP 440."""
    import semver

    parsed = None if ecosystem == "npm" else parse_pep440(version)
    if parsed is not None:
        return not parsed.is_prerelease, 2, parsed
    with suppress(ValueError):
        found = semver.Version.parse(version.removeprefix("v")[:_LONGEST])
        return not found.prerelease, 1, found
    return True, 0, version


def find_pin(path: Path, packages: Collection[tuple[str, str]]) -> tuple[Path, str] | None:
    """Return the nearest lock file that names one of these packages, and the version, for the project of `path`.

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
            names = sorted(name for kind, name in packages if kind in ("", ecosystem))
            if version := _read_pin(folder / file, parse, names, relative):
                return folder / file, version
        if (folder / ".git").exists():
            break
    return None


def _read_pin(path: Path, parse: Parse, names: Sequence[str], relative: PurePosixPath) -> str | None:
    """Return the version of the first of these packages that the lock file at `path` names; None without a number."""
    found = read_parsed(path, lambda text: [parse(text, name, relative) or "" for name in names]) if names else None
    return next(filter(_NUMBER.fullmatch, found or ()), None)


def read_parsed(path: Path, parse: Callable[[str], Any]) -> Any:
    """Return what `parse` makes of the text of a file; None where there is no file.

    Raises
    ------
    SourceUnreadable
        When it is too large or cannot be parsed.
    """
    if (data := read_optional(path, MAX_BYTES)) is None:
        return None
    if len(data) > MAX_BYTES:
        raise SourceUnreadable(f"{path} is over {MAX_BYTES >> 20} MiB", hint="remove it, or name the version")
    try:
        return parse(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError, ElementTree.ParseError, LookupError, TypeError, AttributeError) as error:
        raise SourceUnreadable(f"{path} cannot be parsed", hint="correct it, or create it again") from error


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
"""Lock file → ecosystem and what reads it."""
