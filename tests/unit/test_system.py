"""What operating systems do not have in common, and what the modules that open files do on Windows, imitated here.

tests/interfaces/test_windows_like.py runs whole commands.
"""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace

import pytest

from kiwi_rag import system
from kiwi_rag.errors import InvalidItemId, SourceUnreadable, UsageError
from kiwi_rag.formats.source import item_id_of
from kiwi_rag.sources.workspace import watch
from kiwi_rag.storage import json_lines, safe_open
from kiwi_rag.storage.json_lines import RotatingLines
from kiwi_rag.usecases import sign
from tests import skills
from tests.shared import ROOT


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("acme/deploy/rollback.md", ""),
        ("acme/console/nullable.md", ""),
        ("acme/com/com0.md", ""),
        ("acme/con/notes.md", "device"),
        ("acme/NUL", "device"),
        ("scripts/aux.tar.gz", "device"),
        ("scripts/Com1 .txt", "device"),
        ("C:secret.md", "drive"),
        (r"C:\\secret.md", "drive"),
        ("/secret.md", "drive"),
        ("notes.md:hidden", "colon"),
        ("acme./notes.md", "dot"),
        ("acme/notes.md ", "dot"),
        (PurePosixPath("acme/lpt9.md"), "device"),
        (PureWindowsPath(r"acme\prn.md"), "device"),
        (PureWindowsPath(r"acme\deploy\rollback.md"), ""),
    ],
    ids=str,
)
def test_names_that_windows_writes_elsewhere(path: str | PurePosixPath | PureWindowsPath, problem: str) -> None:
    found = system.windows_problem(path)
    assert bool(found) == bool(problem)
    assert problem in found


@pytest.mark.parametrize("name", ["aux.md", "D:evil.md", "notes.md:stream", "trailing."])
def test_an_item_with_such_a_name_is_not_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files = {"SKILL.md": b"", name: b""}
    signed = SimpleNamespace(
        ref=skills.item().ref, digests={one: sign.sha256_hex(data) for one, data in files.items()}, main="SKILL.md"
    )
    monkeypatch.setattr(sign.statement, "parse_item", lambda _payload: signed)
    envelope = SimpleNamespace(payload=b"")
    sign.check_place(tmp_path, envelope, files)
    monkeypatch.setattr(sign, "HAS_MODES", False)
    with pytest.raises(UsageError, match=f"{name} of .* cannot be written on Windows"):
        sign.check_place(tmp_path, envelope, files)


@pytest.mark.parametrize(
    ("relative", "item_id"),
    [
        (PureWindowsPath(r"acme\deploy\rollback.md"), "acme/deploy/rollback"),
        (PureWindowsPath("acme/rollback.md"), "acme/rollback"),
        (PureWindowsPath(r"C:\acme\rollback.md"), None),
        (PureWindowsPath(r"\acme\rollback.md"), None),
        (PureWindowsPath("C:rollback.md"), None),
        (PureWindowsPath(r"..\rollback.md"), None),
        (PureWindowsPath(r"acme\Rollback.md"), "acme/rollback"),
    ],
    ids=str,
)
def test_the_id_of_an_item_by_a_path_of_windows(relative: PureWindowsPath, item_id: str | None) -> None:
    if item_id is None:
        with pytest.raises(InvalidItemId):
            item_id_of(relative)
    else:
        assert item_id_of(relative) == item_id


def test_changes_in_folders_that_are_never_indexed_are_known_by_windows_separators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch.os, "sep", "\\")
    base = PureWindowsPath(r"C:\work")
    assert watch._is_watched(base, r"C:\work\docs\a.md")
    assert not watch._is_watched(base, r"C:\work\docs\node_modules\a.md")
    assert not watch._is_watched(base, r"C:\work")


