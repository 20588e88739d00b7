"""`kiwi serve` on its port: who may call, REST, MCP by role, and the pages, over real HTTP."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kiwi_rag.config import Settings
from kiwi_rag.http.web.search import editor_address
from kiwi_rag.search.ranking import default_weights
from tests.interfaces.conftest import Kiwi, note, wait_until
from tests.interfaces.test_mcp_http import INITIALIZE
from tests.interfaces.test_serve import at, serving

HOSTILE = '<script>alert(1)</script> <img src=x onerror=alert(2)> [go](javascript:alert(3)) "quoted" & more'


@pytest.fixture(scope="module")
def user(acme: Kiwi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user whose service runs in a workspace with a document that is made to be executed."""
    folder = tmp_path_factory.mktemp("web")
    folder.chmod(0o755)
    mine = at(acme.at(acme.cwd), tmp_path_factory.mktemp("run"), KIWI_PORT="0")
    docs = mine.cwd / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "hostile.md").write_text(f"# Rolling back {HOSTILE}\n\nTo roll back a release: {HOSTILE}\n")
    mine.run("workspace", "index", ".")
    with serving(mine):
        yield mine


def test_it_says_whether_it_is_ready(url: str) -> None:
    answer = httpx.get(f"{url}/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


def test_without_a_token_nothing_is_told(url: str) -> None:
    for path in ("/", "/search?q=x", "/item?ref=x", "/settings", "/api/v1/status", "/api/v1/openapi.json", "/mcp"):
        answer = httpx.get(f"{url}{path}", headers={"Authorization": "Bearer kiwi_guessed"})
        assert answer.status_code == 401, path
        assert "kiwi ui" in answer.json()["error"]["hint"]


def test_a_browser_that_is_not_signed_in_gets_a_page(url: str) -> None:
    for path in ("/", "/search?q=<script>", "/no-such-page"):
        answer = httpx.get(f"{url}{path}", headers={"Accept": "text/html,*/*;q=0.8"})
        assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8"), path
        assert "<code>kiwi ui</code>" in answer.text and "<script>" not in answer.text
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:27500", "", "["])
def test_another_name_of_this_address_is_refused(admin: httpx.Client, host: str) -> None:
    for path in ("/health", "/api/v1/status", "/"):
        assert admin.get(path, headers={"Host": host}).status_code in (400, 421), path


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ],
    ids=str,
)
def test_a_page_of_another_site_changes_nothing(browser: httpx.Client, url: str, headers: dict[str, str]) -> None:
    cookies = dict(browser.cookies)
    answer = httpx.post(f"{url}/api/v1/workspace/reindex", json={}, headers=headers, cookies=cookies)
    assert answer.status_code == 403
    assert "another site" in answer.json()["error"]["message"]


def test_the_page_itself_may(browser: httpx.Client, url: str) -> None:
    for headers in ({"Sec-Fetch-Site": "same-origin", "Origin": url}, {"Origin": url}):
        assert browser.post("/api/v1/workspace/reindex", json={}, headers=headers).status_code == 200


def test_an_address_signs_in_once_and_its_token_is_in_no_log(user: Kiwi, url: str) -> None:
    address = user.run("ui", "--no-browser").stdout.strip()
    first, second = httpx.get(address), httpx.get(address)
    assert (first.status_code, first.headers["location"], second.status_code) == (303, "/", 403)
    cookie = first.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert first.headers["referrer-policy"] == "no-referrer"
    assert httpx.get(f"{url}/login").status_code == 403
    logs = [path for path in (user.home / ".ai").rglob("*.jsonl*") if path.is_file()]
    secrets = (address.rpartition("=")[2], cookie.partition("=")[2].partition(";")[0])
    assert not any(secret in path.read_text(errors="replace") for path in logs for secret in secrets)


