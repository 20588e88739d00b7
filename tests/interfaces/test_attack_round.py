"""Defects found by attacking: each of these tests fails until its cause is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kiwi_rag.cli import install as install_command
from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.trust import Signer
from tests import skills
from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_install import add, author, owner  # noqa: F401

ADA = "ada@acme.example"


def test_a_file_in_a_clone_does_not_take_the_place_of_a_key_that_was_typed(ready: Kiwi):
    typed, planted = (keys.generate(name).public_key.hex() for name in ("carol", "mallory"))
    (ready.cwd / typed).write_text(planted)
    ready.run("trust", "add", typed, "--principal", "carol@acme.example", "--yes")
    assert planted not in {row["public_key"] for row in ready.json("trust", "list")}


@pytest.mark.parametrize("locked", ["edited", "missing"])
def test_the_lock_file_does_not_silence_the_question_about_another_signer(owner: Kiwi, locked: str):  # noqa: F811
    owner.run("keys", "new", "mal", "--principal", "mallory@evil.example")
    add(owner, "1.1.0", key=("--key", "mal"))
    lock = owner.cwd / "kiwi.lock"
    text = lock.read_text().replace(ADA, "mallory@evil.example")
    lock.unlink() if locked == "missing" else lock.write_text(text)
    arguments = ("install", skills.ID) if locked == "missing" else ("update",)
    assert f"{ADA} signed the installed version" in owner.run(*arguments, expect=2).stderr


def test_uninstall_removes_no_source_through_a_link(author: Kiwi):  # noqa: F811
    (author.cwd / ".agents").mkdir()
    (author.cwd / ".agents/skills").symlink_to("../.ai/skills/acme")
    author.run("install", skills.ID, expect=None)
    author.run("uninstall", "pdf-forms", expect=None)
    assert (author.cwd / ".ai/skills/acme/pdf-forms/SKILL.md").is_file()


def test_a_link_that_appears_while_a_question_is_open_is_not_followed(
    author: Kiwi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
):
    outside, apply = tmp_path / "outside", install_command._apply
    outside.mkdir()

    async def link_first(*arguments, **options):
        (author.cwd / ".agents").mkdir()
        (author.cwd / ".agents/skills").symlink_to(outside)
        await apply(*arguments, **options)

    monkeypatch.setattr(install_command, "_apply", link_first)
    author.run("install", skills.ID, expect=None)
    assert list(outside.iterdir()) == []


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
