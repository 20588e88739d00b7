"""Every command's help, the settings, completion, keys and trust, as a user meets them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
from dataclasses import fields

import pytest

from kiwi_rag.cli import _COMMANDS
from kiwi_rag.config import Settings
from tests.interfaces.conftest import PASSPHRASE, Kiwi, note

GROUPS = {
    "keys": ["new", "list", "show", "export", "import", "retire"],
    "trust": ["list", "add", "remove", "project"],
    "registry": ["start", "stop", "migrate", "status"],
    "workspace": ["index", "watch", "list", "stats", "search"],
}
CALLS = [[name] for name in _COMMANDS] + [[group, name] for group, names in GROUPS.items() for name in names]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_every_command_has_help_with_an_example(call: list[str]):
    import click

    from kiwi_rag.cli import kiwi

    command: click.Command = kiwi
    context = click.Context(kiwi, info_name="kiwi")
    for name in call:
        command = command.get_command(context, name)
        context = click.Context(command, info_name=name, parent=context)
    text = command.get_help(context)
    assert command.help
    if not isinstance(command, click.Group):
        assert f"Example: kiwi {' '.join(call)}" in " ".join(text.split())


def test_help_lists_every_command(kiwi: Kiwi):
    out = kiwi.run_process("--help").stdout
    assert all(f"\n  {name} " in out for name in _COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(kiwi: Kiwi, shell: str):
    assert "_KIWI_COMPLETE" in kiwi.run("completion", shell).stdout


def test_init_twice_changes_nothing(kiwi: Kiwi):
    kiwi.run("init")
    (kiwi.cwd / ".ai/.gitignore").write_text("mine\n")
    kiwi.run("init")
    assert (kiwi.cwd / ".ai/.gitignore").read_text() == "mine\n"


def test_a_key_is_encrypted_private_and_never_overwritten(ready: Kiwi):
    path = ready.home / ".ai/keys/default.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "ENCRYPTED" in path.read_text()
    before = path.read_bytes()
    ready.run("keys", "new", expect=1)
    assert path.read_bytes() == before
    ready.extra["KIWI_KEY_PASSPHRASE"] = ""
    assert "KIWI_KEY_PASSPHRASE" in ready.run("keys", "new", "second", expect=2).stderr


def test_keys_travel_as_encrypted_pem(ready: Kiwi):
    pem = ready.cwd / "key.pem"
    pem.write_text(ready.run("keys", "export", "--private").stdout)
    assert "ENCRYPTED" in pem.read_text()
    ready.run("keys", "import", str(pem), "--name", "copy")
    names = {row["name"]: row["key_id"] for row in ready.json("keys", "list")}
    assert names["copy"] == names["default"]
    assert "several keys" in ready.run("sign", ".ai", expect=2).stderr


def test_a_key_from_the_environment_signs(ready: Kiwi):
    ready.extra["KIWI_SIGNING_KEY"] = ready.run("keys", "export", "--private").stdout
    (ready.home / ".ai/keys/default.pem").unlink()
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    assert len(ready.json("list")) == 1


def test_a_project_trust_file_counts_only_once_pinned(ready: Kiwi):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    trust = ready.home / ".ai/trust.toml"
    (ready.cwd / ".ai/trust.toml").write_bytes(trust.read_bytes())
    trust.unlink()
    assert ready.json("search", "staging", expect=3)["hits"] == []
    ready.run("trust", "project", expect=2)
    ready.run("trust", "project", "--yes")
    assert ready.json("search", "staging")["hits"]
    with (ready.cwd / ".ai/trust.toml").open("a") as file:
        file.write("\n# changed\n")
    assert ready.json("search", "staging", expect=3)["hits"] == []


def test_config_shows_values_and_origins(kiwi: Kiwi):
    (kiwi.home / ".ai").mkdir()
    (kiwi.home / ".ai/config.yaml").write_text("limit: 3\nvector_store:\n  embedding_provider: onnx\n")
    kiwi.extra["KIWI_REGISTRY_URL"] = "postgresql://user:hush@127.0.0.1/x"
    settings = kiwi.json("config", "--resolved")
    what = {field.name: field.metadata["what"] for field in fields(Settings)}
    source = str(kiwi.home / ".ai/config.yaml")
    assert settings["limit"] == {"value": "3", "from": source, "what": what["limit"]}
    assert settings["registry_url"] == {"value": "(set)", "from": "KIWI_REGISTRY_URL", "what": what["registry_url"]}
    lines = kiwi.run("config", "--resolved").stdout
    assert f"limit: 3  # {source}: {what['limit']}\n" in lines and "hush" not in lines
    (kiwi.home / ".ai/config.yaml").write_text("limits: 3\n")
    error = json.loads(kiwi.run("--json", "config", expect=2).stderr)["error"]
    assert error["code"] == "config"


def test_a_project_may_not_redirect_secrets(ready: Kiwi):
    ready.write("config.yaml", "registry_url: postgresql://evil.example/x\n")
    assert "may not set" in ready.run("search", "x", expect=2).stderr


def test_status_doctor_and_audit(ready: Kiwi):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    assert "1 item  " in ready.run("status").stdout
    assert ready.json("doctor")["problems"] == []
    assert ready.json("audit", "verify")["seq"] == 1
    assert "admitted" in ready.run("audit").stdout


def test_registry_life(ready: Kiwi):
    ready.run_forked("registry", "start")
    assert ready.json("registry", "status")["running"] is True
    ready.run("registry", "migrate")
    ready.run("registry", "stop")
    assert ready.json("registry", "status", expect=None)["running"] is False


def test_the_registry_status_shows_no_empty_values_and_a_command_first(ready: Kiwi):
    stopped = ready.run("registry", "status")
    assert stopped.stderr.startswith("kiwi registry start keeps it running")
    ready.run("registry", "start")
    for shown in (stopped, ready.run("registry", "status")):
        values = dict(line.split(":", 1) for line in shown.stdout.splitlines())
        assert values["where"].strip().startswith("embedded")
        assert all(value.strip() for value in values.values())
        assert not re.search(r"None|\[\]|\{\}", shown.stdout)
    elsewhere = ready.at(ready.cwd)
    elsewhere.extra["KIWI_REGISTRY_URL"] = "postgresql://nobody@127.0.0.1:1/none"
    failed = elsewhere.run("registry", "status", expect=3)
    assert "(kiwi registry status shows whether it runs" in failed.stdout
    assert "start" not in failed.stderr  # Kiwi cannot start a server elsewhere


def test_what_is_public_stays_public_and_publish_says_so(ready: Kiwi):
    ready.run("sign", str(ready.write("knowledge/acme/note.md", note())))
    ready.run("publish", "--all")
    told = ready.run("publish", "--all", "--private", expect=3)
    assert "1 were public already and stay public" in told.stderr
    (row,) = ready.json("publish", "--all", "--private", expect=3)["published"]
    assert (row["already_published"], row["private"]) == (True, False)
    ready.run("publish", "--all")


def test_registry_verify_shows_why_the_gate_rejects_an_item(ready: Kiwi):
    ready.run("sign", str(ready.write("knowledge/acme/note.md", note())))
    ready.run("publish", "--all")
    ready.run("trust", "remove", "ada@acme.example")
    told = ready.run("registry", "verify", expect=3)
    assert re.search(
        r"differs +knowledge:acme/note@1.0.0 +- +the gate rejects it: signed by the key with id [0-9a-f]{16}…, "
        "which is not trusted here",
        told.stdout,
    )
    (mismatch,) = ready.json("registry", "verify", expect=3)["mismatches"]
    assert "not trusted here" in mismatch["what"]


def answered(kiwi: Kiwi, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, type `answer` at its first prompt, and return exit code and what it showed."""
    environment = {**kiwi.environment(), "KIWI_KEY_PASSPHRASE": "", "TERM": "xterm"}
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kiwi_rag.cli", *arguments], cwd=kiwi.cwd, env=environment,
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.1)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:
                break
            if shown.endswith(b"Passphrase: "):
                os.write(master, answer.encode() + b"\n")
    os.close(master)
    return process.wait(), shown.decode(errors="replace")


