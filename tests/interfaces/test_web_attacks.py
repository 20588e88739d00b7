"""Attacks on `kiwi serve`, over real HTTP: every route of its routing table, and what stands in retrieved text."""

from __future__ import annotations

import contextlib
import json
import math
import re
import select
import socket
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock
from urllib.parse import quote, urlsplit

import httpx
import pytest

from kiwi_rag.http import web
from kiwi_rag.http.access import LOGIN, TokenFile
from kiwi_rag.http.api import Api
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.server import Service
from kiwi_rag.http.web.workspaces import Workspaces
from kiwi_rag.local_service import COMMAND, SESSION, SIGN_IN, STOP
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.services import Services
from tests.interfaces.conftest import PATIENCE, Kiwi
from tests.interfaces.test_mcp_http import INITIALIZE
from tests.interfaces.test_serve import at, serving

SCRIPT = "<script>alert(1)</script>"
IN_ITEM = f'{SCRIPT} <img src=x onerror=alert(2)> "quoted" & more'  # the gate refuses javascript: links in items
HOSTILE = f"{IN_ITEM} [go](javascript:alert(3))"
PRINCIPAL = "<b onclick=alert(4)>ada</b>"
FILE_NAME = 'x" onmouseover=alert(5) <img src=x onerror=alert(6)>.md'
ITEM = f"""---
title: 'Rolling back {IN_ITEM}'
description: 'To roll back a release: {IN_ITEM}'
version: "1.0.0"
category: acme
author: ada
tags: [release]
---

# Rolling back {IN_ITEM}

To roll back a release, run `{IN_ITEM}`.
"""
ACCEPT = {"Accept": "application/json, text/event-stream"}
MANY_BYTES = 10_000_000


