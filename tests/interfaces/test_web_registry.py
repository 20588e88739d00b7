"""The pages Registry and Item, over real HTTP: one user, one service and one embedded registry for the module."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import quote

import httpx
import psycopg
import pytest

from kiwi_rag.services import Services
from kiwi_rag.validation.audit import AuditEvent
from tests.interfaces.conftest import Kiwi, note, signed_in, wait_until, with_token
from tests.interfaces.test_serve import at, serving
from tests.interfaces.test_skill import FILES, write_skill

ADA, BOB, EVE = "ada@acme.example", "bob@acme.example", "eve@acme.example"
NOTE, SKILL = "knowledge:acme/note", "skill:acme/canary-release"
HOSTILE = "It <b>wakes</b> & sleeps."


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user with two versions of a note and a skill in an embedded registry, whose service runs."""
    folder = tmp_path_factory.mktemp("pages")
    folder.chmod(0o755)
    mine = at(Kiwi(folder / "home", folder / "project"), tmp_path_factory.mktemp("run"), KIWI_PORT="0")
    mine.home.mkdir()
    mine.cwd.mkdir()
    mine.run("init")
    mine.run("keys", "new", "--principal", ADA)
    mine.extra["OWNER_URL"] = mine.run("registry", "start").stdout.strip()
    put(mine, "note", "1.0.0", "It wakes at seven.")
    write_skill(mine)
    mine.run("add", ".ai/skills")
    put(mine, "note", "1.1.0", HOSTILE)
    mine.run("publish", "--all")
    try:
        with serving(mine):
            yield mine
    finally:
        mine.run("registry", "stop")


def put(user: Kiwi, name: str, version: str, extra: str, *key: str) -> str:
    path = str(user.write(f"knowledge/acme/{name}.md", note(version, extra)))
    user.run("add", path, *key)
    if not key:
        user.run("publish", path)
    return path


@pytest.fixture(scope="module")
def owner(user: Kiwi) -> Iterator[psycopg.Connection]:
    """The database's owner, who has made a role that may only publish."""
    with psycopg.connect(user.extra["OWNER_URL"], autocommit=True) as connection:
        connection.execute("create role pub login in role kiwi_publisher")
        yield connection


@pytest.fixture(scope="module")
def publisher(user: Kiwi, owner: psycopg.Connection) -> Kiwi:
    """The same user, whose connection may only publish."""
    url = user.extra["OWNER_URL"].replace("postgres@", "pub@")
    return Kiwi(user.home, user.cwd, {**user.extra, "KIWI_REGISTRY_URL": url})