def test_a_browser_gets_no_token_on_its_command_line(user: Kiwi, url: str, tmp_path: Path) -> None:
    """Every user of the machine can read it there. It gets the path of a file, whose page leads to the address."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    browser.chmod(0o755)
    told = replace(user, extra={**user.extra, "BROWSER": f"{browser} %s"}).run_forked("ui")
    page = Path((tmp_path / "arguments").read_text().strip().removeprefix("file://"))
    assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert str(page) in told.stderr and "kiwi ui --no-browser" in told.stderr
    (address,) = {*re.findall(r'(?:url=|href=")([^"]+)"', page.read_text())}
    assert address.startswith(f"{url}/login?token=") and address not in told.stdout + told.stderr
    # As a browser sends it from a page of another site, to which a redirect would be without the cookie.
    answer = httpx.get(address, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    assert answer.status_code == 200 and 'content="0;url=/"' in answer.text
    assert httpx.get(url, cookies=dict(answer.cookies)).status_code == 200


def test_what_a_reader_may(reader: httpx.Client, admin: httpx.Client) -> None:
    assert reader.get("/api/v1/search", params={"query": "undo a bad release"}).status_code == 200
    assert reader.post("/api/v1/workspace/search", json={"query": "roll back"}).status_code == 200
    for path in ("workspace/reindex", "workspace/update", "publish", "service/stop"):
        answer = reader.post(f"/api/v1/{path}", json={})
        assert answer.status_code == 403, path
        assert answer.json()["error"]["hint"] == "use a token of an admin"
    for path in ("command", "session", "sign-in"):
        assert admin.post(f"/api/v1/{path}", json={}).status_code == 403, path


def test_a_token_that_was_removed_is_refused(user: Kiwi, url: str) -> None:
    token = user.run("serve", "token", "new", "short-lived").stdout.strip()
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}/api/v1/status", headers=headers).status_code == 200
    assert "there is a token" in user.run("serve", "token", "new", "short-lived", expect=2).stderr
    stored = user.home / ".ai/tokens.json"
    assert token not in stored.read_text()
    assert stored.stat().st_mode & 0o777 == 0o600
    user.run("serve", "token", "remove", "short-lived")
    assert httpx.get(f"{url}/api/v1/status", headers=headers).status_code == 401
    assert "there is no token" in user.run("serve", "token", "remove", "short-lived", expect=1).stderr
    assert "short-lived" not in user.run("serve", "token", "list").stdout


def test_rest_answers_as_the_tools_do(reader: httpx.Client, user: Kiwi) -> None:
    found = reader.get("/api/v1/search", params={"query": "undo a bad release", "limit": 3}).json()
    same = reader.post("/api/v1/search", json={"query": "undo a bad release", "limit": 3}).json()
    assert [hit["ref"] for hit in found["hits"]] == [hit["ref"] for hit in same["hits"]]
    assert found["hits"][0]["item_id"] == user.json("search", "undo a bad release")["hits"][0]["item_id"]
    item = reader.get("/api/v1/item", params={"ref": found["hits"][0]["ref"]}).json()
    assert item["digest"] == found["hits"][0]["digest"]


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        ("search", {}, 400), ("search", {"query": ""}, 400), ("search", {"query": "x", "limit": "many"}, 400),
        ("search", {"query": "x", "nonsense": 1}, 400), ("item", {"ref": "acme/no/such"}, 404),
    ],
    ids=str,
)  # fmt: skip
def test_bad_input_is_an_error_with_a_hint(reader: httpx.Client, path: str, sent: dict, status: int) -> None:
    for answer in (reader.get(f"/api/v1/{path}", params=sent), reader.post(f"/api/v1/{path}", json=sent)):
        assert answer.status_code == status
        assert answer.json()["error"]["hint"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"query": "' + b"x" * 10_000_000])
def test_a_body_that_is_no_object_or_too_long_harms_nobody(reader: httpx.Client, body: bytes) -> None:
    assert reader.post("/api/v1/search", content=body).status_code == 400
    assert reader.get("/health").status_code == 200


def test_openapi_describes_every_route(reader: httpx.Client) -> None:
    described = reader.get("/api/v1/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert "post" in described["paths"]["/api/v1/search"]
    assert "get" not in described["paths"]["/api/v1/publish"]
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert operation["summary"] and operation["description"], path


def test_agents_get_the_tools_of_their_role(reader: httpx.Client, admin: httpx.Client) -> None:
    accept = {"Accept": "application/json, text/event-stream"}

    def listed(client: httpx.Client) -> set[str]:
        begun = client.post("/mcp", json=INITIALIZE, headers=accept)
        assert begun.status_code == 200
        session = accept | {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        answer = client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session)
        data = next(line for line in answer.text.splitlines() if line.startswith("data: {"))
        tools = json.loads(data.removeprefix("data: "))["result"]["tools"]
        assert len(json.dumps({"tools": tools}, separators=(",", ":"))) <= 8_000  # without those of libraries
        return {tool["name"] for tool in tools}

    reading, all_of_them = listed(reader), listed(admin)
    assert "workspace_search" in reading
    assert all_of_them - reading == {"reindex_documents", "update_files"}


def test_agents_are_served_skills(reader: httpx.Client) -> None:
    def ask(method: str) -> dict:
        meta = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "t", "version": "1"}, "clientCapabilities": {}}
        params = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}}
        headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": method}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = reader.post("/mcp", json=body, headers={**headers, "Mcp-Protocol-Version": "2026-07-28"})
        return answer.json()["result"]

    declared = ask("server/discover")["capabilities"]["extensions"]
    assert declared == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    assert isinstance(ask("skills/list")["skills"], list)


PAGES = [
    "/", "/search", "/search?q=undo+a+bad+release", "/search?q=roll+back&scope=workspaces&explain=on", "/settings",
    "/search?q=roll+back&compare=on&alpha2=0&kind=markdown", "/stores", "/add", "/indexing", "/sources",
]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_pages_obey_their_own_policy(browser: httpx.Client, path: str) -> None:
    page = browser.get(path)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert page.headers["referrer-policy"] == "same-origin"  # else a form's own Origin is null, and it is refused
    assert not re.search(r"<script(?![^>]*src=)|<style|<[^<>]*(\s(style|on\w+)=|javascript:)", page.text)
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        file = browser.get(address)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]


def test_retrieved_text_is_escaped_and_its_matches_marked(browser: httpx.Client) -> None:
    page = browser.get("/search", params={"q": "rolling back", "scope": "workspaces", "explain": "on"}).text
    assert "docs/hostile.md" in page
    assert "<mark>" in page
    assert "<script>alert" not in page and "<img src=x" not in page
    assert "&lt;script&gt;" in page


def test_a_search_of_everything_shows_items_and_documents(browser: httpx.Client) -> None:
    page = browser.get("/search", params={"q": "undo a bad release"}).text
    assert re.search(r"Items <small>\d+ in \d+ ms", page) and re.search(r"Documents of \w+ <small>", page)
    ref = re.search(r'href="(/item\?ref=[^"]+)"', page)
    assert ref
    item = browser.get(ref[1].replace("&amp;", "&"))
    assert item.status_code == 200
    assert "verified just now: signed by ada@acme.example" in item.text


def test_a_part_of_the_page_is_all_that_a_live_search_loads(browser: httpx.Client) -> None:
    part = browser.get("/search", params={"q": "roll back", "alpha": "0"}, headers={"HX-Request-Type": "partial"}).text
    assert "<html" not in part and 'class="hits"' in part
    by_words = browser.get("/search", params={"q": "roll back", "alpha": "0"}).text

    def listed(page: str) -> str:
        return re.sub("[0-9a-f]{16}", "", page.split("<ol", 1)[1].split("</ol>")[0])  # an agent's marks are random

    assert listed(part) == listed(by_words)
    assert 'id="found" hx-swap-oob' in part and "hx-swap-oob" not in by_words


def test_alpha_ranks_again(browser: httpx.Client) -> None:
    def scores(alpha: str) -> list[str]:
        page = browser.get("/search", params={"q": "undo a bad release", "alpha": alpha, "scope": "local"}).text
        return re.findall(r"Score ([\d.]+)", page)

    assert scores("0") != scores("1")


def hits_of(page: str) -> list[str]:
    return re.findall(r'<li class="hit".*?</li>', page, re.DOTALL)


def test_the_slider_stands_at_the_weight_that_a_search_uses(browser: httpx.Client) -> None:
    page = browser.get("/search", params={"q": "undo a bad release"}).text
    slider = re.search(r'name="alpha" type="range"[^>]*value="([\d.]+)"', page)
    assert slider and float(slider[1]) == default_weights().alpha
    assert f">{slider[1]}</output>" in page
    assert f"alpha {slider[1]}" in page  # how it was searched
    # A form that was sent as it is searches as the first search did: the address of a link has no alpha.
    assert "alpha=" not in str(re.findall('<li><a href="([^"]+)"', page))
    same = browser.get("/search", params={"q": "undo a bad release", "alpha": slider[1]}).text
    assert "alpha=" not in str(re.findall('<li><a href="([^"]+)"', same))


def test_the_chart_follows_the_weight(browser: httpx.Client) -> None:
    def widths(alpha: str) -> tuple[list[str], list[str]]:
        page = browser.get("/search", params={"q": "undo a bad release", "alpha": alpha, "scope": "local"}).text
        return tuple(re.findall(rf'<rect class="{leg}"[^>]* width="([\d.]+)"', page) for leg in ("meaning", "words"))

    (by_words, words), (by_meaning, no_words) = widths("0"), widths("1")
    assert set(by_words) == {"0.0"} and set(no_words) == {"0.0"}
    assert float(words[0]) > 0 and float(by_meaning[0]) > 0


def test_the_number_of_hits_is_that_of_the_address(browser: httpx.Client) -> None:
    for k in (1, 3):
        page = browser.get("/search", params={"q": "undo a bad release", "k": k, "scope": "local"}).text
        assert len(hits_of(page)) == k


def test_a_value_among_the_hits_narrows_them(browser: httpx.Client) -> None:
    page = browser.get("/search", params={"q": "roll back a release", "k": 20, "alpha": "0.4"}).text
    chips = re.findall(r'<li><a href="([^"]+)">(\w+) <small>(\d+)</small>', page)
    address, value, count = next(chip for chip in chips if "kind=" in chip[0])
    narrowed = browser.get(address.replace("&amp;", "&")).text
    assert "alpha=0.4" in address and "k=20" in address
    assert len(hits_of(narrowed)) >= int(count) > 0
    assert all(f"<span>{value}" in hit for hit in hits_of(narrowed))
    without = re.search(r'class="chip" href="([^"]+)">kind: ', narrowed)
    assert without and "kind=" not in without[1]


def test_only_a_file_on_this_machine_opens_in_the_editor(browser: httpx.Client, user: Kiwi) -> None:
    page = browser.get("/search", params={"q": "rolling back", "scope": str(user.cwd)}).text
    assert f'href="vscode://file{user.cwd}/docs/hostile.md:1"' in page
    items = browser.get("/search", params={"q": "undo a bad release", "scope": "project"}).text
    assert f'href="vscode://file{user.cwd}/.ai/directives/acme/' in items
    root = user.cwd / "docs"
    (user.cwd / "outside.md").write_text("outside")
    (root / "link.md").symlink_to(user.cwd / "outside.md")
    try:
        for path in ("../outside.md", "link.md", "missing.md", "", str(user.cwd / "outside.md")):
            assert editor_address(root, path, 1) == "", path
        assert editor_address(None, "hostile.md", 1) == ""
    finally:
        (root / "link.md").unlink()
        (user.cwd / "outside.md").unlink()


def test_a_hit_is_copied_as_agents_get_it_and_leads_to_similar_ones(browser: httpx.Client) -> None:
    hit = hits_of(browser.get("/search", params={"q": "rolling back", "scope": "workspaces"}).text)[0]
    context = html.unescape(hit.partition('<pre class="context">')[2].partition("</pre>")[0])
    mark = re.search("Text between the marks ([0-9a-f]{16}) is", context)
    assert mark and f"<data-{mark[1]}>" in context and f"</data-{mark[1]}>" in context
    similar = re.search(r'<a href="(/search\?q=[^"]+)">Similar</a>', hit)
    assert similar
    assert "docs/hostile.md" in browser.get(html.unescape(similar[1])).text


def test_two_settings_side_by_side(browser: httpx.Client) -> None:
    setting = {"q": "undo a bad release", "scope": "local", "alpha": "1", "compare": "on", "alpha2": "0", "k2": "3"}
    page = browser.get("/search", params=setting).text
    first, second = page.split('<div class="column">')[1:]
    assert "First setting: meaning 1.0" in first and "Second setting: meaning 0.0, 3 hits" in second
    assert len(hits_of(second)) == 3
    assert re.search(r"<small>(same place|was \d+|not in the first list)</small>", second)
    assert "same place" not in first


def test_a_folder_without_an_index_is_named_beside_the_hits(browser: httpx.Client, user: Kiwi, tmp_path: Path) -> None:
    added = user.home / ".ai/workspaces.json"
    added.write_text(json.dumps([str(tmp_path)]))
    try:
        page = browser.get("/search", params={"q": "undo a bad release"}).text
        assert f"{tmp_path} is not indexed yet" in page and f"kiwi workspace index {tmp_path}" in page
        assert len(hits_of(page)) > 3
        assert f"{tmp_path} is not indexed yet" in browser.get("/stores").text
    finally:
        added.unlink()


def test_the_model_is_tested_and_described(browser: httpx.Client, reader: httpx.Client) -> None:
    page = browser.get("/stores").text
    assert "<dt>Dimensions</dt><dd>384</dd>" in page and "on this machine" in page
    assert "Items of the project tier" in page and "Documents of " in page and "cosine and BM25" in page
    tested = browser.post("/stores/test").text
    assert re.search(r"embedded the sentence in [\d.]+ ms: 384 dimensions, a vector of length 1\.000", tested)
    assert reader.post("/stores/test").status_code == 403


def test_the_registry_is_stopped_after_a_confirmation_only(browser: httpx.Client) -> None:
    asked = browser.post("/registry/stop").text
    assert "Stop the embedded registry? Other processes that use it now get an error." in asked
    done = browser.post("/registry/stop", data={"confirmed": "yes"}).text
    assert "The registry was stopped." in done


@pytest.mark.parametrize("query", ["k=999999", "alpha=2", "alpha=nan", "scope=../../etc", "kind=poem", "k=-1", "k=x"])
def test_a_value_that_no_field_has_is_the_default(browser: httpx.Client, query: str) -> None:
    assert browser.get(f"/search?q=roll+back&{query}").status_code == 200


def test_an_error_is_a_page_with_what_to_do_next(browser: httpx.Client) -> None:
    for path, status in (("/item?ref=acme/no/such", 404), ("/item", 400), ("/item?ref=%00", 400)):
        page = browser.get(path)
        assert page.status_code == status, path
        assert "→" in page.text


def test_an_unknown_address_is_a_page_for_a_person_and_json_for_a_program(browser: httpx.Client) -> None:
    for path, status in (("/no-such-page", 404), ("/<b>", 404), ("/sources/delete", 405)):
        page = browser.get(path)
        assert page.status_code == status, path
        assert 'role="search"' in page.text and '<a href="/settings"' in page.text and "<b>" not in page.text
    assert "There is no page /no-such-page" in browser.get("/no-such-page").text
    for path, status in (("/api/v1/no-such", 404), ("/api/v1/publish", 405)):
        answer = browser.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, "not-found")
    assert browser.get("/sources/delete").headers["allow"] == "POST"


def test_home_says_when_a_tier_was_indexed_and_settings_what_each_is(browser: httpx.Client) -> None:
    page = browser.get("/").text
    assert re.search(r"<h3>project</h3>(?:(?!</article>).)*last indexed <time", page, re.DOTALL)
    assert (
        f"<small>{Settings.__dataclass_fields__['deadline'].metadata['what']}</small>" in browser.get("/settings").text
    )


def test_another_address_needs_a_token_first(kiwi: Kiwi, tmp_path: Path) -> None:
    kiwi.run("init")
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    refused = at(kiwi, run).run_forked("serve", "--host", "0.0.0.0", "--port", "0", expect=2)
    assert "0.0.0.0 can be reached from other machines, and there is no token" in refused.stderr
    assert "kiwi serve token new" in refused.stderr


def test_ui_starts_a_service_where_none_runs(ready: Kiwi, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    user = at(ready, run, KIWI_PORT="0")
    try:
        address = user.run_forked("ui", "--no-browser").stdout.strip()
        assert httpx.get(address).status_code == 303
    finally:
        user.run("serve", "--stop", expect=None)


@pytest.fixture(scope="module")
def notes(user: Kiwi, browser: httpx.Client) -> Path:
    """A folder that the browser has added: two notes, one file that is no text, at a commit; its run has ended."""
    folder = user.home / "notes"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/HEAD").write_text("a" * 40)
    (folder / "docs").mkdir()
    (folder / "docs/on-call.md").write_text(
        "# On call\n\nThe pager goes to the <b>second</b> engineer after ten minutes.\n"
    )
    (folder / "readme.md").write_text("# Notes\n\nHow the team works.\n")
    (folder / "broken.txt").write_bytes(b"text\0and no text")
    for path in (user.home / ".secret", user.home / "here"):
        path.mkdir()
    (user.home / "away").symlink_to("/etc")
    (user.home / "near").symlink_to(user.home / "here")
    page = submit(browser, "/add", folder=folder, name="team-notes")
    assert (page.status_code, page.url.path) == (200, "/indexing")
    assert f"{folder} was added and is being indexed." in page.text
    return ended(browser, folder)


def submit(browser: httpx.Client, path: str, **fields: object) -> httpx.Response:
    """Send a form, and follow to the next page."""
    return browser.post(path, data={name: str(value) for name, value in fields.items()})


def ended(browser: httpx.Client, folder: Path) -> Path:
    """Wait for the end of the run."""
    wait_until(lambda: "Last run: index" in browser.get("/indexing").text)
    return folder


def test_only_an_admin_sees_the_folders_of_the_server(reader: httpx.Client, browser: httpx.Client) -> None:
    for path in ("/add", "/add?folder=/", "/add?chosen=/"):
        assert reader.get(path).status_code == reader.head(path).status_code == 403
    for path in ("/add", "/indexing/run", "/indexing/stop", "/sources/remove", "/sources/delete", "/item/index"):
        assert reader.post(path, data={"root": "/"}).status_code == 403
    assert reader.get("/indexing").status_code == reader.get("/sources").status_code == 200
    assert "Step 1 of 2" in browser.get("/add").text


def test_the_folder_browser_stays_below_its_roots(browser: httpx.Client, user: Kiwi, notes: Path) -> None:
    page = browser.get("/add", params={"folder": str(user.home)}).text
    shown = re.findall(r">([^<>]+)</a></li>", page)
    assert {"here", "near", "notes"} <= set(shown)
    assert not {"away", ".secret", ".ai"} & set(shown)
    assert browser.get("/add", params={"folder": str(user.home / "near")}).text.count(str(user.home / "here")) >= 2
    outside = ["/", "/etc", f"{user.home}/..", str(user.home / "away"), str(user.home / ".secret"), "\0", "x" * 5000]
    outside += [str(user.home / "no-such"), str(notes / "readme.md"), str(user.home / ".ai"), str(user.home.parent)]
    for folder in outside:
        for answer in (
            browser.get("/add", params={"folder": folder}),
            browser.get("/add", params={"chosen": folder}),
            submit(browser, "/add", folder=folder),
        ):
            assert answer.status_code == 403, folder
            assert "is no folder that can be added" in answer.text


def test_what_was_found_is_shown_before_it_is_indexed(browser: httpx.Client, user: Kiwi, notes: Path) -> None:
    page = browser.get("/add", params={"chosen": str(notes)}).text
    assert "2 .md, 1 .txt" in page and re.search(r"about 3 passages, [\d.]+ s on this machine", page)
    assert "<code>docs</code> has the most pages: 1" in page or "the folder itself has the most pages" in page
    assert "Nothing leaves this machine" in page and 'value="team-notes"' in page
    assert "items of its own" not in page
    (user.home / "here/.ai/knowledge/acme").mkdir(parents=True)
    assert "items of its own" in browser.get("/add", params={"chosen": str(user.home / "here")}).text
    shutil.rmtree(user.home / "here/.ai")
    assert "There is nothing to index" in browser.get("/add", params={"chosen": str(user.home / "here")}).text
    assert "holds your own items" in browser.get("/add", params={"chosen": str(user.home)}).text


def test_a_name_that_is_none_or_is_set_already_changes_nothing(browser: httpx.Client, user: Kiwi, notes: Path) -> None:
    assert (notes / ".ai/workspace.yaml").read_text() == 'name: "team-notes"\n'
    assert submit(browser, "/add", folder=notes, name="another").status_code == 400
    assert submit(browser, "/add", folder=user.home / "here", name="No Name").status_code == 400
    assert (notes / ".ai/workspace.yaml").read_text() == 'name: "team-notes"\n'
    assert not (user.home / "here/.ai").exists()
    assert str(user.home / "here") not in (user.home / ".ai/workspaces.json").read_text()


def test_a_run_has_findings_and_stays_in_the_history(browser: httpx.Client, user: Kiwi, notes: Path) -> None:
    page = browser.get("/indexing").text
    assert "2 indexed, 0 unchanged, 0 removed, 1 skipped, 0 failed" in page
    assert re.search(r"<code>broken.txt</code></th><td[^>]*>skipped</td>", page)
    assert re.search(rf'<time datetime="[^"]+Z">[^<]+</time></th><td>{notes}</td>', page)
    assert "html" not in browser.get("/indexing", headers={"HX-Request-Type": "partial"}).text[:20]
    record = json.loads((user.home / ".ai/runs.jsonl").read_text().splitlines()[-1])
    assert (record["root"], record["outcome"], record["indexed"], record["embedded"]) == (str(notes), "done", 2, 2)
    assert browser.get("/indexing/events").text == "event: ended\ndata:\n\n"


def test_a_run_reads_only_what_has_changed(browser: httpx.Client, notes: Path) -> None:
    (notes / "readme.md").write_text("# Notes\n\nHow the team works now.\n")
    submit(browser, "/indexing/run", root=notes)
    ended(browser, notes)
    assert "1 indexed, 1 unchanged" in browser.get("/indexing").text
    assert submit(browser, "/indexing/stop", job="unknown").status_code == 404


def test_a_rebuild_names_the_loss_first(browser: httpx.Client, notes: Path) -> None:
    asked = submit(browser, "/indexing/run", root=notes, rebuild="yes")
    assert "2 documents with 2 passages are removed" in asked.text and 'name="rebuild" value="yes"' in asked.text
    submit(browser, "/indexing/run", root=notes, rebuild="yes", confirmed="yes")
    ended(browser, notes)
    assert "2 indexed, 0 unchanged" in browser.get("/indexing").text
    assert submit(browser, "/indexing/run", root="/etc").status_code == 404


def test_sources_say_how_fresh_an_index_is(browser: httpx.Client, notes: Path) -> None:
    assert f"{'a' * 12}</code> is indexed and checked out" in browser.get("/sources").text
    (notes / ".git/HEAD").write_text("b" * 40)
    page = browser.get("/sources").text
    assert f"{'b' * 12}</code> is checked out: index the changed files" in page
    assert "team-notes" in page and "100% embedded" in page and '<th scope="row">user</th>' in page


def test_home_shows_workspaces_and_mends_what_needs_attention(browser: httpx.Client, notes: Path) -> None:
    page = browser.get("/").text
    assert "team-notes" in page and "last commit aaaaaaaaaaaa" in page and "last indexed <time" in page
    assert (
        "the index is of commit aaaaaaaaaaaa, and bbbbbbbbbbbb is checked out" in page and "of an older commit" in page
    )
    assert f'<input type="hidden" name="root" value="{notes}">' in page
    submit(browser, "/indexing/run", root=notes)
    ended(browser, notes)
    page = browser.get("/").text
    assert "last commit bbbbbbbbbbbb" in page and "older commit" not in page and "is checked out" not in page


def index_items(browser: httpx.Client, folder: Path) -> str:
    """Index the items in a workspace's ``.ai``; return the page when that has ended."""
    page = submit(browser, "/item/index", root=folder)
    assert f"The items of {folder} are being indexed." in page.text
    wait_until(lambda: f"Last run: index the items of {folder}" in browser.get("/indexing").text)
    return browser.get("/indexing").text