class RouteCase(NamedTuple):
    """A path and method of the routing table."""

    method: str
    path: str


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user whose item, document, name and file names are made to be executed by a browser."""
    folder = tmp_path_factory.mktemp("attacks")
    folder.chmod(0o755)
    for name in ("home", "project"):
        (folder / name).mkdir()
    user = at(Kiwi(folder / "home", folder / "project"), tmp_path_factory.mktemp("run"), KIWI_PORT="0")
    user.run("init")
    user.run("keys", "new", "--principal", PRINCIPAL)
    user.write("knowledge/acme/rolling-back.md", ITEM)
    user.run("add", ".ai")
    (user.cwd / "docs").mkdir()
    for name in (FILE_NAME, "javascript:alert(7).md"):
        text = f"# Rolling back with {name} {HOSTILE}\n\nTo roll back a release: {HOSTILE}, by {len(name)} people\n"
        (user.cwd / "docs" / name).write_text(text)
    user.run("workspace", "index", ".")
    with serving(user):
        yield user


@pytest.fixture(scope="module")
def table(user: Kiwi) -> list[RouteCase]:
    """Every path and method that the service has."""
    context = ServerContext(Services.open(user.environment(), user.cwd))
    service = Service(Mock(), math.inf, api := Api(context), TokenFile(Path("none")))
    service.add(web.routes(context, Workspaces(context, Apps())), web.refuse)
    found: list[RouteCase] = []
    for route in service._app.routes:
        path = re.sub(r"{[^}]*}", "x", getattr(route, "path", ""))
        methods = getattr(route, "methods", None) or {"GET", "POST", "DELETE"}
        found += [RouteCase(method, path) for method in sorted(methods)]
    assert {re.sub(r"{[^}]*}", "x", path) for path, _, _ in api.operations} <= {case.path for case in found}
    assert len([case for case in found if case.method == "POST"]) > 10
    return found


@pytest.fixture(scope="module")
def reader_posts(user: Kiwi) -> set[str]:
    return set(Api(ServerContext(Services.open(user.environment(), user.cwd))).reader_posts)


PUBLIC = {"/health", "/static", LOGIN}
PRIVATE = {COMMAND, SESSION, SIGN_IN}


def records(user: Kiwi) -> list[dict[str, Any]]:
    """The audit records of what admins did."""
    return [row for row in user.json("audit", "show") if row["event"] == "admin"]


def test_without_a_role_every_route_is_refused(url: str, table: list[RouteCase]) -> None:
    with httpx.Client(base_url=url) as nobody:
        for headers in ({}, {"Authorization": "Bearer kiwi_guessed"}, {"Cookie": "kiwi=guessed"}):
            for method, path in table:
                if path not in PUBLIC | PRIVATE and method not in ("OPTIONS",):
                    answer = nobody.request(method, path, headers=headers)
                    assert answer.status_code in (401, 403), (method, path, headers)


def test_a_reader_changes_nothing_on_any_route(
    reader: httpx.Client, user: Kiwi, table: list[RouteCase], reader_posts: set[str]
) -> None:
    before = records(user)
    for method, path in table:
        if method in ("GET", "HEAD") or path in reader_posts:
            continue
        answer = reader.request(method, path, content=b"confirmed=yes")
        assert answer.status_code == 403, (method, path)
    for method in ("PUT", "PATCH", "DELETE"):
        assert reader.request(method, "/api/v1/workspace/reindex").status_code == 403
    assert records(user) == before


def test_a_rebound_name_reaches_no_route(admin: httpx.Client, table: list[RouteCase]) -> None:
    for method, path in table:
        headers = {"Host": "evil.example", "Origin": "http://evil.example"}
        assert admin.request(method, path, headers=headers).status_code == 421, (method, path)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_reaches_no_route_with_the_browsers_cookie(
    browser: httpx.Client, table: list[RouteCase], site: str, user: Kiwi
) -> None:
    """As a form, a fetch, an image or a frame; a page on another port of this machine is the same site."""
    before = records(user)
    for method, path in table:
        origin = {"Origin": "http://127.0.0.1:1"} if method == "POST" else {}
        modes = [("no-cors", "empty"), ("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty")]
        for mode, dest in modes[: 1 if method != "GET" else None]:
            sent = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest, **origin}
            assert browser.request(method, path, headers=sent).status_code == 403, (method, path, mode, dest)
    assert records(user) == before


def test_a_link_on_another_site_may_open_a_page(browser: httpx.Client) -> None:
    sent = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert browser.get("/search?q=x", headers=sent).status_code == 200
    assert browser.post("/first-steps/hide", headers=sent).status_code == 403


def called(client: httpx.Client, name: str, arguments: dict[str, Any], session: str = "") -> httpx.Response:
    """Call a tool over MCP, in a new session or in one that exists."""
    if not session:
        session = client.post("/mcp", json=INITIALIZE, headers=ACCEPT).headers["mcp-session-id"]
        begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        client.post("/mcp", json=begun, headers=ACCEPT | {"Mcp-Session-Id": session})
    sent = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return client.post("/mcp", json=sent, headers=ACCEPT | {"Mcp-Session-Id": session})


def test_what_an_agent_changes_leaves_a_record(admin: httpx.Client, user: Kiwi) -> None:
    before = len(records(user))
    assert 'isError":false' in called(admin, "reindex_documents", {}).text.replace(" ", "")
    called(admin, "update_files", {"nonsense": 1})
    called(admin, "workspace_search", {"query": "roll back"})
    done, failed = records(user)[before:]
    assert done["ref"] == "/mcp"
    assert done["details"] | {"tool": "reindex_documents", "caller": "a-admin", "outcome": "ok"} == done["details"]
    assert failed["details"] == {"tool": "update_files", "caller": "a-admin", "outcome": "usage"}


def test_a_reader_uses_no_session_of_an_admin(admin: httpx.Client, reader: httpx.Client, user: Kiwi) -> None:
    session = admin.post("/mcp", json=INITIALIZE, headers=ACCEPT).headers["mcp-session-id"]
    before = records(user)
    for own in (session, ""):
        answer = called(reader, "reindex_documents", {}, own)
        assert answer.status_code == 404 or "there is no tool" in answer.text
    assert records(user) == before


def test_a_field_names_neither_who_called_nor_the_outcome(browser: httpx.Client, url: str, user: Kiwi) -> None:
    fields = {"caller": "nobody", "outcome": "ok", "passphrase": "x", "passphrase_again": "x"}
    assert browser.post("/first-steps/key", data=fields).status_code == 400
    assert records(user)[-1]["details"] == {"caller": "a browser", "outcome": "usage"}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("search", {"query": "x", "collection": "kiwi_documents_other"}),
        ("search", {"query": "x", "source": "kiwi_documents_other"}),
        ("search", {"query": "x", "source": "../user"}),
        ("workspace/search", {"query": "x", "collection": "other"}),
        ("workspace/search", {"query": "x", "workspace": "other"}),
        ("workspace/search", {"query": "x", "root": "/"}),
        ("workspace/stats", {"workspace": "other"}),
    ],
    ids=str,
)
def test_no_caller_names_a_collection(reader: httpx.Client, path: str, sent: dict[str, str]) -> None:
    for answer in (reader.post(f"/api/v1/{path}", json=sent), reader.get(f"/api/v1/{path}", params=sent)):
        assert answer.status_code == 400
    for scope in ("kiwi_documents_other", "../user"):
        assert reader.get("/search", params={"q": "x", "scope": scope}).status_code == 200
    assert reader.get("/item", params={"ref": "knowledge:acme/rolling-back@1.0.0@other"}).status_code in (400, 404)


class Executable(HTMLParser):
    """What a browser would execute or load on a page, other than the page's own files and forms."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        own_file = (given.get("src") or given.get("href") or "").startswith("/static/")
        if tag in ("script", "img", "link", "style", "iframe", "object", "embed", "base", "b") and not own_file:
            self.found.append(f"<{tag}>")
        addresses = [given[name] or "" for name in ("href", "src", "action", "formaction") if name in given]
        self.found += [one for one in addresses if not re.match(r"/(?!/)|#|vscode://file/", one)]
        self.found += [name for name in given if name.startswith("on") or name in ("style", "srcdoc")]


