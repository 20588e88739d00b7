"""A team on one repository: what is said after a pull, in a clone, and about installed skills, each way out run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests import skills
from tests.interfaces.conftest import Kiwi, note
from tests.once import made_once

ADA = "ada@acme.example"
NAME = "pdf-forms"


def _make_lead(folder: Path) -> None:
    for name in ("home", "project"):
        (folder / name).mkdir()
    user = Kiwi(folder / "home", folder / "project")
    user.run("init")
    user.run("keys", "new", "--principal", ADA, "--items", "acme/*")
    user.run("add", str(user.write("knowledge/acme/note.md", note())), str(skill(user)))
    user.run("install", skills.ID)


@pytest.fixture
def lead(tmp_path: Path) -> Kiwi:
    """A user who signed an item and a skill in the project, and installed the skill."""
    shutil.copytree(made_once("team-lead", _make_lead), tmp_path, dirs_exist_ok=True)
    return Kiwi(tmp_path / "home", tmp_path / "project")


@pytest.fixture
def clone(lead: Kiwi, tmp_path: Path) -> Kiwi:
    """Another user in a clone of the project, who trusts nobody yet."""
    (tmp_path / "other").mkdir()
    return pull(lead, Kiwi(tmp_path / "other", tmp_path / "clone", {"KIWI_KEY_PASSPHRASE": ""}))


@pytest.fixture
def bob(lead: Kiwi, clone: Kiwi) -> Kiwi:
    """The same user, who trusts the lead and has an index."""
    clone.run("trust", "add", lead.run("keys", "show", "--share").stdout.strip(), "--yes")
    clone.run("index")
    return clone


def pull(lead: Kiwi, other: Kiwi) -> Kiwi:
    ignore = shutil.ignore_patterns("vectors")
    shutil.copytree(lead.cwd, other.cwd, ignore=ignore, dirs_exist_ok=True, copy_function=shutil.copyfile)
    return other


def skill(user: Kiwi, version: str = "1.0.0") -> Path:
    return skills.write(user.cwd / ".ai", {"SKILL.md": skills.MAIN.format(version=version).encode()}, skills.ID)


def release(lead: Kiwi) -> None:
    """Sign version 1.0.1 of the item and of the skill."""
    lead.run("add", str(lead.write("knowledge/acme/note.md", note("1.0.1"))), str(skill(lead, "1.0.1")))


def ways(text: str) -> list[str]:
    """Return the commands that a text names."""
    return re.findall(r"kiwi (?!has|is )[a-z].*", text)


def follow(user: Kiwi, text: str, expect: int = 0) -> str:
    """Run the last command that a text names, and return what it says."""
    done = user.run(*shlex.split(ways(text)[-1])[1:], expect=expect)
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", [("search", "staging"), ("verify", "acme/note"), ("why", "acme/note")])
def test_what_was_pulled_is_said_to_be_newer_and_not_edited(lead: Kiwi, bob: Kiwi, command: tuple[str, ...]):
    release(lead)
    done = pull(lead, bob).run(*command, expect=None)
    line = next(line for line in done.stdout.splitlines() if "not indexed" in line)
    assert f"a newer signed version, 1.0.1 by {ADA}, is on disk and not indexed: kiwi index" in line
    assert "edited" not in done.stdout
    follow(bob, line)
    assert "verified" in bob.run("verify", "acme/note").stdout


def test_what_a_stranger_signed_is_said_to_be_replaced(lead: Kiwi, bob: Kiwi, tmp_path: Path):
    eve = Kiwi(tmp_path / "eve-home", tmp_path / "eve")
    eve.home.mkdir()
    eve.cwd.mkdir()
    eve.run("init")
    eve.run("keys", "new", "--principal", "eve@else.example")
    path = eve.write("knowledge/acme/note.md", note("1.0.1"))
    eve.run("sign", str(path))
    for name in ("note.md", "note.md.sig"):
        shutil.copyfile(path.with_name(name), bob.cwd / ".ai/knowledge/acme" / name)
    said = bob.run("verify", "acme/note", expect=3).stdout
    key_id = eve.json("keys", "show")["key_id"]
    assert f"was replaced, and is refused: signed by the key with id {key_id[:16]}…, which is not trusted here" in said
    assert "kiwi add" not in said
    why = follow(bob, said, expect=4)
    assert "--force" not in why
    assert key_id[:16] in why


def test_a_version_of_a_key_that_may_not_sign_it_is_not_offered_for_signing(lead: Kiwi, bob: Kiwi):
    lead.run("keys", "new", "second", "--principal", "temp@acme.example", "--items", "acme/*")
    second = lead.json("keys", "show", "second")["public_key"]
    path = lead.write("knowledge/acme/note.md", note("1.0.1"))
    lead.run("sign", str(path), "--key", "second", "--force")
    pull(lead, bob).run("trust", "add", second, "--principal", "temp", "--items", "other/*")
    said = bob.run("verify", "acme/note", expect=3).stdout
    assert "temp may not sign acme/note" in said
    assert "kiwi add" not in said
    assert "may not sign" in follow(bob, said, expect=4)


def test_an_older_version_on_disk_is_not_called_newer(lead: Kiwi, bob: Kiwi, tmp_path: Path):
    shutil.copytree(bob.cwd / ".ai/knowledge", tmp_path / "old")
    release(lead)
    pull(lead, bob).run("index")
    shutil.copytree(tmp_path / "old", bob.cwd / ".ai/knowledge", dirs_exist_ok=True)
    said = bob.run("verify", "acme/note", expect=3).stdout
    assert f"was replaced by version 1.0.0, signed by {ADA}" in said
    assert "below 1.0.1" in follow(bob, said, expect=4)


def test_a_trust_file_that_is_a_link_is_not_written(lead: Kiwi):
    own = (lead.home / ".ai/trust.toml").read_bytes()
    (lead.cwd / ".ai/trust.toml").symlink_to(lead.home / ".ai/trust.toml")
    assert "is a link" in lead.run("trust", "share", expect=2).stderr
    assert (lead.home / ".ai/trust.toml").read_bytes() == own


def test_an_edit_is_still_an_edit(lead: Kiwi):
    path = lead.write("knowledge/acme/note.md", note("1.0.1"))
    assert f"{path} was edited since it was indexed" in lead.run("verify", "acme/note", expect=3).stdout
    path.with_name("note.md.sig").unlink()
    assert f"{path} was edited since it was indexed" in lead.run("verify", "acme/note", expect=3).stdout


def test_a_pulled_version_of_a_skill_is_not_called_current(lead: Kiwi, bob: Kiwi):
    release(lead)
    pull(lead, bob)
    (row,) = bob.json("outdated", expect=3)
    assert row["state"] == "unknown"
    assert "1.0.1" in row["problem"]
    assert "not indexed → kiwi index" in bob.run("outdated", expect=3).stderr
    follow(bob, bob.run("update", expect=1).stderr)
    assert "updated  acme/pdf-forms 1.0.0 → 1.0.1" in bob.run("update").stdout


@pytest.mark.parametrize("command", [("install", "--frozen"), ("install", skills.ID)])
def test_a_skill_that_is_not_indexed_yet_is_installed_after_one(lead: Kiwi, clone: Kiwi, command: tuple[str, ...]):
    clone.run("trust", "add", lead.run("keys", "show", "--share").stdout.strip(), "--yes")
    shutil.rmtree(clone.cwd / ".agents")
    follow(clone, clone.run(*command, expect=1).stderr)
    assert "installed  acme/pdf-forms 1.0.0" in clone.run(*command).stdout


def test_an_edited_skill_whose_version_is_gone_is_replaced_by_the_newest(lead: Kiwi):
    release(lead)
    (lead.cwd / ".agents/skills" / NAME / "SKILL.md").write_text("edited")
    said = lead.run("verify", skills.ID, expect=3).stdout
    assert "updated  acme/pdf-forms 1.0.0 → 1.0.1" in follow(lead, said)
    (lead.cwd / ".agents/skills" / NAME / "SKILL.md").write_text("edited")
    said = lead.run("verify", skills.ID, expect=3).stdout
    follow(lead, said)
    assert "edited" not in lead.run("verify", skills.ID).stdout


def test_a_refused_update_names_what_compares_the_folders(lead: Kiwi):
    release(lead)
    with (lead.cwd / ".agents/skills" / NAME / "SKILL.md").open("a") as file:
        file.write("more\n")
    said = lead.run("update", expect=2).stderr
    assert f"compare them: diff -r .ai/skills/{skills.ID} .agents/skills/{NAME}; --force" in said
    shutil.move(lead.cwd / ".ai/skills", lead.cwd / "skills")
    said = lead.run("uninstall", NAME, expect=2).stderr
    assert f"compare them: kiwi show skill:{skills.ID}; --force" in said
    assert "name: pdf-forms" in lead.run("show", f"skill:{skills.ID}").stdout


def test_a_name_that_is_not_installed_is_answered_with_those_that_are(lead: Kiwi):
    said = lead.run("uninstall", "nothing", expect=1).stderr
    assert f"installed: {NAME}" in said
    assert "kiwi install" not in said
    lead.run("uninstall", NAME)
    assert "no skill is installed here" in lead.run("uninstall", "nothing", expect=1).stderr


def test_a_skill_without_its_namespace_is_answered_with_its_id(lead: Kiwi):
    lead.run("uninstall", NAME)
    said = lead.run("install", NAME, expect=1).stderr
    assert "installed  acme/pdf-forms 1.0.0" in follow(lead, said)
    assert "kiwi search" in lead.run("install", "forms", expect=1).stderr
    assert "kiwi index" not in lead.run("install", f"{skills.ID}@user", expect=1).stderr


def test_the_first_item_and_init_name_the_command_that_shares_the_key(lead: Kiwi, tmp_path: Path):
    (tmp_path / "new/.git").mkdir(parents=True)
    new = lead.at(tmp_path / "new")
    said = new.run("init").stderr
    assert "kiwi keys new --principal" in said and "kiwi add" in said and "kiwi import" in said
    path = new.write("knowledge/acme/first.md", note())
    assert "kiwi trust share" in follow_share(new, new.run("add", str(path)).stderr)
    other = pull(new, Kiwi(tmp_path / "third", tmp_path / "clone", {"KIWI_KEY_PASSPHRASE": ""}))
    other.home.mkdir()
    other.run("trust", "project", "--yes")
    assert "1 admitted" in other.run("index").stdout
    for command in (("search", "staging"), ("status",), ("index",)):
        assert "pinned" not in new.run(*command).stderr
    assert "trust share" not in new.run("add", str(new.write("knowledge/acme/b.md", note()))).stderr


def follow_share(user: Kiwi, text: str) -> str:
    """Run the command that shares the key if a text names it, and return the text."""
    assert ADA in user.run(*re.findall("kiwi (trust share)", text)[-1].split()).stdout
    return text


def test_sharing_keeps_other_signers_and_a_pin_and_takes_no_pin_along(lead: Kiwi, bob: Kiwi):
    lead.run("trust", "share")
    pull(lead, bob).run("trust", "project", "--yes")
    bob.extra = {}
    bob.run("keys", "new", "--principal", "bob@acme.example", "--items", "bob/*")
    bob.run("trust", "share")
    text = (bob.cwd / ".ai/trust.toml").read_text()
    assert [*re.findall('principal = "(.*)"', text)] == [ADA, "bob@acme.example"]
    assert "[[project]]" not in text
    assert "pinned" not in bob.run("status").stderr
    bob.run("keys", "retire", "default")
    assert "is retired" in bob.run("trust", "share", expect=2).stderr
    assert (bob.cwd / ".ai/trust.toml").read_text() == text


@pytest.mark.parametrize("items", ["acme/*", "*"])
def test_a_trust_file_is_announced_only_where_it_adds_something(lead: Kiwi, clone: Kiwi, items: str):
    lead.run("trust", "share")
    key = lead.json("keys", "show")["public_key"]
    pull(lead, clone).run("trust", "add", key, "--principal", "ada", "--items", items, "--valid-before", "2999-01-01")
    assert "is not pinned" in clone.run("status").stderr
    clone.run("trust", "add", key, "--principal", "ada", "--items", items, "--replace", "--yes")
    assert "pinned" not in clone.run("status").stderr
    (clone.cwd / ".ai/trust.toml").write_text("not TOML")
    assert "is not pinned" in clone.run("status").stderr


def test_a_clone_without_a_trust_file_names_each_signer_once(lead: Kiwi, clone: Kiwi):
    said = clone.run("search", "staging").stderr
    assert [way.strip() for way in ways(said)] == ["kiwi index"]
    said = clone.run("index", expect=4).stderr
    assert said.count("trust add") == 1
    assert "2 items: signed by the key with id" in said
    assert "kiwi keys show --share" in said
    assert "kiwi trust share" in clone.run("trust", "project", expect=1).stderr
    clone.run(
        "trust", "add", lead.run(*re.findall("kiwi (keys show --share)", said)[0].split()).stdout.strip(), "--yes"
    )
    assert "2 admitted" in clone.run("index").stdout


def test_a_clone_with_a_trust_file_is_given_one_hint(lead: Kiwi, clone: Kiwi):
    lead.run("trust", "share")
    pull(lead, clone)
    for command in (("search", "staging"), ("index",)):
        said = clone.run(*command, expect=None).stderr
        assert len(ways(said)) == 1
    clone.run(*shlex.split(ways(said)[0])[1:], "--yes")
    done = clone.run("index")
    (query,) = [shlex.split(way)[2] for way in ways(done.stderr)]
    assert 1 < len(query.split()) <= 6
    assert follow(clone, done.stderr).startswith(" 1. acme/")
