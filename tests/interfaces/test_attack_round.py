"""Defects found by attacking: each of these tests fails until its cause is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiwi_rag.cli import install as install_command
from tests import skills
from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_install import add, author, owner  # noqa: F401

ADA = "ada@acme.example"




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