def test_every_owner_and_mode_passes_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.is_open_to_others(0o644)
    assert not system.is_open_to_others(0o600)
    assert system.differing_executables(["a"], ["b"]) == {"a", "b"}
    monkeypatch.setattr(system, "HAS_MODES", False)
    monkeypatch.delattr(os, "geteuid")
    assert not system.is_open_to_others(0o666)
    assert system.differing_executables(["a"], ["b"]) == set()
    assert system.user_id() == 0


@pytest.fixture
def by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are opened by path: no folder can be opened, and no flag keeps links out."""
    for module in (safe_open, json_lines):
        monkeypatch.setattr(module, "OPENS_FOLDERS", False)
    monkeypatch.setattr(safe_open, "_NO_LINK", 0)


@pytest.mark.usefixtures("by_path")
def test_no_link_is_followed_without_flags_against_it(tmp_path: Path) -> None:
    (tmp_path / "root/inner").mkdir(parents=True)
    (tmp_path / "root/inner/file").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    (tmp_path / "root/link").symlink_to("../secret")
    (tmp_path / "root/linked").symlink_to("inner")
    root = tmp_path / "root"
    assert safe_open.read_below(root, "inner/file", 3)[0] == b"insi"
    assert safe_open.read_regular(root / "link", 100, follow_links=True)[0] == b"outside"
    assert safe_open.read_linked(root / "linked/file", root, 100) == b"inside"
    for path in ("link", "linked/file"):
        with pytest.raises(SourceUnreadable, match="a part of its path is a link"):
            safe_open.read_below(root, path, 100)
    with pytest.raises(OSError) as caught:
        safe_open.read_regular(root / "link", 100)
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(safe_open.NotRegularFile):
        safe_open.read_regular(root / "inner", 100)
    with pytest.raises(FileNotFoundError):
        safe_open.read_below(root, "inner/gone", 100)
    assert safe_open.read_optional(root / "gone", 100) is None


@pytest.mark.usefixtures("by_path")
def test_a_junction_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "junction").mkdir()
    (tmp_path / "junction/file").write_bytes(b"x")
    lstat = Path.lstat

    def found(path: Path) -> object:
        entry = lstat(path)
        tag = safe_open._JUNCTION if path.name == "junction" else 0
        return SimpleNamespace(st_mode=entry.st_mode, st_reparse_tag=tag)

    monkeypatch.setattr(Path, "lstat", found)
    with pytest.raises(SourceUnreadable, match="a part of its path is a link"):
        safe_open.read_below(tmp_path, "junction/file", 100)


@pytest.mark.usefixtures("by_path")
def test_lines_are_appended_and_moved_aside_by_path(tmp_path: Path) -> None:
    lines = RotatingLines(tmp_path / "log", 8, older=2, private=True)
    for number in range(5):
        lines.append(b"%d\n" % number * 2)
    assert [data.split() for data in lines.contents()] == [
        [b"4", b"4"],
        [b"2", b"2", b"3", b"3"],
        [b"0"] * 2 + [b"1"] * 2,
    ]


def test_output_is_utf_8_on_windows_and_never_fails_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(text: str) -> bytes:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
        system.accept_all_characters(stream)
        stream.write(text)
        stream.flush()
        return stream.buffer.getvalue()

    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    assert written("é ✓") == "é \\u2713".encode("cp1252")
    monkeypatch.setattr(system, "HAS_MODES", False)
    assert written("é ✓") == "é ✓".encode()
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    assert written("é ✓") == "é \\u2713".encode("cp1252")
    system.accept_all_characters(None)  # pythonw has no stdout


# Every module of Kiwi, imported where POSIX's own modules cannot be, and where `os` lacks what Windows' lacks.
_IMPORT_ALL = """
import importlib, pkgutil, sys
from tests.interfaces import windows_like
windows_like.install()
import kiwi_rag
for found in pkgutil.walk_packages(kiwi_rag.__path__, "kiwi_rag."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(len([name for name in sys.modules if name.startswith("kiwi_rag.")]))
"""


@pytest.mark.slow
def test_every_module_can_be_imported_without_posix() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 140
