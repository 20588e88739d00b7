"""`kiwi diff`, `log` and `why`: how versions differ, which there are, and why an item is trusted or not."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kiwi_rag.formats import parse_item
from kiwi_rag.model import ItemRef, ItemType, sha256_hex
from kiwi_rag.monitor.pinned_state import SeenVersion, pinned_states
from kiwi_rag.signing import keys, statement
from tests.interfaces.conftest import Kiwi, note

ADA = "ada@acme.example"
NOTE = "knowledge/acme/note.md"


@pytest.fixture
def indexed(ready: Kiwi) -> Kiwi:
    ready.run("add", str(ready.write(NOTE, note())))
    return ready


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user with 1.0.0 yanked and 1.1.0 in the registry, 1.1.1 in the project, and a private item; only read."""
    folder = tmp_path_factory.mktemp("published")
    for name in ("home", "project"):
        (folder / name).mkdir()
    user = Kiwi(folder / "home", folder / "project")
    user.run("init")
    user.run("keys", "new", "--principal", ADA)
    for version, extra in (("1.0.0", "It wakes at seven."), ("1.1.0", "It wakes at six.")):
        path = str(user.write(NOTE, note(version, extra)))
        user.run("add", path)
        user.run("publish", path)
    for version in ("1.0.0", "1.1.0"):
        path = str(user.write("knowledge/acme/two.md", note(version)))
        user.run("add", path)
        user.run("publish", path)
    Path(path).unlink()
    user.run("index")
    user.run("yank", "acme/note@1.0.0", "--reason", "wakes too late", "--yes")
    user.run("add", str(user.write(NOTE, note("1.1.1", "It wakes at five."))))
    secret = str(user.write("knowledge/acme/mine.md", note()))
    user.run("add", secret)
    user.run("publish", secret, "--private")
    yield user
    user.run("registry", "stop", expect=None)


def refused_step(kiwi: Kiwi, what: str, expect: int = 4) -> tuple[int | None, str, str]:
    """Return the number, the reason and the hint of the first check that failed, of what `why` explains."""
    found = kiwi.json("why", what, expect=expect)
    failed = next(check for check in found["checks"] if check["ok"] is False)
    assert found["state"] == "refused" if expect == 4 else found["state"].startswith("trusted, but ")
    return failed["step"], failed["says"], failed["hint"]


def run_hint(kiwi: Kiwi, hint: str) -> None:
    kiwi.run(*shlex.split(re.search(r"kiwi (.+)", hint)[1]))


def test_an_edited_file_is_compared_with_what_is_indexed_and_marked(indexed: Kiwi):
    same = indexed.run("diff", "acme/note")
    assert same.stdout == "" and "are the same" in same.stderr
    indexed.write(NOTE, note(extra="It wakes at six.\x1b[31m").replace("tags: [cost, staging]", "tags: [cost]"))
    told = indexed.run("diff", "acme/note", expect=3).stdout
    assert "+++ .ai/knowledge/acme/note.md (edited, not signed)" in told
    assert "--- knowledge:acme/note@1.0.0@project" in told
    assert f"signer: {ADA} → none" in told
    assert "\x1b" not in told
    assert "+Every evening at eight the staging cluster shrinks to one node. It wakes at six.�[31m" in told
    indexed.write(NOTE, note("1.2.0", "It wakes at six."))
    found = indexed.json("diff", "acme/note@project", expect=3)
    assert found["facts"]["version"] == {"old": "1.0.0", "new": "1.2.0"}


def test_a_file_without_a_signature_is_marked_so_and_one_that_is_nowhere_is_told(ready: Kiwi):
    ready.write(NOTE, note())
    said = ready.run("diff", "acme/note", expect=1).stderr
    assert "neither indexed nor published" in said
    run_hint(ready, said)
    (ready.cwd / ".ai/knowledge/acme/note.md.sig").unlink()
    assert "note.md (unsigned)" in ready.run("diff", "acme/note", expect=3).stdout


