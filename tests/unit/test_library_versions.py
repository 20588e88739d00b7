"""Which library and version is meant: exact, range, newest, and that of a project's lock file."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.errors import NoSuchLibrary, SourceUnreadable, UsageError, VersionNotIndexed
from kiwi_rag.sources.library import versions
from kiwi_rag.sources.library.record import Library
from kiwi_rag.sources.library.versions import PARSERS, find_pin, newest_first, rank, resolve
from tests.examples import examples


def npm(*versions: str, name: str = "vite", id: str = "/vitejs/vite") -> list[Library]:
    return [Library(id, version, name, (name,), f"npm:{name}", Path("/tmp")) for version in versions]


def pypi(*versions: str, name: str = "django", id: str = "/django/django") -> list[Library]:
    return [Library(id, version, name.title(), (name,), f"pypi:{name}", Path("/tmp")) for version in versions]


VITE = npm("5.0.0", "5.4.11", "6.0.0", "7.0.0-beta.2", "10.0.0")
DJANGO = pypi("4.2", "5.2.9", "5.2.19", "6.0a1")
ALL = [*VITE, *DJANGO]


def test_the_newest_is_first_and_a_prerelease_last() -> None:
    assert [one.version for one in newest_first(VITE)] == ["10.0.0", "6.0.0", "5.4.11", "5.0.0", "7.0.0-beta.2"]
    assert [one.version for one in newest_first(DJANGO)] == ["5.2.19", "5.2.9", "4.2", "6.0a1"]
    others = [Library("/a/b", version, "", (), "path", Path("/")) for version in ("2024-x", "nightly", "1.0", "2")]
    assert newest_first(others)[0].version == "2"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("/vitejs/vite", "10.0.0"),
        ("/VITEJS/Vite@latest", "10.0.0"),
        ("/vitejs/vite@5.0.0", "5.0.0"),
        ("/vitejs/vite/v5.0.0", "5.0.0"),
        ("/vitejs/vite/5.x", "5.4.11"),
        ("vite@^5.0", "5.4.11"),
        ("vite@6.0.0", "6.0.0"),
        ("npm:vite@5.0.0", "5.0.0"),
        ("vite@5.x", "5.4.11"),
        ("vite@>=5 <6", "5.4.11"),
        ("vite@>=5,<6.0.0", "5.4.11"),
        ("vite@~5.0.0", "5.0.0"),
        ("vite@5.0.0 || 6.x", "6.0.0"),
        ("vite@*", "10.0.0"),
        ("vite@7.0.0-beta.2", "7.0.0-beta.2"),
        ("vite@^7.0.0-beta.1", "7.0.0-beta.2"),
        ("django@~=5.2", "5.2.19"),
        ("django@==5.2.*", "5.2.19"),
        ("django@<5", "4.2"),
        ("django@4.2.0", "4.2"),
        ("django@^5.2.1", "5.2.19"),
        ("pypi:django@5.2.x", "5.2.19"),
        ("Django@>=6.0a1", "6.0a1"),
    ],
)
def test_a_version_or_a_range_gives_one_library(query: str, expected: str) -> None:
    found = resolve(ALL, query)
    assert (found.library.version, found.notice) == (expected, "")


@pytest.mark.parametrize(
    "query",
    [
        *(
            f"vite@{version}"
            for version in ("5", "5.4", "7.0.0", "^8", ">=11", "nonsense", "9" * 300, "^7", "5.0.0.0", ",", "||", "-")
        ),
        *(f"django@{version}" for version in ("5.2", "5", "~=7.0", "6.0", "6.x", ">=6", "5.2.190", "==", "^")),
        "/vitejs/vite@4.0.0",
        "vite@4.0.0",
    ],
)
def test_never_another_version_silently(query: str) -> None:
    with pytest.raises(VersionNotIndexed) as error:
        resolve(ALL, query)
    there = "10.0.0, 6.0.0, 5.4.11, 5.0.0, 7.0.0-beta.2" if "vite" in query else "5.2.19, 5.2.9, 4.2, 6.0a1"
    assert error.value.message.endswith(f"there are {there}")


def test_the_way_out_is_a_command() -> None:
    with pytest.raises(VersionNotIndexed) as missing:
        resolve(ALL, "vite@7.0.0")
    assert missing.value.hint.endswith(": kiwi library add npm:vite@7.0.0")
    with pytest.raises(VersionNotIndexed) as partial:
        resolve(ALL, "vite@5")
    assert partial.value.hint == "5.x means any of them; all: kiwi library list"
    with pytest.raises(VersionNotIndexed) as none_of_them:
        resolve(ALL, "vite@4")
    assert none_of_them.value.hint == "kiwi library list"
    with pytest.raises(NoSuchLibrary) as unknown:
        resolve(ALL, "/vitejs/vitest")
    assert unknown.value.message == "no such library: /vitejs/vitest"
    assert "/vitejs/vite" in unknown.value.hint and "all: kiwi library list" in unknown.value.hint
    with pytest.raises(NoSuchLibrary) as empty:
        resolve([], "vite")
    assert empty.value.hint == "none was added yet; to add one: kiwi library add --help"


@pytest.mark.parametrize(
    "query", ["", "@", "/", "//", "@1.0", "/vitejs", "vitejs__vite_v5_p0_p0", "/vitejs/", "../x", "path", "npm"]
)
def test_what_names_no_library_is_no_library(query: str) -> None:
    with pytest.raises(NoSuchLibrary):
        resolve(ALL, query)


def test_no_name_at_all_is_no_folder_of_the_user() -> None:
    folder = Library("/local/boot", "1.0.0", "Boot", ("boot",), "path", Path("/nowhere"))
    for query in ("", "  "):
        with pytest.raises(NoSuchLibrary):
            resolve([folder], query)


def test_one_alias_of_two_libraries_is_not_guessed() -> None:
    two = [*VITE, *npm("1.0.0", id="/other/vite")]
    with pytest.raises(UsageError, match="/other/vite, /vitejs/vite"):
        resolve(two, "vite")
    assert resolve(two, "/other/vite").library.version == "1.0.0"


def test_names_that_are_nearly_right_are_ranked() -> None:
    libraries = [
        *ALL,
        *npm("1.0.0", name="vitest", id="/vitest-dev/vitest"),
        *npm("19.0.0", name="react", id="/f/react"),
    ]
    ranked = rank(libraries, "vite")
    assert [one.canonical for one in ranked][:2] == ["/vitejs/vite@10.0.0", "/vitejs/vite@6.0.0"]
    assert ranked[5].id == "/vitest-dev/vitest"
    assert rank(libraries, "djnago")[0].version == "5.2.19"
    assert rank(libraries, "vite@5.0.0")[0].id == "/vitejs/vite"
    assert rank(libraries, "kubernetes") == [] == rank([], "vite")


# --- lock files

PACKAGE_LOCK_1 = json.dumps({"lockfileVersion": 1, "dependencies": {"vite": {"version": "5.0.0"}}})
PACKAGE_LOCK_3 = json.dumps(
    {"packages": {"": {}, "node_modules/vite": {"version": "5.0.0"}, "a/node_modules/vite": {"version": "6.0.0"}}}
)
PNPM_5 = "lockfileVersion: 5.4\n\nspecifiers:\n  vite: ^5\n\ndependencies:\n  vite: 5.0.0_sass@1\n\npackages:\n"
PNPM_6 = "dependencies:\n  vite:\n    specifier: ^5\n    version: 5.0.0(sass@1)\n"
PNPM_9 = """lockfileVersion: '9.0'

