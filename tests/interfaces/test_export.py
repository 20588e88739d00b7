"""`kiwi export --well-known`: what a web site gets, and what another machine makes of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from kiwi_rag.usecases.skill_index import FOLDER, read_index
from tests.interfaces.conftest import Kiwi, note
from tests.interfaces.test_skill import FILES, contents, write_skill


def test_an_exported_skill_verifies_where_it_arrives(author: Kiwi, tmp_path: Path) -> None:
    rows = author.json("export", "--well-known", "public")
    folder = author.cwd / "public" / FOLDER
    index = json.loads((folder / "index.json").read_text())
    assert index["$schema"] == "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
    (entry,) = index["skills"]
    archive = (folder / "canary-release.tar.gz").read_bytes()
    assert entry == {
        "name": "canary-release", "type": "archive", "url": "canary-release.tar.gz",
        "description": "Release a service to a few machines first, watch it, then go on or go back.",
        "digest": f"sha256:{hashlib.sha256(archive).hexdigest()}",
    }  # fmt: skip
    added = {"ref": "skill:acme/canary-release@1.0.0", "signer": "ada@acme.example", "size": len(archive)}
    assert rows == [{**entry, **added}]

    other = Kiwi(tmp_path / "other-home", tmp_path / "other-project")
    other.home.mkdir()
    other.cwd.mkdir()
    other.run("init")
    (row,) = author.json("trust", "list")
    other.run("trust", "add", row["public_key"], "--principal", row["principal"])
    (one,) = read_index(author.cwd / "public")
    assert one.executables == ("scripts/start.py", "scripts/stop.sh")
    for name, data in one.files.items():
        path = other.write(f"skills/acme/{one.name}/{name}", data)
        path.chmod(0o755 if name in one.executables else 0o644)
    other.run("index")
    other.run("verify")
    assert {name: data for name, data in one.files.items() if name != "SKILL.md.sig"} == FILES


def test_an_export_is_the_same_each_time_and_replaces_the_one_before(author: Kiwi) -> None:
    author.run("export", "--well-known", "public")
    before = contents(author.cwd / "public")
    author.run("export", "--well-known", "public", "acme/canary-release", "skill:acme/canary-release@project")
    assert contents(author.cwd / "public") == before
    (author.cwd / "public" / FOLDER / "old.tar.gz").write_bytes(b"of a skill that is no more")
    author.run("export", "--well-known", "public")
    assert contents(author.cwd / "public") == before


def test_an_edited_skill_is_exported_as_it_was_signed_with_a_warning(author: Kiwi) -> None:
    (author.cwd / ".ai/skills/acme/canary-release/references/faq.txt").write_text("Never.\n")
    told = author.run("export", "--well-known", "public").stderr
    assert "this is the text that was signed" in told
    (one,) = read_index(author.cwd / "public")
    assert one.files["references/faq.txt"] == FILES["references/faq.txt"]


def test_nothing_is_written_if_one_does_not_verify(author: Kiwi) -> None:
    author.run("export", "--well-known", "public")
    before = contents(author.cwd / "public")
    author.run("keys", "new", "bob", "--principal", "bob@acme.example")
    author.write("skills/acme/second/SKILL.md", "---\nname: second\ndescription: Another.\n---\nText.\n")
    author.run("add", ".ai/skills/acme/second", "--key", "bob")
    author.run("trust", "remove", "bob@acme.example")
    refused = author.run("export", "--well-known", "public", expect=4).stderr
    assert "skill:acme/second@project: " in refused
    author.run("export", "--well-known", "new", expect=4)
    assert contents(author.cwd / "public") == before
    assert not (author.cwd / "new").exists()
    author.run("export", "--well-known", "new", "acme/canary-release")


@pytest.mark.parametrize(
    ("refs", "code", "told"),
    [
        (["acme/none@project"], 1, "no item acme/none@project"),
        (["acme/note"], 2, "knowledge:acme/note@1.0.0 is not a skill"),
        (["../x"], 2, "is not made of segments"),
        (["a/canary-release", "acme/canary-release"], 2, "have the same name in an index"),
    ],
)
def test_what_cannot_be_exported_is_refused(author: Kiwi, refs: list[str], code: int, told: str) -> None:
    if "same name" in told:
        author.write("skills/a/canary-release/SKILL.md", FILES["SKILL.md"])
        author.run("add", ".ai/skills/a")
    if "not a skill" in told:
        author.run("add", str(author.write("knowledge/acme/note.md", note())))
        assert "acme/canary-release" in author.run("list", "--type", "skill").stdout
    assert told in author.run("export", "--well-known", "public", *refs, expect=code).stderr
    assert not (author.cwd / "public").exists()


def test_without_a_skill_it_says_how_to_add_one(ready: Kiwi) -> None:
    assert "kiwi add .ai/skills" in ready.run("export", "--well-known", "public", expect=1).stderr
    write_skill(ready)
    ready.run("add", ".ai/skills")
    ready.run("export", "--well-known", "public")


def test_files_of_somebody_else_are_not_replaced_and_no_link_is_written_through(author: Kiwi) -> None:
    folder = author.cwd / "public" / FOLDER
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("mine\n")
    assert "README.md is no file of an index" in author.run("export", "--well-known", "public", expect=2).stderr
    assert contents(folder) == {"README.md": b"mine\n"}
    (author.cwd / "elsewhere").mkdir()
    (author.cwd / "site").mkdir()
    (author.cwd / "site/.well-known").symlink_to(author.cwd / "elsewhere")
    assert "is a link" in author.run("export", "--well-known", "site", expect=2).stderr
    assert list((author.cwd / "elsewhere").iterdir()) == []
