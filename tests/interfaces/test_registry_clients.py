"""The registry's owner turned hostile, and a user's real processes that notice; revocations that reach local tiers."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from kiwi_rag.ingest import publication
from kiwi_rag.usecases.status import PROBE_SECONDS
from tests.interfaces.conftest import PATIENCE, Kiwi, note
from tests.sql.test_refusal_limit import set_minute

ADA, BOB = "ada@acme.example", "bob@acme.example"
QUERY = ("search", "staging scale-down", "--source", "registry")


@pytest.fixture(scope="module")
def model_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a user's home and project, whose note is in a registry that was stopped."""
    folder = tmp_path_factory.mktemp("published")
    folder.chmod(0o755)
    made = Kiwi(folder / "home", folder / "project")
    made.home.mkdir()
    made.cwd.mkdir()
    made.run("init")
    made.run("keys", "new", "--principal", ADA)
    made.run("registry", "start")
    put(made, "1.0.0")
    made.run("registry", "stop")
    return folder


@pytest.fixture
def published(model_home: Path, kiwi: Kiwi) -> Kiwi:
    """A user whose note is in a registry that keeps running."""
    for place in (kiwi.home, kiwi.cwd):  # cp keeps the owners, whom Postgres is particular about
        subprocess.run(["cp", "-a", f"{model_home / place.name}/.", str(place)], check=True)
    shutil.rmtree(kiwi.home / ".ai/registries")
    kiwi.extra["OWNER_URL"] = kiwi.run("registry", "start").stdout.strip()
    return kiwi


@pytest.fixture
def owner(published: Kiwi) -> Iterator[psycopg.Connection]:
    """The database's owner."""
    with psycopg.connect(published.extra["OWNER_URL"], autocommit=True) as connection:
        yield connection


def put(user: Kiwi, version: str, name: str = "note", key: tuple[str, ...] = ()) -> Path:
    path = user.write(f"knowledge/acme/{name}.md", note(version, f"It wakes at seven ({name}, {version})."))
    user.run("add", str(path), *key)
    user.run("publish", str(path))
    return path


def other_user(user: Kiwi) -> Kiwi:
    """Somebody else, on the same registry, who trusts the same signer."""
    home = user.home.parent / "other-home"
    home.mkdir()
    other = Kiwi(home, user.home.parent / "other-project", {"KIWI_REGISTRY_URL": user.extra["OWNER_URL"]})
    other.cwd.mkdir()
    other.run("init")
    for row in user.json("trust", "list"):
        other.run("trust", "add", row["public_key"], "--principal", row["principal"])
    return other


def tear_down_walls(owner: psycopg.Connection) -> None:
    """Switch every trigger off, and drop every CHECK and foreign key."""
    for table in ("statements", "statement_files", "blobs", "passages", "audit"):
        owner.execute(f"alter table kiwi.{table} disable trigger all")
    found = owner.execute(
        "select conrelid::regclass::text, conname from pg_constraint "
        "where connamespace in ('kiwi'::regnamespace, 'kiwi_private'::regnamespace) "
        "and contype in ('c', 'f') and conrelid <> 0 and conparentid = 0 and coninhcount = 0"
    ).fetchall()
    for table, name in found:
        owner.execute(f'alter table {table} drop constraint "{name}"')


def rewrite_payload(owner: psycopg.Connection, old: str, new: str) -> None:
    """Change what was signed, and everything that hangs on its digest, in the table and in the index."""
    tear_down_walls(owner)
    before = owner.execute("select digest from kiwi.statements").fetchone()
    owner.execute(
        "update kiwi.statements set payload = convert_to(replace(convert_from(payload, 'UTF8'), %s, %s), 'UTF8')",
        [old, new],
    )
    assert before != owner.execute("select digest from kiwi.statements").fetchone()
    owner.execute("update kiwi.passages set text = replace(text, %s, %s)", [old, new])


def rewrite_file(owner: psycopg.Connection, old: str, new: str) -> None:
    """Change a file that was signed, its digest in the table of files, and its passages; not the statement."""
    tear_down_walls(owner)
    owner.execute(
        "update kiwi.blobs set content = convert_to(replace(convert_from(content, 'UTF8'), %s, %s), 'UTF8')", [old, new]
    )
    owner.execute("update kiwi.blobs set sha256 = encode(sha256(content), 'hex')")
    owner.execute("update kiwi.statement_files set sha256 = (select sha256 from kiwi.blobs)")
    owner.execute("update kiwi.passages set text = replace(text, %s, %s)", [old, new])


