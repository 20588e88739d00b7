"""Real skills of npm and PyPI packages, by their ordinary clients, kept in the cache folder from one run to the next.

``tests/data/real_skills.txt`` pins the packages and the digests of their archives. Of each, up to `EACH` skills are
laid below one folder of items, as ``skills/<package>/<name>/``; which ones is drawn by a digest, the same in every run.
No code of a package is run: archives of npm are unpacked, and of PyPI only wheels are taken.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from benchmarks.place import MODELS_OF
from benchmarks.trees_fetch import NotFetched, _run
from tests.shared import ROOT

LIST = ROOT / "tests/data/real_skills.txt"
CACHE = MODELS_OF / "real-skills"
EACH = 25
MAIN = "SKILL.md"


class RealSkill(NamedTuple):
    """A skill of a package: ``npm:name@version``, its path in the archive, and its folder here."""

    package: str
    path: str
    folder: Path


class _File(NamedTuple):
    data: bytes
    is_executable: bool


def skills() -> list[RealSkill]:
    """Return all skills, fetched if they are not there yet.

    Raises
    ------
    NotFetched
        When a client is missing or fails, or an archive is not the one that is pinned.
    """
    pinned = LIST.read_text()
    mark = CACHE / "fetched.json"
    recorded = json.loads(mark.read_text()) if mark.is_file() else {}
    if recorded.get("pinned") != pinned:
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        seen: set[bytes] = set()
        laid = [skill for line in packages(pinned) for skill in _lay(*line, seen)]
        recorded = {"pinned": pinned, "skills": [[*skill[:2], str(skill.folder.relative_to(CACHE))] for skill in laid]}
        mark.write_text(json.dumps(recorded, indent=1))
    return [RealSkill(package, path, CACHE / folder) for package, path, folder in recorded["skills"]]


def packages(pinned: str) -> Iterator[tuple[str, str]]:
    """Yield each package of the list with the digest of its archive."""
    for line in pinned.splitlines():
        if line and not line.startswith("#"):
            package, digest = line.split()
            yield package, digest


def _lay(package: str, digest: str, seen: set[bytes]) -> Iterator[RealSkill]:
    """Write the skills of a package; a ``SKILL.md`` that another one equals is left out."""
    files = _files(_archive(package, digest))
    name = package.partition(":")[2].rpartition("@")[0]
    folder = CACHE / "ai/skills" / re.sub("[^a-z0-9]+", "-", name).strip("-")
    for path in _drawn(files):
        main = hashlib.sha256(files[f"{path}/{MAIN}"].data).digest()
        target = folder / PurePosixPath(path).name
        if main in seen or target.exists():
            continue
        seen.add(main)
        for name in files:
            if name.startswith(f"{path}/"):
                _write(target / name.removeprefix(f"{path}/"), files[name])
        yield RealSkill(package, path, target)


def _archive(package: str, digest: str) -> Path:
    registry, _, named = package.partition(":")
    folder = CACHE / "archive"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if registry == "npm":
        _run(folder, "npm", "pack", "--ignore-scripts", named)
    else:
        _run(folder, "pip", "download", "--no-deps", "--only-binary", ":all:", named.replace("@", "=="))
    archive = next(folder.iterdir())
    algorithm, _, expected = digest.partition("-")
    if base64.b64encode(hashlib.new(algorithm, archive.read_bytes()).digest()).decode() != expected:
        raise NotFetched(f"{package}: the archive is not the one that {LIST.name} pins")
    return archive


def _files(archive: Path) -> Mapping[str, _File]:
    """Return the files of an archive by their paths, of npm's without the first folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            entries = [entry for entry in wheel.infolist() if not entry.is_dir()]
            return {
                entry.filename: _File(wheel.read(entry), bool(entry.external_attr >> 16 & 0o111)) for entry in entries
            }
    with tarfile.open(archive) as packed:
        return {
            member.name.partition("/")[2]: _File(content.read(), bool(member.mode & 0o111))
            for member in packed
            if (content := packed.extractfile(member))
        }


def _drawn(files: Mapping[str, _File]) -> list[str]:
    """Return the folders of up to `EACH` skills, in a drawn order; a skill within another belongs to that one."""
    folders = {str(path.parent) for path in map(PurePosixPath, files) if path.name == MAIN} - {"."}
    outer = [path for path in folders if folders.isdisjoint(map(str, PurePosixPath(path).parents))]
    return sorted(outer, key=lambda path: hashlib.sha256(path.encode()).digest())[:EACH]


def _write(path: Path, file: _File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.data)
    path.chmod(0o755 if file.is_executable else 0o644)


if __name__ == "__main__":
    print(f"{len(skills())} skills below {CACHE}")