def text_of(page: httpx.Response) -> str:
    """What a person reads, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.text.split("<main")[-1])).split())


def confirmed(browser: httpx.Client, path: str, question: str, **form: str) -> str:
    """Send a form, check its question, confirm it, and return what the next page says."""
    asked = browser.post(path, data=form)
    assert question in text_of(asked)
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked.text)
    fields = {name: unescape(value) for name, value in hidden}
    assert fields == {**form, "confirmed": "yes"}
    return text_of(browser.post(path, data=fields))


@pytest.mark.parametrize(
    "path",
    ["/registry", "/registry/jobs", "/registry/audit", "/registry/audit?log=project&verify=on&before=4",
     f"/item?ref={NOTE}@registry&with={NOTE}@1.0.0@registry", f"/item?ref={SKILL}&file=scripts/start.py"],
)  # fmt: skip
def test_pages_obey_their_own_policy_and_are_named(browser: httpx.Client, path: str) -> None:
    page = browser.get(path)
    assert page.status_code == 200
    assert not re.search(r"<script(?![^>]*src=)|<style|<[^<>]*(\s(style|on\w+)=|javascript:)", page.text)
    for table in re.findall(r"<table>.*?</table>", page.text, re.DOTALL):
        assert 'scope="col"' in table and 'scope="row"' in table
    ids = re.findall(r'\sid="([^"]+)"', page.text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'aria-labelledby="([^"]+)"', page.text)) <= set(ids)


def test_the_overview_says_what_the_registry_holds(browser: httpx.Client) -> None:
    said = text_of(browser.get("/registry"))
    assert "embedded" in said and "It answers. It runs until it is stopped." in said
    assert "2 items in 3 versions, 1 active signer" in said
    assert "No item waits for the index." in said
    assert f"{ADA} active May sign any item (directive, script, knowledge, skill) Valid always" in said


def test_what_the_gate_refused_is_listed(user: Kiwi, browser: httpx.Client) -> None:
    bad = user.write("directives/acme/bad.md", "# Nothing is said of it\n")
    user.run("add", str(bad), expect=4)
    bad.unlink()
    said = text_of(browser.get("/registry"))
    assert "On this machine, in the tier project" in said
    rejected = re.search(r"rejected directive:acme/bad.{,80}", said)
    assert rejected and "policy: project; findings: " in rejected[0], rejected


def test_a_signer_from_enrolment_to_revocation(
    user: Kiwi, publisher: Kiwi, browser: httpx.Client, owner: psycopg.Connection
) -> None:
    user.run("keys", "new", "bob", "--principal", BOB)
    path = put(user, "bobs", "1.0.0", "Bob says so.", "--key", "bob")
    publisher.run("publish", path, expect=4)
    page = browser.get("/registry")
    assert "By the registry" in page.text and "KW002" in page.text
    assert f"<option>{BOB}</option>" in page.text

    assert f"{BOB} may publish now, with 1 key." in text_of(browser.post("/registry/enrol", data={"principal": BOB}))
    publisher.run("publish", path)
    waiting = text_of(browser.get("/registry"))
    assert "Searches do not find what waits for the index: 1 item." in waiting
    assert "knowledge:acme/bobs@1.0.0 No indexer has taken it yet." in waiting
    owner.execute("update kiwi_private.index_queue set attempts = 2, problem = 'too <long>', not_before = now()")
    waiting = browser.get("/registry")
    assert "An indexer failed on it 2 times: too <long>." in text_of(waiting) and "<long>" not in waiting.text
    assert "has begun: index the registry" in text_of(browser.post("/registry/index"))
    wait_until(lambda: "1 item indexed, 0 refused" in text_of(browser.get("/registry/jobs")))
    assert "No item waits" in text_of(browser.get("/registry"))

    item = browser.get("/item?ref=acme/bobs")
    key = re.search(r'href="/registry#key-(\w{16})"', item.text)
    assert key and "Bob says so." in item.text
    lost = "It hides 1 item of the registry, and 1 item in the local tiers (project, user) will no longer be shown."
    question = f"of {BOB}? This cannot be undone. {lost}"
    done = confirmed(browser, "/registry/revoke", question, who=key[1], reason="laptop stolen")
    assert f"of {BOB} was revoked." in done and f"{BOB} compromised" in done
    gone = browser.get("/item?ref=acme/bobs")
    assert gone.status_code == 403
    assert "does not verify, so nothing of it is shown" in text_of(gone) and "laptop stolen" in text_of(gone)
    assert "Bob says so." not in gone.text
    records = user.json("audit", "show")
    assert [record["details"]["outcome"] for record in records if record["ref"] == "/registry/revoke"] == ["ok"]
    assert "was revoked already" in confirmed(browser, "/registry/revoke", BOB, who=key[1])


def test_trust_in_a_key_ends_after_a_confirmation(browser: httpx.Client, user: Kiwi) -> None:
    user.run("keys", "new", "eve", "--principal", EVE)
    put(user, "eves", "1.0.0", "Eve says so.", "--key", "eve")
    assert "Eve says so." in browser.get("/item?ref=acme/eves").text
    page = browser.get("/registry").text.partition('id="trusted"')[2]
    key = re.search(rf'name="who" value="(\w+)"><button[^>]*the key of {EVE}"', page)
    assert key
    question = f"of {EVE}? 1 item in the local tiers (project, user) will no longer be shown"
    done = confirmed(browser, "/registry/untrust", question, who=key[1])
    public = user.json("keys", "show", "eve")["public_key"]
    assert f"was removed from your trust file. To trust it again, enter its public key below: {public}" in done
    assert key[1] not in browser.get("/registry").text
    assert "Eve says so." not in browser.get("/item?ref=acme/eves").text
    assert browser.post("/registry/untrust", data={"who": key[1]}).status_code == 404
    asked = f"Trust what the key {key[1]} signs? Ask {EVE} whether this is the key id."
    again = confirmed(browser, "/registry/trust", asked, public_key=public, principal=EVE)
    assert f"The key of {EVE} is trusted." in again
    assert "Eve says so." in browser.get("/item?ref=acme/eves").text
    for given, said in ((key[1], "is the key id of"), ("word", "a public key is 64 hex digits")):
        answer = browser.post("/registry/trust", data={"public_key": given, "principal": EVE})
        assert answer.status_code == 400 and said in text_of(answer)
    user.run("trust", "remove", EVE)


def test_what_cannot_be_done_says_why(browser: httpx.Client) -> None:
    for path, form, said in (
        ("enrol", {"principal": "nobody"}, "your trust file has no signer 'nobody'"),
        ("retire", {"who": "nobody"}, "the registry has no signer 'nobody'"),
        ("tune", {"method": "magic", "recall": "0.9"}, "the method or the recall is not valid"),
        ("tune", {"method": "", "recall": "many"}, "the method or the recall is not valid"),
        ("tune", {"method": "", "recall": "7", "dry_run": "on"}, "recall 7 is not between 0.5 and 1"),
    ):
        answer = browser.post(f"/registry/{path}", data=form)
        assert answer.status_code in (400, 404), path
        assert said in text_of(answer) and "→" in answer.text


def test_tuning_is_tried_before_it_is_done(browser: httpx.Client) -> None:
    form = {"method": "exact", "recall": "0.95"}
    assert "Nothing was changed. It would build:" in text_of(
        browser.post("/registry/tune", data=form | {"dry_run": "on"})
    )
    assert "never" in text_of(browser.get("/registry")).partition("Index over the vectors")[2]
    browser.post("/registry/tune", data=form)
    wait_until(lambda: "no index: every passage is compared" in text_of(browser.get("/registry/jobs")))
    assert "never" not in text_of(browser.get("/registry")).partition("Index over the vectors")[2]


def append_records(user: Kiwi, count: int) -> None:
    app = Services.open(user.environment(), user.cwd)
    app.audit.append_all([AuditEvent("tested", "", "", "", {})] * count)
    asyncio.run(app.close())


def test_the_audit_logs_are_read_page_by_page(
    user: Kiwi, browser: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(user.home))
    for log in ("registry", "project", "user"):
        numbers = [str(record["seq"]) for record in user.json("audit", "show", "--tier", log)]
        page = browser.get("/registry/audit", params={"log": log, "before": "4"})
        assert re.findall(r'<th scope="row">(\d+)</th>', page.text) == numbers[:3][::-1], log
    append_records(user, 50)
    newest = browser.get("/registry/audit", params={"log": "project"})
    older = re.search(r'<a href="([^"]+)">Older records</a>', newest.text)
    assert older and re.search(r"<td><time datetime=\"[\d:T-]+Z\">", newest.text)
    numbers = re.findall(r'<th scope="row">(\d+)</th>', newest.text + browser.get(unescape(older[1])).text)
    assert [*map(int, numbers)] == [*range(user.json("audit", "show")[-1]["seq"], 0, -1)]
    for odd in ("before=-1", "before=x", f"before={'9' * 500}", "log=../../etc", "before=%D9%A3"):
        assert browser.get(f"/registry/audit?{odd}").status_code == 200


def test_a_chain_is_verified_in_words(browser: httpx.Client, owner: psycopg.Connection) -> None:
    said = text_of(browser.get("/registry/audit?verify=on"))
    assert re.search(r"The chain holds: \d+ records, head [0-9a-f]{64}; the log continues from pinned record \d+", said)
    said = text_of(browser.get("/registry/audit?log=project&verify=on"))
    assert re.search(r"The chain holds: \d+ records, head [0-9a-f]{64}; every record was verified\.", said)
    trigger = "alter table kiwi.audit {} trigger never_changed; "
    change = f"{trigger.format('disable')} update kiwi.audit set event = '{{}}' where seq = 1; "
    change += trigger.format("enable always")
    (event,) = owner.execute("select event from kiwi.audit where seq = 1").fetchone() or ()
    owner.execute(change.format("forged"))
    try:
        said = text_of(browser.get("/registry/audit?verify=on"))
        assert "The chain holds" not in said
        assert "breaks at record 1: it was altered" in said
    finally:
        owner.execute(change.format(event))


def test_an_items_versions_are_compared(browser: httpx.Client) -> None:
    page = browser.get("/item", params={"ref": "acme/note", "with": f"{NOTE}@1.0.0@registry"})
    said = text_of(page)
    assert "1.1.0 project" in said and "1.1.0 registry" in said and "1.0.0 registry" in said
    assert "earlier, its content is not kept" in said
    assert "Changes from 1.0.0 (registry) to 1.1.0 (project)" in said
    assert re.search(r"<del>-[^<]*It wakes at seven\.</del>", page.text)
    assert "<b>wakes" not in page.text and "&lt;b&gt;wakes&lt;/b&gt; &amp; sleeps." in page.text
    same = browser.get("/item", params={"ref": "acme/note", "with": f"{NOTE}@1.1.0@registry"})
    assert "Their files are the same." in same.text


def test_an_items_signature_is_told_in_words(user: Kiwi, browser: httpx.Client) -> None:
    page = browser.get("/item", params={"ref": "acme/note"})
    key = user.json("keys", "show", "default")["key_id"]
    assert f"{ADA} signed it on" in text_of(page) and f"with the Ed25519 key {key} ." in text_of(page)
    assert "1 file by their SHA-256" in text_of(page)
    stored = [json.loads(unescape(part)) for part in re.findall(r"<pre>(\{.*?\})</pre>", page.text, re.DOTALL)]
    assert stored[0]["predicate"]["item_id"] == "acme/note" and stored[1]["signatures"][0]["keyid"] == key
    assert re.search(r'<a id="L8" href="#L8"[^>]*>   8</a>', page.text)


def test_each_file_of_a_skill_is_readable(browser: httpx.Client) -> None:
    main = browser.get("/item", params={"ref": SKILL})
    for name in FILES:
        assert f"file={quote(name)}#content" in main.text
    assert f"scripts/start.py</a> <small>{len(FILES['scripts/start.py'])} bytes, executable" in main.text
    assert "Go back once" in browser.get("/item", params={"ref": SKILL, "file": "references/thresholds.md"}).text
    assert "A binary file of" in browser.get("/item", params={"ref": SKILL, "file": "assets/logo.png"}).text
    for name in ("../../etc/passwd", "nothing.md", "\0"):
        assert browser.get("/item", params={"ref": SKILL, "file": name}).status_code == 404


def test_a_version_is_yanked_once(browser: httpx.Client) -> None:
    before = browser.get("/item", params={"ref": f"{NOTE}@1.0.0@registry"})
    assert "Yank version 1.0.0" in before.text and "verified just now" in before.text
    form = {"ref": f"{NOTE}@1.0.0", "reason": "wrong <hour>"}
    question = f"Yank {NOTE}@1.0.0? Searches no longer find it. This cannot be undone."
    after = confirmed(browser, "/item/yank", question, **form)
    assert f"{NOTE}@1.0.0 was yanked." in after and "Yanked. What is shown was signed by" in after
    assert "wrong <hour>" in after and "no version 1.0.0 that could be yanked" in after
    assert "was yanked already" in confirmed(browser, "/item/yank", question, **form)
    assert browser.post("/item/yank", data={"ref": "acme/no/such"}).status_code == 404


def test_an_item_is_published_from_its_page_and_its_workspace_is_kept(user: Kiwi, browser: httpx.Client) -> None:
    user.run("add", str(user.write("knowledge/acme/later.md", note(extra="It sleeps at ten."))), "--key", "default")
    ref, root = "knowledge:acme/later@1.0.0", str(user.cwd)
    page = browser.get("/item", params={"ref": "acme/later", "root": root})
    assert "Publish version 1.0.0…" in page.text and "Yank version" not in page.text
    question = f"Publish {ref}? Every reader of the registry sees it, and it can only be yanked."
    after = confirmed(browser, "/item/publish", question, ref=ref, root=root)
    assert f"{ref} is published." in after and "Yank version 1.0.0" in after and "Publish version" not in after
    yanked = confirmed(browser, "/item/yank", f"Yank {ref}?", ref=ref, reason="", root=root)
    assert f"{ref} was yanked." in yanked
    assert browser.post("/item/publish", data={"ref": "knowledge:acme/no-such"}).status_code == 404
    user.write("knowledge/acme/unsigned.md", note())
    refused = browser.post("/item/publish", data={"ref": "knowledge:acme/unsigned", "confirmed": "yes"})
    assert refused.status_code == 422 and "unsigned" in text_of(refused)


def test_a_skill_is_installed_from_its_page(user: Kiwi, browser: httpx.Client) -> None:
    ref, root, folder = f"{SKILL}@1.0.0@project", str(user.cwd), user.cwd / ".agents/skills/canary-release"
    page = text_of(browser.get("/item", params={"ref": SKILL, "root": root}))
    assert "It is not installed in this project, nor for you." in page and "Install version 1.0.0…" in page
    question = f"Install {SKILL}@1.0.0 in {root}, signed by {ADA}? Agents that work there follow it."
    assert question in text_of(browser.post("/item/install", data={"ref": ref, "root": root}))
    assert not folder.exists()
    after = confirmed(browser, "/item/install", question, ref=ref, root=root)
    assert f"{SKILL}@1.0.0 is installed." in after
    assert "Installed in .agents/skills: version 1.0.0, verified" in after
    (folder / "LICENSE.txt").write_text("edited")
    page = text_of(browser.get("/item", params={"ref": SKILL, "root": root}))
    assert "Installed in .agents/skills: version 1.0.0, changed .agents/skills/canary-release/LICENSE.txt was" in page
    refused = browser.post("/item/install", data={"ref": ref, "root": root, "confirmed": "yes"})
    assert "was edited since it was installed" in text_of(refused)
    assert (folder / "LICENSE.txt").read_text() == "edited"
    user.run("uninstall", "canary-release", "--force")


def test_a_changed_file_says_so_and_shows_what_was_signed(user: Kiwi, browser: httpx.Client) -> None:
    path = user.cwd / ".ai/knowledge/acme/note.md"
    signed = path.read_bytes()
    path.write_bytes(signed + b"\nNobody signed this.\n")
    try:
        page = browser.get("/item", params={"ref": "acme/note"})
        assert "Changed. What is shown was signed by" in text_of(page)
        assert "Nobody signed this" not in page.text
    finally:
        path.write_bytes(signed)


def test_a_reader_sees_no_forms_and_which_role_is_needed(user: Kiwi, browser: httpx.Client) -> None:
    for reader in with_token(user, "reader"):
        for path in ("/registry", f"/item?ref={NOTE}@registry"):
            page = reader.get(path)
            assert 'method="post"' not in page.text
            assert "The role admin is needed" in page.text
        for path in (
            "/registry/stop",
            "/registry/revoke",
            "/registry/trust",
            "/item/publish",
            "/item/yank",
            "/item/install",
        ):
            assert reader.post(path, data={"confirmed": "yes"}).status_code == 403


def test_the_embedded_registry_is_stopped_and_started(user: Kiwi, browser: httpx.Client) -> None:
    assert "It is stopped." in confirmed(browser, "/registry/stop", "Its data are kept.")
    assert "the embedded registry is stopped" in text_of(browser.get("/registry/audit"))
    item = browser.get("/item", params={"ref": "acme/note"})
    assert "the embedded registry is stopped" in text_of(item) and "verified just now" in item.text
    assert user.json("registry", "status")["running"] is False  # showing it has not started it
    assert "It answers." in text_of(browser.post("/registry/start"))


def test_a_role_that_may_not_and_a_registry_that_does_not_answer(
    publisher: Kiwi, owner_again: psycopg.Connection, tmp_path_factory: pytest.TempPathFactory
) -> None:
    limited = at(publisher, tmp_path_factory.mktemp("limited"))
    with serving(limited), signed_in(limited) as browser:
        said = text_of(browser.get("/registry"))
        assert "This needs the role kiwi_indexer" in said and "This needs the role kiwi_admin" in said
        assert "Stop the registry" not in said
        refused = text_of(browser.post("/registry/enrol", data={"principal": ADA}))
        assert "this connection's role may not do that" in refused and "kiwi_admin administers" in refused
        browser.post("/registry/index")
        wait_until(lambda: "index the registry , failed." in text_of(browser.get("/registry/jobs")))
        assert "this connection's role may not do that" in text_of(browser.get("/registry/jobs"))
        owner_again.execute("alter role pub nologin")
        owner_again.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'pub'")
        page = browser.get("/registry")
        assert page.status_code == 200
        assert "The registry cannot be read: the registry cannot be reached" in text_of(page)
        assert "The audit logs of this machine" in page.text


@pytest.fixture
def owner_again(user: Kiwi) -> Iterator[psycopg.Connection]:
    """The owner after the registry was started again."""
    with psycopg.connect(user.extra["OWNER_URL"], autocommit=True) as connection:
        yield connection