def refused_by_search(user: Kiwi) -> list[str]:
    """Search the registry as a person does; return the codes of what was refused."""
    shown = user.run(*QUERY, expect=3)
    assert shown.stdout == ""
    reply = user.json(*QUERY, expect=3)
    codes = [row["code"] for row in reply["refused"]]
    assert f"refused: {len(codes)}" in shown.stderr
    assert all(code in shown.stderr for code in codes)
    return codes


def test_an_edited_file_is_dropped_counted_and_not_pulled(published: Kiwi, owner: psycopg.Connection):
    rewrite_file(owner, "wakes at seven", "never wakes up")
    assert refused_by_search(published) == ["changed"]
    other = published.at(published.home.parent / "elsewhere")
    other.run("init")
    other.run("get", "acme/note", expect=4)
    assert not (other.cwd / ".ai/knowledge/acme/note.md").exists()


def test_an_edited_row_is_dropped_counted_and_not_pulled(published: Kiwi, owner: psycopg.Connection):
    rewrite_payload(owner, "what it saves", "what it never saves")
    assert refused_by_search(published) == ["bad-signature"]
    other = published.at(published.home.parent / "elsewhere")
    other.run("init")
    pulled = other.run("get", "acme/note", expect=4)
    assert "signature" in pulled.stderr
    assert not (other.cwd / ".ai/knowledge/acme/note.md").exists()


def test_an_older_version_is_not_taken_for_the_newest(published: Kiwi, owner: psycopg.Connection):
    put(published, "2.0.0")
    assert published.json(*QUERY)["hits"][0]["version"] == "2.0.0"
    tear_down_walls(owner)
    owner.execute("delete from kiwi.postings")
    owner.execute(
        "delete from kiwi.passages where statement_id in (select sequence from kiwi.statements where version = '2.0.0')"
    )
    owner.execute("delete from kiwi.statements where version = '2.0.0'")
    owner.execute("update kiwi.passages set searchable = true")
    assert refused_by_search(published) == ["rolled-back"]
    rows = published.json("verify", "--source", "registry", expect=4)
    assert [row["reason"].partition(":")[0] for row in rows] == ["rolled-back"]
    other = published.at(published.home.parent / "elsewhere")
    other.run("init")
    assert "2.0.0 was seen" in other.run("get", "acme/note@registry", expect=4).stderr
    other.run("get", "acme/note@1.0.0@registry")
    other.run("registry", "accept", "knowledge:acme/note", "--yes")
    assert published.json(*QUERY)["hits"][0]["version"] == "1.0.0"


def test_a_yank_cannot_be_unsaid(published: Kiwi, owner: psycopg.Connection):
    published.run("yank", "acme/note@1.0.0", "--reason", "wrong hours", "--yes")
    other = other_user(published)
    gone = other.run("get", "acme/note@registry", expect=1)
    assert "was yanked" in gone.stderr
    assert "acme/note@1.0.0@registry" in gone.stderr
    pulled = other.run("--json", "get", "acme/note@1.0.0@registry")
    assert "was yanked on" in pulled.stderr
    assert json.loads(pulled.stdout)["yank_reason"] == "wrong hours"
    tear_down_walls(owner)
    owner.execute("update kiwi.statements set yanked_at = null, yank_reason = ''")
    owner.execute("update kiwi.passages set searchable = true")
    assert refused_by_search(other) == ["yank-undone"]
    assert "yank-undone" in other.run("--json", "get", "acme/note@registry", "--force", expect=4).stderr


@pytest.mark.parametrize("forged", ["shortened", "forked"])
def test_a_rewritten_audit_log_silences_the_tier_until_it_is_accepted(
    published: Kiwi, owner: psycopg.Connection, forged: str
):
    published.run(*QUERY)
    tear_down_walls(owner)
    if forged == "shortened":
        owner.execute("delete from kiwi.audit where seq = (select max(seq) from kiwi.audit)")
    else:
        owner.execute("update kiwi.audit set details = '{}' where event = 'publish'")
        owner.execute("update kiwi.audit as a set hash = kiwi.audit_hash(a) where event = 'publish'")
    reply = published.json("search", "staging scale-down", "--source", "all", expect=3)
    assert [hit["tiers"] for hit in reply["hits"]] == [["project"]]
    state = next(tier for tier in reply["tiers"] if tier["tier"] == "registry")
    assert (state["state"], state["error"]["code"]) == ("refused", f"audit-{forged}")
    alone = published.run(*QUERY, expect=3)
    assert alone.stdout == ""
    assert "registry: refused: the registry's audit log" in alone.stderr
    assert f"audit-{forged}" in published.run("--json", "audit", "verify", "--tier", "registry", expect=4).stderr
    assert "not confirmed" in published.run("registry", "accept", expect=2).stderr
    accepted = published.run("registry", "accept", "--yes").stderr
    assert "pinned  " in accepted
    assert "registry  " in accepted
    assert published.json(*QUERY)["hits"][0]["version"] == "1.0.0"