@pytest.mark.parametrize("signer", ["mallory", ""])
def test_a_signature_that_does_not_verify_gives_no_metadata_in_a_diff(ready: Kiwi, signer: str):
    text = "# Scale-down\n\nEvery evening the staging cluster shrinks to one node.\n"
    (ready.cwd / "plain.md").write_text(text)
    ready.run("import", "plain.md", "--namespace", "acme")
    claimed = (("version", "1.0.0"), ("author", "ceo@acme.example"), ("tags", ("approved",)), ("category", ""))
    item = parse_item(ItemType.KNOWLEDGE, "acme/plain", text, given=claimed).item
    assert item is not None
    forged = statement.signature_file(keys.generate("mallory").sign(item, "kiwi"))
    if not signer:  # nobody's signature, by the id of a key that is trusted
        forged = forged.replace(
            json.loads(forged)["signatures"][0]["keyid"].encode(), ready.json("keys", "show")["key_id"].encode()
        )
    (ready.cwd / ".ai/knowledge/acme/plain.md.sig").write_bytes(forged)
    shown = ready.run("diff", "acme/plain", expect=None).stdout
    assert "ceo@acme.example" not in shown and "approved" not in shown


def test_a_path_is_taken_by_all_three_commands_as_its_item(indexed: Kiwi):
    path = ".ai/knowledge/acme/note.md"
    assert indexed.json("log", path) == indexed.json("log", "acme/note")
    assert indexed.json("log", f"{path}.sig")[0]["version"] == "1.0.0"
    indexed.write(NOTE, note("1.1.0", "It wakes at six."))
    assert indexed.json("diff", path, expect=3) == indexed.json("diff", "acme/note", expect=3)
    found = indexed.json("diff", "acme/note@1.0.0", path, expect=3)
    assert found["new"] == f"{path} (edited, not signed)"
    for command in ("diff", "log"):
        assert "is in no tier" in indexed.run(command, "/etc/passwd", expect=2).stderr
    other = indexed.write("knowledge/acme/other.md", note())
    for what in (str(other), "acme/other"):
        said = indexed.run("log", what, expect=1).stderr
        assert "no tier ever had" in said
    run_hint(indexed, said)
    assert indexed.json("log", str(other))[0]["state"] == "indexed"


def test_what_follows_from_the_shown_content_is_not_repeated(indexed: Kiwi):
    text = (indexed.cwd / ".ai" / NOTE).read_text()
    indexed.write(NOTE, text.replace("description: ", "description: Soon, ").replace("staging]", "night]"))
    told = indexed.run("diff", "acme/note", expect=3).stdout
    assert "tags: " in told and "+description: Soon, " in told
    assert "\ndescription: " not in told
    assert "description" in indexed.json("diff", "acme/note", expect=3)["facts"]


def test_the_key_of_an_unknown_signer_is_named(indexed: Kiwi):
    key_id = indexed.json("keys", "show")["key_id"]
    other = indexed.write("knowledge/acme/other.md", note())
    indexed.run("keys", "new", "second", "--principal", "bob@acme.example")
    indexed.run("add", str(other), "--key", "second")
    indexed.run("trust", "remove", ADA)
    found = indexed.json("diff", "acme/other", ".ai/knowledge/acme/note.md", expect=3)
    assert found["facts"]["signer"] == {"old": "bob@acme.example", "new": f"unknown key {key_id[:16]}…"}


def test_versions_and_tiers_are_compared(published: Kiwi):
    told = published.run("diff", "acme/note@1.0.0", "acme/note@1.1.0", expect=3).stdout
    assert "version: 1.0.0 → 1.1.0" in told
    assert "yanked: yes → no" in told
    assert "+Every evening at eight the staging cluster shrinks to one node. It wakes at six." in told
    found = published.json("diff", "acme/note@registry", "acme/note@project", expect=3)
    assert (found["old"], found["new"]) == ("knowledge:acme/note@1.1.0@registry", "knowledge:acme/note@1.1.1@project")
    assert published.json("diff", "acme/mine@project", "acme/mine@registry")["differs"] is False
    # The file is what is indexed, so it is compared with what is published.
    assert published.json("diff", "acme/note", expect=3)["old"] == "knowledge:acme/note@1.1.0@registry"