def test_signing_asks_for_the_passphrase_on_a_terminal(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    code, shown = answered(ready, PASSPHRASE, "add", str(path))
    assert code == 0, shown
    assert PASSPHRASE not in shown
    assert len(ready.json("list")) == 1
    code, shown = answered(ready, "wrong", "sign", str(path), "--force")
    assert code == 1
    assert "passphrase" in shown.lower()


def test_bump_raises_what_was_edited_and_leaves_the_rest(ready: Kiwi):
    edited = ready.write("knowledge/acme/edited.md", note())
    untouched = ready.write("knowledge/acme/untouched.md", note())
    ready.run("sign", ".ai")
    before = untouched.with_name("untouched.md.sig").read_bytes()
    edited.write_text(note(extra="It wakes at six."))
    edited.chmod(0o750)
    ready.run("sign", ".ai", "--bump", "minor")
    assert 'version: "1.1.0"' in edited.read_text()
    assert edited.stat().st_mode & 0o777 == 0o750
    assert 'version: "1.0.0"' in untouched.read_text()
    assert untouched.with_name("untouched.md.sig").read_bytes() == before


def test_bump_changes_all_or_nothing(ready: Kiwi):
    first = ready.write("knowledge/acme/a.md", note())
    ready.write("scripts/acme/b.py", '"""Say hello."""\n\n__version__ = "1" ".0.0"\n')
    stderr = ready.run("sign", ".ai", "--bump", "patch", expect=2).stderr
    assert "b.py" in stderr
    assert "nothing was changed" in stderr
    assert 'version: "1.0.0"' in first.read_text()


def test_the_address_that_a_search_prints_can_be_used(ready: Kiwi):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    ready.run("publish", "--all")
    out = ready.run("search", "staging scale-down", "--source", "registry", "--format", "paths").stdout
    assert "Night-time scale-down" in ready.run("show", out.strip()).stdout


def test_an_empty_project_is_no_mistake(ready: Kiwi):
    assert ready.json("sign", ".ai") == {"signed": [], "refused": []}


def test_doctor_names_an_own_key_that_was_revoked_and_the_way_out(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("add", str(path))
    ready.run("publish", "--all")
    ready.run("registry", "revoke", "ada@acme.example", "--reason", "laptop stolen", "--yes")
    (problem,) = [one for one in ready.json("doctor", expect=3)["problems"] if one.startswith("keys:")]
    assert problem.startswith("keys: default is revoked by registry kiwi on ")
    assert "(laptop stolen)" in problem
    assert "(kiwi keys new NAME, kiwi sign .ai --key NAME --force, then remove " in problem
    ready.run("keys", "new", "second", "--principal", "ada@acme.example")
    ready.run("sign", ".ai", "--key", "second", "--force")
    for file in (ready.home / ".ai/keys").glob("default.*"):
        file.unlink()
    ready.run("index")
    assert ready.json("doctor")["problems"] == []


def test_doctor_tells_of_a_trust_file_that_does_not_count(ready: Kiwi):
    own = (ready.home / ".ai/trust.toml").read_bytes()
    ready.run("keys", "new", "second")
    (ready.cwd / ".ai/trust.toml").write_bytes((ready.home / ".ai/trust.toml").read_bytes())
    (ready.home / ".ai/trust.toml").write_bytes(own)
    assert "kiwi trust project" in ready.run("doctor", expect=3).stdout