def test_the_audit_log_is_verified_by_its_reader(published: Kiwi, owner: psycopg.Connection):
    published.run(*QUERY)
    whole = published.run("audit", "verify", "--tier", "registry")
    assert "every record was verified" in whole.stderr
    head = owner.execute("select seq || ' records, head ' || hash from kiwi.audit order by seq desc limit 1").fetchone()
    assert (whole.stdout.strip(),) == head
    tear_down_walls(owner)
    owner.execute("update kiwi.audit set ref = 'knowledge:acme/other@1.0.0' where event = 'publish'")
    owner.execute("create or replace function kiwi.verify_audit() returns bigint language sql as 'select null::bigint'")
    assert "it was altered" in published.run("audit", "verify", "--tier", "registry", expect=4).stderr
    published.run(*QUERY)  # every hash that was seen is still there: only who reads the records can tell


def test_a_revocation_reaches_local_tiers_and_stays_known_offline(published: Kiwi):
    other = other_user(published)
    other.run("get", "acme/note")
    here = ("search", "staging scale-down", "--source", "local")
    assert len(other.json(*here)["hits"]) == 1
    assert "not confirmed" in published.run("registry", "revoke", ADA, expect=2).stderr
    revoked = published.run("registry", "revoke", ADA, "--reason", "laptop stolen", "--yes")
    assert "1 item signed by it can no longer be found" in revoked.stderr

    verified = other.run("verify", expect=4)
    assert "revoked by registry kiwi on" in verified.stdout
    assert "laptop stolen" in verified.stdout
    published.run("registry", "stop")
    reply = other.json(*here, expect=3)
    assert [row["code"] for row in reply["refused"]] == ["wrong-key"]
    assert "revoked by registry kiwi" in other.run("trust", "list").stdout
    offline = other.run("verify", expect=4)
    assert "the revocations used are of" in offline.stderr

    key = other.json("trust", "list")[0]["public_key"]
    assert "kiwi trust overrule" in other.run("trust", "add", key, "--principal", ADA).stderr
    other.json(*here, expect=3)
    other.run("trust", "overrule", ADA, "--yes")
    assert len(other.json(*here)["hits"]) == 1
    other.run("trust", "overrule", ADA, "--undo")
    other.json(*here, expect=3)


def test_a_pull_fails_closed(published: Kiwi):
    other = other_user(published)
    live = other.extra["KIWI_REGISTRY_URL"]
    other.extra["KIWI_REGISTRY_URL"] = "postgresql://nobody@127.0.0.1:9/none"
    other.run("get", "acme/note", expect=1)
    other.extra["KIWI_REGISTRY_URL"] = live
    published.run("registry", "revoke", ADA, "--yes")
    assert "revoked by registry kiwi" in other.run("get", "acme/note@1.0.0@registry", expect=4).stderr
    assert not (other.cwd / ".ai/knowledge/acme/note.md").exists()


def test_keys_are_rotated_without_signing_history_again(published: Kiwi):
    old = published.json("registry", "signers")[0]["key_id"]
    published.run("keys", "new", "second", "--principal", ADA)
    time.sleep(1)  # statements have whole seconds, and one of the second of the retirement does not count
    published.run("registry", "retire", old, "--reason", "new key", "--yes")
    assert "retired by registry kiwi" in published.run("trust", "list").stdout
    assert [hit["version"] for hit in published.json(*QUERY)["hits"]] == ["1.0.0"]
    path = published.write("knowledge/acme/late.md", note("1.0.0"))
    late = published.run("add", str(path), "--key", "default", expect=4)
    assert "was retired at" in late.stderr
    put(published, "1.1.0", key=("--key", "second"))
    (hit,) = published.json(*QUERY)["hits"]
    assert (hit["version"], hit["signer"]) == ("1.1.0", ADA)
    assert hit["key_id"] != old
    rows = {row["key_id"]: row["status"] for row in published.json("registry", "signers")}
    assert sorted(rows.values()) == ["active", "retired"]
    other = other_user(published)
    other.run("get", "acme/note@1.0.0@registry")
    assert other.json("verify")[0]["state"] == "verified"


