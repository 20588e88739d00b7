"""`kiwi keys`: a key is made whole or not at all, and a broken file of one disturbs no other."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kiwi_rag.signing import keys as key_files
from kiwi_rag.usecases import trust
from tests.interfaces.conftest import Kiwi, note

STEPS = (("keys", "atomic_write"), ("trust_file", "save"), ("keys", "link_new"), ("Path", "unlink"))
"""What `kiwi keys new` calls, one after the other, once its files are written."""
# In a new Python: a fork of this process, which has threads, may wait for ever for a lock that one of them holds.
KILLED = """
import os, signal, sys
from pathlib import Path
from kiwi_rag.cli import main
from kiwi_rag.signing import keys, trust_file

owner, name, before = globals()[sys.argv[1]], sys.argv[2], sys.argv[3] == "True"
action = getattr(owner, name)

def killed(*given, **named):
    result = None if before else action(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, name, killed)
main(["keys", "new", "second"])
"""


def traces(kiwi: Kiwi) -> list[str]:
    """Return what there is of keys beside the default one, apart from the lock."""
    names = {path.name for path in (kiwi.home / ".ai/keys").glob("*")}
    return sorted(names - {"keys.lock", "default.pem", "default.pub"})


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("owner", "name"), STEPS)
def test_a_key_is_whole_or_not_there_after_a_kill(ready: Kiwi, owner: str, name: str, before: bool):
    """The process is killed before or after each of the steps; the same command is given again."""
    command = [sys.executable, "-c", KILLED, owner, name, str(before)]
    done = subprocess.run(command, cwd=ready.cwd, env=ready.environment(), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    listed = {row["name"]: row["status"] for row in ready.json("keys", "list")}
    if "second" in listed:
        assert listed["second"] == "active"
        ready.run("keys", "new", "second", expect=1)
    else:
        ready.run("keys", "new", "second")
    ready.run("keys", "new", "third")
    assert len(ready.json("trust", "list")) == 3, "nobody trusts a key that nobody has"
    assert traces(ready) == ["second.pem", "second.pub", "third.pem", "third.pub"]
    path = ready.write("knowledge/acme/n.md", note())
    ready.run("sign", "--key", "second", str(path))


def test_a_key_that_cannot_be_trusted_is_not_kept(ready: Kiwi, monkeypatch: pytest.MonkeyPatch):
    def full(*_given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trust, "trust_own_key", full)
    result = ready.run("keys", "new", "second", expect=1)
    assert "no space left for" in result.stderr and "second.pem" in result.stderr
    assert traces(ready) == []
    assert len(ready.json("trust", "list")) == 1


def test_without_a_passphrase_nothing_is_written(kiwi: Kiwi):
    kiwi.extra["KIWI_KEY_PASSPHRASE"] = ""
    kiwi.run("keys", "new", expect=2)
    assert not (kiwi.home / ".ai/keys").exists()


def test_a_key_that_was_trusted_before_stays_so_when_its_import_is_killed(ready: Kiwi, tmp_path: Path):
    work = tmp_path / "work.pem"
    work.write_text(ready.run("keys", "export", "--private").stdout)
    public = ready.run("keys", "export").stdout.strip()
    draft = ready.home / ".ai/keys" / f".{public}{key_files.KNOWN}"
    for name in ("default.pem", "default.pub"):
        (ready.home / ".ai/keys" / name).unlink()
    draft.write_bytes(work.read_bytes())  # as a process leaves it that was killed
    ready.run("keys", "import", str(work))
    assert [row["public_key"] for row in ready.json("trust", "list")] == [public]
    assert not draft.exists()


def rsa_key() -> bytes:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(*form)


def fill(data: Callable[[], bytes]) -> Callable[[Path], object]:
    def break_it(path: Path) -> None:
        path.write_bytes(data())

    return break_it


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


BROKEN: dict[str, Callable[[Path], object]] = {
    "garbage": fill(lambda: bytes(range(256))),
    "empty": fill(bytes),
    "an RSA key": fill(rsa_key),
    "a legacy key": fill(lambda: b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nAAAA\n"),
    "a certificate": fill(lambda: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    "readable for all": lambda path: path.chmod(0o644),
    "a folder": folder,
    "a pipe": pipe,
    "a link to nowhere": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "without a public half": lambda path: path.with_suffix(".pub").unlink(),
    "a garbage public half": lambda path: path.with_suffix(".pub").write_bytes(b"\xff\x00"),
}


@pytest.fixture
def with_another(ready: Kiwi) -> Kiwi:
    ready.run("keys", "new", "bad")
    ready.write("knowledge/acme/n.md", note())
    return ready


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_key_is_listed_with_its_problem_and_disturbs_no_other(with_another: Kiwi, how: str):
    kiwi = with_another
    BROKEN[how](kiwi.home / ".ai/keys/bad.pem")
    rows = {row["name"]: row["status"] for row in kiwi.json("keys", "list")}
    assert rows["default"] == "active"
    assert rows["bad"].startswith("unusable: ")
    signed = kiwi.run("sign", ".ai")
    assert "the key bad is not used: " in signed.stderr
    assert "1 signed" in signed.stderr
    if how not in ("without a public half", "a garbage public half"):
        kiwi.run("sign", ".ai", "--key", "bad", "--force", expect=1)
    kiwi.run("trust", "add", "00" * 16, "--principal", "bob", expect=2)  # compares it with the keys that there are
    problems = [one for one in kiwi.json("doctor", expect=3)["problems"] if one.startswith("keys: ")]
    assert len(problems) == 1
    command = problems[0].rpartition("(")[2].removesuffix(")").partition("mv ")
    shown = "".join(command[1:]) or command[0]
    if shown.startswith("kiwi "):
        kiwi.run(*shlex.split(shown)[1:])
        (kiwi.home / ".ai/keys/bad.pem").unlink()
    else:
        subprocess.run(shlex.split(shown), check=True)
    assert [one for one in kiwi.json("doctor", expect=None)["problems"] if one.startswith("keys: ")] == []
