"""Packages: where they are installed, what they say of themselves, and what is unpacked of them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kiwi_rag.errors import ArchiveRefused, NotFound, SourceUnreadable, UsageError
from kiwi_rag.sources.library import archive as unpacking
from kiwi_rag.sources.library.package import Package, locate, npm_package, repository_id
from kiwi_rag.sources.library.record import Library, LibraryRecords
from kiwi_rag.usecases.library import Addition


def npm(folder: Path, name: str = "vite", version: str = "7.0.0", **others: object) -> Path:
    place = folder / "node_modules" / name
    place.mkdir(parents=True)
    (place / "package.json").write_text(json.dumps({"name": name, "version": version, **others}))
    (place / "README.md").write_text(f"# {name}\n")
    return place


def pypi(folder: Path, version: str = "0.121.0", extra: str = "") -> Path:
    site = folder / ".venv/lib/python3.12/site-packages"
    info = site / f"fast_api-{version}.dist-info"
    (site / "fast_api/docs").mkdir(parents=True)
    info.mkdir()
    (site / "fast_api/docs/a.md").write_text("# A\n")
    (site / "fast_api/core.py").write_text('"""Core."""\n')
    head = f"Metadata-Version: 2.1\nName: Fast-API\nVersion: {version}\n{extra}"
    (info / "METADATA").write_text(f"{head}Description-Content-Type: text/markdown\n\n# Fast API\n")
    names = ["fast_api/docs/a.md", "fast_api/core.py", f"{info.name}/METADATA", "../../../bin/fast", "gone.md"]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    (site / "other.md").write_text("# Of another package\n")
    return site


def test_an_npm_package_is_found_from_a_folder_below(tmp_path: Path) -> None:
    npm(tmp_path, repository={"type": "git", "url": "git+https://github.com/VitejS/vite.git"})
    (tmp_path / "src/deep").mkdir(parents=True)
    found = locate("npm:vite", tmp_path / "src/deep")
    assert (found.origin, found.version, found.id, found.title) == ("npm:vite", "7.0.0", "/vitejs/vite", "vite")
    library = library_of(found, LibraryRecords(tmp_path / "libraries"))
    assert library.canonical == "/vitejs/vite@7.0.0" and library.aliases == ("vite",)
    assert library.root == tmp_path / "libraries" / library.name


def test_a_package_does_not_replace_another_one_of_the_same_id(tmp_path: Path) -> None:
    npm(tmp_path, repository="a/vite")
    pypi(tmp_path, version="7.0.0")
    records = LibraryRecords(tmp_path / "libraries")
    first = library_of(locate("npm:vite", tmp_path), records)
    records.write(first)
    assert library_of(locate("npm:vite", tmp_path), records).canonical == first.canonical
    with pytest.raises(UsageError, match=r"/a/vite@7\.0\.0 is there already") as error:
        library_of(locate("pypi:fast-api", tmp_path), records, id="/a/vite")
    assert error.value.hint.endswith("kiwi library remove /a/vite@7.0.0")


def test_pnpm_keeps_packages_in_a_folder_of_their_own(tmp_path: Path) -> None:
    npm(tmp_path / "node_modules/.pnpm/@a+b@1.0.0_x", "@a/b", "1.0.0")
    stored = npm(tmp_path / "node_modules/.pnpm/vite@7.0.0", "vite")
    (tmp_path / "node_modules/vite").symlink_to(stored)
    assert locate("npm:vite", tmp_path).folder == stored
    assert locate("npm:@a/b@1.0.0", tmp_path).version == "1.0.0"


def test_a_version_that_is_not_installed_is_not_replaced(tmp_path: Path) -> None:
    npm(tmp_path)
    assert locate("npm:vite@6.0.0", tmp_path) is None
    assert locate("npm:other", tmp_path) is None


def test_a_python_package_is_found_in_the_projects_environment(tmp_path: Path) -> None:
    site = pypi(tmp_path, extra="Project-URL: Source, https://github.com/Fast/API/issues\n")
    found = locate("pypi:fast.api", tmp_path / "src")
    assert (found.origin, found.version, found.id) == ("pypi:fast-api", "0.121.0", "/fast/api")
    assert (found.title, found.folder, found.texts) == ("Fast-API", site, {"README.md": "# Fast API\n"})
    assert found.aliases == ("fast-api", "Fast-API")


def test_the_active_environment_counts_where_the_project_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pypi(tmp_path / "elsewhere")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "elsewhere/.venv"))
    assert locate("pypi:fast-api", tmp_path).id == "/pypi/fast-api"
    monkeypatch.delenv("VIRTUAL_ENV")
    assert locate("pypi:fast-api", tmp_path) is None


@pytest.mark.parametrize(
    "origin", ["npm:", "npm:../x", "npm:@a/../b", "npm:a/b/c", "pypi:.x", "npm:vite@../1", "pypi:a b", "npm:@"]
)
def test_what_is_no_package_is_refused(origin: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        locate(origin, tmp_path)


@pytest.mark.parametrize(
    ("name", "repository", "expected"),
    [
        ("vite", {"url": "git+https://github.com/vitejs/vite.git", "directory": "packages/vite"}, "/vitejs/vite"),
        ("create-vite", {"url": "https://github.com/vitejs/vite", "directory": "packages/x"}, "/npm/create-vite"),
        ("next", {"url": "https://github.com/vercel/next.js", "directory": "packages/next"}, "/vercel/next.js"),
        ("@babel/core", {"url": "https://github.com/babel/babel", "directory": "x"}, "/npm/@babel/core"),
        ("a", "github:Owner/Name", "/owner/name"),
        ("a", "owner/name", "/owner/name"),
        ("a", "gitlab:owner/name", "/owner/name"),
        ("a", {"url": "git@github.com:owner/name.git"}, "/owner/name"),
        ("a", {"url": "ssh://git@codeberg.org/owner/name"}, "/owner/name"),
        ("a", {"url": "https://evilgithub.com/owner/name"}, "/npm/a"),
        ("a", {"url": "https://example.org/owner/name"}, "/npm/a"),
        ("a", 5, "/npm/a"),
        ("a", None, "/npm/a"),
    ],
)
def test_the_repository_gives_the_id(name: str, repository: object, expected: str) -> None:
    assert npm_package({"name": name, "version": "1.0.0", "repository": repository}, name).id == expected


def test_a_sponsor_is_no_owner() -> None:
    assert repository_id(["https://github.com/sponsors/me", "https://github.com/o/n/blob/main/x.md"]) == "/o/n"
    assert repository_id(["https://github.com/" + "a/" * 5000]) == "/a/a"
    assert repository_id(["https://github.com/", "", "https://github.com/o", "x"]) == ""


def test_one_of_several_packages_in_a_repository_keeps_its_name(tmp_path: Path) -> None:
    pypi(tmp_path, extra="Project-URL: Source, https://github.com/big/repo/tree/main/libs/x\n")
    assert locate("pypi:fast-api", tmp_path).id == "/pypi/fast-api"


def test_a_folder_says_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "My Docs"
    folder.mkdir()
    bare = locate("My Docs", tmp_path)
    assert (bare.id, bare.version, bare.title) == ("/local/my-docs", "", "my-docs")
    records = LibraryRecords(tmp_path / "libraries")
    with pytest.raises(UsageError, match="which version") as error:
        library_of(bare, records)
    assert error.value.hint == "name it: --version 1.0.0"
    given = library_of(bare, records, version="v2.0", id="/Acme/Docs", include=("guide",), code=True)
    assert (given.canonical, given.root, given.include) == ("/acme/docs@2.0", folder.resolve(), ("guide",))
    (folder / "pyproject.toml").write_text('[project]\nname = "acme"\nversion = "1.2"\n')
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text('[remote "origin"]\n\turl = git@github.com:Acme/Tool.git\n')
    found = locate(str(folder), Path("/"))
    assert (found.id, found.version, found.aliases) == ("/acme/tool", "1.2", ("acme",))
    (folder / "package.json").write_text("{")
    with pytest.raises(SourceUnreadable, match=r"package\.json cannot be parsed"):
        locate(str(folder), Path("/"))
    with pytest.raises(NotFound, match="is no folder"):
        locate("gone", tmp_path)


# --- what is unpacked


def unpack(
    package: Package, target: Path, path: Path | None = None, *, include: tuple[str, ...] = (), code: bool = False
) -> None:
    unpacking.unpack(package, Library("/a/b", "1.0", "", (), package.origin, target, include, code), path)


def library_of(package: Package, records: LibraryRecords, **others: Any) -> Library:
    return Addition("", Path(), **others).library_of(package, records)


def files_in(folder: Path) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*") if file.is_file()}


def test_the_documentation_of_an_installed_package_is_copied(tmp_path: Path) -> None:
    pypi(tmp_path)
    package, target = locate("pypi:fast-api", tmp_path), tmp_path / "target"
    unpack(package, target)
    assert files_in(target) == {"README.md": "# Fast API\n", "fast_api/docs/a.md": "# A\n"}
    unpack(package, target, code=True)
    assert "fast_api/core.py" in files_in(target)
    place = npm(tmp_path)
    (place / "docs").mkdir()
    (place / "docs/secret.md").symlink_to(tmp_path / "target/README.md")
    unpack(locate("npm:vite", tmp_path), target)
    assert files_in(target) == {"README.md": "# vite\n"}


def test_a_folder_of_documentation_in_a_package_may_end_in_a_slash(tmp_path: Path) -> None:
    (npm(tmp_path) / "guide").mkdir()
    (tmp_path / "node_modules/vite/guide/a.md").write_text("# A\n")
    libraries = SimpleNamespace(records=LibraryRecords(tmp_path / "libraries"))
    wanted = Addition("npm:vite", tmp_path, include=("guide/",))
    library, notice = wanted.save(libraries, lambda *_: None, lambda _: lambda _: None)  # type: ignore[arg-type]
    assert (library.include, notice) == (("guide",), "")
    assert files_in(library.root) == {"guide/a.md": "# A\n"}


def archive(path: Path, *members: tuple[str, str] | tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                entry = tarfile.TarInfo(member[0])
                entry.size = len(member[1].encode())
                tar.addfile(entry, io.BytesIO(member[1].encode()))
    return path


PACKAGE = Package("npm:a", "1.0.0", "/npm/a", "a")


def test_an_archive_gives_its_documentation_alone(tmp_path: Path) -> None:
    members = {"README.md": "# A", "docs/x.md": "X", "lib/a.js": "//", "docs/zh/x.md": "Z", "tests/t.md": "T"}
    path = archive(tmp_path / "a.tgz", *((f"package/{name}", text) for name, text in members.items()))
    target = tmp_path / "target"
    target.mkdir()
    (target / "old.md").write_text("of the version before")
    unpack(PACKAGE, target, path)
    assert files_in(target) == {"README.md": "# A", "docs/x.md": "X"}


def test_a_package_without_documentation_is_no_empty_library(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tgz", ("p/website/a.txt", "A"), ("p/index.js", "//"))
    with pytest.raises(NotFound, match=r"npm:a@1\.0\.0 has no documentation"):
        unpack(PACKAGE, tmp_path / "target", path)
    assert not (tmp_path / "target").exists()
    with pytest.raises(NotFound, match="no documentation in guide"):
        unpack(
            PACKAGE,
            tmp_path / "target",
            path,
            include=(
                "website",
                "guide",
            ),
        )
    unpack(PACKAGE, tmp_path / "target", path, include=("website",))
    assert files_in(tmp_path / "target") == {"website/a.txt": "A"}


def test_a_folder_of_documentation_that_is_missing_makes_no_library(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    libraries = SimpleNamespace(records=LibraryRecords(tmp_path / "libraries"))
    wanted = Addition("mine", tmp_path, version="1.0", include=("guide",))
    with pytest.raises(NotFound, match="has no folder guide") as error:
        wanted.save(libraries, lambda *_: None, lambda _: lambda _: None)  # type: ignore[arg-type]
    assert "--docs docs/guide" in error.value.hint
    pypi(tmp_path)
    with pytest.raises(NotFound, match="no documentation in guide"):  # not the description in its metadata alone
        unpack(locate("pypi:fast-api", tmp_path), tmp_path / "target", include=("guide",))
    assert libraries.records.list() == ([], [])


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


@pytest.mark.parametrize(
    "members",
    [
        [("package/../../x.md", "x")],
        [link("package/docs", "/etc"), ("package/docs/a.md", "x")],
        [link("package/docs/a.md", "../../../etc/passwd")],
        [link("package/docs/a.md", "../../x", tarfile.LNKTYPE)],
        [link("package/docs/a.md", "", tarfile.CHRTYPE)],
        [link("package/docs/a.md", "", tarfile.FIFOTYPE)],
        [("package/docs/a.md", "x"), ("package/docs/A.md", "y")],
        [("package/docs/é.md", "x"), ("package/docs/e\u0301.md", "y")],
        [("package/docs/a.md", "x"), ("package/docs/a.md/b.md", "y")],
    ],
    ids=[
        "above",
        "link to a folder",
        "link",
        "hard link",
        "device",
        "pipe",
        "case",
        "form",
        "file and folder",
    ],
)
def test_a_hostile_archive_is_refused_and_nothing_written(tmp_path: Path, members: list[object]) -> None:
    target = tmp_path / "target"
    with pytest.raises(ArchiveRefused):
        unpack(PACKAGE, target, archive(tmp_path / "a.tgz", *members))  # type: ignore[arg-type]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tgz"]


def test_links_within_an_archive_and_odd_names_are_left_out(tmp_path: Path) -> None:
    members = [("p/README.md", "# A"), link("p/docs/b.md", "../README.md"), ("p/docs/a\x1b.md", "x"), ("top.md", "x"),
               ("p/docs/d.md", "first"), ("p/docs/d.md", "second")]  # fmt: skip
    unpack(PACKAGE, tmp_path / "target", archive(tmp_path / "a.tgz", *members, ("/p/docs/c.md", "C")))
    assert files_in(tmp_path / "target") == {"README.md": "# A", "docs/c.md": "C", "docs/d.md": "second"}


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 1), ("MAX_BYTES", 3), ("MAX_UNPACKED", 5_000)])
def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    path = archive(tmp_path / "a.tgz", ("p/a.md", "xx"), ("p/b.md", "xx"), ("p/c.bin", "0" * 20_000))
    monkeypatch.setattr(unpacking, limit, value)
    with pytest.raises(ArchiveRefused):
        unpack(PACKAGE, tmp_path / "target", path)
    assert not (tmp_path / "target").exists()


_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "no gzip": lambda data: b"PK" + data,
    "changed": lambda data: data[:40] + bytes([data[40] ^ 255]) + data[41:],
}


@pytest.mark.parametrize("damage", _DAMAGES.values(), ids=_DAMAGES)
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = archive(tmp_path / "a.tgz", *((f"p/{n}.md", str(n) * 999) for n in range(9)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ArchiveRefused, match="damaged"):
        unpack(PACKAGE, tmp_path / "target", path)


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("METADATA", b"Name: Fast-API\nVersion: 1\nSummary: \xff\n"),
        ("RECORD", b"a,sha256=b,nine\n"),
        ("RECORD", b"a,b,c,d,e\n"),
        ("RECORD", b'"' + b"a" * 200_000 + b'",,\n'),
    ],
)
def test_metadata_that_cannot_be_parsed_is_named(tmp_path: Path, file: str, data: bytes) -> None:
    next(pypi(tmp_path).glob("*.dist-info")).joinpath(file).write_bytes(data)
    with pytest.raises(SourceUnreadable, match="metadata of pypi:fast-api"):
        locate("pypi:fast-api", tmp_path)


def test_without_a_list_of_its_files_a_package_has_none_of_the_folder_it_shares(tmp_path: Path) -> None:
    next(pypi(tmp_path).glob("*.dist-info")).joinpath("RECORD").unlink()
    unpack(locate("pypi:fast-api", tmp_path), tmp_path / "out")
    assert set(files_in(tmp_path / "out")) == {"README.md"}


def test_an_archive_of_too_many_entries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_MEMBERS", 2)
    package = Package("npm:vite", "7.0.0", "/vitejs/vite", "Vite")
    entries = [(f"package/{name}.md", "# A") for name in "abc"]
    with pytest.raises(ArchiveRefused, match="over 2 entries"):
        unpack(package, tmp_path / "out", archive(tmp_path / "a", *entries))


def test_a_home_that_does_not_exist_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is no folder"):
        locate("~nosuchuser/docs", tmp_path)
