"""Which files of a library are its documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiwi_rag.errors import NotFound, SourceUnreadable
from kiwi_rag.sources.library import discover
from kiwi_rag.sources.library.discover import CODE, EXAMPLE, INCLUDED, PAGE, LibrarySource, role_of, select
from kiwi_rag.sources.library.record import Library
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.storage.safe_open import read_below
from tests.unit.test_library_records import library

ROLES = {
    PAGE: """README.md readme README.txt CHANGELOG CHANGELOG.md CHANGES.rst HISTORY.md UPGRADING.md llms.txt guide.mdx
        packages/core/README.md docs/a.md doc/en/how-to/x.rst docs/topics/testing/tools.txt docs/ref/contrib/i18n.txt
        docs/ref/models/constraints.txt documentation/index.html adr/0001-x.md docs/nb.ipynb docs/security.md
        openapi.yaml api/petstore.openapi.json examples/README.md fastapi/.agents/skills/fastapi/SKILL.md
        dist/docs/app/a.md""",
    EXAMPLE: "examples/a.py samples/b.ts docs_src/body/tutorial.py doc/en/example/fixtures/test_order.py",
    INCLUDED: "docs/conf.py docs/snips/x.toml doc/en/example/tests/test_1.py examples/package.json examples/a.test.js",
    CODE: "fastapi/routing.py src/click/core.py dist/node/index.d.ts index.d.ts src/main.ts lib.d.mts src/l.rs six.py",
    "": """LICENSE.md LICENSE license.rst CODE_OF_CONDUCT.md .github/ISSUE_TEMPLATE/bug.md .github/x.md CONTRIBUTING.md
        tests/README.md test/a.md src/__tests__/x.md node_modules/y/README.md _vendor/z/README.md package-lock.json
        uv.lock pnpm-lock.yaml docs/requirements.txt requirements.txt dist/bundle.min.js docs/_static/app.js lib/a.js
        docs/_build/index.html docs/logo.svg setup.py conftest.py src/a.test.ts pkg/test_x.py templates/page.md
        django/contrib/admin/templates/base.html x.dist-info/METADATA docs/app.min.js
        examples/bench/a.js release_blobs.sql changelog/README.rst dist/readme.js""",
}


@pytest.mark.parametrize(("role", "path"), [(role, path) for role, paths in ROLES.items() for path in paths.split()])
def test_the_path_decides_what_a_file_is(role: str, path: str) -> None:
    assert role_of(path) == role


def test_folders_that_are_named_are_all_that_counts() -> None:
    assert role_of("website/guide/a.txt", ["website"]) == PAGE
    assert role_of("README.md", ["website"]) == role_of("website2/a.md", ["website"]) == ""


@pytest.mark.parametrize(
    ("english", "translations"),
    [
        ("docs/en/a.md", "docs/zh/a.md docs/zh-hant/b.md docs/pt-br/a.md docs/em/a.md"),
        ("docs/guide/a.md", "docs/zh/guide/a.md docs/ja/guide/a.md"),
        ("docs/a.md", "i18n/fr/docs/a.md docs/i18n/de/b.md docs/a.zh-CN.md docs/a.fr.md"),
        ("README.md", "README.zh-CN.md README_ja.md README-fr.md readme.de.md"),
    ],
)
def test_translations_are_left_out_where_there_is_english(english: str, translations: str) -> None:
    assert list(select([english, *translations.split()])) == [english]


def test_other_languages_stay_where_there_is_no_english() -> None:
    paths = ["docs/zh/a.md", "docs/ja/b.md", "docs/topics/i18n/index.txt", "docs/go/install.md", "docs/install.md"]
    assert list(select(paths)) == paths


def test_code_is_chosen_only_when_asked_for() -> None:
    assert list(select(["a/b.py", "README.md"])) == ["README.md"]
    assert list(select(["a/b.py", "README.md"], code=True)) == ["a/b.py", "README.md"]


def source_of(one: Library, max_bytes: int) -> LibrarySource:
    return LibrarySource(WorkspaceConfig(one.root, one.name), max_bytes, one)


def found(root: Path, paths: list[str] | None = None, **others: object) -> list[str]:
    report = SyncReport()
    one = library(root=root, **others)
    listed = [file.path for file in source_of(one, 1 << 20).find(paths, [], report)]
    assert not report.failed
    return listed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "README.md": "# Harbour\n",
        "docs/a.md": "# A\n\n" + "Ships are assigned a berth before they arrive at the pier.\n" * 3,
        "docs/draft.md": "# Draft\n",
        "docs/code.py": "print(1)\n",
        "harbour/berth.py": '"""Berths."""\n',
        "harbour/empty.py": "x = 1\n",
        "examples/__init__.py": "",
        "tests/test_a.md": "# T\n",
        ".gitignore": "draft.md\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_the_files_of_a_folder_are_found_by_the_rules_of_a_workspace(root: Path) -> None:
    assert found(root) == ["README.md", "docs/a.md"]
    assert found(root, ["docs"]) == ["docs/a.md"]
    assert found(root, include=("docs",)) == ["docs/a.md"]
    assert found(root, code=True) == ["README.md", "docs/a.md", "harbour/berth.py"]


def test_llms_full_is_left_out_where_it_repeats_pages(root: Path) -> None:
    (root / "llms-full.txt").write_text("Another text, about other things than the pages here.\n")
    assert "llms-full.txt" in found(root)
    (root / "llms-full.txt").write_text((root / "README.md").read_text() + (root / "docs/a.md").read_text())
    assert "llms-full.txt" not in found(root)


def test_llms_full_alone_is_indexed(tmp_path: Path) -> None:
    (tmp_path / "llms-full.txt").write_text("Ships are assigned a berth before they arrive at the pier.\n")
    assert found(tmp_path) == ["llms-full.txt"]


def test_a_link_out_of_the_folder_is_reported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("other") / "secret.md"
    secret.write_text("x")
    (root / "docs/link.md").symlink_to(secret)
    report = SyncReport()
    paths = [file.path for file in source_of(library(root=root), 1 << 20).find(None, [], report)]
    assert "docs/link.md" not in paths and list(report.failed) == ["docs/link.md"]


def test_a_file_that_cannot_be_read_does_not_hide_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path, path: str, size: int) -> tuple[bytes, object]:
        if path in ("harbour/berth.py", "docs/a.md"):
            raise SourceUnreadable(path)
        return read_below(folder, path, size)

    (root / "llms-full.txt").write_text("x")
    monkeypatch.setattr(discover, "read_below", refuse)
    assert found(root, code=True) == ["README.md", "docs/a.md", "harbour/berth.py", "llms-full.txt"]


def test_a_folder_that_is_gone_is_no_empty_library(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is no folder") as error:
        found(tmp_path / "gone")
    assert error.value.hint.endswith("kiwi library remove /vitejs/vite@1.0.0")


def test_the_commit_is_of_a_users_folder_alone(tmp_path: Path) -> None:
    commit = "12ab" * 10
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text(f"{commit}\n")
    (tmp_path / "docs").mkdir()
    assert source_of(library(root=tmp_path / "docs"), 1).commit == commit
    assert source_of(library(root=tmp_path / "docs", origin="npm:vite"), 1).commit == ""
