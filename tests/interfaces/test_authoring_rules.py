"""What writes judges first: a command that refuses has changed no file, and what it prints as the way out is one."""

from __future__ import annotations

import hashlib
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from kiwi_rag.cli import items as cli_items
from kiwi_rag.model import content_digest
from tests.interfaces.conftest import Kiwi, note

OTHER = "It wakes at six."
PLAIN = "# A note without a version\n\nIt says nothing of versions.\n"


NOT_ITEMS = {"vectors", "registry", "registries", "owner-token", "logs"}


def tree(kiwi: Kiwi, root: Path | None = None) -> dict[str, str]:
    """Return the digest of every file of a tier, and what its index holds; its audit log tells of refusals, too."""
    folder = root or kiwi.cwd / ".ai"
    files = [p for p in folder.rglob("*") if p.is_file() and not NOT_ITEMS & set(p.relative_to(folder).parts)]
    found = {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    for catalog in folder.rglob("catalog-100.sqlite3"):
        with closing(sqlite3.connect(catalog)) as connection:
            for table in ("items", "versions", "passages"):
                if rows := connection.execute(f"select * from {table} order by 1, 2").fetchall():
                    found[f"{catalog}:{table}"] = repr(rows)
    return found


def refused(kiwi: Kiwi, *command: str, code: str = "version.immutable", rows: str = "refused") -> list[str]:
    """Run a command that is refused and has written nothing; return the hints of the findings of that code."""
    before = tree(kiwi), tree(kiwi, kiwi.home / ".ai")
    report = kiwi.json(*command, expect=4)
    assert (tree(kiwi), tree(kiwi, kiwi.home / ".ai")) == before
    assert report.get("signed", report.get("added", [])) == []
    findings = [f for row in report[rows] for f in row["findings"]]
    hints = [f["hint"] for f in findings if f["code"] == code]
    assert hints, findings
    return hints


def way_out(hint: str) -> list[str]:
    """Return the arguments of the command that a hint names."""
    return shlex.split(re.search(r"kiwi (.+)", hint)[1])


def write_note(kiwi: Kiwi, version: str = "1.0.0", extra: str = "It wakes at seven.") -> Path:
    return kiwi.write("knowledge/acme/note.md", note(version, extra))


def admitted(kiwi: Kiwi, *options: str) -> Path:
    path = write_note(kiwi)
    kiwi.run("add", str(path), *options)
    return path


def user_note(kiwi: Kiwi, extra: str) -> Path:
    """Have other content of the same version admitted to the user tier."""
    path = kiwi.home / ".ai/knowledge/acme/note.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(note(extra=extra))
    kiwi.run("add", str(path), "--tier", "user")
    return path


def conflicting(kiwi: Kiwi) -> Path:
    """Have one version admitted with other content to project and user, which no command does that sees both."""
    path = admitted(kiwi)
    user_note(kiwi.at(kiwi.cwd.parent / "nowhere"), OTHER)
    return path


@pytest.mark.parametrize("command", ["add", "sign"])
def test_an_edited_file_under_an_admitted_version_is_refused_and_raised_by_the_command_shown(ready: Kiwi, command: str):
    path = admitted(ready)
    write_note(ready, extra=OTHER)
    (hint,) = refused(ready, command, str(path))
    assert "raise the version" in hint
    ready.run(*way_out(hint))
    assert 'version: "1.0.1"' in path.read_text()
    ready.run("add", str(path))
    assert [row["version"] for row in ready.json("list")] == ["1.0.1"]


def test_what_was_refused_here_is_signed_nowhere(ready: Kiwi):
    path = admitted(ready)
    write_note(ready, extra=OTHER)
    refused(ready, "add", str(path))
    elsewhere = ready.at(ready.cwd.parent / "elsewhere")
    elsewhere.run("init")
    elsewhere.copy(ready.cwd / ".ai/knowledge/..")
    report = elsewhere.json("index", expect=4)
    assert report["admitted"] == []
    assert report["refused"][0]["findings"][0]["code"] == "signature.content"


def test_force_signs_no_other_content_either(ready: Kiwi):
    path = admitted(ready)
    write_note(ready, extra=OTHER)
    refused(ready, "sign", str(path), "--force")


def test_a_version_of_the_user_tier_is_not_signed_with_other_content(ready: Kiwi):
    user_note(ready, OTHER)
    path = write_note(ready)
    for command in ("sign", "add"):
        (hint,) = refused(ready, command, str(path))
    assert "user tier" in ready.run("sign", str(path), expect=4).stderr
    ready.run(*way_out(hint))
    ready.run("add", str(path))


def test_the_way_out_of_a_refusal_in_the_user_tier_names_the_tier(ready: Kiwi):
    path = user_note(ready, OTHER)
    path.write_text(note())
    (hint,) = refused(ready, "add", str(path), "--tier", "user")
    ready.run(*way_out(hint))
    ready.run("add", str(path), "--tier", "user")


def test_a_published_version_is_not_signed_with_other_content(ready: Kiwi):
    path = admitted(ready)
    ready.run("publish", str(path))
    other = ready.at(ready.cwd.parent / "elsewhere")
    other.run("init")
    path = write_note(other, extra=OTHER)
    (hint,) = refused(other, "sign", str(path))
    assert "published to the registry" in other.run("add", str(path), expect=4).stderr
    other.run(*way_out(hint))
    other.run("add", str(path))
    other.run("publish", str(path))


@pytest.mark.usefixtures("impatient")
def test_a_silent_registry_is_told_and_stops_nobody_from_signing(ready: Kiwi):
    path = write_note(ready)
    ready.extra["KIWI_REGISTRY_URL"] = "postgresql://nobody@127.0.0.1:9/none"
    assert "were not compared" in ready.run("sign", str(path)).stderr


def test_a_version_below_the_highest_is_raised_above_it(ready: Kiwi):
    path = write_note(ready, "2.0.0")
    ready.run("add", str(path))
    write_note(ready, "1.9.0", OTHER)
    for command in ("sign", "add"):
        (hint,) = refused(ready, command, str(path), code="version.rollback")
    ready.run(*way_out(hint))
    assert 'version: "2.0.1"' in path.read_text()
    ready.run("add", str(path))


def test_sign_prints_the_warnings_of_the_gate(ready: Kiwi):
    path = ready.write("knowledge/acme/bare.md", note().replace('version: "1.0.0"\n', ""))
    assert "warning metadata.version-missing: no version is declared; 0.0.0" in ready.run("sign", str(path)).stderr
    assert "version-missing" not in ready.run("sign", str(path)).stderr  # it is signed already


def test_validate_counts_what_a_trusted_key_signed_already(ready: Kiwi):
    path = write_note(ready)
    said = "1 of 1 item would be admitted, once signed by a trusted key\n"
    assert ready.run("validate", str(path)).stderr == said
    ready.run("sign", str(path))
    assert ready.run("validate", str(path)).stderr == "1 of 1 item would be admitted, as signed by a trusted key\n"
    ready.write("knowledge/acme/other.md", note())
    both = ready.run("validate", ".ai").stderr
    assert both == "2 of 2 items would be admitted, 1 of them once signed by a trusted key\n"
    ready.run("trust", "remove", "ada@acme.example")
    assert ready.run("validate", str(path)).stderr == said


def test_an_older_version_that_was_checked_out_is_brought_back_by_the_command_shown(ready: Kiwi):
    path = write_note(ready)
    signature = path.with_name(f"{path.name}.sig")
    ready.run("add", str(path))
    old = path.read_bytes(), signature.read_bytes()
    ready.run("add", str(write_note(ready, "1.1.0", OTHER)))
    path.write_bytes(old[0])
    signature.write_bytes(old[1])
    (hint,) = refused(ready, "index", code="version.rollback")
    assert hint.startswith("to bring the older content back, raise the version: kiwi sign ")
    (finding,) = ready.json("index", expect=4)["refused"][0]["findings"]
    assert finding["message"].endswith("; the content is that of 1.0.0, which was admitted earlier")
    ready.run(*way_out(hint))
    ready.run("index")
    assert ready.json("list")[0]["version"] == "1.1.1"
    assert path.read_bytes() == old[0].replace(b"1.0.0", b"1.1.1")


@pytest.mark.parametrize("command", ["sign", "add"])
@pytest.mark.parametrize("how", ["retired", "compromised", "unknown"])
def test_a_key_that_may_not_sign_changes_nothing(ready: Kiwi, how: str, command: str):
    path = write_note(ready)
    ready.run("sign", str(path))
    write_note(ready, extra=OTHER)
    if how == "unknown":
        ready.run("trust", "remove", "ada@acme.example")
    else:
        ready.run("keys", "retire", "default", *(["--compromised"] if how == "compromised" else []))
    code = "signature.unknown-signer" if how == "unknown" else "signature.wrong-key"
    (hint,) = refused(ready, command, str(path), "--bump", "patch", code=code)
    for way in re.findall(r"kiwi [^;]+", hint):
        ready.run(*way_out(way))
    ready.run("add", str(path), "--bump", "patch")  # with the one key that may sign


def test_sync_copies_all_or_nothing_and_names_what_it_refuses(ready: Kiwi):
    good = ready.write("knowledge/acme/good.md", note(extra="Good."))
    bad = admitted(ready)
    ready.run("add", str(good))
    bad.write_text(bad.read_text() + "\nEdited since.\n")
    before = tree(ready, ready.home / ".ai")
    said = ready.run("sync", "--to", "user", expect=4)
    assert "knowledge/acme/note.md" in said.stderr
    assert "nothing was copied" in said.stderr
    assert said.stdout == ""
    assert tree(ready, ready.home / ".ai") == before
    ready.run("add", str(bad), "--bump", "patch")
    ready.run("sync", "--to", "user")
    assert len(ready.json("list", "--source", "user")) == 2


def test_sync_over_another_content_of_the_version_is_refused(ready: Kiwi):
    path = conflicting(ready)
    before = tree(ready, ready.home / ".ai")
    said = ready.run("sync", "--to", "user", "--force", expect=4).stderr
    assert tree(ready, ready.home / ".ai") == before
    ready.run(*way_out(re.search(r"kiwi sign .+", said)[0]))
    ready.run("add", str(path))
    ready.run("sync", "--to", "user", "--force")


def test_getting_what_would_overwrite_an_edited_file_writes_nothing(ready: Kiwi):
    path = admitted(ready)
    ready.run("sync", "--to", "user")
    path.write_text(note("1.1.0", "Mine."))
    before = tree(ready)
    audited = len(ready.json("audit"))
    assert "--force" in ready.run("get", "acme/note@user", expect=2).stderr
    assert tree(ready) == before
    assert len(ready.json("audit")) == audited
    ready.run("get", "acme/note@user", "--force")
    assert path.read_text() == note()


def test_getting_other_content_of_an_admitted_version_writes_nothing(ready: Kiwi):
    conflicting(ready)
    before = tree(ready)
    ready.run("get", "acme/note@user", "--force", expect=4)
    assert tree(ready) == before


def test_bump_of_a_folder_after_a_refusal_touches_only_what_changed(ready: Kiwi):
    path = admitted(ready)
    still = ready.write("knowledge/acme/still.md", note(extra="Still."))
    ready.run("add", str(still))
    before = still.read_bytes(), still.with_name("still.md.sig").read_bytes()
    write_note(ready, extra=OTHER)
    refused(ready, "add", str(path))
    said = ready.run("sign", ".ai", "--bump", "minor")
    assert 'knowledge/acme/note.md:4: version: "1.1.0"' in said.stderr
    assert said.stderr.count("wrote") == 1
    assert (still.read_bytes(), still.with_name("still.md.sig").read_bytes()) == before
    assert ready.json("index")["admitted"] == ["knowledge:acme/note@1.1.0"]


@pytest.mark.parametrize("target", ["knowledge/acme/note.md", "."])
def test_bump_leaves_alone_what_did_not_change(ready: Kiwi, target: str):
    admitted(ready)
    before = tree(ready)
    assert "already signed" in ready.run("sign", f".ai/{target}", "--bump", "patch").stdout
    assert tree(ready) == before


def test_bump_raises_what_was_signed_with_other_content_by_another_program(ready: Kiwi):
    from kiwi_rag.formats import parse_item
    from kiwi_rag.model.refs import ItemType
    from kiwi_rag.signing import keys, statement

    path = admitted(ready)
    write_note(ready, extra=OTHER)
    key = keys.load("default", ready.home / ".ai/keys", "correct horse")
    item = parse_item(ItemType.KNOWLEDGE, "acme/note", path.read_text()).item
    path.with_name("note.md.sig").write_bytes(statement.signature_file(key.sign(item, "kiwi")))
    (hint,) = refused(ready, "sign", ".ai")
    ready.run(*way_out(hint))
    ready.run("index")
    assert ready.json("list")[0]["version"] == "1.0.1"


WITHOUT = {
    "knowledge/acme/plain.md": (PLAIN, '.ai/knowledge/acme/plain.md:2: version: "1.0.0"'),
    "scripts/acme/tool.py": (
        '"""Say hello."""\n\nfrom __future__ import annotations\n\nprint("hello")\n',
        '.ai/scripts/acme/tool.py:5: __version__ = "1.0.0"',
    ),
    "directives/acme/hello.md": (
        "# Hello\n\n```xml\n<directive name=\"hello\">\n<metadata><description>Say hello.</description></metadata>\n"
        '<process><step name="say"><action>Say it.</action></step></process>\n</directive>\n```\n',
        '.ai/directives/acme/hello.md:4: <directive version="1.0.0" name="hello">',
    ),
}  # fmt: skip


@pytest.mark.parametrize("relative", WITHOUT)
def test_bump_adds_a_version_where_there_is_none_and_shows_the_line(ready: Kiwi, relative: str):
    text, line = WITHOUT[relative]
    path = ready.write(relative, text)
    said = ready.run("add", f".ai/{relative}", "--bump", "patch")
    assert f"wrote  {line}" in said.stderr
    assert [row["version"] for row in ready.json("list")] == ["1.0.0"]
    lines = [row for row in text.splitlines() if row and not row.startswith("<directive")]
    assert [row for row in path.read_text().splitlines() if row in lines] == lines


def test_bump_adds_a_version_to_what_was_admitted_without_one(ready: Kiwi):
    path = ready.write("knowledge/acme/plain.md", PLAIN)
    ready.run("add", str(path))
    path.write_text(PLAIN + "\nNow it does.\n")
    (hint,) = refused(ready, "add", str(path))
    ready.run(*way_out(hint))
    ready.run("add", str(path))
    assert ready.json("list")[0]["version"] == "1.0.0"


HIDING = """# coding: utf-7
'''Say hello.'''

__version__ = '1.0.0'
__permissions__ = []  # +AAo-import subprocess+ADs- subprocess.run('id')
"""


def test_a_script_that_hides_a_call_behind_its_encoding_is_refused(ready: Kiwi):
    path = ready.write("scripts/acme/tool.py", HIDING)
    assert "subprocess" in path.read_bytes().decode("utf-7").splitlines()[5]  # what Python would run
    for command in ("validate", "sign", "add"):
        said = ready.run(command, str(path), expect=4)
        assert ".ai/scripts/acme/tool.py:1: error bounds.declared-encoding" in said.stdout + said.stderr
    assert not path.with_name("tool.py.sig").exists()
    path.write_text(HIDING.removeprefix("# coding: utf-7"))
    ready.run("add", str(path))


def content(extra: str = "It wakes at seven.") -> str:
    return content_digest({"note.md": hashlib.sha256(note(extra=extra).encode()).hexdigest()})


def assert_told(text: str, *tiers: str) -> None:
    """Assert that a text names the item's version, both tiers and both contents."""
    assert "acme/note@1.0.0" in text
    for tier, digest in zip(tiers, (content(), content(OTHER)), strict=True):
        assert f"{digest[:16]}… in {tier}" in text


def test_one_version_with_two_contents_is_named_by_search_verify_and_doctor(ready: Kiwi):
    conflicting(ready)
    for command in (["search", "staging scale-down"], ["verify"], ["verify", "acme/note"], ["doctor"]):
        said = ready.run(*command, expect=3)
        assert_told(said.stdout + said.stderr, "project", "user")
    hit = ready.json("search", "staging scale-down", expect=3)["hits"][0]
    assert hit["conflict"]["digests"] == {"project": content(), "user": content(OTHER)}
    rows = ready.json("verify", expect=3)
    assert [(row["tier"], row["state"]) for row in rows] == [("project", "conflict"), ("user", "conflict")]
    (problem,) = ready.json("doctor", expect=3)["problems"]
    for hint in (problem.rstrip(")"), hit["conflict"]["hint"], rows[0]["conflict"]["hint"]):
        assert "--bump patch" in hint
    ready.run(*way_out(problem.rstrip(")")))
    ready.run("verify")
    ready.run("doctor")
    assert ready.json("search", "staging scale-down")["hits"][0]["conflict"] is None


def test_two_versions_with_two_contents_are_no_conflict(ready: Kiwi):
    path = ready.home / ".ai/knowledge/acme/note.md"
    conflicting(ready)
    path.write_text(note("1.0.1", OTHER))
    ready.run("add", str(path), "--tier", "user")
    assert ready.json("search", "staging scale-down")["hits"][0]["conflict"] is None
    ready.run("verify")


@pytest.mark.usefixtures("impatient")
def test_a_published_version_with_other_content_is_named(ready: Kiwi):
    path = admitted(ready)
    ready.run("publish", str(path))
    other = ready.at(ready.cwd.parent / "elsewhere")
    other.run("init")
    unreachable = Kiwi(other.home, other.cwd, {"KIWI_REGISTRY_URL": "postgresql://nobody@127.0.0.1:9/none"})
    unreachable.run("add", str(write_note(other, extra=OTHER)))
    reply = other.json("search", "staging scale-down", "--source", "all", expect=3)
    assert reply["hits"][0]["conflict"]["digests"] == {"project": content(OTHER), "registry": content()}
    for command in (["verify", "--source", "all"], ["doctor"]):
        said = other.run(*command, expect=3)
        assert_told(said.stdout + said.stderr, "registry", "project")
    other.run(*way_out(other.json("doctor", expect=3)["problems"][0].rstrip(")")))
    other.run("verify", "--source", "all")


def test_the_command_shown_for_an_edited_file_brings_it_in(ready: Kiwi):
    path = admitted(ready)
    path.write_text(note(extra=OTHER))
    said = ready.run("verify", expect=3).stdout
    ready.run(*way_out(said))
    assert ready.json("verify")[0]["ref"] == "knowledge:acme/note@1.0.1"


@pytest.fixture
def foreign(ready: Kiwi) -> Path:
    """An item with the signature of somebody whose key is not trusted here, as in a clone."""
    path = write_note(ready)
    ready.run("sign", str(path))
    ready.run("trust", "remove", "ada@acme.example")
    ready.run("keys", "new", "other", "--principal", "bob@acme.example")
    return path


@pytest.mark.parametrize("command", ["sign", "add"])
def test_the_signature_of_an_unknown_signer_is_replaced_only_by_force(ready: Kiwi, foreign: Path, command: str):
    (hint,) = refused(ready, command, str(foreign), "--key", "other", code="signature.unknown-signer")
    replace = hint.rpartition("; to replace the signature by yours: ")[2]
    ready.run(*way_out(replace), "--key", "other")
    ready.run("add", str(foreign), "--key", "other")
    assert ready.json("verify")[0]["signer"] == "bob@acme.example"


def test_an_edit_of_metadata_version_and_text_is_one_finding_with_one_way_out(ready: Kiwi):
    path = admitted(ready)
    text = path.read_text().replace("author: ada", "author: bob").replace('"1.0.0"', '"1.0.1"')
    path.write_text(text + "\nEdited.\n")
    (hint,) = refused(ready, "index", code="signature.content")
    ready.run(*way_out(hint))
    ready.run("index")
    assert ready.json("verify")[0]["state"] == "verified"


def test_delete_takes_the_tier_of_the_address(ready: Kiwi):
    path = admitted(ready)
    ready.run("sync", "--to", "user")
    assert "kiwi yank" in ready.run("delete", "knowledge:acme/note@registry", "--yes", expect=2).stderr
    said = ready.run("delete", "knowledge:acme/note@user", "--yes").stdout
    assert str(ready.home / ".ai/knowledge/acme/note.md") in said
    assert path.is_file()
    assert [row["tier"] for row in ready.json("list")] == ["project"]


def test_a_name_with_a_line_feed_is_shown_on_one_line(ready: Kiwi):
    ready.write("knowledge/acme/new\nkiwi trust add.md", note())
    said = ready.run("index", expect=4).stderr
    assert not any(line.strip().startswith("kiwi trust add") for line in said.splitlines())


def published(kiwi: Kiwi) -> list[str]:
    return [row["version"] for row in kiwi.json("log", "acme/note@registry")]


def test_publish_signs_what_was_edited_with_the_next_version_by_the_command_shown(ready: Kiwi):
    path = admitted(ready)
    ready.run("publish", str(path))
    write_note(ready, extra=OTHER)
    (hint,) = refused(ready, "publish", str(path), code="signature.content")
    assert "kiwi publish" in hint
    told = ready.run(*way_out(hint))
    assert f'wrote  {path.relative_to(ready.cwd)}:4: version: "1.0.1"' in told.stderr
    assert "published  knowledge:acme/note@1.0.1" in told.stdout
    assert (published(ready), [row["state"] for row in ready.json("verify")]) == (["1.0.1", "1.0.0"], ["verified"])
    assert ready.run("publish", "--all", "--bump", "patch").stdout.startswith("already published")


def test_publish_with_bump_checks_all_before_it_writes(ready: Kiwi, monkeypatch: pytest.MonkeyPatch):
    path = admitted(ready)
    ready.run("publish", str(path))
    write_note(ready, extra=OTHER)
    ready.write("knowledge/acme/bad.md", note().replace("acme\n", "acme\u200b\n"))
    refused(ready, "publish", "--all", "--bump", "minor", code="bounds.invisible")
    assert published(ready) == ["1.0.0"]
    ready.extra["KIWI_REGISTRY_URL"] = "postgresql://nobody@127.0.0.1:9/none"
    monkeypatch.setattr("kiwi_rag.usecases.sign.HISTORY_SECONDS", 0.1)
    before = tree(ready)
    ready.run("publish", str(path), "--bump", "minor", expect=1)
    assert tree(ready) == before


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands of items take their input for a terminal's."""
    monkeypatch.setattr(cli_items, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("command", ["add", "publish"])
@pytest.mark.parametrize(("answer", "version"), [("", "1.0.1"), ("minor", "1.1.0"), ("no", "1.0.0")])
def test_after_an_edit_the_part_to_raise_is_asked_for_on_a_terminal(
    ready: Kiwi, command: str, answer: str, version: str
):
    path = admitted(ready)
    write_note(ready, extra=OTHER)
    before = tree(ready)
    told = ready.run(command, str(path), stdin=f"{answer}\n".encode(), expect=4 if answer == "no" else 0)
    assert "acme/note is not what was signed; patch makes it 1.0.1" in told.stderr
    assert [row["version"] for row in ready.json("list")] == [version]
    if answer == "no":
        assert tree(ready) == before
        assert f"kiwi {command} " in told.stderr
    elif command == "publish":
        assert published(ready) == [version]