importers:

  .:
    devDependencies:
      vite:
        specifier: ^5
        version: 5.0.0(@types/node@20.1.0)
  a:
    dependencies:
      '@scope/x':
        specifier: ^1
        version: 1.2.3
      vite:
        specifier: ^6
        version: 6.0.0

packages:

  vite@5.0.0:
    resolution: {integrity: sha512-x}
  vite@6.0.0:
    resolution: {integrity: sha512-x}
"""
PNPM_TRANSITIVE = (
    "importers:\n\n  .: {}\n\npackages:\n\n  /vite/5.0.0_sass@1:\n    dev: true\n  /vite-node/1.0.0:\n    a: b\n"
)
UV = 'version = 1\n\n[[package]]\nname = "Django"\nversion = "5.2.9"\nsource = { registry = "x" }\n'
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><properties><boot.version>3.2.1</boot.version></properties>
<dependencies><dependency><groupId>org.x</groupId><artifactId>boot</artifactId><version>${boot.version}</version>
</dependency></dependencies></project>"""


@pytest.mark.parametrize(
    ("file", "text", "package", "version"),
    [
        ("package-lock.json", PACKAGE_LOCK_1, ("npm", "vite"), "5.0.0"),
        ("package-lock.json", PACKAGE_LOCK_3, ("npm", "vite"), "5.0.0"),
        ("pnpm-lock.yaml", PNPM_5, ("npm", "vite"), "5.0.0"),
        ("pnpm-lock.yaml", PNPM_6, ("npm", "vite"), "5.0.0"),
        ("pnpm-lock.yaml", PNPM_9, ("npm", "vite"), "5.0.0"),
        ("pnpm-lock.yaml", PNPM_TRANSITIVE, ("npm", "vite"), "5.0.0"),
        ("yarn.lock", 'vite@^5.0.0, "vite@^5.1":\n  version "5.0.0"\n', ("npm", "vite"), "5.0.0"),
        ("yarn.lock", '"vite@npm:^5.0.0":\n  version: 5.0.0\n', ("npm", "vite"), "5.0.0"),
        ("uv.lock", UV, ("pypi", "django"), "5.2.9"),
        ("poetry.lock", UV, ("pypi", "django"), "5.2.9"),
        ("requirements.txt", "# x\nDjango[argon2] == 5.2.9 ; a > '3'\nclick>=8\n", ("pypi", "django"), "5.2.9"),
        ("pom.xml", POM, ("", "boot"), "3.2.1"),
        ("pom.xml", POM, ("", "org.x:boot"), "3.2.1"),
    ],
)  # fmt: skip
def test_a_lock_file_names_the_version(
    tmp_path: Path, file: str, text: str, package: tuple[str, str], version: str
) -> None:
    (tmp_path / file).write_text(text)
    pin = find_pin(tmp_path / "src/main.x", {package})
    assert pin == (tmp_path / file, version)
    assert find_pin(tmp_path / "src/main.x", {(package[0], "other")}) is None
    assert find_pin(tmp_path / "src/main.x", {("cargo", package[1])}) is None


