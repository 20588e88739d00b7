"""Archives of skills: the same bytes for the same files, and a code for each archive that must not be unpacked."""

from __future__ import annotations

import gzip
import io
import random
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Mapping

import pytest

from kiwi_rag.errors import Rejected
from kiwi_rag.formats import skill
from kiwi_rag.sources import skill_archive
from kiwi_rag.sources.skill_archive import pack, unpack
from tests.skills import EXECUTABLES, FILES

Members = Mapping[str, bytes | None]
MAIN = {"SKILL.md": FILES["SKILL.md"]}


def tar(members: Members, *, kind: bytes = tarfile.REGTYPE, odd: str = "", target: str = "SKILL.md") -> bytes:
    """A gzipped tar file; the member `odd` is of another kind, and leads to `target`."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.type = kind if name == odd else tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.linkname = target if name == odd else ""
            member.size = len(data or b"") if member.isreg() else 0
            archive.addfile(member, io.BytesIO(data or b""))
    return made.getvalue()


def zipped(members: Members, *, kind: int = stat.S_IFREG, odd: str = "", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file; the member `odd` is of another kind."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that are there twice
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            info.external_attr = ((kind if name == odd else stat.S_IFREG) | 0o644) << 16
            archive.writestr(info, data or b"")
    return made.getvalue()


def code_of(data: bytes) -> str:
    with pytest.raises(Rejected) as refused:
        unpack(data, "x.tar.gz")
    (finding,) = refused.value.findings
    assert (finding.path, bool(finding.hint), finding.message.isprintable()) == ("x.tar.gz", True, True)
    return finding.code


def test_what_was_packed_comes_out_and_is_the_same_each_time() -> None:
    data = pack(FILES, EXECUTABLES)
    assert unpack(data, "x") == (dict(FILES), EXECUTABLES)
    assert pack(dict(reversed(FILES.items())), EXECUTABLES) == data
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in archive} == {(0, 0, 0, "", "")}
    assert data[4:8] == bytes(4)  # the time in the header of gzip


@pytest.mark.parametrize("make", [tar, zipped])
def test_archives_of_other_programs_are_read(make: Callable[[Members], bytes]) -> None:
    members: dict[str, bytes | None] = {"./": None} if make is tar else {}
    members |= {f"./{name}": data for name, data in FILES.items()} | {"./assets/": None}
    assert unpack(make(members), "x") == (dict(FILES), ())


def test_a_zip_file_says_what_may_be_executed() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("SKILL.md", MAIN["SKILL.md"])
        info = zipfile.ZipInfo("run.sh")
        info.external_attr = (stat.S_IFREG | 0o755) << 16
        archive.writestr(info, b"#!/bin/sh\n")
    assert unpack(made.getvalue(), "x")[1] == ("run.sh",)


NAMES = {
    "../evil.md": "archive.path", "a/../../evil.md": "archive.path", "/etc/evil.md": "archive.path",
    "a//b.md": "archive.path", "C:\\evil.md": "archive.path", "a\\..\\evil.md": "archive.path",
    "a\u202eb.md": "archive.path", "a\nb.md": "archive.path", "x" * 2_000: "archive.path",
    ".env": "archive.hidden", "a/.git/config": "archive.hidden", "._SKILL.md": "archive.hidden",
    "scripts/__pycache__/a.pyc": "archive.hidden", "skill.md": "archive.twins", "SKILL.md/x": "archive.twins",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [tar, zipped])
def test_a_name_that_a_skill_must_not_have_refuses_the_archive(make: Callable[[Members], bytes], name: str) -> None:
    assert code_of(make({**MAIN, name: b"x"})) == NAMES[name]


def test_a_name_of_a_zip_file_that_is_cut_at_a_null_is_refused() -> None:
    data = zipped({**MAIN, "evil.mdX.png": b"x"}).replace(b"evil.mdX.png", b"evil.md\0.png")
    assert code_of(data) == "archive.path"


@pytest.mark.parametrize("make", [tar, zipped])
def test_names_that_some_file_system_takes_for_one_are_refused(make: Callable[[Members], bytes]) -> None:
    for first, other in (
        ("A/x.md", "a/y.md"),
        ("caf\u00e9.md", "cafe\u0301.md"),
        ("Straße.md", "STRASSE.md"),
        ("a", "a/b"),
    ):
        assert code_of(make({**MAIN, first: b"1", other: b"2"})) == "archive.twins", (first, other)


def test_a_file_that_is_there_twice_is_refused() -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for data in (MAIN["SKILL.md"], b"other"):
            member = tarfile.TarInfo("SKILL.md")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    assert code_of(made.getvalue()) == "archive.twins"


KINDS = {
    tarfile.SYMTYPE: "archive.link", tarfile.LNKTYPE: "archive.link", tarfile.CHRTYPE: "archive.device",
    tarfile.BLKTYPE: "archive.device", tarfile.FIFOTYPE: "archive.device", b"Z": "archive.device",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_links_and_devices_of_a_tar_file_are_refused(kind: bytes) -> None:
    for target in ("SKILL.md", "../../etc/passwd", "/etc/passwd"):
        assert code_of(tar({**MAIN, "odd.md": b""}, kind=kind, odd="odd.md", target=target)) == KINDS[kind]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(stat.S_IFLNK, "archive.link"), (stat.S_IFCHR, "archive.device"), (stat.S_IFIFO, "archive.device")],
)
def test_links_and_devices_of_a_zip_file_are_refused(kind: int, code: str) -> None:
    assert code_of(zipped({**MAIN, "odd.md": b"/etc/passwd"}, kind=kind, odd="odd.md")) == code


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_bomb_is_not_unpacked(make: Callable[[Members], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_of(make({**MAIN, "zeros.png": bytes(4 << 20)})) == "archive.bomb"  # by its ratio
    noise = random.Random(1).randbytes(64 << 10)
    monkeypatch.setattr(skill_archive, "_MAX_UNPACKED", 3 << 20)
    assert code_of(make({**MAIN, **{f"{n}.bin": noise for n in range(50)}})) == "archive.bomb"  # by its size


def test_a_bomb_of_nested_compression_is_one_too() -> None:
    assert code_of(gzip.compress(bytes(8 << 20), 1)) == "archive.bomb"


def test_the_entries_of_a_zip_file_are_counted_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = zipped({**MAIN, **{f"{number}.md": None for number in range(4_000)}}, method=zipfile.ZIP_STORED)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert code_of(data) == "archive.files"


def test_a_zip_file_that_lies_about_a_size_is_refused() -> None:
    data = bytearray(zipped({**MAIN, "zeros.bin": bytes(3 << 20)}))
    size = (3 << 20).to_bytes(4, "little")
    for _ in range(data.count(size)):  # in the header of the file, and in the directory
        begin = data.index(size)
        data[begin : begin + 4] = (10).to_bytes(4, "little")
    assert code_of(bytes(data)) == "archive.damaged"


@pytest.mark.parametrize("make", [tar, zipped])
def test_too_many_files_are_refused(make: Callable[[Members], bytes]) -> None:
    assert code_of(make({**MAIN, **{f"{n}.md": b"x" for n in range(skill.MAX_FILES)}})) == "bounds.files"
    assert code_of(make({**MAIN, **{f"{n}.md": b"" for n in range(1_200)}})) == "archive.files"


def test_too_many_bytes_are_refused() -> None:
    noise = random.Random(2).randbytes(1 << 20)
    assert code_of(pack({**MAIN, **{f"{n}.png": noise for n in range(6)}}, ())) == "bounds.size"
    assert code_of(pack({**MAIN, "SKILL.md.sig": noise * 3}, ())) == "archive.size"
    assert code_of(b"\x1f\x8b" + bytes(9 << 20)) == "archive.size"


@pytest.mark.parametrize("make", [tar, zipped])
def test_without_skill_md_at_its_root_it_is_refused(make: Callable[[Members], bytes]) -> None:
    assert code_of(make({"pdf-forms/SKILL.md": b"x"})) == "archive.no-skill"
    assert code_of(make({"SKILL.md/": None, "x.md": b"x"})) == "archive.no-skill"
    assert code_of(make({})) == "archive.no-skill"


def test_another_format_is_refused() -> None:
    plain = gzip.decompress(pack(MAIN, ()))
    for data in (b"", b"# A skill\n", plain, b"BZh9" + bytes(50), b"\xfd7zXZ\0"):
        assert code_of(data) == "archive.format"
    assert code_of(zipped(MAIN, method=zipfile.ZIP_LZMA)) == "archive.format"


def test_a_header_that_leads_back_to_itself_ends() -> None:
    """CVE-2025-8194: a negative size."""
    plain = bytearray(gzip.decompress(tar({"SKILL.md": b"x" * 512, "a.md": b"y"})))
    plain[124:136] = b"\xff" * 10 + (2**16 - 1024).to_bytes(2, "big")
    plain[148:156] = b" " * 8
    plain[148:156] = b"%06o\0 " % sum(plain[:512])
    assert code_of(gzip.compress(bytes(plain))).startswith("archive.")


@pytest.mark.parametrize("make", [tar, zipped])
def test_no_damage_raises_anything_else(make: Callable[[Members], bytes]) -> None:
    rng, whole = random.Random(3), make({**FILES})
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        try:
            files, _ = unpack(cut, "x")
        except Rejected:
            continue
        assert "SKILL.md" in files
    if make is tar:
        plain = gzip.decompress(whole)
        for _ in range(400):  # below the checksum of gzip
            data = bytearray(plain)
            data[rng.randrange(len(data) // 512) * 512 + rng.randrange(512)] = rng.randrange(256)
            with_sum = bytes(data)
            try:
                unpack(gzip.compress(with_sum, 1), "x")
            except Rejected:
                continue