@pytest.mark.parametrize(
    "address",
    [
        f"/search?q=roll+back&explain=on&signer={quote(SCRIPT)}",
        "/search?q=roll+back&explain=on",
        f"/search?q={quote(HOSTILE)}",
        f"/search?q=x&scope={quote(SCRIPT)}&path={quote(HOSTILE)}&k={quote(SCRIPT)}&alpha={quote(SCRIPT)}",
        "/item?ref=knowledge:acme/rolling-back",
        f"/item?ref={quote(SCRIPT)}",
        f"/?note={quote(SCRIPT)}",
        f"/{quote(SCRIPT)}",
        "/",
        "/settings",
    ],
)
def test_text_of_items_files_and_addresses_is_never_executable(browser: httpx.Client, address: str) -> None:
    page = browser.get(address)
    assert page.status_code in (200, 400, 404)
    if page.headers["content-type"].startswith("text/html"):
        assert not Executable(page.text).found
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"


def test_what_is_hostile_is_shown_as_it_is(browser: httpx.Client) -> None:
    page = browser.get("/search?q=roll+back+a+release&explain=on").text
    assert "acme/rolling-back" in page
    assert "&lt;b onclick=alert(4)&gt;ada&lt;/b&gt;" in page
    assert "onmouseover=alert(5) &lt;img" in page and "javascript:alert(7).md" in page
    item = browser.get("/item?ref=knowledge:acme/rolling-back").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in item


def test_a_crafted_note_puts_no_words_on_a_page(browser: httpx.Client) -> None:
    plain = browser.get("/settings").text
    for note in ("Your+disk+is+full", "%3Cb%3E", "0" * 12, "x" * 8000):
        assert browser.get(f"/settings?note={note}").text == plain


@pytest.mark.parametrize(
    "path",
    ["../../../etc/passwd", "/etc/passwd", "docs/../../../../etc/passwd", "~/.ai/tokens.json", "docs/\x00", "file:///"],
)
def test_no_path_leaves_the_workspace(admin: httpx.Client, user: Kiwi, path: str) -> None:
    answer = admin.post("/api/v1/workspace/update", json={"paths": [path]})
    assert answer.status_code in (200, 400, 404, 500)
    assert "root:" not in answer.text
    assert user.json("workspace", "stats")["documents"] == 2
    assert admin.get(f"/static/{quote(path)}").status_code == 404


def test_a_static_path_stays_below_its_folder(url: str) -> None:
    for path in (
        "../page.py",
        "..%2fpage.py",
        "%2e%2e/page.py",
        "....//page.py",
        "/etc/passwd",
        "vendor/..%2f..%2fpage.py",
    ):
        assert raw(url, f"GET /static/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").split()[1] in (
            "404", "405",
        ), path  # fmt: skip


NO_FIELDS = {"/registry/index", "/registry/start", "/stores/start", "/stores/test"}
"""Forms that have none, and would start a server or the model."""


