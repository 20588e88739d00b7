"""The list of packages whose skills the gate is measured with, and which of their folders are taken."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from benchmarks import skills_fetch
from benchmarks.skills_fetch import EACH, LIST, _archive, _drawn, _File, packages
from benchmarks.trees_fetch import NotFetched

DIGESTS = {"sha512": 64, "sha256": 32}


def test_every_package_is_pinned_by_version_and_digest() -> None:
    pinned = list(packages(LIST.read_text()))
    assert len(pinned) == len({package for package, _ in pinned}) >= 30
    for package, digest in pinned:
        assert re.fullmatch(r"(npm|pypi):(@[a-z-]+/)?[a-z0-9-]+@[0-9][\w.-]*", package)
        algorithm, _, encoded = digest.partition("-")
        assert len(base64.b64decode(encoded, validate=True)) == DIGESTS[algorithm]


def test_a_skill_within_another_belongs_to_that_one_and_the_root_is_none() -> None:
    file = _File(b"", False)
    paths = ["SKILL.md", "a/outer/SKILL.md", "a/outer/inner/SKILL.md", "b/SKILL.md", "b/c.md", "d/skill.md"]
    assert sorted(_drawn(dict.fromkeys(paths, file))) == ["a/outer", "b"]
    many = {f"s/{n}/SKILL.md": file for n in range(2 * EACH)}
    assert len(_drawn(many)) == EACH
    assert _drawn(many) == _drawn(dict(reversed(many.items())))


@pytest.mark.parametrize("package", ["npm:a@1.0.0", "pypi:a@1.0.0"])
def test_an_archive_that_is_not_the_pinned_one_is_not_read(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skills_fetch, "CACHE", tmp_path)
    monkeypatch.setattr(skills_fetch, "_run", lambda folder, *_: (folder / "a.whl").write_bytes(b"other"))
    with pytest.raises(NotFetched, match=r"a@1\.0\.0: the archive is not the one that real_skills\.txt pins"):
        _archive(package, "sha256-" + base64.b64encode(bytes(32)).decode())