@pytest.mark.parametrize(("file", "text"), [("package-lock.json", PACKAGE_LOCK_3), ("pnpm-lock.yaml", PNPM_9)])
def test_the_folder_of_a_file_decides_between_two_versions(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    versions = [find_pin(tmp_path / path, {("npm", "vite")}) for path in ("a/src/x.ts", "b/x.ts", "x.ts", "ab/x.ts")]
    assert [pin and pin[1] for pin in versions] == ["6.0.0", "5.0.0", "5.0.0", "5.0.0"]


def test_the_nearest_lock_file_counts_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(UV)
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/app").mkdir()
    assert find_pin(tmp_path / "repo/app/x.py", {("pypi", "django")}) is None
    (tmp_path / "repo/requirements.txt").write_text("django==4.2\n")
    assert find_pin(tmp_path / "repo/app/x.py", {("pypi", "django")})[1] == "4.2"  # type: ignore[index]
    (tmp_path / "repo/app/uv.lock").write_text(UV)
    assert find_pin(tmp_path / "repo/app/x.py", {("pypi", "django")})[1] == "5.2.9"  # type: ignore[index]


def test_the_locked_version_is_preferred_if_it_is_indexed(tmp_path: Path) -> None:
    (tmp_path / "package-lock.json").write_text(PACKAGE_LOCK_3)
    found = resolve(ALL, "vite", tmp_path / "x.ts")
    assert (found.library.version, found.notice) == ("5.0.0", "")
    assert resolve(ALL, "vite@6.0.0", tmp_path / "x.ts").library.version == "6.0.0"
    assert resolve(ALL, "django", tmp_path / "x.ts").library.version == "5.2.19"


def test_a_locked_version_that_is_not_indexed_is_always_told(tmp_path: Path) -> None:
    (tmp_path / "package-lock.json").write_text(PACKAGE_LOCK_3.replace("5.0.0", "5.1.0"))
    for query, expected in (("vite", "10.0.0"), ("vite@6.0.0", "6.0.0"), ("vite@^5", "5.4.11")):
        found = resolve(ALL, query, tmp_path / "x.ts")
        assert found.library.version == expected
        assert "/vitejs/vite@5.1.0" in found.notice and f"/vitejs/vite@{expected}" in found.notice
        assert found.notice.endswith("; add it: kiwi library add npm:vite@5.1.0")


def test_the_aliases_of_a_users_folder_are_looked_for_in_any_lock_file(tmp_path: Path) -> None:
    mine = [Library("/x/boot", version, "Boot", ("boot",), "path", Path("/tmp")) for version in ("3.2.1", "4.0")]
    (tmp_path / "pom.xml").write_text(POM)
    assert resolve(mine, "boot", tmp_path / "X.java").library.version == "3.2.1"
    with pytest.raises(NoSuchLibrary):
        resolve(mine, "path")


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><project><version>&b;</version></project>'
HOSTILE = {
    "package-lock.json": ["[" * 100_000, "{", "[]", '{"packages": 1}', '{"packages": {"node_modules/vite": 1}}'],
    "pom.xml": [BOMB, "<a>" * 10, "<project", "\0"],
}


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in HOSTILE.items() for text in texts])
def test_a_hostile_lock_file_is_named(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(SourceUnreadable, match=file):
        find_pin(tmp_path / "x", {("npm", "vite"), ("", "vite")})
    found = resolve(VITE, "vite", tmp_path / "x") if file != "pom.xml" else None
    assert found is None or (found.library.version == "10.0.0" and file in found.notice)


_OWN_POM = (
    "<project><properties><p>{}</p></properties>"
    "<dependency><artifactId>boot</artifactId><version>{}</version></dependency></project>"
)


def test_a_property_does_not_grow_when_it_is_replaced() -> None:
    version = PARSERS["pom.xml"][1](_OWN_POM.format("1" * (1 << 20), "${p}" * 200), "boot", PurePosixPath("a"))
    assert len(version or "") < 100_000


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pom.xml", _OWN_POM.format("", "${" * 200_000)),
        ("pnpm-lock.yaml", "a" * (4 << 20) + ":\n" + "  b:\n" * 10_000),
    ],
    ids=["pom", "pnpm"],
)
def test_a_lock_file_is_read_in_bounded_time(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    started = time.process_time()
    assert find_pin(tmp_path, {("", "boot"), ("npm", "b")}) is None
    assert time.process_time() - started < 5


def test_a_lock_file_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MAX_BYTES", 100)
    (tmp_path / "uv.lock").write_text(UV * 10)
    with pytest.raises(SourceUnreadable, match="is over"):
        find_pin(tmp_path, {("pypi", "django")})


_PARTS = st.sampled_from(
    [*PNPM_9.splitlines(True), *UV.splitlines(True), *POM.split(">"), '{"packages":{', '"node_modules/vite":', "{}",
     "}", "vite@^5:\n", '  version "1"\n', "\x00", "é", "  " * 9, "[[package]]\n", "'", '"', ":", "&a;", "1" * 30,
     "django=="]
)  # fmt: skip


@examples(150)
@given(st.lists(_PARTS | st.text(max_size=8), max_size=25).map("".join), st.sampled_from(sorted(PARSERS)))
def test_no_lock_file_crashes_its_reader(text: str, file: str) -> None:
    data = text.encode("utf-8", "replace")
    for name in ("vite", "django", "@a/b"):
        with pytest.MonkeyPatch.context() as patched, suppress(SourceUnreadable):
            patched.setattr(versions, "read_optional", lambda path, _: data if path.name == file else None)
            pin = find_pin(Path("/a/b.ts"), {(PARSERS[file][0], name)})
            assert pin is None or pin[1].isprintable()
