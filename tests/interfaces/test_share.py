"""How a teammate comes to trust: a shared line, a file, a project's trust file; and a clone's first verified hit."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
from pathlib import Path

import pytest

from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.trust import Signer
from tests.interfaces.conftest import Kiwi, note

ADA = "ada@acme.example"


@pytest.fixture
def lead(kiwi: Kiwi) -> Kiwi:
    """A user whose key may sign what is below acme, with a signed item and a trust file in the project."""
    kiwi.run("init")
    kiwi.run("keys", "new", "--principal", ADA, "--items", "acme/*")
    kiwi.run("sign", str(kiwi.write("knowledge/acme/note.md", note())))
    shutil.copy(kiwi.home / ".ai/trust.toml", kiwi.cwd / ".ai/trust.toml")
    return kiwi


@pytest.fixture
def teammate(lead: Kiwi, tmp_path: Path) -> Kiwi:
    """Another user with an empty home, in a clone of the project."""
    (tmp_path / "other").mkdir()
    shutil.copytree(lead.cwd, tmp_path / "clone", ignore=shutil.ignore_patterns("vectors"))
    return Kiwi(tmp_path / "other", tmp_path / "clone", {"KIWI_KEY_PASSPHRASE": ""})


def shared(kiwi: Kiwi, *options: str) -> str:
    return kiwi.run("keys", "show", "--share", *options).stdout.strip()


def trusted(kiwi: Kiwi) -> list[dict[str, str]]:
    return kiwi.json("trust", "list")


def next_command(text: str) -> list[str]:
    """Return the arguments of the last command that a text names."""
    return shlex.split(re.findall(r"kiwi ((?:trust|index|search|keys|add)\b.*)", text)[-1])


def on_terminal(kiwi: Kiwi, answer: str, *arguments: str) -> str:
    """Run a command with a terminal, give `answer` to its question, and return what it showed."""
    master, slave = pty.openpty()
    process = kiwi.start(*arguments, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.05)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:
                break
            if answer and shown.endswith(b": "):
                os.write(master, answer.encode() + b"\n")
                answer = ""
    os.close(master)
    assert process.wait() == 0, shown
    return shown.decode(errors="replace").replace("\r\n", "\n")


def test_a_shared_line_is_shown_confirmed_and_trusted(lead: Kiwi, teammate: Kiwi):
    line = shared(lead)
    assert re.fullmatch(r"kiwi:trust:1:[A-Za-z0-9_-]+\.[0-9a-f]{8}", line)
    assert lead.json("keys", "show", "--share") == {"line": line}
    asked = teammate.run("trust", "add", line, expect=2)
    shown = rf'^  active, may sign acme/\* \(directive,.*key id [0-9a-f]{{16}}…\n    principal: "{ADA}"$'
    assert re.search(shown, asked.stderr, re.MULTILINE)
    assert trusted(teammate) == []
    assert "repeat the command with --yes" in asked.stderr
    teammate.run("trust", "add", line, "--yes")
    (row,) = trusted(teammate)
    assert (row["principal"], row["items"]) == (ADA, "acme/*")
    assert row["public_key"] == lead.json("keys", "show")["public_key"]
    assert teammate.json("index")["admitted"] == ["knowledge:acme/note@1.0.0"]


def test_what_the_user_says_goes_before_the_line(lead: Kiwi, teammate: Kiwi):
    options = ("--items", "acme/docs/*", "--type", "knowledge", "--valid-before", "2999-01-01")
    said = teammate.run("trust", "add", shared(lead), *options, "--yes").stderr
    assert "may sign acme/docs/* (knowledge) until 2999-01-01T00:00:00Z" in said
    (row,) = trusted(teammate)
    assert (row["items"], row["types"]) == ("acme/docs/*", "knowledge")
    assert row["valid_before"] == "2999-01-01T00:00:00Z"


def test_a_line_adds_rights_and_takes_none_away(lead: Kiwi, teammate: Kiwi):
    key = lead.json("keys", "show")["public_key"]
    teammate.run("trust", "add", key, "--principal", ADA, "--items", "docs/*")
    teammate.run("trust", "add", shared(lead), "--yes")
    assert [row["items"] for row in trusted(teammate)] == ["docs/*,acme/*"]
    lead.run("trust", "add", key, "--principal", ADA, "--valid-before", "2999-01-01", "--replace", "--yes")
    narrower = shared(lead)
    said = teammate.run("trust", "add", narrower, "--yes", expect=2).stderr
    assert "would lose" in said and "2999" in said
    assert [row["valid_before"] for row in trusted(teammate)] == [""]


def test_another_key_of_a_name_that_is_trusted_is_pointed_out(lead: Kiwi, teammate: Kiwi):
    teammate.run("trust", "add", shared(lead), "--yes")
    assert "another key" not in teammate.run("trust", "add", shared(lead), "--yes").stderr
    lead.run("keys", "new", "second", "--principal", ADA, "--items", "acme/*")
    said = teammate.run("trust", "add", shared(lead, "second"), expect=2).stderr
    assert f"{ADA} is trusted with another key already" in said


def _asked(user: Kiwi, principal: str) -> str:
    line = trust_file.shared_line(Signer(principal, keys.generate("m").public_key))
    return user.run("trust", "add", line, expect=2).stderr


@pytest.mark.parametrize("alike", ["ADA@acme.example", "ada@acrne.example", "ada@acme.examp1e", "àda@acme.example"])
def test_a_name_that_looks_like_one_that_is_trusted_is_pointed_out(ready: Kiwi, alike: str):
    assert f"{ADA} is trusted with another key already" in _asked(ready, alike)
    assert "trusted with another key" not in _asked(ready, "bob@acme.example")


def test_a_principal_cannot_pretend_to_be_what_kiwi_says_of_it(ready: Kiwi):
    said = f"{ADA} is active, may sign acme/docs/* (knowledge)  key id 0123456789abcdef…"
    for principal in (said, f"{ADA}{' ' * 60}old@x", f'{ADA}" active', "a" * 129):
        assert "is no valid principal" in _asked(ready, principal)
    said = said.replace("  ", " ").removesuffix("…")
    assert f'\n    principal: "{said}"\n' in _asked(ready, said)


def test_the_principals_of_a_project_are_checked_before_they_are_shown(ready: Kiwi):
    line = (ready.home / ".ai/trust.toml").read_text()
    (ready.cwd / ".ai/trust.toml").write_text(line.replace(ADA, f"{ADA}{' ' * 80}old"))
    said = ready.run("trust", "project", "--yes", expect=2).stderr
    assert "trust.toml: " in said and "is no valid principal" in said


def test_a_project_says_of_its_signers_what_a_shared_line_says(ready: Kiwi):
    (me,) = trusted(ready)
    entry = '[[signer]]\nprincipal = "{}"\npublic_key = "{}"\n'
    other = entry.format(ADA.upper(), keys.generate("mallory").public_key.hex())
    compromised = entry.format("x", me["public_key"]) + 'status = "compromised"\n'
    (ready.cwd / ".ai/trust.toml").write_text(other + compromised)
    for said in (ready.run("trust", "project", expect=2).stderr, ready.run("setup", "claude", "--project").stderr):
        assert f"{ADA} is trusted with another key already" in said
        assert f"you lose in this project what {ADA} signed with this key" in said


def test_a_trusted_key_beside_it_does_not_hide_another_key_of_its_name(ready: Kiwi):
    lines = [shared(ready), trust_file.shared_line(Signer(ADA, keys.generate("m").public_key))]
    (ready.cwd / "team").write_text("\n".join(lines))
    assert f"{ADA} is trusted with another key already" in ready.run("trust", "add", "team", expect=2).stderr


def test_a_principal_that_an_older_trust_file_has_still_counts(ready: Kiwi):
    file = ready.home / ".ai/trust.toml"
    file.write_text(file.read_text().replace(ADA, f"{ADA}  (old)"))
    assert [row["principal"] for row in trusted(ready)] == [f"{ADA}  (old)"]
    ready.run("keys", "retire", "default")


@pytest.mark.parametrize("status", ["compromised", "retired"])
def test_a_shared_file_does_not_take_a_trusted_key_away(ready: Kiwi, status: str):
    (me,) = trusted(ready)
    entry = '[[signer]]\nprincipal = "{}"\npublic_key = "{}"\n'
    revoked = entry.format(ADA, me["public_key"]) + f'status = "{status}"\n'
    (ready.cwd / "team.toml").write_text(revoked)
    said = ready.run("trust", "add", "team.toml", "--replace", "--yes", expect=2).stderr
    assert f"skipped: key id {me['key_id'][:16]}… is {status} in team.toml" in said
    bob = entry.format("bob@acme.example", keys.generate("bob").public_key.hex())
    (ready.cwd / "team.toml").write_text(revoked + bob)
    assert "skipped: " in ready.run("trust", "add", "team.toml", "--yes").stderr
    assert {row["principal"]: row["status"] for row in trusted(ready)} == {ADA: "active", "bob@acme.example": "active"}


def test_the_right_to_sign_everything_is_pointed_out(ready: Kiwi, tmp_path: Path):
    other = Kiwi(tmp_path, tmp_path, {})
    said = other.run("trust", "add", shared(ready), expect=2).stderr
    assert "may sign EVERY item" in said


def test_a_key_that_lost_trust_is_not_shared(lead: Kiwi):
    lead.run("keys", "retire", "default")
    assert "is retired" in lead.run("keys", "show", "--share", expect=2).stderr


@pytest.mark.parametrize("form", ["line", "trust.toml", "hex", "pem"])
def test_a_file_is_trusted_in_each_form(lead: Kiwi, teammate: Kiwi, form: str):
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = lead.json("keys", "show")["public_key"]
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    content = {
        "line": f"# from the lead\n\n{shared(lead)}\n",
        "trust.toml": (lead.home / ".ai/trust.toml").read_text(),
        "hex": f"{key}\n",
        "pem": public.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo).decode(),
    }
    (teammate.cwd / "shared").write_text(content[form])
    bare = form in ("hex", "pem")
    if bare:
        assert "whose key" in teammate.run("trust", "add", "shared", "--yes", expect=2).stderr
    options = ["--principal", ADA, "--items", "acme/*"] if bare else []
    teammate.run("trust", "add", "shared", *options, expect=2)
    assert trusted(teammate) == []
    teammate.run("trust", "add", "shared", *options, "--yes")
    assert [(row["principal"], row["items"], row["public_key"]) for row in trusted(teammate)] == [(ADA, "acme/*", key)]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", 2),
        ("", 2),
        ("[[signer]]\nprincipal = 'a'\nrole = 'admin'\n", 2),
        ("kiwi:trust:1:AAAA.00000000\nsomething else\n", 2),
        ("x" * (2 << 20), 1),
        (b"\xff\xfe\x00", 1),
    ],
)
def test_a_file_that_is_none_of_these_is_refused(kiwi: Kiwi, content: str | bytes, code: int):
    (kiwi.cwd / "shared").write_bytes(content if isinstance(content, bytes) else content.encode())
    error = kiwi.run("trust", "add", "shared", "--yes", expect=code).stderr
    assert "Traceback" not in error
    assert trusted(kiwi) == []


@pytest.mark.parametrize("what", ["ab" * 200, "~nobody/key", "kiwi:trust:" + "A" * 5000, "no/such/file"])
def test_what_is_neither_a_key_nor_a_line_nor_a_file_is_refused(kiwi: Kiwi, what: str):
    said = kiwi.run("trust", "add", what, "--principal", ADA, "--yes", expect=2).stderr
    assert "→ " in said
    assert trusted(kiwi) == []


def test_setup_without_a_terminal_prints_the_command_and_pins_nothing(teammate: Kiwi):
    said = teammate.run("setup", "claude", "--project").stderr
    assert re.search(rf'  active, may sign acme/\* .*\n    principal: "{ADA}"\n', said)
    assert next_command(said) == ["trust", "project"]
    assert trusted(teammate) == []
    said = teammate.run("trust", "project", expect=2).stderr
    assert "nothing was changed" in said


def test_from_a_clone_to_a_first_verified_hit_in_three_commands(teammate: Kiwi):
    first = on_terminal(teammate, "y", "setup", "claude", "--project")
    assert "Trust these signers in this project?" in first
    second = teammate.run(*next_command(first))
    assert "1 admitted" in second.stdout
    third = teammate.run(*next_command(second.stderr))
    assert f"✓ {ADA}" in third.stdout


@pytest.mark.parametrize("command", [("search", "staging"), ("status",), ("index",)])
def test_whatever_comes_first_in_a_clone_names_what_is_missing(teammate: Kiwi, command: tuple[str, ...]):
    said = teammate.run(*command, expect=None).stderr
    assert "is not pinned, so its signers do not count" in said
    pinned = teammate.run(*next_command(said), "--yes")
    indexed = teammate.run(*next_command(pinned.stderr))
    assert teammate.run(*next_command(indexed.stderr)).stdout.startswith(" 1. acme/note@1.0.0")
    assert teammate.run("index").stderr == ""


def test_a_refused_confirmation_and_a_changed_trust_file_are_no_trust(lead: Kiwi, teammate: Kiwi):
    assert next_command(on_terminal(teammate, "n", "setup", "claude", "--project")) == ["trust", "project"]
    assert trusted(teammate) == []
    teammate.run("trust", "project", "--yes")
    teammate.run("index")
    with (teammate.cwd / ".ai/trust.toml").open("a") as file:
        file.write(f"\n[[signer]]\nprincipal = 'eve'\npublic_key = '{lead.json('keys', 'show')['public_key']}'\n")
    said = teammate.run("search", "staging", expect=3).stderr
    assert "was changed since you pinned it" in said
    checks = teammate.json("why", "acme/note", expect=4)["checks"]
    assert next(check["hint"] for check in checks if check["name"] == "Trust file") == "kiwi trust project"


def test_a_clone_does_not_borrow_the_pin_of_another_project(ready: Kiwi):
    shutil.copy(ready.home / ".ai/trust.toml", ready.cwd / ".ai/trust.toml")
    ready.run("trust", "project", "--yes")
    clone = ready.at(ready.cwd.parent / "clone")
    clone.run("init")
    (clone.cwd / ".ai/trust.toml").symlink_to("../../project/.ai/trust.toml")
    clone.run("trust", "remove", ADA)
    assert trusted(clone) == []
    assert "replace the link" in clone.run("trust", "project", "--yes", expect=1).stderr