def test_an_item_that_is_withheld_is_missed(published: Kiwi, owner: psycopg.Connection):
    put(published, "1.0.0", name="other")
    assert len(published.json("verify", "--source", "registry")) == 2
    tear_down_walls(owner)
    for table in ("kiwi.postings", "kiwi.passages", "kiwi_private.index_queue", "kiwi.statements"):
        owner.execute(f"delete from {table}")
    rows = published.json("verify", "--source", "registry", expect=4)
    assert sorted(row["ref"] for row in rows) == ["knowledge:acme/note", "knowledge:acme/other"]
    assert "does not have it now" in published.run("get", "acme/note@registry", expect=4).stderr


def test_the_state_of_a_registry_elsewhere_is_told_shortly(ready: Kiwi):
    assert PROBE_SECONDS < 5
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        for port, state in ((9, "failed"), (silent.getsockname()[1], "silent")):
            ready.extra["KIWI_REGISTRY_URL"] = f"postgresql://nobody@127.0.0.1:{port}/none"
            told = ready.json("status", expect=3)["tiers"][-1]
            assert (told["tier"], told["state"]) == ("registry", state)


def test_a_damaged_memory_is_told_and_mended(published: Kiwi):
    published.run(*QUERY)
    (memory,) = (published.home / ".ai/registries").glob("*.sqlite3")
    assert memory.stat().st_mode & 0o777 == 0o600
    memory.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    broken = published.run("search", "staging", "--source", "local", expect=1)
    assert "damaged" in broken.stderr
    assert "kiwi registry accept" in broken.stderr
    published.run("registry", "accept", "--yes")
    assert list((published.home / ".ai/registries").glob("*.damaged-*"))
    assert len(published.json(*QUERY)["hits"]) == 1


def test_searching_while_others_publish_cries_no_wolf(published: Kiwi):
    paths = [published.write(f"knowledge/acme/n{n}.md", note("1.0.0", f"Number {n}.")) for n in range(6)]
    published.run("sign", *map(str, paths))
    running = [published.start("publish", *map(str, paths))] + [published.start(*QUERY) for _ in range(3)]
    for process in running:
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, (process.args, out, err)
    published.run(*QUERY)


def silence(owner: psycopg.Connection, function: str) -> None:
    """Let a function of the registry return no rows."""
    (text,) = owner.execute("select pg_get_functiondef(%s::regproc)", [f"public.{function}"]).fetchone() or ("",)
    head, body, _ = text.split("$function$")
    owner.execute(f"{head}$function$ select * from ({body}) as s limit 0 $function$")


def test_an_item_that_the_registry_names_and_does_not_serve_is_withheld(published: Kiwi, owner: psycopg.Connection):
    other = published.at(published.home.parent / "elsewhere")
    other.run("init")
    for function, named in {
        "get_item": "the registry lists its version 1.0.0",
        "item_status": "of its publication",
        "audit_records": "the registry lists it",
    }.items():
        silence(owner, function)
        for command in ("get", "show"):
            shown = other.run(command, "knowledge:acme/note@registry", expect=4)  # before: not found, exit code 1
            assert "knowledge:acme/note is withheld: " in shown.stderr
            assert named in shown.stderr
    assert '"code": "withheld"' in other.run("--json", "get", "acme/note", expect=4).stderr
    assert "withheld" in other.run("get", "acme/note@1.0.0", expect=4).stderr
    assert "withheld" not in other.run("get", "acme/note@2.0.0", expect=1).stderr
    assert "what it lists: kiwi list --source registry" in shown.stderr
    assert "acme/note" in other.run("list", "--source", "registry").stdout
    silence(owner, "list_items")
    assert "no item acme/note" in other.run("get", "acme/note", expect=1).stderr


def test_publish_says_that_it_waits_and_what_became_of_it(
    published: Kiwi, owner: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(publication, "asyncio", SimpleNamespace(sleep=lambda _: asyncio.sleep(0)))
    set_minute(owner, 0)
    owner.execute("select public.set_refusal_limit(1)")
    owner.execute("select public.publish_item('[]', '{}')")
    path = published.write("knowledge/acme/other.md", note("1.0.0", "It wakes at eight."))
    published.run("add", str(path))
    told = published.run("publish", "--all", expect=4).stderr
    assert re.search(r"over 1 calls of this login were refused within this minute; going on in \d+ s", told)
    assert re.search(r"try again in \d+ seconds", told)
    set_minute(owner, 1)
    assert "published  knowledge:acme/other" in published.run("publish", "--all").stdout