def test_items_of_an_added_workspace_are_found_and_shown(browser: httpx.Client, user: Kiwi, notes: Path) -> None:
    there = replace(user, cwd=notes)
    path = there.write("knowledge/acme/pager.md", note(extra="Whoever has the pager wakes it again."))
    for page in ("/", "/sources"):
        assert "are not indexed, so no search finds them" in browser.get(page).text
    refused = index_items(browser, notes)
    assert "knowledge/acme/pager.md" in refused and "1 failed" in refused
    assert "was accepted, so no search finds them" in browser.get("/").text
    there.run("sign", str(path))
    assert "1 indexed" in index_items(browser, notes)
    assert "no search finds them" not in browser.get("/").text
    assert "<p>1 item</p>" in browser.get("/").text and "<dt>Items</dt><dd>1</dd>" in browser.get("/sources").text
    question = {"q": "who wakes the staging cluster"}
    for scope, found in (("", True), ("project", True), (str(notes), True), ("user", False), (str(user.cwd), False)):
        page = browser.get("/search", params=question | {"scope": scope}).text
        assert ("Items of notes" in page) is found, scope
    page = browser.get("/search", params=question | {"kind": "knowledge"}).text
    own = page.partition('aria-label="Items of notes"')[2]
    address = re.search(r'href="(/item[^"]+)"', own)
    assert address and f'href="vscode://file{path}:' in own
    item = browser.get(html.unescape(address[1]))
    assert "✓ verified just now" in item.text and f'href="vscode://file{path}:1"' in item.text
    assert browser.get(html.unescape(address[1]).partition("&")[0]).status_code == 404
    assert browser.get("/item", params={"ref": "acme/pager", "root": "/etc"}).status_code == 404
    there.run("delete", "acme/pager", "--yes")


