"""Who is trusted with what: key ids are told from public keys, and rights are added unless they are replaced."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kiwi_rag.signing import keys
from tests.interfaces.conftest import Kiwi, note

ADA = "ada@acme.example"


def own_key(kiwi: Kiwi) -> dict[str, str]:
    return kiwi.json("keys", "show")


def trusted(kiwi: Kiwi) -> dict[str, str]:
    (row,) = kiwi.json("trust", "list")
    return row


def command_in(text: str) -> list[str]:
    """Return the arguments of the last command that a text names."""
    return shlex.split(re.findall(r"kiwi (.+)", text)[-1])


def other_user(kiwi: Kiwi) -> Kiwi:
    home = kiwi.home.parent / "other-home"
    home.mkdir()
    other = Kiwi(home, kiwi.home.parent / "other-project")
    other.cwd.mkdir()
    other.run("init")
    return other


def unchanged(kiwi: Kiwi, *arguments: str) -> str:
    """Run a command that refuses, and return what it says."""
    path = kiwi.home / ".ai/trust.toml"
    before = path.read_bytes() if path.exists() else None
    said = kiwi.run(*arguments, expect=2).stderr
    assert (path.read_bytes() if path.exists() else None) == before
    return said


@pytest.mark.parametrize("length", [64, 16, 8])
def test_a_key_id_of_a_key_that_is_known_is_told_with_its_public_key(ready: Kiwi, length: int):
    key = own_key(ready)
    said = unchanged(ready, "trust", "add", key["key_id"][:length] + "…" * (length < 64), "--principal", ADA)
    assert f"is the key id of {ADA}, not a public key" in said
    other = other_user(ready)
    other.run(*command_in(said))
    assert trusted(other)["public_key"] == key["public_key"]


def test_a_key_id_that_a_signature_names_is_told_and_its_owner_prints_the_key(ready: Kiwi):
    ready.run("sign", str(ready.write("knowledge/acme/note.md", note())))
    other = other_user(ready)
    other.copy(ready.cwd / ".ai")
    said = unchanged(other, "trust", "add", own_key(ready)["key_id"], "--principal", ADA)
    assert "not a public key" in said
    ready.run(*command_in(said))
    short = re.search(r"key with id ([0-9a-f]{16})", other.run("index", expect=4).stderr)[1]
    assert "start of a key id" in unchanged(other, "trust", "add", short, "--principal", ADA)


@pytest.mark.parametrize("form", ["{}", "{}…", " {} …"])
def test_hex_digits_are_a_key_and_never_the_name_of_a_file(ready: Kiwi, form: str):
    typed, planted = (keys.generate(name).public_key.hex() for name in ("carol", "mallory"))
    name = form.format(typed.upper() if form == "{}" else typed)
    (ready.cwd / name).write_text(planted)
    for what, key in ((name, typed), (f"./{name}", planted)):
        ready.run("trust", "add", what, "--principal", "carol@acme.example", "--yes")
        assert key in {row["public_key"] for row in ready.json("trust", "list")}
        ready.run("trust", "remove", "carol@acme.example")


def test_what_a_clone_contains_stops_nobody_from_trusting_a_key(ready: Kiwi):
    (ready.cwd / ".ai/x.md.sig").symlink_to("/proc/self/mem")
    (ready.cwd / ".ai/trust.toml").write_text("[[signer]]\nrole = 'admin'\n")
    ready.run("trust", "add", keys.generate("carol").public_key.hex(), "--principal", "carol@acme.example")


def test_a_trust_file_that_is_not_pinned_says_nothing_of_a_key_id(ready: Kiwi):
    mallory = keys.generate("mallory")
    entry = f'[[signer]]\nprincipal = "{ADA}"\npublic_key = "{mallory.public_key.hex()}"\n'
    (ready.cwd / ".ai/trust.toml").write_text(entry)
    said = unchanged(ready, "trust", "add", mallory.key_id[:16], "--principal", ADA)
    assert "start of a key id" in said and mallory.public_key.hex() not in said


def test_what_is_no_point_of_the_curve_is_no_public_key(ready: Kiwi):
    said = unchanged(ready, "trust", "add", "02" + "00" * 31, "--principal", ADA)
    assert "is not a public key" in said
    assert "kiwi keys show" in said
    assert "64 hex digits" in unchanged(ready, "trust", "add", "ada", "--principal", ADA)


@pytest.mark.parametrize("name", [(), ("second",)])
@pytest.mark.parametrize("command", ["new", "show"])
def test_both_are_printed_by_their_names_with_the_command_for_a_teammate(
    kiwi: Kiwi, command: str, name: tuple[str, ...]
):
    if name:
        kiwi.run("keys", "new", "--principal", "other@acme.example")
    said = kiwi.run("keys", "new", *name, "--principal", ADA, "--items", "acme/*")
    key = kiwi.json("keys", "show", *name)
    if command == "show":
        said = kiwi.run("keys", "show", *name)
    assert f"public key: {key['public_key']}" in said.stdout
    assert f"key id: {key['key_id']}" in said.stdout
    assert "trust add" not in said.stderr
    other, way = other_user(kiwi), re.findall(r"kiwi (keys show .*--share)", said.stderr)[-1]
    line = kiwi.run(*shlex.split(way)).stdout.strip()
    assert "trust it with" not in other.run("trust", "add", line, "--yes").stderr
    assert "was trusted already" in other.run("trust", "add", line, "--yes").stderr
    assert {name: trusted(other)[name] for name in ("principal", "items", "public_key")} == {
        "principal": ADA,
        "items": "acme/*",
        "public_key": key["public_key"],
    }


@pytest.mark.parametrize("command", ["keys", "trust"])
def test_lists_label_both(ready: Kiwi, command: str):
    key = own_key(ready)
    line = ready.run(command, "list").stdout
    assert f"public key {key['public_key']}" in line
    assert f"key id {key['key_id'][:16]}…" in line


@pytest.fixture
def limited(kiwi: Kiwi) -> Kiwi:
    """A user whose key may sign what is below acme."""
    kiwi.run("init")
    kiwi.run("keys", "new", "--principal", ADA, "--items", "acme/*")
    return kiwi


def add(kiwi: Kiwi, *options: str) -> list[str]:
    return ["trust", "add", own_key(kiwi)["public_key"], "--principal", ADA, *options]


def test_rights_are_added_to_those_that_a_key_has(limited: Kiwi):
    limited.run(*add(limited, "--items", "docs/*", "--items", "acme/deploy/*", "--type", "document"))
    row = trusted(limited)
    assert (row["items"], row["types"]) == ("acme/*,docs/*", "directive,script,knowledge,skill,document")
    limited.run(*add(limited))
    assert trusted(limited) == row


def test_the_command_that_lets_a_key_sign_more_takes_nothing_away(limited: Kiwi):
    path = limited.write("knowledge/other/note.md", note())
    said = limited.run("sign", str(path), expect=4).stderr
    assert not path.with_name("note.md.sig").exists()
    limited.run(*command_in(said))
    limited.run("add", str(path))
    assert trusted(limited)["items"] == "acme/*,other/*"


def test_replacing_says_what_is_lost_and_is_confirmed(limited: Kiwi):
    wanted = ("--items", "docs/*", "--type", "script", "--replace")
    said = unchanged(limited, *add(limited, *wanted))
    assert "loses: to sign acme/*" in said
    assert "loses: to sign items of type knowledge" in said
    limited.run(*command_in(said))
    assert (trusted(limited)["items"], trusted(limited)["types"]) == ("docs/*", "script")


def test_replacing_that_takes_nothing_away_asks_nothing(limited: Kiwi):
    limited.run(*add(limited, "--replace"))
    assert trusted(limited)["items"] == "*"


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        (("--valid-before", "2027-01-01"), "signatures from 2027-01-01T00:00:00Z on"),
        (("--valid-after", "2026-01-01"), "signatures from before 2026-01-01T00:00:00Z"),
        (("--principal", "bob@acme.example"), f"the name {ADA}"),
    ],
)
def test_what_would_take_something_away_wants_replace(limited: Kiwi, options: tuple[str, ...], loss: str):
    said = unchanged(limited, *add(limited, *options))
    assert loss in said
    again = unchanged(limited, *command_in(said))
    limited.run(*command_in(again))
    row = trusted(limited)
    assert any(value in (row["valid_before"][:10], row["valid_after"][:10], row["principal"]) for value in options)


def test_a_compromised_key_is_not_made_good_by_adding_rights(limited: Kiwi):
    limited.run(*add(limited, "--status", "compromised"))
    limited.run(*add(limited, "--items", "docs/*"))
    assert trusted(limited)["status"] == "compromised"
    assert "the status compromised" in unchanged(limited, *add(limited, "--status", "active"))
    pem = limited.cwd / "key.pem"
    pem.write_text(limited.run("keys", "export", "--private").stdout)
    limited.run("keys", "import", str(pem), "--name", "copy")
    assert trusted(limited)["status"] == "compromised"
    assert trusted(limited)["items"] == "acme/*,docs/*"


def test_a_key_that_is_imported_again_keeps_what_it_may_sign(limited: Kiwi):
    pem: Path = limited.cwd / "key.pem"
    pem.write_text(limited.run("keys", "export", "--private").stdout)
    shown = json.loads(limited.run("--json", "keys", "import", str(pem), "--name", "copy").stdout)
    assert shown["key_id"] == trusted(limited)["key_id"]
    assert trusted(limited)["items"] == "acme/*"
