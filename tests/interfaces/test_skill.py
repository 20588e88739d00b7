"""A skill of twelve files, from its publisher to another machine, and each way in which it may differ on the way."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_registry_clients import other_user

IMAGE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
FILES: dict[str, bytes] = {
    "SKILL.md": b"""---
name: canary-release
description: Release a service to a few machines first, watch it, then go on or go back.
license: Apache-2.0
metadata:
  version: "1.0.0"
  author: ada
---
# Canary release

Read references/thresholds.md before you start, then run scripts/start.py.
""",
    "references/checklist.md": b"# Checklist\n\nTell the channel of the team that a release begins.\n",
    "references/thresholds.md": b"# Thresholds\n\nGo back once the ratio of failed checkouts doubles in ten minutes.\n",
    "references/deep/history.md": b"# History\n\nIn 2024 a release without a canary took the shop down for an hour.\n",
    "references/deep/roles.md": b"# Roles\n\nThe release captain decides alone.\n",
    "references/faq.txt": b"How long does a canary take? Half an hour.\n",
    "scripts/start.py": b'"""Start the canary."""\n\nprint("one machine of ten")\n',
    "scripts/stop.sh": b"#!/bin/sh\necho back to the version before\n",
    "assets/logo.png": IMAGE,
    "assets/template.json": b'{"percent": 10}\n',
    "assets/mail/subject.txt": b"The canary of {service} has begun\n",
    "LICENSE.txt": b"Apache License 2.0\n",
}
SENTENCE = "when does the ratio of failed checkouts make us go back"
REF = "skill:acme/canary-release"


def write_skill(user: Kiwi) -> Path:
    folder = user.cwd / ".ai/skills/acme/canary-release"
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "scripts/start.py").chmod(0o755)
    (folder / "scripts/stop.sh").chmod(0o755)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def publisher(ready: Kiwi) -> Kiwi:
    """A user with the skill in the project and in a registry that keeps running."""
    write_skill(ready)
    ready.run("add", ".ai/skills")
    ready.extra["OWNER_URL"] = ready.run("registry", "start").stdout.strip()
    ready.run("publish", ".ai/skills")
    return ready


def test_it_is_found_by_a_sentence_of_its_third_file_and_comes_over_byte_for_byte(publisher: Kiwi):
    other = other_user(publisher)
    hit = other.json("search", SENTENCE, "--source", "registry")["hits"][0]
    assert (hit["item_type"], hit["item_id"], hit["version"]) == ("skill", "acme/canary-release", "1.0.0")
    assert hit["file"] == "references/thresholds.md"
    assert hit["verified"] is True
    other.run("get", f"{REF}@registry")
    folder = other.cwd / ".ai/skills/acme/canary-release"
    assert {name: data for name, data in contents(folder).items() if name != "SKILL.md.sig"} == FILES
    executable = {name for name in FILES if os.access(folder / name, os.X_OK)}
    assert executable == {"scripts/start.py", "scripts/stop.sh"}
    signature = publisher.cwd / ".ai/skills/acme/canary-release/SKILL.md.sig"
    assert (folder / "SKILL.md.sig").read_bytes() == signature.read_bytes()
    other.run("index")
    assert other.json("search", SENTENCE)["hits"][0]["file"] == "references/thresholds.md"
    other.run("verify", "--source", "all")


def flip(folder: Path) -> None:
    data = bytearray((folder / "assets/logo.png").read_bytes())
    data[-1] ^= 1
    (folder / "assets/logo.png").write_bytes(data)


def add(folder: Path) -> None:
    (folder / "scripts/more.sh").write_text("echo more\n")


def remove(folder: Path) -> None:
    (folder / "references/deep/roles.md").unlink()


def make_executable(folder: Path) -> None:
    (folder / "assets/template.json").chmod(0o755)


CHANGES: list[Callable[[Path], None]] = [flip, add, remove, make_executable]


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_differs_is_refused_by_the_local_tier(ready: Kiwi, change: Callable[[Path], None]):
    folder = write_skill(ready)
    ready.run("sign", ".ai/skills")
    change(folder)
    before = contents(folder)
    refused = ready.json("index", expect=4)["refused"]
    assert [row for row in refused if any(f["code"].startswith("signature.") for f in row["findings"])], refused
    assert ready.json("search", SENTENCE)["hits"] == []
    assert contents(folder) == before


@pytest.mark.parametrize("change", CHANGES[:3])
def test_files_that_differ_are_refused_by_the_database(publisher: Kiwi, change: Callable[[Path], None]):
    folder = publisher.cwd / ".ai/skills/acme/canary-release"
    envelope = json.loads((folder / "SKILL.md.sig").read_text())
    change(folder)
    files = {name: base64.b64encode(data).decode() for name, data in contents(folder).items() if name != "SKILL.md.sig"}
    with psycopg.connect(publisher.extra["OWNER_URL"], autocommit=True) as owner:
        answer = owner.execute(
            "select public.publish_item(%s::jsonb, %s::jsonb)", (json.dumps(envelope), json.dumps(files))
        ).fetchone()[0]
        assert answer.get("refused") or answer.get("code") or answer.get("state"), answer
        stored = owner.execute("select encode(sha256(content), 'hex') from kiwi.blobs").fetchall()
    assert {row[0] for row in stored} == {hashlib.sha256(data).hexdigest() for data in FILES.values()}


@pytest.mark.parametrize("change", CHANGES[:3])
def test_an_installed_folder_that_was_changed_says_so_and_shows_what_was_signed(
    publisher: Kiwi, change: Callable[[Path], None]
):
    folder = publisher.cwd / ".ai/skills/acme/canary-release"
    change(folder)
    hit = publisher.json("search", SENTENCE, expect=None)["hits"][0]
    assert hit["changed"] is True
    assert "doubles in ten minutes" in hit["text"]


@pytest.mark.parametrize("name", ["references/deep/roles.md", "SKILL.md"])
def test_verify_names_the_file_of_the_skill_that_was_edited(ready: Kiwi, name: str):
    folder = write_skill(ready)
    ready.run("add", ".ai/skills")
    (folder / name).write_bytes(FILES[name] + b"Ask twice.\n")
    (row,) = ready.json("verify", expect=3)
    assert row["state"] == "changed"
    assert (
        f"{folder / name} was edited since it was indexed: kiwi add {folder / 'SKILL.md'} --bump patch" in row["reason"]
    )


def test_show_lists_the_files_repeats_warnings_and_prints_the_statement(ready: Kiwi):
    folder = write_skill(ready)
    (folder / "scripts/fetch.py").write_text("import requests\n\nrequests.get('https://acme.example')\n")
    ready.run("add", ".ai/skills")
    shown = ready.run("show", REF)
    assert shown.stdout.encode() == FILES["SKILL.md"]
    tree = shown.stderr[shown.stderr.index("13 files, ") :].splitlines()
    assert [line.partition("  (")[0] for line in tree[1:]] == [
        "  LICENSE.txt", "  SKILL.md",
        "  assets/", "    logo.png", "    template.json", "    mail/", "      subject.txt",
        "  references/", "    checklist.md", "    faq.txt", "    thresholds.md",
        "    deep/", "      history.md", "      roles.md",
        "  scripts/", "    fetch.py", "    start.py", "    stop.sh",
    ]  # fmt: skip
    assert f"    stop.sh  ({len(FILES['scripts/stop.sh'])} bytes, executable)" in tree
    warning = "scripts/fetch.py:1: warning permissions.undeclared: requests needs the permission 'network'"
    assert shown.stderr.count(warning) == 1
    statement = json.loads(ready.run("show", REF, "--statement").stdout)
    assert statement["predicateType"] == "urn:kiwi:item:v1"
    assert statement["predicate"]["executables"] == ["scripts/start.py", "scripts/stop.sh"]
    digests = {entry["name"]: entry["digest"]["sha256"] for entry in statement["subject"]}
    assert digests == {name: hashlib.sha256(data).hexdigest() for name, data in contents_signed(folder).items()}
    assert ready.json("show", REF)["files"] == digests
    assert ready.json("show", REF, "--statement") == statement


def test_show_prints_one_file_as_it_was_signed(ready: Kiwi):
    folder = write_skill(ready)
    ready.run("add", ".ai/skills")
    (folder / "references/faq.txt").write_text("How long? An hour.\n")
    shown = ready.run("show", REF, "--file", "references/faq.txt")
    assert shown.stdout.encode() == FILES["references/faq.txt"]
    assert ready.json("show", REF, "--file", "references/faq.txt")["content"].encode() == FILES["references/faq.txt"]
    missing = ready.run("show", REF, "--file", "../SKILL.md", expect=1).stderr
    assert "skill:acme/canary-release@1.0.0 has no file '../SKILL.md'" in missing
    assert (
        f"a binary file of {len(IMAGE)} bytes" in ready.run("show", REF, "--file", "assets/logo.png", expect=2).stderr
    )


def contents_signed(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if name != "SKILL.md.sig"}


def test_a_script_that_reads_credentials_undeclared_is_refused(ready: Kiwi):
    folder = write_skill(ready)
    (folder / "scripts/read.py").write_text("open('/root/.ssh/id_ed25519')\n")
    before = contents(folder)
    refused = ready.json("add", ".ai/skills", expect=4)["refused"]
    assert [f["code"] for f in refused[0]["findings"]] == ["permissions.credentials"]
    assert contents(folder) == before


def test_bump_raises_the_version_of_an_edited_skill(ready: Kiwi):
    folder = write_skill(ready)
    ready.run("add", ".ai/skills")
    (folder / "references/faq.txt").write_text("How long? An hour.\n")
    assert "--bump patch" in ready.run("add", ".ai/skills", expect=4).stderr
    assert 'SKILL.md:6: version: "1.0.1"' in ready.run("add", ".ai/skills", "--bump", "patch").stderr
    assert ready.json("list")[0]["version"] == "1.0.1"
    assert ready.json("index")["unchanged"] == 1
    ready.run("verify")
    ready.run("delete", REF, "--yes")
    assert not folder.exists()