def test_no_form_takes_hostile_fields(browser: httpx.Client, url: str, user: Kiwi, table: list[RouteCase]) -> None:
    names = ("folder", "root", "path", "ref", "who", "principal", "job", "name", "reason", "method", "recall", "key")
    forms = [case.path for case in table if case.method == "POST" and not case.path.startswith(("/api", "/mcp"))]
    assert len(forms) >= 4
    hostile = ("/etc", "../../../../etc", f"{user.cwd}/../..", "\x00", SCRIPT, "x" * 5000, "-1", "*", "%00")
    for path in sorted({*forms} - NO_FIELDS):
        for value in hostile:
            page = browser.post(path, data=dict.fromkeys(names, value))
            assert page.status_code != 500, (path, value)
            assert not Executable(page.text).found, (path, value)
    assert not (user.home / ".ai/workspaces.json").exists()
    assert httpx.get(f"{url}/health").status_code == 200


def raw(url: str, sent: str) -> str:
    with connection(url) as line:
        line.sendall(sent.encode())
        return line.recv(200).decode(errors="replace")


def connection(url: str) -> socket.socket:
    return socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=PATIENCE)


def test_tokens_and_what_is_typed_are_in_no_log_and_no_referer(user: Kiwi, url: str, browser: httpx.Client) -> None:
    token = user.run("serve", "token", "new", "logged", "--role", "admin").stdout.strip()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        for path in ("/", "/item?ref=none", "/api/v1/status", "/nowhere"):
            answer = client.get(path, headers={"Referer": f"{url}/?token={token}"})
            assert answer.headers["referrer-policy"] in ("no-referrer", "same-origin")
        client.post("/api/v1/publish", json={"refs": ["x"], "nonsense": token})
        called(client, "update_files", {"paths": [], "nonsense": token})
    user.run("serve", "token", "remove", "logged")
    assert not [path for path in user.home.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]


def test_bodies_of_10_mb_end_every_route_in_order(admin: httpx.Client, url: str, table: list[RouteCase]) -> None:
    for path in sorted({case.path for case in table} - {STOP}):
        assert 300 <= status_of_long_body(url, path, admin.headers["Authorization"]) < 500, path
    assert httpx.get(f"{url}/health").status_code == 200


def status_of_long_body(url: str, path: str, authorization: str) -> int:
    """Send 10 MB by POST, no more than until the answer comes, and return its status."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\nConnection: close\r\n"
    kind = "Content-Type: application/x-www-form-urlencoded\r\n" + "".join(f"{n}: {v}\r\n" for n, v in ACCEPT.items())
    with connection(url) as line:
        line.sendall(f"{head}{kind}Content-Length: {MANY_BYTES}\r\n\r\n".encode())
        left = MANY_BYTES
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while left and not select.select([line], [], [], 0)[0]:
                left -= line.send(b"x" * min(left, 1 << 18))
        return int(line.recv(200).split()[1])


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW_BODY = (
    b"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nAuthorization: Bearer none\r\n\r\n{"
)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""), (b"", b"GET / HT"), (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "), (b"", SLOW_BODY),
        (HEALTH, b""), (HEALTH, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "),
    ],
)  # fmt: skip
def test_510_clients_that_send_slowly_or_not_at_all_keep_nobody_waiting(
    user: Kiwi, reader: httpx.Client, url: str, first: bytes, then: bytes
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(510):
            line = stack.enter_context(connection(url))
            if first:
                line.sendall(first)
                line.recv(1000)
            line.sendall(then)
        assert httpx.get(f"{url}/health").status_code == 200
        # With a connection of its own: an idle one may have been closed.
        assert httpx.get(f"{url}/api/v1/status", headers=dict(reader.headers), timeout=PATIENCE).status_code == 200
        assert user.json("status")["service"]["state"] == "running"


def test_200_connections_at_once_are_answered(reader: httpx.Client, url: str) -> None:
    head = "GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n"
    request = f"{head}Authorization: {reader.headers['Authorization']}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(connection(url)) for _ in range(200)]
        for line in lines:
            line.sendall(request.encode())
        assert all(line.recv(64).startswith(b"HTTP/1.1 200") for line in lines)


def test_the_table_of_records_is_no_json_of_secrets(user: Kiwi) -> None:
    shown = json.dumps(records(user))
    assert "passphrase" not in shown and "Bearer" not in shown