def test_one_address_without_a_file_here_needs_another_one(published: Kiwi):
    elsewhere = published.at(published.home / "elsewhere")
    assert "kiwi diff acme/note@1.0.0 REF" in elsewhere.run("diff", "acme/note@1.0.0", expect=1).stderr


def test_what_does_not_verify_is_not_compared(indexed: Kiwi):
    indexed.run("keys", "retire", "default", "--compromised")
    assert "compromised" in indexed.run("diff", "acme/note", expect=4).stderr


def test_the_log_has_every_version_of_every_tier_newest_first(published: Kiwi):
    rows = published.json("log", "acme/note")
    assert [(row["tier"], row["version"], row["state"]) for row in rows] == [
        ("project", "1.1.1", "indexed"), ("project", "1.1.0", "earlier"), ("project", "1.0.0", "earlier"),
        ("registry", "1.1.0", "published"), ("registry", "1.0.0", "yanked"),
    ]  # fmt: skip
    assert {row["signer"] for row in rows} == {ADA}
    assert rows[-1]["reason"] == "wakes too late"
    assert rows[1]["digest"] == rows[3]["digest"] != rows[0]["digest"]
    line = published.run("log", "acme/note@registry").stdout.splitlines()[1]
    lines = published.run("log", "acme/note@project").stdout.splitlines()
    assert re.match(rf"project  1.1.1  2\d+-\S+Z  {ADA}", lines[0])
    assert re.match(rf"project  1.1.0  admitted 2\d+-\d\d-\d\dT[\d:]+Z  {ADA}", lines[1])
    assert re.fullmatch(rf"registry  1.0.0  \S+Z  {ADA}  [0-9a-f]{{16}}  yanked: wakes too late", line)
    assert published.run("log", "acme/mine@registry").stdout.endswith("  published  private\n")


@pytest.mark.usefixtures("impatient")
def test_a_log_without_the_registry_says_so(indexed: Kiwi):
    indexed.extra["KIWI_REGISTRY_URL"] = "postgresql://nobody@127.0.0.1:9/none"
    told = indexed.run("log", "acme/note", expect=3)
    assert told.stdout.startswith("project  1.0.0")
    assert "the registry's versions are missing" in told.stderr
    del indexed.extra["KIWI_REGISTRY_URL"]
    assert "no tier ever had" in indexed.run("log", "acme/none", expect=1).stderr


def test_what_is_trusted_is_explained_step_by_step(indexed: Kiwi):
    told = indexed.run("why", "acme/note")
    numbers = [int(number) for number in re.findall(r"^✓ +(\d+) ", told.stdout, re.MULTILINE)]
    assert numbers == list(range(11))
    trust = indexed.home / ".ai/trust.toml"
    line = [*trust.read_text().splitlines()].index(f'public_key = "{indexed.json("keys", "show")["public_key"]}"') + 1
    assert re.search(
        rf"Authority +{ADA} is active, may sign EVERY item .*{re.escape(str(trust))}:{line}\n", told.stdout
    )
    assert told.stderr == "knowledge:acme/note@1.0.0@project: trusted\n"
    assert indexed.json("why", ".ai/knowledge/acme/note.md.sig")["what"] == ".ai/knowledge/acme/note.md"


def test_an_unsigned_file_is_explained_and_signed_by_the_command_shown(ready: Kiwi):
    path = ready.write(NOTE, note())
    step, says, hint = refused_step(ready, str(path))
    assert (step, says) == (7, f"{path.relative_to(ready.cwd)} is not signed")
    assert refused_step(ready, "acme/note") == (step, says, hint)
    run_hint(ready, hint)
    assert ready.json("why", str(path))["state"] == "trusted"