def test_a_run_of_the_command_is_in_the_history(browser: httpx.Client, user: Kiwi, notes: Path) -> None:
    before = browser.get("/indexing").text.count("<tr data-seconds")
    replace(user, cwd=notes).run("workspace", "index", "--file", "readme.md")
    page = browser.get("/indexing").text
    assert page.count("<tr data-seconds") == before + 1
    assert "1 named files" in page


def test_an_index_is_deleted_only_when_its_loss_is_confirmed(browser: httpx.Client, user: Kiwi, notes: Path) -> None:
    index = replace(user, cwd=notes).vectors / "documents"
    own = submit(browser, "/sources/remove", root=user.cwd)
    assert own.status_code == 400 and "was not added here" in own.text
    assert f"{notes} is not in the list any more" in submit(browser, "/sources/remove", root=notes).text
    assert "team-notes" not in browser.get("/sources").text
    assert submit(browser, "/sources/delete", root=notes, confirmed="yes").status_code == 404
    submit(browser, "/add", folder=notes)
    ended(browser, notes)
    asked = submit(browser, "/sources/delete", root=notes)
    assert "2 documents with 2 passages and its audit log are lost. The files stay." in asked.text
    assert index.is_dir()
    deleted = submit(browser, "/sources/delete", root=notes, confirmed="yes")
    assert deleted.status_code == 200 and "team-notes" not in deleted.text
    assert not index.exists() and (notes / "docs/on-call.md").is_file()
    submit(browser, "/add", folder=notes)
    ended(browser, notes)
    assert "2 indexed, 0 unchanged" in browser.get("/indexing").text
