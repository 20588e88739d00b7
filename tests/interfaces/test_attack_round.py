"""Defects found by attacking: each of these tests fails until its cause is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.trust import Signer
from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_import import SKILL, imported

ADA = "ada@acme.example"


def test_a_file_in_a_clone_does_not_take_the_place_of_a_key_that_was_typed(ready: Kiwi):
    typed, planted = (keys.generate(name).public_key.hex() for name in ("carol", "mallory"))
    (ready.cwd / typed).write_text(planted)
    ready.run("trust", "add", typed, "--principal", "carol@acme.example", "--yes")
    assert planted not in {row["public_key"] for row in ready.json("trust", "list")}


def _vendored(ready: Kiwi) -> Kiwi:
    for name, text in SKILL.items():
        ready.write(f"skills/acme/invoice-check/{name}", text)
    ready.run("sign", ".ai", "--bump", "patch")
    other = ready.at(ready.cwd.parent / "other")
    other.run("init")
    (ready.cwd / ".ai/skills/acme/invoice-check").rename(other.cwd / "vendored")
    return other


def test_import_says_when_it_replaces_a_signature_of_a_compromised_key(ready: Kiwi):
    other = _vendored(ready)
    other.run("keys", "new", "bob", "--principal", "bob@acme.example")
    other.run("keys", "retire", "default", "--compromised")
    row = imported(other, "vendored", "--namespace", "acme", "--key", "bob")["vendored/SKILL.md"]
    assert row["state"] == "refused" or "signature" in row["note"]


def test_import_says_when_it_signs_files_that_were_changed_after_somebody_signed_them(ready: Kiwi):
    other = _vendored(ready)
    (other.cwd / "vendored/references/limits.md").write_text("# Limits\n\nNone.\n")
    row = imported(other, "vendored", "--namespace", "acme")["vendored/SKILL.md"]
    assert row["state"] == "refused" or "signature" in row["note"]


@pytest.mark.parametrize("link", ["AGENTS.md", "docs"])
def test_import_follows_no_link_out_of_the_project(ready: Kiwi, link: str):
    private = ready.home / "private"
    private.mkdir()
    (private / "diary.md").write_text("# Diary\n\nWhat nobody else may read.\n")
    (ready.cwd / link).symlink_to(private / "diary.md" if link.endswith(".md") else private)
    ready.run("import", link, "--namespace", "acme", expect=None)
    assert not [p for p in (ready.cwd / ".ai").rglob("*.md") if "nobody else" in p.read_text()]


def test_a_clone_does_not_borrow_the_pin_of_another_project(ready: Kiwi):
    shutil.copy(ready.home / ".ai/trust.toml", ready.cwd / ".ai/trust.toml")
    ready.run("trust", "project", "--yes")
    clone = ready.at(ready.cwd.parent / "clone")
    clone.run("init")
    (clone.cwd / ".ai/trust.toml").symlink_to("../../project/.ai/trust.toml")
    clone.run("trust", "remove", ADA)
    assert clone.json("trust", "list") == []


def _asked(user: Kiwi, principal: str) -> str:
    line = trust_file.shared_line(Signer(principal, keys.generate("m").public_key, ("*",)))
    return user.run("trust", "add", line, expect=2).stderr


def test_a_principal_that_looks_like_a_trusted_one_is_pointed_out(ready: Kiwi):
    asked = _asked(ready, f"{ADA} ")
    assert "is trusted with another key already" in asked or "no valid principal" in asked


def test_a_principal_cannot_pretend_to_be_what_kiwi_says_of_it(ready: Kiwi):
    said = f"{ADA} is active, may sign acme/docs/* (knowledge)  key id 0123456789abcdef…"
    assert said not in _asked(ready, f"{said}{' ' * 300}old@x")


def test_a_trust_file_that_revokes_a_trusted_key_says_what_is_lost(ready: Kiwi, tmp_path: Path):
    (me,) = ready.json("trust", "list")
    shared = f'[[signer]]\nprincipal = "{ADA}"\npublic_key = "{me["public_key"]}"\nitems = ["*"]\n'
    (tmp_path / "team.toml").write_text(shared + 'status = "compromised"\n')
    asked = ready.run("trust", "add", str(tmp_path / "team.toml"), expect=2).stderr
    assert "lose" in asked or "Remove" in asked


def test_a_link_among_the_signatures_of_a_clone_stops_no_command(ready: Kiwi):
    (ready.cwd / ".ai/x.md.sig").symlink_to("/proc/self/mem")
    ready.run("trust", "add", keys.generate("carol").public_key.hex(), "--principal", "carol@acme.example")


def test_a_signature_that_is_not_trusted_gives_no_metadata_in_a_diff(ready: Kiwi):
    from kiwi_rag.formats import parse_item
    from kiwi_rag.model import ItemType
    from kiwi_rag.signing import statement

    text = "# Scale-down\n\nEvery evening the staging cluster shrinks to one node.\n"
    (ready.cwd / "plain.md").write_text(text)
    ready.run("import", "plain.md", "--namespace", "acme")
    claimed = (("version", "1.0.0"), ("author", "ceo@acme.example"), ("tags", ("approved",)), ("category", ""))
    item = parse_item(ItemType.KNOWLEDGE, "acme/plain", text, given=claimed).item
    assert item is not None
    forged = statement.signature_file(keys.generate("mallory").sign(item, "kiwi"))
    (ready.cwd / ".ai/knowledge/acme/plain.md.sig").write_bytes(forged)
    assert "ceo@acme.example" not in ready.run("diff", "acme/plain", expect=None).stdout