def test_an_unknown_signer_and_a_pattern_that_does_not_match_are_explained(indexed: Kiwi):
    key = indexed.json("keys", "show")["public_key"]
    indexed.run("trust", "remove", ADA)
    step, says, hint = refused_step(indexed, "acme/note")
    assert step == 8 and "which is not trusted here" in says and "kiwi trust add" in hint
    indexed.run("trust", "add", key, "--principal", ADA, "--items", "docs/*")
    step, says, hint = refused_step(indexed, str(indexed.cwd / ".ai" / NOTE))
    assert (step, says) == (8, f"{ADA} may not sign acme/note (docs/* only)")
    run_hint(indexed, hint)
    assert indexed.json("why", "acme/note")["state"] == "trusted"


def test_an_edited_file_is_explained_by_its_path_and_by_its_item(indexed: Kiwi):
    path = indexed.write(NOTE, note(extra="It wakes at six."))
    step, says, hint = refused_step(indexed, str(path))
    assert (step, says) == (7, "the content differs from what was signed")
    found = indexed.json("why", "acme/note", expect=3)
    assert found["state"] == "trusted, but changed"
    assert "was edited since it was indexed" in next(c["says"] for c in found["checks"] if c["ok"] is False)
    run_hint(indexed, hint)
    assert indexed.json("why", str(path))["state"] == "trusted"


def test_what_cannot_be_read_is_explained_too(ready: Kiwi):
    ready.write(NOTE, b"\xff\xfe not UTF-8")
    found = ready.json("why", "acme/note", expect=4)
    assert [c["ok"] for c in found["checks"] if c["step"] is not None] == [False, *[None] * 6, False, *[None] * 3]
    bad = ready.write("knowledge/acme/bad.md", note().replace("---", "- --", 1).replace("acme", "\u200b"))
    assert refused_step(ready, str(bad))[0] == 0
    link = ready.cwd / ".ai/knowledge/acme/other.md"
    link.symlink_to("/etc/passwd")
    assert refused_step(ready, str(link))[0] == 0
    assert "is in no tier" in ready.run("why", "/etc/passwd", expect=2).stderr
    assert "item id" in ready.run("why", "a" * 300, expect=2).stderr


@pytest.mark.parametrize("address", ["acme/note", "knowledge:acme/note", "acme/note@1.0.0@project"])
def test_a_file_at_the_path_of_an_address_does_not_take_its_place(indexed: Kiwi, address: str):
    planted = indexed.cwd / address
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text("planted")
    assert indexed.json("why", address)["what"].startswith("knowledge:acme/note@")
    assert "is in no tier" in indexed.run("why", f"./{address}", expect=2).stderr


def test_a_time_in_the_future_and_a_version_below_the_highest_are_explained(
    indexed: Kiwi, monkeypatch: pytest.MonkeyPatch
):
    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz or UTC) + timedelta(days=1)

    path = indexed.write("knowledge/acme/early.md", note())
    with monkeypatch.context() as patched:
        patched.setattr("kiwi_rag.signing.keys.datetime", Tomorrow)
        patched.setattr("kiwi_rag.validation.manager.datetime", Tomorrow)
        patched.setattr("kiwi_rag.usecases.sign.datetime", Tomorrow)
        indexed.run("sign", str(path))
    step, says, _ = refused_step(indexed, str(path))
    assert step == 9 and "which is in the future" in says
    marks = [check["ok"] for check in indexed.json("why", str(path), expect=4)["checks"] if check["step"] is not None]
    assert marks == [True] * 9 + [False, None]
    old = path.with_name("note.md").read_bytes(), path.with_name("note.md.sig").read_bytes()
    indexed.run("add", str(indexed.write(NOTE, note("1.1.0"))))
    indexed.write(NOTE, old[0])
    indexed.write(f"{NOTE}.sig", old[1])
    step, says, _ = refused_step(indexed, str(path.with_name("note.md")))
    assert step == 10 and "version 1.0.0 is below 1.1.0" in says


