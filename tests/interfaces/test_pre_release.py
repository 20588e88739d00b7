"""What a user of a pre-release Kiwi meets: old files are recognised, nothing looks like an attack, keys and trust stay.

The fixture was made by the code of before; tests/data/pre-release/README.md says how.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import pytest

from tests.interfaces.conftest import Kiwi
from tests.shared import ROOT, extract

DATA = ROOT / "tests/data/pre-release"


@pytest.fixture
def old(tmp_path: Path) -> Kiwi:
    """A home and a project as a pre-release Kiwi left them."""
    extract(DATA / "home-and-project.tar.gz", tmp_path)
    return Kiwi(tmp_path / "home", tmp_path / "project", {"KIWI_KEY_PASSPHRASE": "pre-release"})


def digests(folder: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def test_an_old_signature_is_named_as_such_and_signed_anew_without_a_bump(old: Kiwi):
    before = digests(old.cwd / ".ai/knowledge")
    report = old.json("index", expect=4)
    findings = [finding for row in report["refused"] for finding in row["findings"]]
    assert {finding["code"] for finding in findings} == {"signature.old-format"}
    assert all("pre-release Kiwi" in finding["message"] for finding in findings)
    assert digests(old.cwd / ".ai/knowledge") == before
    for finding in findings:
        command = shlex.split(finding["hint"])
        assert command[0] == "kiwi"
        old.run(*command[1:], "--key", "ada")
    sources = ("rollback.md", "slo.md")
    assert all(digests(old.cwd / ".ai/knowledge")[p] == before[p] for p in before if p.endswith(sources))
    assert "2 admitted" in old.run("index").stdout


def test_an_old_catalog_stays_where_it_is_and_one_line_says_so(old: Kiwi):
    catalogs = sorted((old.cwd / ".ai/vectors").rglob("catalog.sqlite3"))
    before = [hashlib.sha256(path.read_bytes()).hexdigest() for path in catalogs]
    assert catalogs
    old.run("sign", ".ai", "--key", "ada")
    lines = [line for line in old.run("index").stderr.splitlines() if "pre-release" in line]
    assert len(lines) == 1, lines
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in catalogs] == before
    assert not [p for p in (old.cwd / ".ai/vectors").rglob("*") if "aside" in p.name or "damaged" in p.name]
    assert "pre-release" not in old.run("index").stderr
    assert old.json("search", "revert a migration")["hits"][0]["item_id"] == "acme/rollback"


def test_the_index_of_documents_is_built_anew(old: Kiwi):
    result = old.run("workspace", "index", ".")
    assert "1 indexed" in result.stdout
    assert old.json("workspace", "search", "when does the ferry leave")["hits"][0]["path"] == "notes.md"


def test_keys_trust_and_revocations_stay(old: Kiwi):
    signers = {row["principal"]: row["status"] for row in old.json("trust", "list")}
    assert signers == {"ada@acme.example": "active", "bob@acme.example": "compromised"}
    refused = old.json("sign", ".ai", "--key", "bob", expect=4)["refused"]
    assert {finding["code"] for row in refused for finding in row["findings"]} == {"signature.wrong-key"}
