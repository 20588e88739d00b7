"""An index of skills in a folder: what is read, and what is refused with its code, before anything is written."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import Rejected, SourceUnreadable
from kiwi_rag.sources.skill_archive import pack
from kiwi_rag.usecases import skill_index
from kiwi_rag.usecases.skill_index import FOLDER, SCHEMA, has_index, read_index
from tests.skills import EXECUTABLES, FILES

ARCHIVE = pack(FILES, EXECUTABLES)
ENTRY = {
    "name": "pdf-forms", "type": "archive", "description": "Fill in forms.", "url": "pdf-forms.tar.gz",
    "digest": f"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}",
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site" / FOLDER
    folder.mkdir(parents=True)
    (folder / "pdf-forms.tar.gz").write_bytes(ARCHIVE)
    write(tmp_path / "site", [ENTRY])
    return tmp_path / "site"


def write(site: Path, skills: Any, schema: object = SCHEMA) -> None:
    (site / FOLDER / "index.json").write_text(json.dumps({"$schema": schema, "skills": skills}))


def codes_of(folder: Path) -> list[str]:
    with pytest.raises(Rejected) as refused:
        read_index(folder)
    assert all(finding.hint and finding.path for finding in refused.value.findings)
    return [finding.code for finding in refused.value.findings]


@pytest.mark.parametrize(
    "url", ["pdf-forms.tar.gz", "./pdf-forms.tar.gz", f"/{FOLDER}/pdf-forms.tar.gz", "pdf%2Dforms.tar.gz"]
)
def test_the_skills_of_an_index_are_read_from_the_folder_of_a_site_or_from_its_own(site: Path, url: str) -> None:
    write(site, [{**ENTRY, "url": url, "other": 1}])
    for folder in (site, site / FOLDER):
        assert has_index(folder)
        assert read_index(folder) == [("pdf-forms", FILES, EXECUTABLES)]
    assert not has_index(site.parent)


def test_a_skill_of_one_file_is_read(site: Path) -> None:
    (site / FOLDER / "a").mkdir()
    (site / FOLDER / "a/SKILL.md").write_bytes(FILES["SKILL.md"])
    digest = f"sha256:{hashlib.sha256(FILES['SKILL.md']).hexdigest()}"
    write(site, [ENTRY, {**ENTRY, "name": "a", "type": "skill-md", "url": "a/SKILL.md", "digest": digest}])
    assert [(one.name, len(one.files)) for one in read_index(site)] == [("pdf-forms", len(FILES)), ("a", 1)]


URLS = [
    "https://example.com/pdf-forms.tar.gz", "//example.com/pdf-forms.tar.gz", "file:///etc/passwd", "javascript:x",
    "../pdf-forms.tar.gz", "a/../../pdf-forms.tar.gz", "%2e%2e/pdf-forms.tar.gz", "..%2Fpdf.tar.gz", "/etc/passwd",
    f"/{FOLDER}/../../x", "pdf-forms.tar.gz?x=1", "pdf-forms.tar.gz#x", "a\\\\b", "pdf-forms.tar.gz\n", "", ".", "/",
    ".git/config", "http://[", "a//b", "x" * 5_000, "%00", " pdf-forms.tar.gz",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_is_not_of_a_file_below_the_index_is_refused(site: Path, url: str) -> None:
    write(site, [{**ENTRY, "url": url}])
    assert codes_of(site) == ["index.url"]


CHANGES: dict[str, Any] = {
    "index.digest": [{"digest": "sha256:" + "0" * 64}, {"digest": ENTRY["digest"].upper()}, {"digest": ""}],
    "index.name": [{"name": n} for n in ("PDF", "../x", "", "a--b", "-a", "a" * 65, "a/b", "a_b", "a\n")],
    "index.type": [{"type": "skill"}, {"type": ""}],
    "index.malformed": [{"name": None}, {"url": 7}, {"digest": ["sha256:"]}, {"description": {}}],
    "source.unreadable": [{"url": "missing.tar.gz"}, {"url": "index.json/x"}],
}


@pytest.mark.parametrize(
    ("code", "change"), [(code, change) for code, changes in CHANGES.items() for change in changes]
)
def test_an_entry_that_is_wrong_is_refused_with_its_code(site: Path, code: str, change: dict[str, Any]) -> None:
    write(site, [{**ENTRY, **change}])
    assert codes_of(site) == [code]


@pytest.mark.parametrize("skills", [None, {}, "x", [ENTRY] * 1_001])
def test_skills_that_are_no_list_are_refused(site: Path, skills: object) -> None:
    write(site, skills)
    assert codes_of(site) == ["index.malformed"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", "[" * 100_000, '{"skills": []}', '{"$schema": "https://x"}', "\ud800"]
)
def test_a_file_that_is_no_index_of_this_version_is_refused(site: Path, text: str) -> None:
    (site / FOLDER / "index.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert codes_of(site) == ["index.schema"]


def test_every_skill_that_is_refused_is_named_and_none_is_returned(site: Path) -> None:
    hostile = pack({"SKILL.md": b"x", "../x.md": b"y"}, ())
    (site / FOLDER / "evil.tar.gz").write_bytes(hostile)
    digest = f"sha256:{hashlib.sha256(hostile).hexdigest()}"
    evil = {**ENTRY, "name": "evil", "url": "evil.tar.gz", "digest": digest}
    write(site, [ENTRY, evil, {**ENTRY, "name": "other", "url": "no"}, ENTRY])
    before = sorted(site.rglob("*"))
    assert codes_of(site) == ["archive.path", "source.unreadable", "index.name"]
    assert sorted(site.rglob("*")) == before


def test_after_twenty_refused_skills_no_more_is_read(site: Path) -> None:
    write(site, [{**ENTRY, "url": "no"}] * 1_000)
    assert codes_of(site) == ["source.unreadable"] * 20


def test_an_archive_that_many_skills_name_is_unpacked_once(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack, calls = skill_index.skill_archive.unpack, []
    monkeypatch.setattr(skill_index.skill_archive, "unpack", lambda *given: calls.append(given) or unpack(*given))
    write(site, [{**ENTRY, "name": f"a{number}"} for number in range(1_000)])
    read = read_index(site)
    assert len(read) == 1_000
    assert read[-1] == ("a999", FILES, EXECUTABLES)
    assert len(calls) == 1


def test_links_are_not_followed(site: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(ARCHIVE)
    (site / FOLDER / "pdf-forms.tar.gz").unlink()
    (site / FOLDER / "pdf-forms.tar.gz").symlink_to(outside)
    assert codes_of(site) == ["source.unreadable"]
    (site / FOLDER).rename(tmp_path / "moved")
    (site / FOLDER).symlink_to(tmp_path / "moved")
    with pytest.raises(SourceUnreadable, match="link"):
        read_index(site)


def test_a_pipe_is_not_waited_for(site: Path) -> None:
    (site / FOLDER / "pdf-forms.tar.gz").unlink()
    os.mkfifo(site / FOLDER / "pdf-forms.tar.gz")
    assert codes_of(site) == ["source.unreadable"]


def test_the_size_of_all_skills_together_is_bounded(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(site, [{**ENTRY, "name": f"a{number}"} for number in range(3)])
    assert len(read_index(site)) == 3
    monkeypatch.setattr(skill_index, "_MAX_TOTAL", 2 * sum(map(len, FILES.values())))
    assert codes_of(site) == ["index.size"]
    (site / FOLDER / "index.json").write_bytes(b" " * (3 << 20))
    with pytest.raises(SourceUnreadable, match="2 MiB"):
        read_index(site)