def test_a_yanked_and_a_shadowed_version_are_explained(published: Kiwi):
    step, says, _ = refused_step(published, "acme/note@1.0.0@registry", expect=3)
    assert (step, says) == (None, "the registry withdrew this version: wakes too late")
    _, says, hint = refused_step(published, "acme/note@registry", expect=3)
    assert "the project tier has knowledge:acme/note@1.1.1" in says
    assert published.run(*shlex.split(hint)[1:], expect=3).stdout
    checks = {check["name"]: check["says"] for check in published.json("why", "acme/note")["checks"]}
    assert "last read " in checks["Revocations"]


def test_a_version_that_no_tier_has_is_not_explained_by_the_file_of_another(indexed: Kiwi):
    path = indexed.write(NOTE, note("1.1.0", "It wakes at six."))
    assert indexed.json("why", "acme/note@1.1.0", expect=4)["what"] == ".ai/knowledge/acme/note.md"
    indexed.run("add", str(path), "--bump", "patch")
    for ref in ("acme/note@9.9.9", "acme/note@9.9.9@project", "acme/note@1.0.0"):
        shown, explained = (indexed.run(command, ref, expect=1).stderr for command in ("show", "why"))
        assert explained == shown
        assert "there is no registry yet" in shown or f"no item {ref}" in shown


def test_an_older_version_that_the_registry_still_has_is_explained_from_there(published: Kiwi):
    found = published.json("why", "acme/two@1.0.0")
    assert (found["what"], found["state"]) == ("knowledge:acme/two@1.0.0@registry", "trusted")


def test_a_revoked_key_and_a_version_that_was_rolled_back_are_explained(indexed: Kiwi):
    indexed.run("publish", "--all")
    ref = ItemRef(ItemType.KNOWLEDGE, "acme/note")
    (state,) = pinned_states(indexed.home / ".ai/registries")
    with closing(state):
        state.pin_versions([(replace(ref, version="9.0.0"), SeenVersion("9.0.0", sha256_hex(b"9"), sha256_hex(b"k")))])
    _, says, hint = refused_step(indexed, "acme/note@registry")
    assert "9.0.0 was seen and was not yanked" in says and "kiwi registry accept" in hint
    indexed.run("registry", "revoke", ADA, "--reason", "laptop stolen", "--yes")
    step, says, _ = refused_step(indexed, "acme/note@project")
    assert step == 8 and "revoked by registry kiwi" in says and "laptop stolen" in says


def test_every_command_that_why_shows_is_one(indexed: Kiwi):
    stranger = f"[[signer]]\nprincipal = 'eve'\npublic_key = '{'11' * 32}'\n"
    (indexed.cwd / ".ai/trust.toml").write_text(stranger)
    path = indexed.write("knowledge/acme/other.md", note())
    shown = [*indexed.json("why", str(path), expect=4)["checks"], *indexed.json("why", "acme/note")["checks"]]
    hints = {check["hint"] for check in shown if check["hint"]}
    assert hints == {"kiwi sign .ai/knowledge/acme/other.md", "kiwi index --tier project", "kiwi trust project"}
    for hint in sorted(hints, reverse=True):
        indexed.run(*shlex.split(hint)[1:], *(["--yes"] if "trust" in hint else []))
    indexed.run("index")
    assert indexed.json("why", "acme/other")["state"] == "trusted"


def test_why_records_nothing(indexed: Kiwi):
    indexed.write("knowledge/acme/other.md", note())
    before = indexed.run("audit", "show").stdout
    indexed.run("why", ".ai/knowledge/acme/other.md", expect=4)
    indexed.run("why", "acme/note")
    assert indexed.run("audit", "show").stdout == before
    assert json.loads(indexed.run("--json", "why", "acme/note").stdout)["state"] == "trusted"
